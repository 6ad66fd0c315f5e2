"""``TuneCandidate``: one candidate of ``tune``, and its training."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from pear.clock import read_clock
from pear.engines import SendMessage
from pear.errors import SolveError, TrainingError
from pear.losses.methods import as_method
from pear.optimality.duals_and_active_sets import Status
from pear.solvers.time_limit import limit_time
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.history import History
from pear.train.sample_order import in_order, shuffled
from pear.train.samples.memory_samples import MemorySamples
from pear.train.validation_score import Metric

Settings = Mapping[str, Any]
"""A method under "method", by its name or as ``as_method`` takes it, and options of its loss.

"smoothing" may be a multiple of "auto", as "auto*3"."""


LATE = "the time was up before it was judged"
"""The note of a candidate that was never judged."""


def describe_candidate(settings: Settings) -> str:
    """Describe settings in one line: the method's title and its options.

    Example:
        >>> describe_candidate({"method": "pear", "smoothing": "auto*3", "guidance": 1.0})
        'PEAR smoothing=auto*3 guidance=1'
    """
    options = {name: value for name, value in settings.items() if name != "method"}
    said = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in options.items()]
    return " ".join([as_method(settings["method"]).title, *said])


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


@dataclass
class TuneCandidate:
    """One candidate, and the state of its training; ``train_tune_candidate`` trains it further.

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
        return CandidateRow(describe_candidate(self.settings), self.history.epochs, regret, self.seconds, self.note)


Common = tuple[FitConfig, MemorySamples, MemorySamples, Metric]
"""What all candidates share: the configuration, the training samples, the validation samples and the metric."""


def train_tune_candidate(
    send: SendMessage, one: TuneCandidate, epochs: int, common: Common, wanted: bool, time_left: TimeLeft
) -> TuneCandidate:
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
