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
    """A field of settings that is also an option of the command line.

    Args:
        default: its value where nothing is asked for.
        help: one line.
        least: smallest value it may have; for several numbers, of each.
        positive: it must be larger than zero.
        empty: of several numbers there may be none at all.
        quick: its value under ``--quick`` where nothing else is asked for; None for the default.
        shown: what the help prints for the default.
        argument: True for a word that stands on the command line without a name, and must be there.
    """
    limits = {"least": least, "positive": positive, "empty": empty}
    return field(
        default=default, metadata={"help": help, "quick": quick, "shown": shown, "argument": argument, **limits}
    )


@dataclass(frozen=True)
class Settings:
    """The options of one benchmark; numbers outside of their limits are refused."""

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
        on_note: called with what was left out or failed, in words.
        say: called with what is being done.
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
