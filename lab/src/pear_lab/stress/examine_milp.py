"""Examine mixed-integer programs: HiGHS and SciPy solve them, too, and an exact check judges our decisions.

Both references run without a line of our code, with their own tolerances. Their integers are then fixed and the
continuous variables solved again: with a big M, a switch of 1e-7 would allow an amount that 0 forbids.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from pear import FailedSamplesWarning, Problem, Status, solve
from pear.errors import PearError
from pear.optional_packages import import_optional
from pear_lab.judge.judge_integer_answer import integer_violations
from pear_lab.judge.judged_program import Array, JudgedProgram
from pear_lab.stress.journal import Journal
from pear_lab.stress.milp_problems import MILP_FAMILIES, MilpCase, draw_milp
from pear_lab.stress.worker_pool import ExaminedProblems, examine_numbers

VALUE = 1e-8
"""Largest difference of an objective from the best of the references, relative to its terms."""
VIOLATED = 1e-8
"""Largest violation of a row, relative to its terms."""
SECONDS = 30.0
"""Time limit of each reference; no program here needs more than a few. Ours, which may compile, gets ten times that."""
SOLVED, INFEASIBLE, UNBOUNDED, OPEN = "solved", "infeasible", "unbounded", "open"
_EITHER = "unbounded or infeasible"
_STRICT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_CRASHES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class MilpVerdict:
    """The outcome of one program.

    Attributes:
        number, family: which program it is.
        ours: our status.
        references: what HiGHS and SciPy say.
        wrong: what is wrong, in words; empty if nothing is.
        refused: whether both references solve it, and we do not.
        better: whether our point is feasible and better than theirs.
        unchecked: whether our status is the claim of one solver (``Solution.unchecked``).
        seconds: our time.
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


@dataclass(frozen=True)
class Reference:
    """What another solver says.

    Attributes:
        status: "solved", "infeasible", "unbounded" or "open".
        value: the minimised objective at its integers; infinite without a point.
    """

    status: str
    value: float = np.inf


def examine_milp(seed: int, number: int) -> MilpVerdict:
    """Draw a program, solve it three times, and judge our answer."""
    return judge_milp(draw_milp(seed, number), number)


def judge_milp(case: MilpCase, number: int = 0) -> MilpVerdict:
    """Solve one program three times, and judge our answer."""
    program = minimised_program(case)
    with silent_output():
        references = solve_by_highs(program), solve_by_scipy(program)
    said = references[0].status, references[1].status
    began = time.perf_counter()
    try:
        with silent_output():
            status, x, unchecked = solve_by_us(case)
    except (PearError, *_CRASHES) as error:
        return MilpVerdict(number, case.family, "", said, f"raised {type(error).__name__}: {error}")
    seconds = time.perf_counter() - began
    best = min(reference.value for reference in references)
    wrong, better = _judge(program, status, x, said, best)
    refused = status in ("INACCURATE", "TIME_LIMIT") and said == (SOLVED, SOLVED)
    return MilpVerdict(number, case.family, status, said, wrong, refused, better, unchecked, seconds)


@contextmanager
def silent_output() -> Iterator[None]:
    """Discard what compiled code prints: HiGHS reports on some programs even where its options forbid it."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def minimised_program(case: MilpCase) -> JudgedProgram:
    """The program as arrays of the judge, minimised."""
    n, sign = len(case.c), 1.0 if case.sense == "min" else -1.0
    fields = (case.A, case.b, case.G, case.h, case.lb, case.ub, case.integer)
    return JudgedProgram(np.zeros((n, n)), sign * case.c, *fields)


def solve_by_us(case: MilpCase) -> tuple[str, Array, bool]:
    """Our status and point (n,) with the defaults, and whether the status is the claim of one solver."""
    rows = {name: getattr(case, name) for name in ("A", "b", "G", "h") if len(case.b if name in "Ab" else case.h)}
    if case.sparse:
        rows |= {name: sparse.csr_array(rows[name]) for name in ("A", "G") if name in rows}
    problem = Problem(**rows, lb=case.lb, ub=case.ub, integer=case.integer, sense=case.sense)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedSamplesWarning)
        found = solve(problem, torch.from_numpy(case.c), on_failure="mask", time_limit=10 * SECONDS)
    return Status(int(found.status[0])).name, found.x[0].numpy(), bool(found.unchecked[0])


def _judge(s: JudgedProgram, status: str, x: Array, said: tuple[str, str], best: float) -> tuple[str, bool]:
    """What is wrong with our answer, in words, and whether it is better than the references'."""
    if status == "INFEASIBLE":
        return f"INFEASIBLE, but a point of value {best:.10g} is feasible" if np.isfinite(best) else "", False
    if status == "UNBOUNDED":
        return "" if UNBOUNDED in said else f"UNBOUNDED, but the others say {said}", False
    if status == "NOT_FINITE":
        return "NOT_FINITE, but the data is finite", False
    if status != "SOLVED":
        return "", False
    off = float(integer_violations(s, x[None])[0]) if np.isfinite(x).all() else np.inf
    if off > VIOLATED:
        return f"SOLVED, but a constraint is violated by {off:.1e}", False
    value, size = float(s.c @ x), max(float(np.abs(s.c) @ np.abs(x)), 1e-9 * float(np.abs(s.c).max()))
    if said == (UNBOUNDED, UNBOUNDED):
        return "SOLVED, but the others say unbounded", False
    if value > best + VALUE * size:
        return f"SOLVED with {value:.12g}, but {best:.12g} is possible", False
    return "", bool(value < best - VALUE * size)


