"""``solve_continuous_programs``: solves programs without integers, by the pipeline or by Newton's method.

The pipeline solves linear and quadratic programs. Newton's method solves programs whose objective has a smooth term φ.
"""

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
    """Solve a problem without integers exactly, for a batch of costs, in float64.

    Failed samples raise no error; their statuses give the reasons. A maximisation is solved as a minimisation, and the
    result has the signs of the minimisation.

    Args:
        problem: the problem, without integers.
        cost: (B, n) costs.
        smoothing: λ, the curvature that is added to the objective.
        solver: "auto" or a name that ``pear solvers`` lists.
        start: warm starts, or None.
        known: (B,) int8 of ``Status``, the statuses of samples that are known to fail and SOLVED for all other samples;
            None if no sample is known to fail.
        **overrides: fields that replace those of the problem in this call.
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
