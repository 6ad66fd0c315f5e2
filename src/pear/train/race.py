"""What runs in a race of settings, and what comes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from pear.errors import ProblemError
from pear.losses.methods import method
from pear.train.config import FitConfig
from pear.train.errors import TrainingError
from pear.train.fit import fit
from pear.train.history import History, Progress
from pear.train.order import in_order, shuffled
from pear.train.samples.memory import InMemory
from pear.train.validation import Metric

Settings = Mapping[str, Any]
"""A method's name under "method", and options of its loss; "smoothing" may be a multiple of "auto", as "auto*3"."""


def label(settings: Settings) -> str:
    """The method's title and its options, in one line.

    Example:
        >>> label({"method": "pear", "smoothing": "auto*3", "guidance": 1.0})
        'PEAR smoothing=auto*3 guidance=1'
    """
    options = {name: value for name, value in settings.items() if name != "method"}
    said = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in options.items()]
    return " ".join([method(settings["method"]).title, *said])


def multiple_of_auto(smoothing: Any) -> float | None:
    """3.0 of "auto*3"; None of anything that is no multiple.

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


class Row(NamedTuple):
    """One candidate of a race.

    Attributes:
        candidate: its settings in a line.
        epochs: trained before it was dropped, or ended.
        regret: the best on the validation samples; NaN where there is none.
        seconds: spent on it.
        note: why it failed; empty where it did not.
    """

    candidate: str
    epochs: int
    regret: float
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class TuneProgress:
    """What the progress callback of ``tune`` gets after every epoch; ``str`` makes a line of it.

    Attributes:
        stage, stages: of the race; number, count: of the candidate among those of the stage.
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
class Contender:
    """One candidate on its way; ``advance`` trains it further, from where it was.

    Attributes:
        settings: of its loss; loss: made from them.
        model: holds the best weights so far.
        path: of its checkpoint.
    """

    settings: Settings
    loss: nn.Module
    model: nn.Module
    path: Path
    history: History = field(default_factory=History)
    seconds: float = 0.0
    note: str = ""

    @property
    def regret(self) -> float:
        """The best so far; infinite where there is none."""
        best = self.history.best
        return math.inf if best is None or self.note else best.metric

    def row(self) -> Row:
        """What the table says of it."""
        regret = math.nan if math.isinf(self.regret) else self.regret
        return Row(label(self.settings), self.history.epochs, regret, self.seconds, self.note)

    def advance(
        self,
        epochs: int,
        config: FitConfig,
        train: InMemory,
        validation: InMemory,
        metric: Metric,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        """Train until so many epochs are done in total, or there is a reason to stop before.

        Its checkpoint makes the stages one run: it ends as it would have without them.
        """
        began = time.perf_counter()
        try:
            self.history = fit(
                self.model,
                self.loss,
                train,
                validation,
                metric,
                replace(config, max_epochs=epochs),
                progress=progress,
                checkpoint=self.path,
                order=shuffled if method(self.settings["method"]).shuffled else in_order,
            )
        except TrainingError as error:  # this candidate diverges; the others need not
            self.note = str(error)
        self.seconds += time.perf_counter() - began
