"""Successive halving for ``tune``: candidates train in stages, and the better half of each stage continues."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from pear.clock import read_clock
from pear.engines import Engine, SendMessage, TaskLoss, TaskMessage, TaskResult, TaskUpdate
from pear.errors import ProblemError, SolveError, TrainingError
from pear.losses.methods import as_method
from pear.optimality.status import Status
from pear.solvers.time_limit import limit_time
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.history import History, Progress
from pear.train.sample_order import in_order, shuffled
from pear.train.samples.memory_samples import MemorySamples
from pear.train.validation_score import Metric
from pear.train.validation_time import seconds_left_to_validate

Settings = Mapping[str, Any]
"""A method under "method", by its name or as ``as_method`` takes it, and options of its loss.

"smoothing" may be a multiple of "auto", as "auto*3"."""


LATE = "the time was up before it was judged"
"""The note of a candidate that was never judged."""

LEAST_SHARE = 0.01
"""The least share of the time cap that a candidate gets, however many there are."""


def describe_settings(settings: Settings) -> str:
    """Describe settings in one line: the method's title and its options.

    Example:
        >>> describe_settings({"method": "pear", "smoothing": "auto*3", "guidance": 1.0})
        'PEAR smoothing=auto*3 guidance=1'
    """
    options = {name: value for name, value in settings.items() if name != "method"}
    said = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in options.items()]
    return " ".join([as_method(settings["method"]).title, *said])


def multiple_of_auto(smoothing: Any) -> float | None:
    """Return the factor of a smoothing such as "auto*3", here 3.0; None for any other smoothing.

    Raises:
        ProblemError: what follows "auto*" is not a positive number.
    """
    if not isinstance(smoothing, str) or not smoothing.startswith("auto*"):
        return None
    try:
        times = float(smoothing.removeprefix("auto*"))
    except ValueError:
        times = math.nan
    if not 0 < times < math.inf:
        raise ProblemError(f"smoothing must be a number, 'auto' or a multiple such as 'auto*3'; got {smoothing!r}")
    return times


class TimeLeft(NamedTuple):
    """The seconds left for a task; None for no limit.

    Attributes:
        stage: for the candidate's stage, its checks included; 0 where no check is possible any more.
        race: for the whole race; integer programs are given up then. None for the first candidate, which is always
            judged.
    """

    stage: float | None
    race: float | None


class CandidateRow(NamedTuple):
    """One row of the table of ``tune``.

    Attributes:
        candidate: the settings in a line.
        epochs: the number of epochs trained.
        regret: the best on the validation samples; NaN where there is none.
        seconds: the seconds of training.
        note: why the candidate failed; "" where it did not.
    """

    candidate: str
    epochs: int
    regret: float
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class TuneProgress:
    """The progress of ``tune`` after an epoch, for its callback; ``str`` gives it in a line.

    Attributes:
        stage: the number of the stage, from 1.
        stages: the number of stages.
        number: the number of the candidate within the stage, from 1.
        count: the number of candidates in the stage.
        candidate: its settings in a line.
        run: the candidate's own progress.
        best: the lowest validation regret of all candidates so far; NaN before the first check.
    """

    stage: int
    stages: int
    number: int
    count: int
    candidate: str
    run: Progress
    best: float

    def __str__(self) -> str:
        place = f"stage {self.stage}/{self.stages}, candidate {self.number}/{self.count}: {self.candidate}"
        return f"{place}, epoch {self.run.epoch}, validation regret {self.run.metric:.4g}, best {self.best:.4g}"


@dataclass
class Candidate:
    """One candidate, and the state of its training; ``train_candidate`` trains it further.

    Attributes:
        settings: the settings of its loss.
        loss: made from the settings, untrained.
        model: has the best weights so far.
        checkpoint: the bytes of a checkpoint file, so that training can continue on another machine; empty before the
            first epoch.
        history: the history of the training so far.
        seconds: the seconds of training so far.
        note: why it failed; "" where it did not.
        shuffled: False where an epoch visits the samples in their own order. It is noted here, because another process
            may not know a method that was registered in this one.
    """

    settings: Settings
    loss: nn.Module
    model: nn.Module
    checkpoint: bytes = b""
    history: History = field(default_factory=History)
    seconds: float = 0.0
    note: str = ""
    shuffled: bool = True

    @property
    def regret(self) -> float:
        """The best regret so far; infinite where there is none."""
        best = self.history.best
        return math.inf if best is None or self.note else best.metric

    @property
    def seconds_checked(self) -> float:
        """The seconds of training until the last check, from which a checkpoint continues."""
        checks = self.history.checks
        return checks[-1].seconds if checks else 0.0

    @property
    def check_seconds(self) -> float:
        """The mean seconds of a check; 0 before the first."""
        return self.history.check_seconds / max(len(self.history.checks), 1)

    def row(self) -> CandidateRow:
        """The candidate's row of the table."""
        regret = math.nan if math.isinf(self.regret) else self.regret
        return CandidateRow(describe_settings(self.settings), self.history.epochs, regret, self.seconds, self.note)


Common = tuple[FitConfig, MemorySamples, MemorySamples, Metric]
"""What all candidates share: the configuration, the training samples, the validation samples and the metric."""


