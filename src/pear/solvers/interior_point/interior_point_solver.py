"""The interior-point solver: it solves dense programs as a batch, and sparse programs one by one."""

from __future__ import annotations

from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, Start
from pear.solvers.interior_point import dense_interior_point


def solve(qp: QuadraticProgram, tol: float, start: Start | Candidate | None = None) -> Candidate:
    """Propose points of the relative accuracy ``tol``.

    Args:
        qp: LPs or QPs with finite costs.
        tol: the largest scaled residual of a SOLVED sample. Its mean complementarity must be smaller still, because
            small complementarity shows which constraints are active.
        start: a warm start, or an earlier candidate to continue from. Dense programs do not use it.
    """
    if qp.is_sparse:
        from pear.solvers.interior_point import sparse_interior_point  # numba, which takes a moment to import

        return sparse_interior_point.solve_sparse_interior_point(qp, tol, start)
    return dense_interior_point.solve_dense_interior_point(qp, tol)
