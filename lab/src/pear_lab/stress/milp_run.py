"""Examine many random mixed-integer programs on several cores, and count what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pear_lab.stress.examine_milp import MilpVerdict, examine_milp
from pear_lab.stress.journal import Journal
from pear_lab.stress.milp_problems import MILP_FAMILIES
from pear_lab.stress.worker_pool import examine_numbers


@dataclass
class MilpResult:
    """What became of the programs so far.

    Attributes:
        verdicts: one for each program.
        interrupted: whether the user stopped the run.
    """

    verdicts: list[MilpVerdict] = field(default_factory=list)
    interrupted: bool = False

    @property
    def bad(self) -> list[MilpVerdict]:
        """Those that are wrong, or refused although both references solve them."""
        return [one for one in self.verdicts if one.wrong or one.refused]

    def counts(self) -> list[tuple[str, dict[str, str]]]:
        """The counts of each family, and of all."""
        return [(name, self._count(name)) for name in (*MILP_FAMILIES, "all")]

    def _count(self, family: str) -> dict[str, str]:
        here = [one for one in self.verdicts if family in (one.family, "all")]
        statuses = {
            name: sum(one.ours == name.upper() for one in here) for name in ("solved", "infeasible", "unbounded")
        }
        numbers = {
            "drawn": len(here),
            **statuses,
            "refused": sum(one.refused for one in here),
            "wrong": sum(bool(one.wrong) for one in here),
            "better than both": sum(one.better for one in here),
            "unchecked": sum(one.unchecked for one in here),
        }
        seconds = sum(one.seconds for one in here)
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
        seed: of the programs; a program is the same whatever else is run.
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
