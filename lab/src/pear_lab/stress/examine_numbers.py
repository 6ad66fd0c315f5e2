"""Examining problems by their numbers: a seed and a number determine a problem, and a journal keeps the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pear_lab.stress.journal import Journal
from pear_lab.stress.worker_pool import map_in_worker_pool


class NumberedVerdict(Protocol):
    """A verdict on the problem that a seed and a number determine."""

    @property
    def number(self) -> int:
        """The number of the problem."""
        ...

    @property
    def family(self) -> str:
        """The family of the problem."""
        ...


Verdict = TypeVar("Verdict", bound=NumberedVerdict)


@dataclass
class ExaminedNumbers(Generic[Verdict]):
    """The verdicts on the problems so far.

    Attributes:
        verdicts: one verdict for each problem.
        interrupted: whether the user stopped the run.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    interrupted: bool = False

    def by_family(self, families: Iterable[str]) -> list[tuple[str, list[Verdict]]]:
        """Return pairs of a family and its verdicts, and a last pair of "all" and all verdicts."""
        return [(name, [one for one in self.verdicts if name in (one.family, "all")]) for name in (*families, "all")]


def examine_numbers(
    work: Callable[[tuple[int, int]], Verdict],
    seed: int,
    numbers: list[int],
    workers: int,
    progress: Callable[[Verdict], Any] | None = None,
    journal: Journal[Verdict] | None = None,
    resume: bool = False,
) -> tuple[list[Verdict], bool]:
    """Examine the problems with these numbers, except those that the journal already has.

    Args:
        work: function from a seed and a number to the verdict on the problem.
        seed: the seed of all problems.
        numbers: the numbers of the problems.
        workers: the number of processes.
        progress: function that is called with each verdict.
        journal: the file of the verdicts; None writes none.
        resume: whether to read the verdicts of an earlier run from the journal.

    Returns:
        The verdicts in the order of their numbers; and whether Ctrl-C stopped the run.
    """
    wanted, verdicts, interrupted = set(numbers), [], False

    def count_in(verdict: Verdict) -> None:
        verdicts.append(verdict)
        if progress is not None:
            progress(verdict)

    for verdict in [] if journal is None else journal.begin(resume):
        if verdict.number in wanted:
            count_in(verdict)
    known = {one.number for one in verdicts}
    jobs = [(seed, number) for number in numbers if number not in known]
    try:
        for verdict in map_in_worker_pool(work, jobs, workers):
            if journal is not None:
                journal.append(verdict)
            count_in(verdict)
    except KeyboardInterrupt:
        interrupted = True
    return sorted(verdicts, key=lambda one: one.number), interrupted
