"""Findings: sentences with the numbers behind them. Every examination of a problem adds some."""

from __future__ import annotations

from collections.abc import Mapping
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
        """Add a finding; the arguments are the fields of ``Finding``."""
        self.found.append(Finding(topic, sentence, numbers, to_do))

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of all findings, by name."""
        return {name: value for one in self.found for name, value in one.numbers.items()}
