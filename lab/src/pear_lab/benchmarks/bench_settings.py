"""The options of a benchmark, and the callbacks that receive its results.

A benchmark is a module with ``SETTINGS`` (a dataclass of options), ``run``, ``tables``, ``series``, ``LABELS`` and,
where other libraries take part, ``PEERS``; ``failed(rows)``, where there is one, says in words why the command fails.
The command line is made from these: one option for every field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from pear.errors import ProblemError


def option(
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
    """Make a dataclass field of settings that is also an option of the command line.

    Args:
        default: value if the user gives none.
        help: one line of help.
        least: smallest allowed value, for a tuple that of each entry.
        positive: True if the value must be larger than zero.
        empty: True if a tuple may be empty.
        quick: value under ``--quick`` if the user gives none; None for the default.
        shown: text that the help prints for the default.
        argument: True for a required positional argument instead of an option.
    """
    limits = {"least": least, "positive": positive, "empty": empty}
    return field(
        default=default, metadata={"help": help, "quick": quick, "shown": shown, "argument": argument, **limits}
    )


@dataclass(frozen=True)
class Settings:
    """The options of one benchmark. Numbers outside their limits raise an error."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, name = getattr(self, one.name), f"--{one.name.replace('_', '-')}"
            least = one.metadata.get("least")
            if one.metadata.get("positive") and value is not None and not value > 0:
                raise ProblemError(f"{name} must be a positive number; got {value}")
            if least is None or value is None:
                continue
            if isinstance(value, tuple):
                if min(value, default=least) < least or not (value or one.metadata["empty"]):
                    raise ProblemError(f"{name} must be whole numbers of at least {least}; got {list(value)}")
            elif not value >= least:
                raise ProblemError(f"{name} must be at least {least}; got {value}")


@dataclass(frozen=True)
class Callbacks:
    """The functions that receive the results of a benchmark.

    Attributes:
        on_row: called with every row as soon as it is measured.
        on_note: called with a sentence on what was left out or failed.
        say: called with a line on what is being measured now.
    """

    on_row: Callable[[Any], None]
    on_note: Callable[[str], None] = lambda text: None
    say: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class Labels:
    """Title and axis labels of the figure."""

    title: str
    x: str
    y: str
