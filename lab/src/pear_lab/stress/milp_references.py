"""References for mixed-integer programs: the answers of HiGHS and SciPy, completed to exact points.

Both solvers run without PEAR's code and with their own tolerances. Afterwards their integers are rounded, and the
continuous variables are solved again. Otherwise a switch of 1e-7, multiplied by a big M, would allow an amount that a
switch of 0 forbids.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from pear.optional_packages import import_optional
from pear_lab.judge.integer_judge import IntegerJudge
from pear_lab.judge.judged_program import Array, JudgedProgram

VIOLATED = 1e-8
"""The largest allowed violation of a row, relative to the size of its terms."""
SECONDS = 30.0
"""The time limit of a reference. The random programs need a few seconds at most."""
SOLVED, INFEASIBLE, UNBOUNDED, OPEN = "solved", "infeasible", "unbounded", "open"
_EITHER = "unbounded or infeasible"
_STRICT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True)
class MilpReference:
    """The answer of another solver to a program.

    Attributes:
        status: "solved", "infeasible", "unbounded" or, without an answer, "open".
        value: the smallest objective with the integers of the answer; infinite without a point.
    """

    status: str
    value: float = np.inf


def highs_milp_reference(s: JudgedProgram) -> MilpReference:
    """Return the answer of HiGHS to a program, through its own interface."""
    return _decide_milp_reference(s, _run_highs_milp_reference)


def scipy_milp_reference(s: JudgedProgram) -> MilpReference:
    """Return the answer of SciPy's ``milp`` to a program. SciPy contains another version of HiGHS."""
    return _decide_milp_reference(s, _run_scipy_milp_reference)


@contextmanager
def silent_milp_output() -> Iterator[None]:
    """Make a context that discards the standard output. HiGHS writes to it on some programs, against its options."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def _decide_milp_reference(s: JudgedProgram, run: Callable[[JudgedProgram], MilpReference]) -> MilpReference:
    """Run a solver, and return its answer. If it is "unbounded or infeasible", a run without costs decides which."""
    said = run(s)
    if said.status != _EITHER:
        return said
    without_cost = run(replace(s, c=np.zeros(s.n))).status
    return MilpReference({SOLVED: UNBOUNDED, INFEASIBLE: INFEASIBLE}.get(without_cost, OPEN))


def _run_highs_milp_reference(s: JudgedProgram) -> MilpReference:
    """Run HiGHS once, and return its answer with exact integers."""
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
    return _complete_milp_reference(s, status, np.array(highs.getSolution().col_value) if status == SOLVED else None)


def _run_scipy_milp_reference(s: JudgedProgram) -> MilpReference:
    """Run SciPy's ``milp`` once, and return its answer with exact integers."""
    rows = [LinearConstraint(s.A, s.b, s.b)] * bool(len(s.b)) + [LinearConstraint(s.G, -np.inf, s.h)] * bool(len(s.h))
    options = {"mip_rel_gap": 0.0, "time_limit": SECONDS}
    found = milp(s.c, integrality=s.integer, bounds=Bounds(s.lb, s.ub), constraints=rows, options=options)
    names = {0: SOLVED, 2: INFEASIBLE, 3: UNBOUNDED}
    status = _EITHER if _EITHER in found.message.lower() else names.get(found.status, OPEN)
    return _complete_milp_reference(s, status, found.x if status == SOLVED else None)


def _complete_milp_reference(s: JudgedProgram, status: str, x: Array | None) -> MilpReference:
    """Round the integers of a reference's point, and compute the best value for them.

    Args:
        s: the program.
        status: the status of the reference.
        x: (n,) the point of the reference; None if there is none.

    Returns:
        The completed answer. Its status is "open" if the rounded integers allow no feasible point.
    """
    if x is None:
        return MilpReference(status)
    fixed, rest = np.round(x[s.integer]), ~s.integer
    lb, ub = np.where(s.integer, 0.0, s.lb), np.where(s.integer, 0.0, s.ub)
    lb[s.integer] = ub[s.integer] = fixed
    exact = linprog(s.c, s.G, s.h, s.A, s.b, np.column_stack([lb, ub]), method="highs", options=_STRICT)
    if exact.status != 0:
        return MilpReference(OPEN)
    point = exact.x.copy()
    point[rest] = np.clip(point[rest], s.lb[rest], s.ub[rest])
    point[s.integer] = fixed
    if float(IntegerJudge(s).violations(point[None])[0]) > VIOLATED:
        return MilpReference(OPEN)
    return MilpReference(SOLVED, float(s.c @ point))
