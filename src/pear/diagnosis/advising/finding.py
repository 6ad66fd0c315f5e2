"""What advice is made of: sentences with the numbers behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One sentence.

    Attributes:
        topic: what it is about, in a word or two.
        sentence: with its numbers.
        numbers: the same numbers by name.
        to_do: True where it asks for something to be done.
    """

    topic: str
    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    to_do: bool = False


@dataclass(frozen=True)
class Part:
    """What one look at a problem gives.

    Attributes:
        findings: in the order to read them in.
        rows: columns about the constraints, an entry for each row of A and then of G.
        variables: columns about the variables, n entries each.
        values: columns about the predicted values, k entries each.
    """

    findings: Sequence[Finding] = ()
    rows: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def some(names: Sequence[str], most: int = 4) -> str:
    """The first few names, and how many more there are.

    Example:
        >>> some(["a", "b"]), some(["a", "b", "c", "d", "e", "f"])
        ('a, b', 'a, b, c, d and 2 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    Example:
        >>> counted(1, "row"), counted(1200, "equality"), counted(0, "row")
        ('1 row', '1,200 equalities', '0 rows')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def seconds(value: float) -> str:
    """A duration with two digits.

    Example:
        >>> seconds(0.00123), seconds(0.25), seconds(90.0), seconds(1.5e-5)
        ('1.2 ms', '0.25 s', '90 s', '0.015 ms')
    """
    if value >= 10:
        return f"{value:.0f} s"
    return f"{value:.2g} s" if value >= 0.1 else f"{1e3 * value:.2g} ms"
