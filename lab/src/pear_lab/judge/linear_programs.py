"""Linear programs for the judge, solved by HiGHS in SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

from pear_lab.judge.extended_precision import Wide, wide
from pear_lab.judge.judged_program import Array, JudgedProgram
from pear_lab.judge.point_residuals import TOLERANCE, PointMultipliers, measure_point_residuals
from pear_lab.judge.program_units import ProgramUnits, rescale_program

_REFERENCE = 1e-13  # the largest violation of a point whose objective another one must reach
INFEASIBLE = 2
"""The status of ``linprog`` for a program without a feasible point."""

_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def solve_linear_program(
    c: Array, lb: Array, ub: Array, G: Any = None, h: Any = None, A: Any = None, b: Any = None, **options: float
) -> Any:
    """Solve ``min cᵀz`` subject to ``Gz ≤ h, Az = b, lb ≤ z ≤ ub`` by HiGHS in SciPy, at its tightest tolerances.

    Args:
        c: (n,) costs.
        lb, ub: (n,) bounds.
        G, h, A, b: rows and their right-hand sides, dense or sparse; None or empty without rows.
        options: further options of HiGHS.

    Returns:
        The result of ``scipy.optimize.linprog``.
    """
    rows = {"A_ub": G, "b_ub": h} if G is not None and G.shape[0] else {}
    rows |= {"A_eq": A, "b_eq": b} if A is not None and A.shape[0] else {}
    return linprog(c, **rows, bounds=np.column_stack([lb, ub]), options={**_OPTIONS, **options})


def best_linear_program_point(s: JudgedProgram) -> Wide | None:
    """Solve a linear program by HiGHS in the program's own units, and check the solution in extended precision.

    The check is needed because the tolerances of HiGHS are absolute, and mean nothing beside bounds of 1e15. If rows
    nearly depend on each other, a violation of 1e-9 may improve the objective a lot.

    Returns:
        The solution (n,), or None if HiGHS finds none, or if it violates the optimality conditions.
    """
    scaled = rescale_program(s)
    keep = np.isfinite(scaled.h)
    size = median_magnitude(np.concatenate([scaled.b, scaled.h, scaled.lb, scaled.ub]))
    limits = (scaled.G[keep], scaled.h[keep] / size, scaled.A, scaled.b / size)
    solved = solve_linear_program(scaled.c, scaled.lb / size, scaled.ub / size, *limits)
    if solved.status != 0:
        return None
    rows = np.zeros(len(keep))
    rows[keep] = -solved.ineqlin.marginals if keep.any() else 0.0
    equality = -solved.eqlin.marginals if len(scaled.b) else np.zeros(0)
    bound = -(solved.lower.marginals + solved.upper.marginals)
    x = size * solved.x
    found = measure_point_residuals(scaled, x, PointMultipliers(wide(equality), wide(rows), wide(bound)))
    if found.worst > TOLERANCE or found.primal > _REFERENCE:
        return None
    return np.asarray(wide(x) * ProgramUnits.of(s).column)


def median_magnitude(values: Array) -> float:
    """Return the median magnitude of the values that are finite and not zero; 1 without one."""
    found = np.abs(values[np.isfinite(values)])
    found = found[found > 0]
    return float(np.median(found)) if len(found) else 1.0
