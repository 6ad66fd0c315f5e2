"""The history of a training run, and the progress that callbacks get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from pear.train.racing.race_row import RaceRow

Reason = Literal["patience", "max_epochs", "time_cap", "interrupted", "callback"]
Part = Literal["mse", "loss", "all"]


@dataclass(frozen=True)
class Check:
    """One evaluation on the validation samples.

    Attributes:
        epoch: the number of epochs trained before it.
        seconds: since the start, with earlier checks.
        loss: mean training loss per sample of the last epoch; NaN before the first epoch.
        metric: its value on the validation samples.
    """

    epoch: int
    seconds: float
    loss: float
    metric: float

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Check:
        """Make a check from a dict of its fields, which must be numbers."""
        return cls(int(said["epoch"]), float(said["seconds"]), float(said["loss"]), float(said["metric"]))


@dataclass(frozen=True)
class Progress:
    """The progress of a training run after an epoch, for callbacks.

    Attributes:
        epoch: the number of epochs trained so far.
        max_epochs: the largest number of epochs.
        seconds: the seconds since the start of the run.
        loss: the mean training loss of this epoch.
        metric: the validation metric at the last check; NaN before the first check.
        best: the best validation metric so far; NaN before the first check.
        part: the part of the run: "mse" during the initial training on the squared error, if there is one, "loss"
            afterwards, and "all" while the winner of a race is trained again on all samples. Epochs are counted
            separately in each part, and, in a race, for each contender and fold.
    """

    epoch: int
    max_epochs: int
    seconds: float
    loss: float
    metric: float
    best: float
    part: Part = "loss"


Callback = Callable[[Progress], bool | None]
"""A function that is called after every epoch; it ends the run by returning True."""


@dataclass
class History:
    """The record of a training run; the model has the weights of the check ``best``.

    Attributes:
        checks: all checks, in order.
        epochs: the number of complete epochs.
        seconds: the time of the whole run.
        check_seconds: the time spent on the metric.
        split: seconds by part: "solve" and "gradient" as the loss counts them, "validation", and the "rest".
        stopped: why the run ended; "callback" where a progress callback returned True.
        best: the check with the lowest metric, the first of equals; None where the run ended before any check. Its
            epoch is 0 where no check beat the initial weights.
        before: the earlier run on the squared error, or None. ``seconds`` and ``best`` include it; ``checks`` and
            ``epochs`` do not.
        held_out: how many training samples were held out to validate on; in a cross-validation, in all folds together.
            0 where the user gave validation samples.
        note: a sentence on what ``fit`` decided about the samples; "" where it decided nothing.
        start: a sentence on how ``fit`` changed the weights before the first step on the loss; "" where it did not.
        choice: a sentence on which contender of a race has won, and by how much; "" where there was no race.
        race: the results of all contenders; empty where there was no race.
    """

    checks: list[Check] = field(default_factory=list)
    epochs: int = 0
    seconds: float = 0.0
    check_seconds: float = 0.0
    split: dict[str, float] = field(default_factory=dict)
    stopped: Reason = "max_epochs"
    best: Check | None = None
    before: History | None = None
    held_out: int = 0
    note: str = ""
    start: str = ""
    choice: str = ""
    race: tuple[RaceRow, ...] = ()

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the run."""
        return self.stopped == "interrupted"

    def __str__(self) -> str:
        found = "no check" if self.best is None else f"best {self.best.metric:.4g} after epoch {self.best.epoch}"
        line = f"{self.epochs} epochs in {self.seconds:.1f} s, stopped by {self.stopped}, {found}"
        return "\n".join(filter(None, (line, self.choice, self.start, self.note)))

    def as_dict(self) -> dict[str, Any]:
        """Return the history as numbers, lists and dicts, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> History:
        """Make a history from a result of ``as_dict``.

        Example:
            >>> history = History([Check(1, 0.5, 2.0, 0.1)], epochs=1, before=History(stopped="patience"))
            >>> History.from_dict(history.as_dict()) == history
            True
        """
        if said["stopped"] not in get_args(Reason):
            raise ValueError(f"stopped must be one of {get_args(Reason)}; got {said['stopped']!r}")
        return cls(
            checks=[Check.from_dict(check) for check in said["checks"]],
            epochs=int(said["epochs"]),
            seconds=float(said["seconds"]),
            check_seconds=float(said["check_seconds"]),
            split={str(name): float(seconds) for name, seconds in said["split"].items()},
            stopped=said["stopped"],
            best=None if said["best"] is None else Check.from_dict(said["best"]),
            before=None if said["before"] is None else cls.from_dict(said["before"]),
            held_out=int(said["held_out"]),
            note=str(said["note"]),
            start=str(said["start"]),
            choice=str(said["choice"]),
            race=tuple(RaceRow.from_dict(row) for row in said["race"]),
        )
