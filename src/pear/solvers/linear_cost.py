"""``LinearCost``, the time that a solver is expected to need for a dense linear program."""

from __future__ import annotations

from typing import NamedTuple

from pear.problem.quadratic_program import QuadraticProgram


class LinearCost(NamedTuple):
    """A model of the seconds that a solver needs for one dense linear program with p equalities and m inequalities.

    The seconds are ``once + (per_equality·p + per_inequality·m)·z``, where z is the number of non-zeros of all rows.
    ``python tools/solver_costs.py`` measures the coefficients.

    Attributes:
        once: seconds that every program takes, whatever its size.
        per_equality: the coefficient of p·z, in seconds.
        per_inequality: the coefficient of m·z, in seconds.
    """

    once: float
    per_equality: float
    per_inequality: float

    def of(self, qp: QuadraticProgram) -> float:
        """Return the expected seconds for one of these programs."""
        nonzeros = qp.prepare_once("non-zeros", self._count_nonzeros)
        return self.once + (self.per_equality * qp.p + self.per_inequality * qp.m) * nonzeros

    @staticmethod
    def _count_nonzeros(qp: QuadraticProgram) -> int:
        """Return the number of non-zeros of the rows of one program; if rows differ by sample, of all entries."""
        if not qp.shares_matrices:
            return (qp.p + qp.m) * qp.n
        return int(qp.A.count_nonzero()) + int(qp.G.count_nonzero())
