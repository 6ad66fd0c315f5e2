"""What a training run leaves behind, and what it says on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Reason = Literal["patience", "max_epochs", "time_cap", "interrupted", "callback"]
Part = Literal["mse", "loss"]


@dataclass(frozen=True)
class Check:
    """One look at the validation samples.

    Attributes:
        epoch: epochs trained before it.
        seconds: since the start, earlier checks included.
        loss: mean training loss per sample of the epoch just trained; NaN where none has been.
        metric: on the validation samples.
    """

    epoch: int
    seconds: float
    loss: float
    metric: float

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Check:
        """The check of its fields; they must be numbers."""
        return cls(int(said["epoch"]), float(said["seconds"]), float(said["loss"]), float(said["metric"]))


@dataclass(frozen=True)
class Progress:
    """What the progress callback gets after every epoch.

    Attributes:
        epoch, max_epochs: epochs trained so far, and at most.
        seconds: since the start.
        loss: mean training loss of this epoch.
        metric, best: of the last check, and the best so far; NaN before the first check.
        part: "mse" while the squared error that comes first is trained, "loss" after that; epochs count anew.
    """

    epoch: int
    max_epochs: int
    seconds: float
    loss: float
    metric: float
    best: float
    part: Part = "loss"


Callback = Callable[[Progress], bool | None]
"""Called after every epoch; one that returns True ends the run."""


@dataclass
class History:
    """A finished run; the model holds the weights of ``best``.

    Attributes:
        checks: in order.
        epochs: full epochs trained.
        seconds: in total; check_seconds: of which spent on the metric.
        split: where the time went: "solve" and "gradient" as the loss counts them, "validation", and the "rest".
        stopped: why it ended; "callback" where one of the progress callbacks said so.
        best: the check with the lowest metric, the earliest of equals; None where training was interrupted before any.
            Its epoch is 0 where the weights that the run began with were not beaten.
        before: the run on the squared error that came first; None where there was none. ``seconds`` and ``best`` count
            it in, ``checks`` and ``epochs`` do not.
        held_out: samples that were taken out of the training samples to validate on; 0 where validation samples came.
        note: what was decided about the samples that nobody asked for, in sentences.
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

    @property
    def interrupted(self) -> bool:
        """True where the user stopped it."""
        return self.stopped == "interrupted"

    def __str__(self) -> str:
        found = "no check" if self.best is None else f"best {self.best.metric:.4g} after epoch {self.best.epoch}"
        line = f"{self.epochs} epochs in {self.seconds:.1f} s, stopped by {self.stopped}, {found}"
        return f"{line}\n{self.note}" if self.note else line

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> History:
        """What ``as_dict`` was of.

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
        )
