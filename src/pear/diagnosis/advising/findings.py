"""The findings of ``pear.advise``: sentences with their numbers, and columns for tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """A sentence of advice.

    Attributes:
        topic: what the sentence is about, in one or two words.
        sentence: the text.
        numbers: the numbers of the sentence, by name.
        to_do: True if the sentence asks the user to do something.
    """

    topic: str
    sentence: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    to_do: bool = False


class Findings:
    """All findings so far, and the columns of the tables of an ``Advice``.

    Attributes:
        found: the findings, in the order in which they were added.
        rows: columns with an entry for each row of A and then for each row of G, by name.
        variables: columns with an entry for each of the n variables, by name.
        values: columns with an entry for each of the k predicted values, by name.
    """

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.rows: dict[str, Any] = {}
        self.variables: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    def add(self, topic: str, sentence: str, to_do: bool = False, **numbers: Any) -> None:
        """Add a ``Finding`` with the given fields."""
        self.found.append(Finding(topic, sentence, numbers, to_do))

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of all findings, by name."""
        return {name: value for one in self.found for name, value in one.numbers.items()}
