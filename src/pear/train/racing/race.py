"""``Race``: trains a model in several ways, and takes the one that decides best on samples that were held out.

The contenders are the start, which is the best model by the squared error; a correction, which is trained on the loss
from there; and a fresh model, which is trained on the loss alone. The two trainings run for 8 epochs, then 16, 32 and
so on, as long as that helps, and after each stage the average of their weights is judged. In the end the correction is
also tried at a half and a quarter of its way from the start. All are judged on the same held-out samples, as pairs with
the start: the winner has the lowest difference plus one and a half standard errors (``CAUTION``). They are the price of
looking at many; a contender that is not clearly better than the start does not replace it. Where each decision is a
search among integers, a ``RelaxationScreen`` chooses what is judged.

The samples are held out by cross-validation, and the winner is trained again on all of them; or the user gives samples
to validate on, and the winner is taken as it is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor, nn, optim

from pear.errors import TrainingError
from pear.train.fit_job import FitJob
from pear.train.history import Check
from pear.train.model_weights import Weights, mix_model_weights
from pear.train.optimizer import make_optimizer
from pear.train.output_layer import standardise_output_layer
from pear.train.racing.contender import Contender
from pear.train.racing.held_out_judge import HeldOutLosses
from pear.train.racing.race_folds import RaceFold
from pear.train.racing.race_progress import RaceEndedError, RaceProgress
from pear.train.racing.race_row import RaceRow
from pear.train.racing.race_start import NetworkRaceStart, RaceStart
from pear.train.racing.relaxation_screen import FINALISTS, RelaxationScreen
from pear.train.racing.trajectory import Trajectory
from pear.train.random_states import RandomStates
from pear.train.safetensors_file import MALFORMED
from pear.train.samples.sample_source import SampleSource
from pear.train.training_loss import load_loss_warm_starts, save_loss_schedule, save_loss_warm_starts
from pear.train.validation_time import seconds_left_to_validate, validate_in_time

FIRST_STAGE = 8
"""The number of epochs of the first stage; every further one has twice as many in total."""

STAGE = "race"
"""The name of a race in a checkpoint."""

SHARES = (0.5, 0.25)
"""Shares of the way from the start to the correction that are tried beside the whole."""


class Race:
    """A race between ways of training.

    Args:
        job: the model, the settings and the callbacks.
        loss: the loss of the contenders; None where the start alone is wanted.
        folds: the samples to train on and to judge by.
        whole: all samples, on which the winner is trained again; None where the only fold's weights are taken.
        start: how the first weights are found.
        fresh: whether a fresh model may compete.

    Attributes:
        progress: the clock, and the reports to callbacks.
        rows: the results of the start and of all contenders.
        constant: the metric of a constant forecast, the mean of the training costs; NaN before it is known.
        checks: one for each stage of the contenders.
        epochs: the number of epochs of the last training.
    """

    def __init__(
        self,
        job: FitJob,
        loss: Callable[..., Tensor] | None,
        folds: Sequence[RaceFold],
        whole: SampleSource | None,
        start: RaceStart,
        fresh: bool,
    ) -> None:
        self.job, self.loss, self.folds, self.whole, self.start, self.fresh = job, loss, folds, whole, start, fresh
        self.progress = RaceProgress(job)
        self.progress.judgement = sum(fold.judge.seconds for fold in folds)
        self.rows: list[RaceRow] = []
        self.checks: list[Check] = []
        self.constant, self.epochs = math.nan, 0
        self._start_seconds = 0.0  # of the start's training on all samples
        self._start_losses: HeldOutLosses | None = None  # of the best stage of a network's start
        self._first_fold: Weights = {}  # the winner's weights there
        self._schedule = save_loss_schedule(loss)  # every training begins with it
        self._random = RandomStates(job.model)
        self._screen: RelaxationScreen | None = None
        self._saved: dict[str, Any] = {}  # the states of contenders in a checkpoint
        self._content: dict[str, Any] = {}  # of the last checkpoint

    def run(self) -> Weights:
        """Run the race, or go on with one from a checkpoint; returns the winner's weights.

        Ctrl-C, a callback or the clock end it early. The winner so far is then trained on all samples, where time is
        left for that; else it has the weights of the first fold, which were trained on all but the last samples.
        """
        self._resume()
        try:
            if not self.rows:
                self._run_start()
            if self.loss is not None:
                self._run_contenders_in_time(self.loss)
            if self.whole is not None:
                return self._train_again(self.whole)
        except KeyboardInterrupt:
            self.progress.stopped = "interrupted"
        except RaceEndedError as ended:
            self.progress.stopped = ended.reason
        return self._first_fold if self.rows else copy.deepcopy(self.job.model.state_dict())

    @property
    def winner(self) -> RaceRow:
        """The row with the lowest bound; the start has a bound of 0."""
        return min((row for row in self.rows if not row.screened), key=lambda row: row.bound)

    @property
    def judged(self) -> int:
        """The number of held-out samples."""
        return sum(len(fold.judge.held_out) for fold in self.folds)

    def _run_start(self) -> None:
        """Find the first weights in every fold and judge them; judge a constant forecast too if there is time."""
        if isinstance(self.start, NetworkRaceStart):
            self.starts = self._run_network_start(self.start)
        else:
            self.starts = [self.start.weights(fold.train) for fold in self.folds]
        self.starting = self._start_losses or self._judge(self.starts, always=True)
        self._record(RaceRow("start", 0, 1.0, self.starting.metric, 0.0, 0.0, (0.0, 0.0)), self.starts)
        if not self.progress.has_time(self.progress.judgement):
            return
        found = self._judge_in_time("the constant forecast", lambda: [fold.of_constant() for fold in self.folds])
        self.constant = math.nan if found is None else found.metric

    def _run_network_start(self, start: NetworkRaceStart) -> list[Weights]:
        """Train networks on the squared error for the number of epochs with the lowest metric; returns the weights."""
        network = Contender("squared error", [start.trajectory(fold.train) for fold in self.folds])
        try:
            self._run_stages([network])
        except RaceEndedError as ended:
            self.progress.stopped = ended.reason
            if ended.reason != "time_cap":
                raise
        if not network.best_weights:  # an epoch at least is trained, however short the time
            for one in network.trajectories:
                one.train_at_least(1)
            network.best_epochs, network.best_weights = network.epochs, [one.last for one in network.trajectories]
        start.note_epochs(network.best_epochs)
        self._start_seconds = self._seconds_on_all(network.trajectories[0], network.best_epochs)
        return network.best_weights

    def _run_contenders_in_time(self, loss: Callable[..., Tensor]) -> None:
        """Run the contenders; where the time is up, those that were judged compete."""
        for part in (self._run_contenders, self._judge_finalists):
            try:
                part(loss)
            except RaceEndedError as ended:
                self.progress.stopped = ended.reason
                if ended.reason != "time_cap":
                    raise

    def _judge_finalists(self, loss: Callable[..., Tensor]) -> None:
        """Judge the contenders that the screen has let through with integers, as pairs with the start."""
        for row, weights in self._screen.finalists() if self._screen else ():
            self._compare(row.contender, row.epochs, row.share, weights, final=True)

    def _run_contenders(self, loss: Callable[..., Tensor]) -> None:
        """Train correction and fresh model stage by stage, then try parts of the correction."""
        self.progress.part = "loss"
        self._screen = RelaxationScreen.of(loss, [fold.judge for fold in self.folds], self.starts, self.starting)
        if self._screen is not None and "screen" in self._saved:
            self._screen.restore(self._saved.pop("screen"))
        correction = self._contender("correction", loss, self.starts)
        field = [correction]
        if self.fresh:
            looks = [fold.train.finite().look() for fold in self.folds]
            field.append(
                self._contender("fresh model", loss, [standardise_output_layer(self.job.model, one) for one in looks])
            )
        self._run_stages(field)
        self.progress.stopped = "patience" if all(one.is_out for one in field) else "max_epochs"
        for share in SHARES:
            mixed = [mix_model_weights(*pair, share) for pair in zip(self.starts, correction.best_weights, strict=True)]
            self.progress.seconds_left(self._reserve(correction.trajectories[0], correction.best_epochs))
            self._compare(correction.name, correction.best_epochs, share, mixed)

    def _contender(self, name: str, loss: Callable[..., Tensor], starts: list[Weights]) -> Contender:
        """Begin the training of a contender in every fold."""
        pairs = zip(self.folds, starts, strict=True)
        return Contender(name, [self._trajectory(loss, fold.train, one) for fold, one in pairs])

    def _trajectory(self, loss: Callable[..., Tensor], train: SampleSource, start: Weights) -> Trajectory:
        """Prepare a training on the loss from the weights ``start``; no epoch is trained yet."""
        look, config = train.finite().look(), self.job.config

        def optimizer(model: nn.Module) -> optim.Optimizer:
            return make_optimizer(model, look.features, look.costs, config, keep=True, typical=True)

        return Trajectory(self.job, loss, train, start, optimizer, self._schedule)

    def _run_stages(self, field: list[Contender]) -> None:
        """Train contenders stage by stage, each as long as that helps."""
        for one in field:
            if one.name in self._saved:
                one.restore(self._saved.pop(one.name))
        for epochs in race_stages(self.job.config.max_epochs):
            for one in field:
                if one.is_out or one.epochs >= epochs:
                    continue
                self._train(one.trajectories, epochs)
                if one.name == "squared error":
                    losses = self._judge(one.weights, always=not one.best_weights)
                    value = losses.metric
                else:
                    row = self._compare(one.name, epochs, 1.0, one.weights)
                    value, loss = row.bound, sum(each.loss_value for each in one.trajectories) / len(self.folds)
                    self.checks.append(Check(epochs, self.progress.seconds(), loss, row.metric))
                one.note_stage(value, self.job.config.min_improvement)
                if one.name == "squared error" and not one.waited:
                    self._start_losses = losses
                self._save(field)

    def _train(self, trajectories: list[Trajectory], epochs: int) -> None:
        """Continue the training in every fold until it has done this number of epochs."""
        for one in trajectories:
            one.train_to(epochs, self.progress.seconds_left(self._reserve(one, epochs)), self.progress.after_epoch)
            if not one.finished:
                raise RaceEndedError("time_cap")

    def _reserve(self, trajectory: Trajectory, epochs: int) -> float:
        """The seconds that judging and training again on all samples will take, for this many epochs."""
        finals = 1 if self._screen is None else FINALISTS
        return finals * self.progress.judgement + self._start_seconds + self._seconds_on_all(trajectory, epochs)

    def _seconds_on_all(self, trajectory: Trajectory, epochs: int) -> float:
        """The seconds that this many epochs on all samples will take; 0 where the winner is not trained again."""
        if self.whole is None:
            return 0.0
        return trajectory.seconds_per_epoch * epochs * len(self.whole) / max(len(trajectory.run.train.finite()), 1)

    def _judge(self, weights: Sequence[Weights], always: bool = False, screened: bool = False) -> HeldOutLosses:
        """Judge the weights of all folds on their held-out samples.

        Args:
            weights: the weights in each fold.
            always: whether to judge them whatever the time.
            screened: whether to judge them by the relaxation.

        Raises:
            RaceEndedError: the time is up.
        """
        if screened and self._screen is not None:
            return self._screen(list(weights))
        pairs = list(zip(self.folds, weights, strict=True))
        found = self._judge_in_time(
            "the judging of a contender", lambda: [fold.judge(one) for fold, one in pairs], always
        )
        if found is None:
            raise RaceEndedError("time_cap")
        self.progress.note_metric(found.metric)
        return found

    def _judge_in_time(
        self, place: str, judge: Callable[[], list[HeldOutLosses]], always: bool = False
    ) -> HeldOutLosses | None:
        """Judge and join the losses of all folds; None where time runs out, which ``always`` prevents."""

        def judged() -> HeldOutLosses | None:
            left = None if always else seconds_left_to_validate(self.job.config.time_cap, self.progress.seconds())
            return validate_in_time(left, lambda: HeldOutLosses.join(judge()))

        with self.progress.judged():
            return self.job.ranks.from_rank_0(place, judged)

    def _compare(self, name: str, epochs: int, share: float, weights: list[Weights], final: bool = False) -> RaceRow:
        """Judge weights as pairs with the start; by the screen, where there is one and the judgement is not final."""
        screen = None if final else self._screen
        losses = self._judge(weights, screened=screen is not None)
        found = losses.less(self.starting if screen is None else screen.starting)
        numbers = losses.metric, found.mean, found.standard_error, found.interval
        row = self._record(RaceRow(name, epochs, share, *numbers, screened=screen is not None), weights)
        if screen is not None:
            screen.note(row, weights)
        return row

    def _record(self, row: RaceRow, weights: list[Weights]) -> RaceRow:
        """Add a row. If it is the best so far, keep the weights of the first fold."""
        self.rows.append(row)
        if not row.screened and row == self.winner:
            self._first_fold, self.epochs = weights[0], row.epochs
        return row

    def _train_again(self, whole: SampleSource) -> Weights:
        """Train the winner on all samples."""
        winner, self.progress.part = self.winner, "all"
        if winner.contender == "fresh model":
            start = standardise_output_layer(self.job.model, whole.finite().look())
        else:
            start = self.start.weights(whole)
        if winner.contender == "start" or self.loss is None:
            return start
        trajectory = self._trajectory(self.loss, whole, start)
        trajectory.train_to(winner.epochs, self.progress.seconds_left(), self.progress.after_epoch)
        if not trajectory.finished:
            raise RaceEndedError("time_cap")
        return mix_model_weights(start, trajectory.average, winner.share)

    def _save(self, field: list[Contender]) -> None:
        """Write a checkpoint of the race, with these contenders."""
        file = self.job.file
        if file.path is None:
            return
        content: dict[str, Any] = {
            "seconds": self.progress.seconds(),
            "judging": self.progress.judging,
            "contenders": {one.name: one.state() for one in field},
            "screen": None if self._screen is None else self._screen.state(),
            "random": self._random.drawn(),
            "samples": save_loss_warm_starts(self.loss),
        }
        if self.rows:
            content |= {
                "rows": [asdict(row) for row in self.rows],
                "checks": [asdict(check) for check in self.checks],
                "constant": self.constant,
                "starts": self.starts,
                "starting": asdict(self.starting),
                "epochs": self.start.epochs if isinstance(self.start, NetworkRaceStart) else 0,
                "first fold": self._first_fold,
                "sentence": self.start.sentence,
            }
        self._content = content
        file.save(STAGE, content)

    def save_end(self, weights: Weights, history: Mapping[str, Any]) -> None:
        """Add the end of the race to its checkpoint: the model's weights, and the history as a dict."""
        if self.job.file.path is not None and self._content:
            largest = self.job.config.max_epochs
            end = {"weights": weights, "history": history, "max_epochs": largest}
            self.job.file.save(STAGE, {**self._content, "end": end})

    def _resume(self) -> None:
        """Go on from the checkpoint, where there is one.

        Raises:
            TrainingError: the file does not hold a race of this model.
        """
        said = self.job.ranks.content_of_rank_0("the race", lambda: self.job.file.content(STAGE))
        if not said:
            return
        try:
            self._restore(said)
        except MALFORMED as error:
            raise TrainingError(
                f"the checkpoint {self.job.file.path} does not belong to this training ({error!r}); nothing has "
                "changed: delete it, or give another path"
            ) from error

    def _restore(self, said: Mapping[str, Any]) -> None:
        """Take over what ``_save`` has saved."""
        self._saved, self._content = dict(said["contenders"]), dict(said)
        if said.get("screen") is not None:
            self._saved["screen"] = said["screen"]
        load_loss_warm_starts(self.loss, said["samples"])
        if "rows" in said:
            self.rows = [RaceRow.from_dict(row) for row in said["rows"]]
            self.checks = [Check.from_dict(check) for check in said["checks"]]
            self.constant, self.starts = float(said["constant"]), list(said["starts"])
            self.starting, self._first_fold = HeldOutLosses(**said["starting"]), said["first fold"]
            self.epochs, self.start.sentence = self.winner.epochs, str(said["sentence"])
            if isinstance(self.start, NetworkRaceStart):
                self.start.note_epochs(int(said["epochs"]))
        self.progress.resume(float(said["seconds"]), float(said["judging"]))
        self._random.restore(said["random"])


def race_stages(max_epochs: int) -> Iterator[int]:
    """The numbers of epochs after which contenders are judged.

    Example:
        >>> list(race_stages(50))
        [8, 16, 32, 50]
    """
    epochs = FIRST_STAGE
    while epochs < max_epochs:
        yield epochs
        epochs *= 2
    yield max_epochs