def train_candidate(
    send: SendMessage, one: Candidate, epochs: int, common: Common, wanted: bool, time_left: TimeLeft
) -> Candidate:
    """Train a candidate until ``epochs`` epochs are done in total, or early stopping ends the training.

    The checkpoint joins the stages to one run, with the same result as an uninterrupted run. Each stage uses a copy of
    the loss without warm starts, so that the result does not depend on the process that trains it.

    Args:
        send: called with the progress after every epoch, where it is ``wanted``.
        one: the candidate; it is changed, and returned.
        epochs: the number of epochs in total.
        common: what all candidates share.
        wanted: whether a callback wants the progress.
        time_left: the time for this stage, and for the race.
    """
    config, train, validation, metric = common
    cap = None if time_left.stage is None else one.seconds_checked + time_left.stage
    began = read_clock()
    with tempfile.TemporaryDirectory(prefix="pear-tune-") as folder:
        path = Path(folder) / "checkpoint.pt"
        if one.checkpoint:
            path.write_bytes(one.checkpoint)
        try:
            with limit_time(time_left.race, even=False):
                one.history = fit(
                    one.model,
                    copy.deepcopy(one.loss),
                    train,
                    validation,
                    metric,
                    replace(config, max_epochs=epochs, time_cap=cap),
                    progress=send if wanted else None,
                    checkpoint=path,
                    order=shuffled if one.shuffled else in_order,
                )
            one.checkpoint = path.read_bytes() if path.exists() else b""
        except TrainingError as error:  # this candidate diverges; the others need not
            one.note = str(error)
        except SolveError as error:
            if Status.TIME_LIMIT not in error.statuses:
                raise
            one.note = one.note if one.history.checks else LATE
    one.seconds += read_clock() - began
    return one


class SuccessiveHalving:
    """The training of candidates in stages on an engine; the better half of each stage continues.

    Args:
        field: the candidates. A task of the engine returns the trained candidate, which replaces the old one.
        engine: runs the tasks.
        common: what all candidates share.
        progress: called with a ``TuneProgress`` after every epoch; None for no progress.
        began: when the race began, by the clock. ``FitConfig.time_cap`` is that of the whole race, and
            counts from here.
    """

    def __init__(
        self,
        field: list[Candidate],
        engine: Engine,
        common: Common,
        progress: Callable[[TuneProgress], None] | None,
        began: float,
    ) -> None:
        self.field, self.engine, self.progress = field, engine, progress
        self._common, self._cap, self._began = engine.share(common), common[0].time_cap, began
        self._check_seconds = float(getattr(common[3], "check_seconds", 0.0))

    def run(self, stages: Sequence[tuple[int, int]]) -> bool:
        """Train in stages, each given by (candidates, epochs in total); returns True where the user interrupts it."""
        left = list(range(len(self.field)))
        for stage, (count, epochs) in enumerate(stages, 1):
            left = sorted(left, key=lambda number: self.field[number].regret)[:count]
            if self._run_stage(left, epochs, (stage, len(stages))):
                return True
        return False

    def _leave_out(self, number: int) -> None:
        """Note that the time is up for a candidate; one that was trained before keeps its result."""
        if not self.field[number].history.checks:
            self.field[number].note = LATE

    def _time_for_next(self, shares: int) -> TimeLeft:
        """The time for the next candidate of a stage: an equal share of what is left, and at least that of two checks.

        Args:
            shares: the number of candidates, one after the other in this stage and all later ones, that share the time.
        """
        if self._cap is None:
            return TimeLeft(None, None)
        check = max(self._check_seconds, *(one.check_seconds for one in self.field))
        spent, first = read_clock() - self._began, not any(one.history.checks for one in self.field)
        left = self._cap - spent
        if left <= check and not first:
            return TimeLeft(0.0, 0.0)
        stage = max(min(max(left / shares, 2 * check), left), check, LEAST_SHARE * self._cap)
        return TimeLeft(stage, None if first else seconds_left_to_validate(self._cap, spent))

    def _run_stage(self, left: list[int], epochs: int, stage: tuple[int, int]) -> bool:
        """Train the candidates ``left`` in one stage; returns True where the user interrupts it."""
        waiting = [number for number in left if not self.field[number].note]
        under_way: dict[int, int] = {}

        def hear(update: TaskUpdate) -> None:
            match update:
                case TaskResult(ticket, contender):
                    self.field[under_way.pop(ticket)] = contender
                case TaskLoss(ticket, how):
                    self.field[under_way.pop(ticket)].note = f"{how}; perhaps it ran out of memory"
                case TaskMessage(ticket, run) if self.progress is not None:
                    number = under_way[ticket]
                    where = (*stage, left.index(number) + 1, len(left), describe_settings(self.field[number].settings))
                    ended = min(one.regret for one in self.field)
                    best = min(ended, math.inf if math.isnan(run.best) else run.best)
                    self.progress(TuneProgress(*where, run, math.nan if math.isinf(best) else best))

        try:
            while waiting or under_way:
                while waiting and self.engine.free > 0:
                    rounds = -(-len(waiting) // (self.engine.free + len(under_way)))
                    time_left = self._time_for_next(rounds * (stage[1] - stage[0] + 1))
                    number = waiting.pop(0)
                    if time_left.stage == 0.0:
                        self._leave_out(number)
                        continue
                    given = (self.field[number], epochs, self._common, self.progress is not None, time_left)
                    under_way[self.engine.submit(train_candidate, *given)] = number
                if under_way:
                    self.engine.wait(hear)
                if any(self.field[number].history.interrupted for number in left):
                    return True
        except KeyboardInterrupt:
            self.engine.wait(hear, 0.0)
            return True
        return False
