"""``WorkingProgram``: a program during its reduction, with the affine map to the original variables."""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy import sparse

from pear.errors import ProblemError
from pear.presolving.multiplier_steps import MultiplierStep
from pear.presolving.row_program import Array, Index, Mask, RowProgram
from pear.presolving.tolerances import CANCELLED, CONSISTENT, CONTRADICTED


class WorkingProgram:
    """A program from which presolve removes rows and variables. Their indices stay those of the original program.

    The coefficients of a removed row or variable are zero. The map ``z = T x + t`` gives the original variables z (n,).
    x (n,) holds the values of the variables that are left; its entries for removed variables may be any numbers.

    Args:
        program: the original program, with r rows and n variables, which is not changed.
        fixed_rows: (r,) bool, True for rows that must stay, because their limits are predicted or their violation has a
            price. The substitution of variables may still change their coefficients and shift their limits.
        removable: (n,) bool, True for variables that may be removed.

    Attributes:
        R: (r, n) coefficients of the rows that are left.
        Q: (n, n) curvature in the variables that are left, or None.
        low, high: (r,) limits of the rows.
        lb, ub: (n,) bounds of the variables.
        integer: (n,) bool, True for integer variables.
        scale: (r,) for each row, the sum of the absolute values of all terms that its limits were computed from.
            Tolerances are relative to it.
        row_left, column_left: (r,) and (n,) bool, False for removed rows and variables.
        T, t: (n, n) and (n,), the map to the original variables.
        steps: the records, in order, of those steps of presolve that change multipliers. They restore the multipliers
            of the original program.
        removed: how many rows, limits and variables were removed, by the kind of removal, a text for reports.
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
        """Remove rows, and add their number to ``removed[kind]``."""
        self.row_left[rows] = False
        self.R = sparse.csr_array(sparse.diags_array(self.row_left.astype(float)) @ self.R)
        self.R.eliminate_zeros()
        self.removed[kind] += len(rows)

    def drop_variables(self, columns: Index, S: sparse.csr_array, s: Array, kind: str) -> None:
        """Remove variables by the substitution ``x = S x + s``.

        Args:
            columns: the variables to remove.
            S: (n, n) the identity, except for two changes: the columns at the positions ``columns`` are zero, and the
                rows at these positions define the removed variables.
            s: (n,), zero except at ``columns``.
            kind: the key of ``removed`` under which the variables are counted.
        """
        shift = self.R @ s
        self.low, self.high = self.low - shift, self.high - shift
        self.scale = self.scale + abs(self.R) @ np.abs(s)
        self.t = self.t + self.T @ s
        self.R, self.T = _multiply_program_matrices(self.R, S), _multiply_program_matrices(self.T, S)
        if self.Q is not None:
            transposed = sparse.csr_array(S.T)
            self.Q = _multiply_program_matrices(transposed, _multiply_program_matrices(self.Q, S))
        self.column_left[columns] = False
        self.removed[kind] += len(columns)

    def disagree(self, gap: float, scale: float, row: int, what: str) -> bool:
        """Return True if a lower limit exceeds an upper limit by more than rounding, but by too little for an error.

        A row with such a limit must stay, so that the solver decides.

        Args:
            gap: the lower limit minus the upper limit.
            scale: the sum of the absolute values of the terms that both limits were computed from.
            row: a row that one of the limits belongs to.
            what: the text after the name of the row in the error message, such as "asks for ≥ 2 and has no variables".

        Raises:
            ProblemError: the lower limit clearly exceeds the upper limit.
        """
        if gap > CONTRADICTED * scale:
            raise ProblemError(
                f"{self.program.name_of(row)} {what}: no decision satisfies the constraints; correct the row, or leave "
                "it out"
            )
        return gap > CONSISTENT * scale


def _multiply_program_matrices(left: sparse.csr_array, right: sparse.csr_array) -> sparse.csr_array:
    """Return the product of two sparse matrices. An entry whose terms cancel up to rounding becomes zero."""
    product = sparse.csr_array(left @ right)
    terms = sparse.csr_array(abs(left) @ abs(right))
    exact: sparse.csr_array = product.multiply(abs(product) > CANCELLED * terms).tocsr()
    exact.eliminate_zeros()
    return exact
