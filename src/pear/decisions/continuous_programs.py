"""Continuous programs: the pipeline solves quadratic ones, and Newton's method those with a smooth convex term φ."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pear.decisions.newton_method import solve_by_newton_method
from pear.decisions.pipeline import solve_in_pipeline
from pear.problem import Problem
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.backend_registry import order_backends_by_cost, resolve_backends
from pear.solvers.candidate import Start


def solve_continuous_programs(
    problem: Problem,
    cost: Tensor,
    smoothing: float,
    solver: str,
    start: Start | None = None,
    known: Tensor | None = None,
    **overrides: Any,
) -> VerifiedSolutions:
    """Solve the continuous relaxation exactly, in float64 and as a minimisation.

    Failed samples raise no error; their statuses give the reasons.

    Args:
        problem, cost, smoothing, solver, overrides: as for ``pear.solve``.
        start: warm starts, or None.
        known: (B,) int8 statuses of samples that are known to fail, SOLVED for all other samples; or None.
    """
    qp = problem.canonical(cost, smoothing, **overrides)
    kind = "lp" if problem.phi is None and qp.is_linear else "qp"
    solvers = resolve_backends(solver, kind, problem.is_sparse)
    named = solver != "auto"
    if problem.phi is not None:
        return solve_by_newton_method(problem, qp, solvers, named)
    # the problem's own curvature was checked at construction; the curvature of a call has not been checked yet
    given = overrides.get("Q") is not None
    vertex = not named and problem.is_sparse
    solvers = solvers if named else order_backends_by_cost(solvers, qp)
    return solve_in_pipeline(qp, solvers, start, check_convexity=given, seek_vertex=vertex, known=known, named=named)
