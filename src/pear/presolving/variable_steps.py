"""Steps of presolve that remove variables: fixed ones, and free ones that an equality defines.

Each step takes a ``WorkingProgram``, changes it, and returns whether it has removed anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from pear.presolving.multiplier_steps import FixedVariables, SubstitutedVariables
from pear.presolving.row_program import Array, Index, Mask
from pear.presolving.working_program import WorkingProgram

_LEAST_PIVOT = 0.01  # of a row's largest coefficient; a smaller one would multiply rounding errors
_DENSE = 500  # variables up to which programs are solved with dense matrices, where non-zeros cost nothing
_MOST_FILL = 2  # new coefficients for each one that a substitution removes, in a program with more variables


def drop_fixed_variables(w: WorkingProgram) -> bool:
    """Remove variables whose bounds are equal. An integer that is fixed between integers is left to the solver."""
    fixed = w.column_left & w.removable & (w.lb == w.ub)
    fixed &= ~(w.integer & (w.lb != np.round(w.lb)))
    if fixed.any() and not (w.column_left & ~fixed).any():
        fixed[np.flatnonzero(fixed)[0]] = False  # a program has at least one variable
    columns = np.flatnonzero(fixed)
    if not len(columns):
        return False
    w.steps.append(FixedVariables(columns, w.T[:, columns], w.R[:, columns]))
    S = sparse.csr_array(sparse.diags_array((~fixed).astype(float)))
    w.drop_variables(columns, S, np.where(fixed, w.lb, 0.0), "fixed variables")
    return True


def substitute_defined_variables(w: WorkingProgram) -> bool:
    """Remove continuous variables without bounds that an equality defines, together with the equality."""
    chosen = _choose_pivots(w)
    if not chosen:
        return False
    rows, columns = (np.array(part, dtype=int) for part in zip(*chosen, strict=True))
    definitions = w.R[rows]
    pivots = np.asarray(definitions[np.arange(len(rows)), columns]).reshape(-1)
    others = sparse.csr_array(sparse.diags_array(~np.isin(np.arange(len(w.low)), rows) * 1.0) @ w.R[:, columns])
    w.steps.append(SubstitutedVariables(rows, pivots, w.T[:, columns], others))
    S, s = _substitution(w, definitions, columns, pivots, w.low[rows])
    w.drop_rows(rows, "defining equalities")
    w.drop_variables(columns, S, s, "defined variables")
    return True


def _substitution(
    w: WorkingProgram, definitions: sparse.csr_array, columns: Index, pivots: Array, right: Array
) -> tuple[sparse.csr_array, Array]:
    """S and s with ``w = S w + s``, where equalities ``definitions · w = right`` define the variables ``columns``."""
    n, k = len(w.lb), len(columns)
    stays = np.ones(n)
    stays[columns] = 0.0
    place = sparse.csr_array((-1.0 / pivots, (columns, np.arange(k))), shape=(n, k))
    kept = sparse.diags_array(stays)
    S = sparse.csr_array(kept + place @ definitions @ kept)
    s = np.zeros(n)
    s[columns] = right / pivots
    return S, s


@dataclass(frozen=True)
class PivotCosts:
    """What the substitution of a variable adds to a program, and what it removes, in coefficients.

    Attributes:
        in_rows: (n,) rows that have the variable.
        in_curvature: (n,) entries of the variable's column of Q.
        in_variables: (n,) original variables that depend on it.
        dense: True where the program is solved with dense matrices, so that every substitution pays.
    """

    in_rows: Index
    in_curvature: Index
    in_variables: Index
    dense: bool

    @classmethod
    def of(cls, w: WorkingProgram) -> PivotCosts:
        """The counts of a program."""
        rows, curvature, variables = (_column_counts(matrix, len(w.lb)) for matrix in (w.R, w.Q, w.T))
        return cls(rows, curvature, variables, dense=int(w.column_left.sum()) <= _DENSE)

    def fill(self, columns: Index, length: int) -> Index:
        """How many coefficients each of ``columns`` adds, defined by a row with ``length`` other variables."""
        curved = self.in_curvature[columns]
        rest = (self.in_rows[columns] - 1) + (self.in_variables[columns] - 1) + 2 * curved
        return length * (rest + np.where(curved > 0, length, 0))

    def worth(self, columns: Index, length: int) -> Mask:
        """Which of ``columns`` may be substituted."""
        gone = 1 + length + self.in_rows[columns] + 2 * self.in_curvature[columns]
        return np.full(len(columns), self.dense) | (self.fill(columns, length) <= _MOST_FILL * gone)


def _choose_pivots(w: WorkingProgram) -> list[tuple[int, int]]:
    """Pairs of an equality and the variable that it defines. No variable of a pair is in the row of another."""
    free = w.column_left & w.removable & ~w.integer & (w.lb == -np.inf) & (w.ub == np.inf)
    lengths = np.diff(w.R.indptr)
    rows = np.flatnonzero(w.row_left & ~w.fixed_rows & (w.low == w.high) & (lengths > 0))
    if not free.any() or not len(rows):
        return []
    costs, chosen, left = PivotCosts.of(w), [], int(w.column_left.sum())
    used, pivoted = np.zeros(len(free), dtype=bool), np.zeros(len(free), dtype=bool)
    for row in rows[np.argsort(lengths[rows], kind="stable")].tolist():
        part = slice(w.R.indptr[row], w.R.indptr[row + 1])
        columns, sizes = w.R.indices[part], np.abs(w.R.data[part])
        able = free[columns] & ~used[columns] & (sizes >= _LEAST_PIVOT * sizes.max())
        if pivoted[columns].any() or not able.any():
            continue
        able &= costs.worth(columns, len(columns) - 1)
        if not able.any() or left == 1:
            continue
        fill = np.where(able, costs.fill(columns, len(columns) - 1), np.inf)
        best = np.lexsort((-sizes, fill))[0]
        chosen.append((row, int(columns[best])))
        pivoted[columns[best]], left = True, left - 1
        used[columns] = True
    return chosen


def _column_counts(matrix: sparse.csr_array | None, n: int) -> Index:
    """How many entries each column has, (n,)."""
    return np.zeros(n, dtype=int) if matrix is None else np.bincount(matrix.indices, minlength=n)
