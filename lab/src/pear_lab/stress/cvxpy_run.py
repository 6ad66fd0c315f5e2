"""Examine many random problems of CVXPY on several cores, and count their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pear_lab.stress.cvxpy_problems import FAMILIES
from pear_lab.stress.examine_cvxpy import CvxpyVerdict, examine
from pear_lab.stress.worker_pool import ExaminedProblems, examine_numbers

FIT_EVERY = 10
"""One problem in this many is trained on, too."""
_LONGEST = 110  # characters of a reason by which refusals are counted together


class CvxpyResult(ExaminedProblems[CvxpyVerdict]):
    """The outcomes of the problems of CVXPY so far."""

    @property
    def wrong(self) -> list[CvxpyVerdict]:
        """The verdicts on problems with a wrong optimum, loss, gradient or training."""
        return [one for one in self.verdicts if one.wrong]

    def reasons(self) -> Counter[str]:
        """Count the refused problems by error message. Digits become ``#``, so that messages differ in words alone."""
        return Counter(
            "".join("#" if letter.isdigit() else letter for letter in one.refused)[:_LONGEST]
            for one in self.verdicts
            if one.refused
        )

    def counts(self) -> list[tuple[str, dict[str, int]]]:
        """The counts of each family, and of all."""
        return [(name, _count(verdicts)) for name, verdicts in self.by_family(FAMILIES)]


def _count(verdicts: list[CvxpyVerdict]) -> dict[str, int]:
    """Count the verdicts by what became of the problem."""
    return {
        "drawn": len(verdicts),
        "ran": sum(one.ran for one in verdicts),
        "refused": sum(bool(one.refused) for one in verdicts),
        "wrong": sum(bool(one.wrong) for one in verdicts),
        "gradients": sum(one.gradients for one in verdicts),
        "kinks": sum(one.edges for one in verdicts),
        "fits": sum(one.fitted for one in verdicts),
    }


def run(
    numbers: list[int], seed: int = 0, workers: int = 1, progress: Callable[[CvxpyVerdict], None] | None = None
) -> CvxpyResult:
    """Examine problems.

    Args:
        numbers: which problems of the seed.
        seed: the seed of the problems; a problem does not depend on what else is run.
        workers: processes.
        progress: called with each verdict.

    Returns:
        What was found, sorted by number; after Ctrl-C what was found until then.
    """
    return CvxpyResult(*examine_numbers(work, seed, numbers, workers, progress))


def work(job: tuple[int, int]) -> CvxpyVerdict:
    """Examine one problem, given its seed and number; runs in a worker process."""
    seed, number = job
    return examine(seed, number, with_fit=number % FIT_EVERY == 0)
