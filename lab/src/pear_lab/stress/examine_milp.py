"""Examining PEAR's answers to random mixed-integer programs, which HiGHS and SciPy solve as well.

Constraints are checked in extended precision. Objectives are compared with those of HiGHS and SciPy.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from pear import FailedSamplesWarning, Problem, Status, solve
from pear.errors import PearError
from pear_lab.judge.integer_judge import IntegerJudge
from pear_lab.judge.judged_program import Array, JudgedProgram
from pear_lab.stress.examine_numbers import ExaminedNumbers, examine_numbers
from pear_lab.stress.journal import Journal
from pear_lab.stress.milp_families import MILP_FAMILIES, MilpFamilyCase, draw_milp_family
from pear_lab.stress.milp_references import (
    SECONDS,
    SOLVED,
    UNBOUNDED,
    VIOLATED,
    highs_milp_reference,
    scipy_milp_reference,
    silent_milp_output,
)

VALUE = 1e-8
"""The largest allowed excess of an objective over that of the best reference, relative to the size of its terms."""
_SECONDS = 10 * SECONDS  # PEAR's time limit; the first call compiles code
_CRASHES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class MilpVerdict:
    """The verdict on PEAR's answer to one program.

    Attributes:
        number, family: the number and the family of the program.
        ours: PEAR's status; empty if PEAR raised an error.
        references: the statuses of HiGHS and SciPy.
        wrong: a sentence on a wrong answer; empty if nothing is wrong.
        refused: whether both references solve the program, and PEAR does not.
        better: whether PEAR's point is feasible and has a clearly better objective than the points of both references.
            It is also True if neither reference has a point.
        unchecked: whether PEAR's status is the unverified claim of one solver (``Solution.unchecked``).
        seconds: PEAR's time.
    """

    number: int
    family: str
    ours: str
    references: tuple[str, str]
    wrong: str = ""
    refused: bool = False
    better: bool = False
    unchecked: bool = False
    seconds: float = 0.0


def examine_milp(seed: int, number: int) -> MilpVerdict:
    """Draw a program, solve it by PEAR, HiGHS and SciPy, and return the verdict on PEAR's answer."""
    return examine_milp_case(draw_milp_family(seed, number), number)


def examine_milp_case(case: MilpFamilyCase, number: int = 0) -> MilpVerdict:
    """Solve a program by PEAR, HiGHS and SciPy, and return the verdict on PEAR's answer, with the program's number."""
    program = case.minimised()
    with silent_milp_output():
        references = highs_milp_reference(program), scipy_milp_reference(program)
    said = references[0].status, references[1].status
    began = time.perf_counter()
    try:
        with silent_milp_output():
            status, x, unchecked = examined_milp_answer(case)
    except (PearError, *_CRASHES) as error:
        return MilpVerdict(number, case.family, "", said, f"raised {type(error).__name__}: {error}")
    seconds = time.perf_counter() - began
    best = min(reference.value for reference in references)
    wrong, better = _examine_milp_answer(program, status, x, said, best)
    refused = status in ("INACCURATE", "TIME_LIMIT") and said == (SOLVED, SOLVED)
    return MilpVerdict(number, case.family, status, said, wrong, refused, better, unchecked, seconds)


def examined_milp_answer(case: MilpFamilyCase) -> tuple[str, Array, bool]:
    """Solve a program with PEAR's defaults, and return the status, the point (n,) and ``Solution.unchecked``."""
    rows = {name: getattr(case, name) for name in ("A", "b", "G", "h") if len(case.b if name in "Ab" else case.h)}
    if case.sparse:
        rows |= {name: sparse.csr_array(rows[name]) for name in ("A", "G") if name in rows}
    problem = Problem(**rows, lb=case.lb, ub=case.ub, integer=case.integer, sense=case.sense)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSamplesWarning)
        found = solve(problem, torch.from_numpy(case.c), on_failure="mask", time_limit=_SECONDS)
    return Status(int(found.status[0])).name, found.x[0].numpy(), bool(found.unchecked[0])


def _examine_milp_answer(
    s: JudgedProgram, status: str, x: Array, said: tuple[str, str], best: float
) -> tuple[str, bool]:
    """Judge PEAR's answer to a program.

    Args:
        s: the minimised program.
        status, x: PEAR's status and point (n,).
        said: the statuses of the references.
        best: the smallest objective of the references; infinite if neither has a point.

    Returns:
        A sentence on a wrong answer, or an empty text; and whether the answer is better than those of the references.
    """
    if status == "INFEASIBLE":
        return f"INFEASIBLE, but a point of value {best:.10g} is feasible" if np.isfinite(best) else "", False
    if status == "UNBOUNDED":
        return "" if UNBOUNDED in said else f"UNBOUNDED, but the others say {said}", False
    if status == "NOT_FINITE":
        return "NOT_FINITE, but the data is finite", False
    if status != "SOLVED":
        return "", False
    off = float(IntegerJudge(s).violations(x[None])[0]) if np.isfinite(x).all() else np.inf
    if off > VIOLATED:
        return f"SOLVED, but a constraint is violated by {off:.1e}", False
    value, size = float(s.c @ x), max(float(np.abs(s.c) @ np.abs(x)), 1e-9 * float(np.abs(s.c).max()))
    if said == (UNBOUNDED, UNBOUNDED):
        return "SOLVED, but the others say unbounded", False
    if value > best + VALUE * size:
        return f"SOLVED with {value:.12g}, but {best:.12g} is possible", False
    return "", bool(value < best - VALUE * size)


class ExaminedMilp(ExaminedNumbers[MilpVerdict]):
    """The verdicts on integer programs so far."""

    @property
    def bad(self) -> list[MilpVerdict]:
        """The verdicts on wrong answers, and on programs that PEAR refuses although both references solve them."""
        return [one for one in self.verdicts if one.wrong or one.refused]

    def counts(self) -> list[tuple[str, dict[str, str]]]:
        """Return pairs of a family and its row of counts, as texts by column; the last pair is for "all" families."""
        return [(name, _count_examined_milp(verdicts)) for name, verdicts in self.by_family(MILP_FAMILIES)]


def _count_examined_milp(verdicts: list[MilpVerdict]) -> dict[str, str]:
    """Return the number of programs of each kind, such as "solved" or "wrong", and PEAR's seconds, all as texts."""
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


def examine_milp_numbers(
    numbers: list[int],
    seed: int = 0,
    workers: int = 1,
    folder: Path | None = None,
    resume: bool = False,
    progress: Callable[[MilpVerdict], None] | None = None,
) -> ExaminedMilp:
    """Examine mixed-integer programs.

    Args:
        numbers: the numbers of the programs.
        seed: the seed of the programs. A program depends on the seed and its number only.
        workers: the number of processes.
        folder: the folder for the verdicts so far; None writes nothing.
        resume: whether to continue the last run in the folder, which must have had the same seed.
        progress: function that is called with each verdict.

    Returns:
        The verdicts in the order of their numbers; after Ctrl-C, the verdicts so far.
    """
    journal: Journal[MilpVerdict] = Journal(folder, {"seed": seed}, asdict, _decode_examined_milp)
    return ExaminedMilp(*examine_numbers(_examine_milp_job, seed, numbers, workers, progress, journal, resume))


def _examine_milp_job(job: tuple[int, int]) -> MilpVerdict:
    """Examine, in a worker process, the program with the seed and the number in ``job``."""
    return examine_milp(*job)


def _decode_examined_milp(line: dict[str, Any]) -> MilpVerdict:
    """Return the verdict that a line of the journal holds."""
    return MilpVerdict(**{**line, "references": tuple(line["references"])})
