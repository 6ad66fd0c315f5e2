"""``WorkingProgram``: a program while it is being reduced, and the affine map back to the original variables."""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy import sparse

from pear.errors import ProblemError
from pear.presolving.multiplier_steps import MultiplierStep
from pear.presolving.row_program import Array, Index, Mask, RowProgram
from pear.presolving.tolerances import CANCELLED, CONSISTENT, CONTRADICTED


class WorkingProgram:
    """A program whose rows and variables disappear one after another, with all indices those of the original.

    A row or variable that has disappeared has no coefficients left. With w, the variables that are left, the original
    ones are ``z = T w + t``.

    Args:
        program: the original program; it is not changed.
        fixed_rows: (r,) bool, rows that must stay rows, because their limits are predicted or have a price. Their
            coefficients may change and their limits may be shifted.
        removable: (n,) bool, variables that may disappear.

    Attributes:
        R: (r, n) coefficients of the rows that are left.
        Q: (n, n) curvature in the variables that are left, or None.
        low, high: (r,) limits of the rows.
        lb, ub: (n,) bounds of the variables.
        integer: (n,) bool.
        scale: (r,) sum of the terms that the limits of a row were computed from.
        row_left, column_left: (r,) and (n,) bool, what is left.
        T: (n, n) and t: (n,), the map back.
        steps: what gives the multipliers back, in the order in which the program was reduced.
        removed: how many rows and variables each kind of step has removed.
    """

    def __init__(self, program: RowProgram, fixed_rows: Mask, removable: Mask) -> None:
        n = program.n
        self.program, self.fixed_rows, self.removable = program, fixed_rows, removable
        self.R = sparse.csr_array(program.rows, dtype=float, copy=True)
        self.R.sum_duplicates()
        self.R.eliminate_zeros()
        self.Q = None if program.Q is None else sparse.csr_array(program.Q, dtype=float)
        self.low, self.high = program.low.astype(float), program.high.astype(float)
        self.lb, self.ub = program.lb.astype(float), program.ub.astype(float)
        self.integer = np.zeros(n, dtype=bool) if program.integer is None else program.integer
        size_low, size_high = (np.where(np.isfinite(side), np.abs(side), 0.0) for side in (self.low, self.high))
        self.scale = size_low + size_high
        self.row_left, self.column_left = np.ones(len(self.low), dtype=bool), np.ones(n, dtype=bool)
        self.T, self.t = sparse.csr_array(sparse.eye_array(n, format="csr")), np.zeros(n)
        self.steps: list[MultiplierStep] = []
        self.removed: Counter[str] = Counter()

    def drop_rows(self, rows: Index | list[int], kind: str) -> None:
        """Remove rows, counted as of this ``kind``."""
        self.row_left[rows] = False
        self.R = sparse.csr_array(sparse.diags_array(self.row_left.astype(float)) @ self.R)
        self.R.eliminate_zeros()
        self.removed[kind] += len(rows)

    def drop_variables(self, columns: Index, S: sparse.csr_array, s: Array, kind: str) -> None:
        """Remove variables, counted as of this ``kind``, by the substitution ``w = S w + s``.

        Args:
            columns: the variables that disappear.
            S: (n, n) the identity, but for the rows of ``columns``; the columns ``columns`` are zero.
            s: (n,) zero, but for ``columns``.
            kind: the name of the step in the report.
        """
        shift = self.R @ s
        self.low, self.high = self.low - shift, self.high - shift
        self.scale = self.scale + abs(self.R) @ np.abs(s)
        self.t = self.t + self.T @ s
        self.R, self.T = multiply_exactly(self.R, S), multiply_exactly(self.T, S)
        if self.Q is not None:
            transposed = sparse.csr_array(S.T)
            self.Q = multiply_exactly(transposed, multiply_exactly(self.Q, S))
        self.column_left[columns] = False
        self.removed[kind] += len(columns)

    def disagree(self, gap: float, scale: float, row: int, what: str) -> bool:
        """Whether limits that cross by ``gap`` are too far apart to be called equal, and too near to contradict.

        Args:
            gap: lower less upper limit.
            scale: the terms that the limits are computed from.
            row: the row that one of the limits belongs to.
            what: the rest of the message, "asks for …".

        Raises:
            ProblemError: the limits contradict each other.
        """
        if gap > CONTRADICTED * scale:
            raise ProblemError(
                f"{self.program.name_of(row)} {what}: no decision satisfies the constraints; correct the row, or leave "
                "it out"
            )
        return gap > CONSISTENT * scale


def multiply_exactly(left: sparse.csr_array, right: sparse.csr_array) -> sparse.csr_array:
    """The product of sparse matrices, with zeros where all that is left of the terms is rounding."""
    product = sparse.csr_array(left @ right)
    terms = sparse.csr_array(abs(left) @ abs(right))
    exact: sparse.csr_array = product.multiply(abs(product) > CANCELLED * terms).tocsr()
    exact.eliminate_zeros()
    return exact
