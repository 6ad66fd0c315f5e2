"""``TuneCandidate``: a loss with settings that competes in ``tune``, and the state of its training."""

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
from pear.optimality.status import Status
from pear.solvers.time_limit import limit_time
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.history import History
from pear.train.sample_order import in_order, shuffled
from pear.train.samples.memory_samples import MemorySamples
from pear.train.validation_score import Metric

Settings = Mapping[str, Any]
"""The settings of a candidate: a method under the name "method", and options of its loss under their names.

The method is a name, or anything else that ``as_method`` accepts. The option "smoothing" may be a multiple of "auto",
such as "auto*3"."""

LATE = "the time was up before it was judged"
"""The note of a candidate that was never validated."""


def describe_candidate(settings: Settings) -> str:
    """Return the settings of a candidate in one line: the title of the method, and the options.

    Example:
        >>> describe_candidate({"method": "pear", "smoothing": "auto*3", "guidance": 1.0})
        'PEAR smoothing=auto*3 guidance=1'
    """
    options = {name: value for name, value in settings.items() if name != "method"}
    said = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in options.items()]
    return " ".join([as_method(settings["method"]).title, *said])


class TimeLeft(NamedTuple):
    """The seconds that are left to train a candidate of ``tune``. None stands for no limit.

    Attributes:
        stage: the seconds for the present stage of this candidate, including checks; 0 if no time is left for a check.
        whole: the seconds until the search for integer decisions is interrupted, shortly after the time cap of ``tune``
            (``seconds_left_to_validate``). None as long as no candidate has been validated.
    """

    stage: float | None
    whole: float | None


class CandidateRow(NamedTuple):
    """The result of one candidate in the table of ``tune``.

    Attributes:
        candidate: the settings of the candidate, in one line of text.
        epochs: the number of epochs of the training.
        regret: the lowest regret on the validation samples; NaN if the candidate failed, or was never validated.
        seconds: the seconds of the training.
        note: why the candidate failed or was never validated; "" for all others.
    """

    candidate: str
    epochs: int
    regret: float
    seconds: float
    note: str = ""


@dataclass
class TuneCandidate:
    """A candidate of ``tune``, and the state of its training.

    Attributes:
        settings: the method and the options of the loss.
        loss: the loss with these settings. Every training works on a copy of it.
        model: the model, with the best weights so far.
        checkpoint: the bytes of a checkpoint file, with which the training can continue on another machine; empty
            before the first epoch.
        history: the history of the training so far.
        seconds: the seconds of the training so far.
        note: why the candidate failed or was never validated; "" for all others.
        shuffled: whether each epoch visits the samples in a random order. The method of the settings determines this.
            It is stored here because a process that trains the candidate may not know a method of the user's.
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
        """The lowest regret so far; infinite if the candidate failed, or was never validated."""
        best = self.history.best
        return math.inf if best is None or self.note else best.metric

    @property
    def seconds_checked(self) -> float:
        """The seconds of training until the last check, which wrote the checkpoint; 0 before the first check."""
        checks = self.history.checks
        return checks[-1].seconds if checks else 0.0

    @property
    def check_seconds(self) -> float:
        """The mean seconds of a check; 0 before the first check."""
        return self.history.check_seconds / max(len(self.history.checks), 1)

    def row(self) -> CandidateRow:
        """Return the row of this candidate in the table of ``tune``."""
        regret = math.nan if math.isinf(self.regret) else self.regret
        return CandidateRow(describe_candidate(self.settings), self.history.epochs, regret, self.seconds, self.note)


Common = tuple[FitConfig, MemorySamples, MemorySamples, Metric]
"""The inputs that all candidates share: the settings, the training samples, the validation samples and the metric."""


def train_tune_candidate(
    send: SendMessage, one: TuneCandidate, epochs: int, common: Common, wanted: bool, time_left: TimeLeft
) -> TuneCandidate:
    """Train a candidate until it has done a number of epochs in total, or until early stopping ends the training.

    The training resumes from the checkpoint of the candidate. The result is therefore that of a training without
    interruption, in whichever process the training runs.

    Args:
        send: a function that is called with the ``Progress`` after every epoch, if ``wanted`` is true.
        one: the candidate, which is changed.
        epochs: the number of epochs in total, with those of earlier stages.
        common: the inputs that all candidates share.
        wanted: whether the user has asked for the progress.
        time_left: the time for this stage and for the whole of ``tune``.

    Returns:
        ``one``, with the state after this training. Its note says why, if the training has failed.
    """
    config, train, validation, metric = common
    cap = None if time_left.stage is None else one.seconds_checked + time_left.stage
    began = read_clock()
    with tempfile.TemporaryDirectory(prefix="pear-tune-") as folder:
        path = Path(folder) / "checkpoint.pear"
        if one.checkpoint:
            path.write_bytes(one.checkpoint)
        try:
            with limit_time(time_left.whole, even=False):
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
