"""``BenchSettings``: the base class of a benchmark's settings. The command line makes an option of each field."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from pear.errors import ProblemError


def setting(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    positive: bool = False,
    empty: bool = False,
    quick: Any = None,
    shown: str | None = None,
    argument: bool = False,
) -> Any:
    """Return a dataclass field for a subclass of ``BenchSettings``. The command line makes an option of it.

    Args:
        default: the value if the user gives none.
        help: one line of help.
        least: the smallest allowed value; for a tuple, the smallest allowed entry.
        positive: whether the value must be larger than zero.
        empty: whether a tuple may be empty.
        quick: the value under ``--quick`` if the user gives none. None means the default.
        shown: the text that the help prints for the default; None for the default itself.
        argument: whether the field is a required positional argument instead of an option.
    """
    limits = {"least": least, "positive": positive, "empty": empty}
    return field(
        default=default, metadata={"help": help, "quick": quick, "shown": shown, "argument": argument, **limits}
    )


@dataclass(frozen=True)
class BenchSettings:
    """The base class of a benchmark's settings.

    A value beyond the limits that ``setting`` gave its field raises ``ProblemError``.
    """

    def __post_init__(self) -> None:
        for one in fields(self):
            value, name = getattr(self, one.name), f"--{one.name.replace('_', '-')}"
            least = one.metadata.get("least")
            if value == () and not one.metadata.get("empty"):
                raise ProblemError(f"{name} must have at least one entry; got none")
            if one.metadata.get("positive") and value is not None and not value > 0:
                raise ProblemError(f"{name} must be a positive number; got {value}")
            if least is None or value is None:
                continue
            if isinstance(value, tuple):
                if min(value, default=least) < least:
                    raise ProblemError(f"{name} must be whole numbers of at least {least}; got {list(value)}")
            elif not value >= least:
                raise ProblemError(f"{name} must be at least {least}; got {value}")
