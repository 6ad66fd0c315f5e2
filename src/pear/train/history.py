"""``History``: the record of a training run; ``Check`` and ``Progress``: its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from pear.train.racing.race_row import RaceRow

Reason = Literal["patience", "max_epochs", "time_cap", "interrupted", "callback"]
Part = Literal["mse", "loss", "all"]


@dataclass(frozen=True)
class Check:
    """One evaluation of the model on the validation samples.

    Attributes:
        epoch: the number of epochs before the check.
        seconds: the seconds from the start of the run to the end of the check.
        loss: the mean training loss per sample in the last epoch; NaN before the first epoch.
        metric: the value of the metric on the validation samples.
    """

    epoch: int
    seconds: float
    loss: float
    metric: float

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Check:
        """Return the check whose fields are in this dict. All fields must be numbers."""
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
        part: the part of the run: "mse" during a first training on the squared error, "loss" during the training on the
            loss, and "all" while the winner of a race is trained again on all samples. Each part counts its own epochs,
            and so does each contender and each fold of a race.
    """

    epoch: int
    max_epochs: int
    seconds: float
    loss: float
    metric: float
    best: float
    part: Part = "loss"


Callback = Callable[[Progress], bool | None]
"""A function that ``fit`` calls after every epoch; if it returns True, the run ends."""


@dataclass
class History:
    """The record of a training run.

    Attributes:
        checks: all checks, in order. In a race, there is one after each stage of each contender except the start.
        epochs: the number of complete epochs; in a race, the epochs of the winner on the loss.
        seconds: the seconds of the whole run.
        check_seconds: the seconds of all checks together.
        split: the seconds of each part of the work: "solve" and "gradient" as the loss measures them, "validation", and
            "rest".
        stopped: why the run ended: "patience", "max_epochs", "time_cap", "interrupted" (Ctrl-C), or "callback" (a
            progress callback returned True).
        best: the check whose weights the model has at the end: the check with the lowest metric, and the first of
            several equal ones. None if the run ended before any check. Its epoch is 0 if no check was better than the
            first weights. In a race, it has the epochs and the metric of the winner.
        before: the record of a first training on the squared error, or None. ``seconds`` and ``best`` include that
            training; ``checks`` and ``epochs`` do not. In a race, it has the epochs and the metric of the start.
        held_out: the number of training samples that were held out for validation, in all folds together; 0 if the user
            gave validation samples.
        note: a sentence on what ``fit`` decided about the samples, or "".
        start: a sentence on how ``fit`` changed the weights before the first step on the loss, or "".
        choice: a sentence on which contender won a race, and by how much; "" if there was no race.
        race: the results of all contenders of a race; empty if there was no race.
        left_out: how often a sample was left out because no verified solution was found (INACCURATE). It is left out of
            a step, or, in a race, of a comparison of contenders by decisions without integers.
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
    left_out: int = 0

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the run by Ctrl-C."""
        return self.stopped == "interrupted"

    def __str__(self) -> str:
        found = "no check" if self.best is None else f"best {self.best.metric:.4g} after epoch {self.best.epoch}"
        line = f"{self.epochs} epochs in {self.seconds:.1f} s, stopped by {self.stopped}, {found}"
        left_out = f"{self.left_out} times a sample was left out, for want of a verified solution" * (self.left_out > 0)
        return "\n".join(filter(None, (line, self.choice, self.start, self.note, left_out)))

    def as_dict(self) -> dict[str, Any]:
        """Return the history as numbers, texts, lists and dicts, which JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> History:
        """Return the history that the result of ``as_dict`` describes.

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
            left_out=int(said["left_out"]),
        )


def split_history_seconds(history: History, before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    """Return the seconds of each part of the work, for ``History.split``.

    Args:
        history: the record of the run.
        before: the seconds that the loss had spent on each part when the run began, by the name of the part.
        now: the seconds that the loss has spent on each part at the end of the run, by the name of the part.
    """
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}
    spent["validation"] = history.check_seconds
    return {**spent, "rest": max(0.0, history.seconds - sum(spent.values()))}


def join_history_notes(*sentences: str) -> str:
    """Return these sentences as one text for a ``History``; empty ones are left out."""
    return "; ".join(filter(None, sentences))
