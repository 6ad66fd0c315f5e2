"""Steps back from the multipliers of a reduced program to those of the original, one for each step of the reduction.

Multipliers y (B, r) of rows are positive at the upper limit and negative at the lower one; multipliers ``bound``
(B, n) likewise. They satisfy ``gradient + rowsᵀ y + bound = 0``, where gradient is that of the objective. Every step
keeps this true for the variables of its stage, so that it holds for all of them in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

from pear.presolving.row_program import Array, Index, Mask


class MultiplierStep(Protocol):
    """One step back."""

    def restore(self, gradient: Array, y: Array, bound: Array) -> None:
        """Write the multipliers of what the step has removed into y (B, r) and bound (B, n).

        Args:
            gradient: (B, n) of the objective at the decisions, by the original variables.
            y: (B, r) multipliers of the original rows, complete for those that were left after the step.
            bound: (B, n) multipliers of the bounds, likewise.
        """


@dataclass(frozen=True)
class SubstitutedVariables:
    """Variables that equalities define: each equality gets the multiplier that balances its variable.

    Attributes:
        rows: (k,) the equalities.
        pivots: (k,) the coefficients of the variables in their equalities.
        in_variables: (n, k) derivatives of all original variables by these.
        in_rows: (r, k) coefficients of these variables in the other rows.
    """

    rows: Index
    pivots: Array
    in_variables: sparse.csr_array
    in_rows: sparse.csr_array

    def restore(self, gradient: Array, y: Array, bound: Array) -> None:
        """Write the multipliers of the equalities."""
        y[:, self.rows] = -(_times(gradient, self.in_variables) + _times(y, self.in_rows)) / self.pivots


@dataclass(frozen=True)
class FixedVariables:
    """Variables with equal bounds: their bounds get what is left of the gradient.

    Attributes:
        columns: (k,) the variables.
        in_variables: (n, k) derivatives of all original variables by these.
        in_rows: (r, k) coefficients of these variables in the rows.
    """

    columns: Index
    in_variables: sparse.csr_array
    in_rows: sparse.csr_array

    def restore(self, gradient: Array, y: Array, bound: Array) -> None:
        """Write the multipliers of the bounds."""
        bound[:, self.columns] = -(_times(gradient, self.in_variables) + _times(y, self.in_rows))


@dataclass(frozen=True)
class SharedLimits:
    """Limits that a row, or the bounds of a variable, took over from rows that were removed.

    Attributes:
        of_bounds: True where variables took them over, False where rows did.
        takers: (k,) the variables or rows that have the limits now.
        givers: (k,) the rows that the limits come from.
        factors: (k,) the giver's coefficients, divided by the taker's.
        upper: (k,) bool, True where it is the upper limit of the taker.
    """

    of_bounds: bool
    takers: Index
    givers: Index
    factors: Array
    upper: Mask

    def restore(self, gradient: Array, y: Array, bound: Array) -> None:
        """Move multipliers from the takers to the givers, for the limits that they come from."""
        held = (bound if self.of_bounds else y)[:, self.takers]
        moved = np.where(self.upper, np.maximum(held, 0.0), np.minimum(held, 0.0))
        for taker, giver, factor, amount in zip(self.takers, self.givers, self.factors, moved.T, strict=True):
            (bound if self.of_bounds else y)[:, taker] -= amount
            y[:, giver] += amount / factor


def _times(vectors: Array, matrix: sparse.csr_array) -> Array:
    """The vectors (B, r) times the matrix (r, k)."""
    return np.asarray(matrix.T @ vectors.T).T
