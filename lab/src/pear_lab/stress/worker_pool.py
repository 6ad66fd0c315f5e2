"""Work on many jobs, in this process or in a pool of processes with one thread each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pear_lab.stress.journal import Journal

Job = TypeVar("Job")
Result = TypeVar("Result")


def map_in_pool(work: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    """Yield the result of each job as soon as it is there; with one worker the jobs are done in this process."""
    if workers == 1:
        use_one_thread()
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(workers, use_one_thread) as pool:
        yield from pool.imap_unordered(work, jobs)


def use_one_thread() -> None:
    """Let this process use one thread, because there are as many processes as cores."""
    import numba
    import torch

    torch.set_num_threads(1)
    numba.set_num_threads(1)


class NumberedVerdict(Protocol):
    """The outcome of one problem of a seed."""

    @property
    def number(self) -> int:
        """The number of the problem within the seed."""
        ...

    @property
    def family(self) -> str:
        """The family of the problem."""
        ...


Verdict = TypeVar("Verdict", bound=NumberedVerdict)


@dataclass
class ExaminedProblems(Generic[Verdict]):
    """The outcomes of the problems so far.

    Attributes:
        verdicts: one for each problem.
        interrupted: whether the user stopped the run.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    interrupted: bool = False

    def by_family(self, families: Iterable[str]) -> list[tuple[str, list[Verdict]]]:
        """The verdicts of each family, and of all."""
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
    """Examine problems by their numbers; those that the journal has already are not examined again.

    Args:
        work: examines one problem, given its seed and number.
        seed: the seed of all problems.
        numbers: the numbers of the problems within the seed.
        workers: number of processes.
        progress: called with each verdict.
        journal: keeps the verdicts in a file; None keeps none.
        resume: whether to read what an earlier run has written to the journal.

    Returns:
        The verdicts in the order of their numbers; and whether Ctrl-C has ended the run before its end.
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
    try:
        for verdict in map_in_pool(work, [(seed, number) for number in numbers if number not in known], workers):
            if journal is not None:
                journal.append(verdict)
            count_in(verdict)
    except KeyboardInterrupt:
        interrupted = True
    return sorted(verdicts, key=lambda one: one.number), interrupted
