"""``LinearCost``: what a dense linear program is expected to cost a solver."""

from __future__ import annotations

from typing import NamedTuple

from pear.problem.quadratic_program import QuadraticProgram


class LinearCost(NamedTuple):
    """The measured seconds of one dense linear program, as a sum of three terms (``python tools/solver_costs.py``).

    Attributes:
        once: for every program.
        per_equality: times the number of equalities, times the non-zeros of all rows.
        per_inequality: times the number of inequalities, times the non-zeros of all rows.
    """

    once: float
    per_equality: float
    per_inequality: float

    def of(self, qp: QuadraticProgram) -> float:
        """The expected seconds of one of these programs."""
        nonzeros = qp.prepare_once("non-zeros", _count_nonzeros)
        return self.once + (self.per_equality * qp.p + self.per_inequality * qp.m) * nonzeros


def _count_nonzeros(qp: QuadraticProgram) -> int:
    """Count the non-zeros of the rows of one program; every entry counts where each sample has rows of its own."""
    if not qp.shares_matrices:
        return (qp.p + qp.m) * qp.n
    return int(qp.A.count_nonzero()) + int(qp.G.count_nonzero())
