"""Successive halving for ``tune``: candidates train in stages, and the better half of each stage continues."""

from __future__ import annotations

import copy
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from pear.engines import Engine, SendMessage, TaskLoss, TaskMessage, TaskResult, TaskUpdate
from pear.errors import ProblemError, TrainingError
from pear.losses.methods import as_method
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.history import History, Progress
from pear.train.sample_order import in_order, shuffled
from pear.train.samples.memory_samples import MemorySamples
from pear.train.validation import Metric

Settings = Mapping[str, Any]
"""A method under "method", by its name or as ``as_method`` takes it, and options of its loss.

"smoothing" may be a multiple of "auto", as "auto*3"."""


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
    """

    settings: Settings
    loss: nn.Module
    model: nn.Module
    checkpoint: bytes = b""
    history: History = field(default_factory=History)
    seconds: float = 0.0
    note: str = ""

    @property
    def regret(self) -> float:
        """The best regret so far; infinite where there is none."""
        best = self.history.best
        return math.inf if best is None or self.note else best.metric

    def row(self) -> CandidateRow:
        """The candidate's row of the table."""
        regret = math.nan if math.isinf(self.regret) else self.regret
        return CandidateRow(describe_settings(self.settings), self.history.epochs, regret, self.seconds, self.note)


Common = tuple[FitConfig, MemorySamples, MemorySamples, Metric]
"""What all candidates share: the configuration, the training samples, the validation samples and the metric."""


def train_candidate(send: SendMessage, one: Candidate, epochs: int, common: Common, wanted: bool) -> Candidate:
    """Train a candidate until ``epochs`` epochs are done in total, or early stopping ends the training.

    The checkpoint joins the stages to one run, with the same result as an uninterrupted run. Each stage uses a copy of
    the loss without warm starts, so that the result does not depend on the process that trains it.

    Args:
        send: called with the progress after every epoch, where it is ``wanted``.
        one: the candidate; it is changed, and returned.
        epochs: the number of epochs in total.
        common: what all candidates share.
        wanted: whether somebody listens to the progress.
    """
    config, train, validation, metric = common
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="pear-tune-") as folder:
        path = Path(folder) / "checkpoint.pt"
        if one.checkpoint:
            path.write_bytes(one.checkpoint)
        try:
            one.history = fit(
                one.model,
                copy.deepcopy(one.loss),
                train,
                validation,
                metric,
                replace(config, max_epochs=epochs),
                progress=send if wanted else None,
                checkpoint=path,
                order=shuffled if as_method(one.settings["method"]).shuffled else in_order,
            )
            one.checkpoint = path.read_bytes() if path.exists() else b""
        except TrainingError as error:  # this candidate diverges; the others need not
            one.note = str(error)
    one.seconds += time.perf_counter() - began
    return one


class SuccessiveHalving:
    """The training of candidates in stages on an engine; the better half of each stage continues.

    Args:
        field: the candidates. A task of the engine returns the trained candidate, which replaces the old one.
        engine: runs the tasks.
        common: what all candidates share.
        progress: called with a ``TuneProgress`` after every epoch; None for no progress.
    """

    def __init__(
        self,
        field: list[Candidate],
        engine: Engine,
        common: Common,
        progress: Callable[[TuneProgress], None] | None,
    ) -> None:
        self.field, self.engine, self.progress = field, engine, progress
        self._common = engine.share(common)

    def run(self, stages: Sequence[tuple[int, int]]) -> bool:
        """Train in stages, each given by (candidates, epochs in total); returns True where the user interrupts it."""
        left = list(range(len(self.field)))
        for stage, (count, epochs) in enumerate(stages, 1):
            left = sorted(left, key=lambda number: self.field[number].regret)[:count]
            if self._run_stage(left, epochs, (stage, len(stages))):
                return True
        return False

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
                    number = waiting.pop(0)
                    given = (self.field[number], epochs, self._common, self.progress is not None)
                    under_way[self.engine.submit(train_candidate, *given)] = number
                self.engine.wait(hear)
                if any(self.field[number].history.interrupted for number in left):
                    return True
        except KeyboardInterrupt:
            self.engine.wait(hear, 0.0)
            return True
        return False
