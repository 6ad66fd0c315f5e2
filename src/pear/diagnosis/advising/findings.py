"""Findings: sentences with the numbers behind them. Every examination of a problem adds some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One sentence of advice.

    Attributes:
        topic: what the sentence is about, in a word or two.
        sentence: the text, with its numbers.
        numbers: the same numbers by name.
        to_do: True where the sentence asks the user to do something.
    """

    topic: str
    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    to_do: bool = False


class Findings:
    """The findings of all examinations so far, in order, and the columns of the tables.

    Attributes:
        found: the findings.
        rows: columns about the constraints, with an entry for each row of A and then of G.
        variables: columns about the variables, n entries each.
        values: columns about the predicted values, k entries each.
    """

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.rows: dict[str, Any] = {}
        self.variables: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    def add(self, topic: str, sentence: str, to_do: bool = False, **numbers: Any) -> None:
        """Add a sentence and its numbers; the arguments are those of ``Finding``."""
        self.found.append(Finding(topic, sentence, numbers, to_do))

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of all findings, by name."""
        return {name: value for one in self.found for name, value in one.numbers.items()}


def some(names: Sequence[str], most: int = 4) -> str:
    """Join the first few names and say how many more there are.

    Example:
        >>> some(["a", "b"]), some(["a", "b", "c", "d", "e", "f"])
        ('a, b', 'a, b, c, d and 2 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural where it is not 1.

    Example:
        >>> counted(1, "row"), counted(1200, "equality"), counted(0, "row")
        ('1 row', '1,200 equalities', '0 rows')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def seconds(value: float) -> str:
    """Write a duration with two digits.

    Example:
        >>> seconds(0.00123), seconds(0.25), seconds(90.0), seconds(1.5e-5)
        ('1.2 ms', '0.25 s', '90 s', '0.015 ms')
    """
    if value >= 10:
        return f"{value:.0f} s"
    return f"{value:.2g} s" if value >= 0.1 else f"{1e3 * value:.2g} ms"
