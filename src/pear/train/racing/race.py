"""``Race``: trains a model in several ways, and chooses the one that decides best on held-out samples.

There are three kinds of contenders. The start is a fit to the squared error. A correction is a training on the loss
that begins with the weights of the start; if a base is corrected, there may be two (``RaceSamples``). The fresh model
is a training on the loss that begins with untrained weights. The trainings proceed in stages: 8 epochs, then 16, 32 and
so on in total, until further epochs do not help. After each stage the average of the weights is judged, which means
that the regret of the decisions on the held-out samples is computed. Finally, the weights at a half and at a quarter of
the way from the start to each correction are judged, too.

The winner is the contender with the lowest bound: the difference of its metric from that of the start, plus one and a
half standard errors of this difference (``CAUTION``). The start thus wins unless another contender is clearly better.
If each decision is a search among integers, a ``RelaxationScreen`` chooses the contenders that are judged.

If the samples are held out by cross-validation, the contenders are trained in each fold, and the winner is trained
again on all samples. If the user gives validation samples, there is one fold, and the winner keeps its weights.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from torch import Tensor

from pear.errors import TrainingError
from pear.train.fit_job import FitJob
from pear.train.history import Check
from pear.train.model_weights import Weights, mix_model_weights
from pear.train.optimizer import make_optimizer
from pear.train.output_layer import standardise_output_layer
from pear.train.racing.contender import Contender, contender_stages
from pear.train.racing.held_out_judge import HeldOutLosses
from pear.train.racing.race_checkpoint import STAGE, race_content, restore_race
from pear.train.racing.race_folds import RaceFold
from pear.train.racing.race_progress import RaceEndedError, RaceProgress
from pear.train.racing.race_row import RaceRow
from pear.train.racing.race_samples import RaceSamples
from pear.train.racing.race_start import NetworkRaceStart, RaceStart
from pear.train.racing.relaxation_screen import FINALISTS, RelaxationScreen
from pear.train.racing.trajectory import Trajectory
from pear.train.random_states import RandomStates
from pear.train.safetensors_file import MALFORMED
from pear.train.samples.sample_source import SampleSource
from pear.train.training_loss import save_loss_schedule
from pear.train.validation_time import seconds_left_to_validate, validate_in_time

SHARES = (0.5, 0.25)
"""The weights at these shares of the way from the start to the correction are also judged."""


class Race:
    """A race between several ways to train a model.

    Args:
        job: the model, the settings and the callbacks.
        loss: the loss on which the contenders other than the start are trained; None if there are no others.
        folds: the folds, with the samples to train on and the samples to judge by.
        whole: all samples, on which the winner is trained again; None if the winner keeps the weights of the only fold.
        start: the way to find the weights of the start, such as ridge regression.
        fresh: whether a training on the loss that begins with untrained weights competes.
        nested: as in ``CorrectionOffsets.in_fold``; noted for the checkpoint and the history.

    Attributes:
        progress: the clock of the race, and its reports to callbacks.
        rows: the results of all contenders, beginning with the start.
        constant: the metric if every forecast is the mean of the training costs; NaN until it is known.
        checks: a ``Check`` after each stage of each contender except the start.
        epochs: the number of epochs that the winner so far was trained on the loss; 0 for the start.
        winner_losses: the losses of the winner so far; None in a race that was resumed, until another contender wins.
        first_schedule: the schedule of the loss with which every training begins.
    """

    def __init__(
        self,
        job: FitJob,
        loss: Callable[..., Tensor] | None,
        folds: Sequence[RaceFold],
        whole: RaceSamples | None,
        start: RaceStart,
        fresh: bool,
        nested: bool = True,
    ) -> None:
        self.nested = nested
        self.job, self.loss, self.folds, self.whole, self.start, self.fresh = job, loss, folds, whole, start, fresh
        self.progress = RaceProgress(job)
        self.progress.judgement_seconds = sum(fold.judge.seconds for fold in folds)
        self.rows: list[RaceRow] = []
        self.checks: list[Check] = []
        self.constant, self.epochs = math.nan, 0
        self.winner_losses: HeldOutLosses | None = None
        self._start_seconds = 0.0  # expected for the training of the start on all samples
        self._start_losses: HeldOutLosses | None = None  # of the start, if it is a trained network
        self._first_fold: Weights = {}  # of the winner so far
        self.first_schedule = save_loss_schedule(loss)
        self._random = RandomStates(job.model)
        self._screen: RelaxationScreen | None = None
        self._saved: dict[str, Any] = {}  # states from a checkpoint, of contenders that do not exist yet
        self._content: dict[str, Any] = {}  # of the last checkpoint

    def run(self) -> Weights:
        """Run the race, or resume it from a checkpoint, and return the weights of the winner.

        Ctrl-C or a callback that returns True ends the race at once. The weights are then those of the winner so far in
        the first fold; they are those of the untouched model if the start is not judged yet. If the time cap is
        reached, the winner so far is trained on all samples if there is time for it and ``whole`` is given; otherwise
        its weights in the first fold are returned. In a cross-validation the first fold holds out the last samples.
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
        """The row with the lowest bound (``RaceRow.bound``); the bound of the start is 0."""
        return min((row for row in self.rows if not row.screened), key=lambda row: row.bound)

    @property
    def held_out_count(self) -> int:
        """The number of held-out samples in all folds together."""
        return sum(len(fold.judge.held_out) for fold in self.folds)

    def _run_start(self) -> None:
        """Find and judge the weights of the start in every fold. If time is left, judge a constant forecast, too."""
        if isinstance(self.start, NetworkRaceStart):
            self.starts = self._run_network_start(self.start)
        else:
            self.starts = [self.start.weights(fold.train) for fold in self.folds]
        self.starting = self._start_losses or self._judge(self.starts, always=True)
        self._record(RaceRow("start", 0, 1.0, self.starting.metric, 0.0, 0.0, (0.0, 0.0)), self.starts, self.starting)
        if not self.progress.has_time(self.progress.judgement_seconds):
            return
        found = self._judge_in_time("the constant forecast", lambda: [fold.of_constant() for fold in self.folds])
        self.constant = math.nan if found is None else found.metric

    def _run_network_start(self, start: NetworkRaceStart) -> list[Weights]:
        """Train a network in every fold on the squared error, and find the number of epochs with the lowest metric.

        Returns:
            The weights in each fold after this number of epochs.
        """
        network = Contender("squared error", [start.trajectory(fold.train) for fold in self.folds])
        try:
            self._run_stages([network])
        except RaceEndedError as ended:
            self.progress.stopped = ended.reason
            if ended.reason != "time_cap":
                raise
        if not network.best_weights:  # at least one epoch is trained, even if the time cap is reached
            for one in network.trajectories:
                one.train_at_least(1)
            network.best_epochs, network.best_weights = network.epochs, [one.last for one in network.trajectories]
        start.note_epochs(network.best_epochs)
        self._start_seconds = self._seconds_on_all(network.trajectories[0], network.best_epochs)
        return network.best_weights

    def _run_contenders_in_time(self, loss: Callable[..., Tensor]) -> None:
        """Run the contenders. If the time cap is reached, only those that were judged before compete."""
        for part in (self._run_contenders, self._judge_finalists):
            try:
                part(loss)
            except RaceEndedError as ended:
                self.progress.stopped = ended.reason
                if ended.reason != "time_cap":
                    raise

    def _judge_finalists(self, loss: Callable[..., Tensor]) -> None:
        """Judge the contenders that the screen has chosen by decisions with integers. Without a screen, do nothing."""
        for row, weights in self._screen.finalists() if self._screen else ():
            self._compare(row.contender, row.epochs, row.share, weights, final=True)

    def _run_contenders(self, loss: Callable[..., Tensor]) -> None:
        """Run and judge the trainings on the loss in stages. Then judge weights between start and correction."""
        self.progress.part = "loss"
        judges, unit = [fold.judge for fold in self.folds], self.starting.unit
        self._screen = RelaxationScreen.of(loss, judges, self.starts, unit, self.job.unsolved)
        if self._screen is not None and "screen" in self._saved:
            self._screen.restore(self._saved.pop("screen"))
        corrections = [self._contender(name, loss, self.starts) for name in self.folds[0].corrections]
        field = corrections.copy()
        if self.fresh:
            looks = [fold.train.finite().look() for fold in self.folds]
            field.append(
                self._contender("fresh model", loss, [standardise_output_layer(self.job.model, one) for one in looks])
            )
        self._run_stages(field)
        self.progress.stopped = "patience" if all(one.is_out for one in field) else "max_epochs"
        for share, one in product(SHARES, corrections):
            mixed = [mix_model_weights(*pair, share) for pair in zip(self.starts, one.best_weights, strict=True)]
            self.progress.seconds_left(self._reserve(one.trajectories[0], one.best_epochs))
            self._compare(one.name, one.best_epochs, share, mixed)

    def _contender(self, name: str, loss: Callable[..., Tensor], starts: list[Weights]) -> Contender:
        """Return a new contender. Its training in each fold begins with the weights in ``starts`` for that fold."""
        pairs = zip(self.folds, starts, strict=True)
        return Contender(name, [self._trajectory(loss, fold.of_contender(name), one) for fold, one in pairs])

    def _trajectory(self, loss: Callable[..., Tensor], train: SampleSource, start: Weights) -> Trajectory:
        """Return a new training on the loss that begins with the weights ``start``."""
        look = train.finite().look()
        optimizer = partial(
            make_optimizer, features=look.features, costs=look.costs, config=self.job.config, keep=True, typical=True
        )
        return Trajectory(self.job, loss, train, start, optimizer, self.first_schedule)

    def _run_stages(self, field: list[Contender]) -> None:
        """Train and judge contenders stage by stage, each of them until further epochs do not help."""
        for one in field:
            if one.name in self._saved:
                one.restore(self._saved.pop(one.name))
        for epochs in contender_stages(self.job.config.max_epochs):
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
        """Continue the training in every fold until it has done this number of epochs in total.

        Raises:
            RaceEndedError: the time cap is reached, or a callback ends the race.
        """
        for one in trajectories:
            one.train_to(epochs, self.progress.seconds_left(self._reserve(one, epochs)), self.progress.after_epoch)
            if not one.finished:
                raise RaceEndedError("time_cap")

    def _reserve(self, trajectory: Trajectory, epochs: int) -> float:
        """Return the seconds that a training must leave free for judging and for the trainings on all samples."""
        finals = 1 if self._screen is None else FINALISTS
        return finals * self.progress.judgement_seconds + self._start_seconds + self._seconds_on_all(trajectory, epochs)

    def _seconds_on_all(self, trajectory: Trajectory, epochs: int) -> float:
        """Return the likely seconds to train the winner for ``epochs`` on all samples; 0 if it is not trained again."""
        if self.whole is None:
            return 0.0
        growth = len(self.whole.train) / max(len(trajectory.run.train.finite()), 1)
        return trajectory.seconds_per_epoch * epochs * growth

    def _judge(self, weights: Sequence[Weights], always: bool = False) -> HeldOutLosses:
        """Judge the weights of each fold on its held-out samples, and return the losses of all folds as one object.

        Raises:
            RaceEndedError: the time cap is reached.
        """
        pairs = list(zip(self.folds, weights, strict=True))
        found = self._judge_in_time("the judging of a contender", lambda: [fold.judge(w) for fold, w in pairs], always)
        if found is None:
            raise RaceEndedError("time_cap")
        self.progress.note_metric(found.metric)
        return found

    def _judge_in_time(
        self, place: str, judge: Callable[[], list[HeldOutLosses]], always: bool = False
    ) -> HeldOutLosses | None:
        """Return the losses that ``judge`` finds in all folds, as one object; None if the time cap is reached.

        Args:
            place: the place in the training, in words, which must be the same on all ranks.
            judge: a function that returns the losses of each fold. It is called on rank 0.
            always: whether the time cap is ignored.
        """

        def judge_all() -> HeldOutLosses | None:
            """Judge all folds, if time is left."""
            left = None if always else seconds_left_to_validate(self.job.config.time_cap, self.progress.seconds())
            return validate_in_time(left, lambda: HeldOutLosses.join(judge()))

        with self.progress.time_judgement():
            return self.job.ranks.from_rank_0(place, judge_all)

    def _compare(self, name: str, epochs: int, share: float, weights: list[Weights], final: bool = False) -> RaceRow:
        """Judge a contender's weights in all folds, and record and return the difference from the start as a row.

        Args:
            name: the name of the contender.
            epochs: the number of epochs of the contender's training.
            share: the share of the way from the start to the trained weights.
            weights: the weights in each fold.
            final: whether the weights are judged by decisions with integers, even if there is a screen.
        """
        screen = None if final else self._screen
        losses, starting = (
            (self._judge(weights), self.starting) if screen is None else (screen(weights), screen.starting)
        )
        found = losses.difference_from(starting)
        numbers = losses.metric, found.mean, found.standard_error, found.interval
        row = self._record(RaceRow(name, epochs, share, *numbers, screened=screen is not None), weights, losses)
        if screen is not None:
            screen.note(row, weights)
        return row

    def _record(self, row: RaceRow, weights: list[Weights], losses: HeldOutLosses) -> RaceRow:
        """Add the row of a contender, and return it.

        If it is the winner so far, keep its losses and its weights in the first fold.
        """
        self.rows.append(row)
        if not row.screened and row == self.winner:
            self._first_fold, self.epochs, self.winner_losses = weights[0], row.epochs, losses
        return row

    def _train_again(self, whole: RaceSamples) -> Weights:
        """Train the winner on all samples, and return its weights."""
        winner, self.progress.part = self.winner, "all"
        if winner.contender == "fresh model":
            start = standardise_output_layer(self.job.model, whole.train.finite().look())
        else:
            start = self.start.weights(whole.train)
        if winner.contender == "start" or self.loss is None:
            return start
        trajectory = self._trajectory(self.loss, whole.of_contender(winner.contender), start)
        trajectory.train_to(winner.epochs, self.progress.seconds_left(), self.progress.after_epoch)
        if not trajectory.finished:
            raise RaceEndedError("time_cap")
        return mix_model_weights(start, trajectory.average, winner.share)

    def _save(self, field: list[Contender]) -> None:
        """Write a checkpoint of the race and of these contenders."""
        file = self.job.file
        if file.path is None:
            return
        self._content = race_content(self, field)
        file.save(STAGE, self._content)

    def save_end(self, weights: Weights, history: Mapping[str, Any]) -> None:
        """Add the end of the race to its checkpoint: the weights of the model, and the history as a dict."""
        if self.job.file.path is not None and self._content:
            largest = self.job.config.max_epochs
            end = {"weights": weights, "history": history, "max_epochs": largest}
            self.job.file.save(STAGE, {**self._content, "end": end})

    def _resume(self) -> None:
        """Restore the race from its checkpoint, if the file holds one.

        Raises:
            TrainingError: the content of the file does not fit this race.
        """
        said = self.job.ranks.content_of_rank_0("the race", lambda: self.job.file.content(STAGE))
        if not said:
            return
        try:
            restore_race(self, said)
        except MALFORMED as error:
            raise TrainingError(
                f"the checkpoint {self.job.file.path} does not belong to this training ({error!r}); nothing has "
                "changed: delete it, or give another path"
            ) from error
