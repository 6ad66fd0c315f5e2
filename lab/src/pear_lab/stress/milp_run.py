"""Examine many random mixed-integer programs on several cores, and count their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pear_lab.stress.examine_milp import MilpVerdict, examine_milp
from pear_lab.stress.journal import Journal
from pear_lab.stress.milp_problems import MILP_FAMILIES
from pear_lab.stress.worker_pool import ExaminedProblems, examine_numbers


class MilpResult(ExaminedProblems[MilpVerdict]):
    """The outcomes of the integer programs so far."""

    @property
    def bad(self) -> list[MilpVerdict]:
        """Those that are wrong, or refused although both references solve them."""
        return [one for one in self.verdicts if one.wrong or one.refused]

    def counts(self) -> list[tuple[str, dict[str, str]]]:
        """The counts of each family, and of all."""
        return [(name, _count(verdicts)) for name, verdicts in self.by_family(MILP_FAMILIES)]


def _count(verdicts: list[MilpVerdict]) -> dict[str, str]:
    """Count the verdicts by what became of the program, and add up our seconds."""
    numbers = {
        "drawn": len(verdicts),
        **{name: sum(one.ours == name.upper() for one in verdicts) for name in ("solved", "infeasible", "unbounded")},
        "refused": sum(one.refused for one in verdicts),
        "wrong": sum(bool(one.wrong) for one in verdicts),
        "better than both": sum(one.better for one in verdicts),
        "unchecked": sum(one.unchecked for one in verdicts),
    }
    seconds = sum(one.seconds for one in verdicts)
    return {name: f"{number:,}" for name, number in numbers.items()} | {"seconds": f"{seconds:.1f}"}


def run(
    numbers: list[int],
    seed: int = 0,
    workers: int = 1,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[MilpVerdict], None] | None = None,
) -> MilpResult:
    """Examine programs.

    Args:
        numbers: which programs of the seed.
        seed: the seed of the programs; a program does not depend on what else is run.
        workers: processes.
        folder: the folder for the verdicts so far; None writes nothing.
        resume: go on where the last run of this seed was stopped.
        progress: called with each verdict.

    Returns:
        What was found, sorted by number; after Ctrl-C what was found until then.
    """
    journal: Journal[MilpVerdict] = Journal(folder, {"seed": seed}, asdict, _decode_verdict)
    return MilpResult(*examine_numbers(work, seed, numbers, workers, progress, journal, resume))


def work(job: tuple[int, int]) -> MilpVerdict:
    """Examine one program, given its seed and number; runs in a worker process."""
    return examine_milp(*job)


def _decode_verdict(line: dict[str, Any]) -> MilpVerdict:
    """The verdict of a line of the journal."""
    return MilpVerdict(**{**line, "references": tuple(line["references"])})
