"""Steps from the multipliers of a program that presolve has reduced to those of the original program.

Multipliers y (B, r) of r rows and ``bound`` (B, n) of n variables are positive at an upper limit and negative at a
lower limit. They satisfy the stationarity equation ``gradient + rowsᵀ y + bound = 0``, with the gradient (B, n) of the
minimised objective. Each step of presolve that changes multipliers is recorded, and the records are used in reverse
order. Each record makes the equation true for the variables that its step of presolve removed, so that in the end the
equation is true for all variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

from pear.presolving.row_program import Array, Index


class MultiplierStep(Protocol):
    """The record of a step of presolve, from which the multipliers of the removed rows and bounds are computed."""

    def restore(self, gradient: Array, y: Array, bound: Array) -> None:
        """Write the multipliers of the removed rows and bounds into ``y`` and ``bound``.

        Args:
            gradient: (B, n) gradient of the minimised objective with respect to the original variables.
            y: (B, r) multipliers of the original rows, correct for the rows that this step of presolve kept.
            bound: (B, n) multipliers of the original bounds, correct for the bounds that this step of presolve kept.
        """


@dataclass(frozen=True)
class SubstitutionMultipliers:
    """The record of a substitution of variables, which gives the multipliers of the equalities that define them.

    The multiplier of each equality makes the stationarity equation true for the variable that the equality defines.

    Attributes:
        rows: the numbers of the k equalities.
        pivots: (k,) the coefficients of the substituted variables in their equalities.
        in_variables: (n, k) derivatives of all original variables with respect to the substituted variables.
        in_rows: (r, k) coefficients of the substituted variables in the rows, with zeros for the k equalities.
    """

    rows: Index
    pivots: Array
    in_variables: sparse.csr_array
    in_rows: sparse.csr_array

    def restore(self, gradient: Array, y: Array, bound: Array) -> None:
        """Write the multipliers of the equalities that define variables into ``y``."""
        y[:, self.rows] = -(gradient @ self.in_variables + y @ self.in_rows) / self.pivots


@dataclass(frozen=True)
class FixedVariableMultipliers:
    """The record of the removal of variables with equal bounds, which gives the multipliers of these bounds.

    Attributes:
        columns: the numbers of the k fixed variables.
        in_variables: (n, k) derivatives of all original variables with respect to the fixed variables.
        in_rows: (r, k) coefficients of the fixed variables in the rows.
    """

    columns: Index
    in_variables: sparse.csr_array
    in_rows: sparse.csr_array

    def restore(self, gradient: Array, y: Array, bound: Array) -> None:
        """Write the multipliers of the bounds of the fixed variables into ``bound``."""
        bound[:, self.columns] = -(gradient @ self.in_variables + y @ self.in_rows)


class SharedLimitMultipliers:
    """The record of removed rows whose limits became bounds of a variable or limits of another row.

    The variable or row that took over a limit is called the taker, the removed row the giver. If the limit is active,
    its multiplier belongs to the giver.

    Args:
        of_bounds: True if bounds of variables took the limits over, False if rows did.
    """

    def __init__(self, of_bounds: bool) -> None:
        self._of_bounds = of_bounds
        self._giver: dict[tuple[int, bool], tuple[int, float]] = {}

    def add(self, taker: int, upper: bool, giver: int, factor: float) -> None:
        """Record that the upper or lower limit of ``taker`` now comes from the row ``giver``.

        Args:
            taker: the number of a variable or row.
            upper: True for the upper limit of the taker, False for its lower limit.
            giver: the number of the removed row.
            factor: the coefficients of the giver, divided by those of the taker, which are 1 for a variable.
        """
        self._giver[taker, upper] = giver, factor

    def has_taken(self, taker: int) -> bool:
        """Return True if ``taker`` has taken over a limit."""
        return (taker, False) in self._giver or (taker, True) in self._giver

    def restore(self, gradient: Array, y: Array, bound: Array) -> None:
        """Move the multipliers of the limits from the takers to the givers."""
        held = bound if self._of_bounds else y
        for (taker, upper), (giver, factor) in self._giver.items():
            amount = (np.maximum if upper else np.minimum)(held[:, taker], 0.0)
            held[:, taker] -= amount
            y[:, giver] += amount / factor