def solve_by_highs(s: JudgedProgram) -> Reference:
    """HiGHS itself, through its own interface."""
    return _told_apart(s, _run_highs)


def solve_by_scipy(s: JudgedProgram) -> Reference:
    """SciPy's ``milp``, with the version of HiGHS that it brings."""
    return _told_apart(s, _run_scipy)


def _told_apart(s: JudgedProgram, run: Callable[[JudgedProgram], Reference]) -> Reference:
    """Run a solver; where it says "unbounded or infeasible", a run without the cost tells which of the two holds."""
    said = run(s)
    if said.status != _EITHER:
        return said
    without_cost = run(replace(s, c=np.zeros(s.n))).status
    return Reference({SOLVED: UNBOUNDED, INFEASIBLE: INFEASIBLE}.get(without_cost, OPEN))


def _run_highs(s: JudgedProgram) -> Reference:
    """One run of HiGHS."""
    highspy = import_optional("highspy", "highs", "pear stress milp")
    highs = highspy.Highs()
    for name, value in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0, "time_limit": SECONDS}.items():
        highs.setOptionValue(name, value)
    lp, matrix = highspy.HighsLp(), sparse.csc_array(np.vstack([s.A, s.G]))
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = s.c, s.lb, s.ub
    lp.row_lower_ = np.concatenate([s.b, np.full(len(s.h), -np.inf)])
    lp.row_upper_ = np.concatenate([s.b, s.h])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[int(integer)] for integer in s.integer]
    highs.passModel(lp)
    highs.run()
    outcomes = highspy.HighsModelStatus
    names = {outcomes.kOptimal: SOLVED, outcomes.kInfeasible: INFEASIBLE, outcomes.kUnbounded: UNBOUNDED}
    names[outcomes.kUnboundedOrInfeasible] = _EITHER
    status = names.get(highs.getModelStatus(), OPEN)
    return _completed(s, status, np.array(highs.getSolution().col_value) if status == SOLVED else None)


def _run_scipy(s: JudgedProgram) -> Reference:
    """One run of SciPy's ``milp``."""
    rows = [LinearConstraint(s.A, s.b, s.b)] * bool(len(s.b)) + [LinearConstraint(s.G, -np.inf, s.h)] * bool(len(s.h))
    options = {"mip_rel_gap": 0.0, "time_limit": SECONDS}
    found = milp(s.c, integrality=s.integer, bounds=Bounds(s.lb, s.ub), constraints=rows, options=options)
    names = {0: SOLVED, 2: INFEASIBLE, 3: UNBOUNDED}
    status = _EITHER if _EITHER in found.message.lower() else names.get(found.status, OPEN)
    return _completed(s, status, found.x if status == SOLVED else None)


def _completed(s: JudgedProgram, status: str, x: Array | None) -> Reference:
    """Round the reference's integers and compute the best value for them; status "open" if they allow no point."""
    if x is None:
        return Reference(status)
    fixed, rest = np.round(x[s.integer]), ~s.integer
    lb, ub = np.where(s.integer, 0.0, s.lb), np.where(s.integer, 0.0, s.ub)
    lb[s.integer] = ub[s.integer] = fixed
    exact = linprog(s.c, s.G, s.h, s.A, s.b, np.column_stack([lb, ub]), method="highs", options=_STRICT)
    if exact.status != 0:
        return Reference(OPEN)
    point = exact.x.copy()
    point[rest] = np.clip(point[rest], s.lb[rest], s.ub[rest])
    point[s.integer] = fixed
    if float(integer_violations(s, point[None])[0]) > VIOLATED:
        return Reference(OPEN)
    return Reference(SOLVED, float(s.c @ point))


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
