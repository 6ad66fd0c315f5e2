"""Steps of presolve that remove variables: fixed variables, and free variables that an equality defines.

Each step changes a ``WorkingProgram`` and returns True if it has removed a variable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from pear.presolving.multiplier_steps import FixedVariableMultipliers, SubstitutionMultipliers
from pear.presolving.row_program import Array, Index, Mask
from pear.presolving.working_program import WorkingProgram

_LEAST_PIVOT = 0.01  # relative to a row's largest coefficient; dividing by less would multiply rounding errors
_DENSE = 500  # programs with at most this many variables are solved with dense matrices, where non-zeros cost nothing
_MOST_FILL = 2  # coefficients that a substitution may add for each one that it removes, if the program is larger


def remove_fixed_variables(w: WorkingProgram) -> bool:
    """Remove from ``w`` the variables whose bounds are equal, and return True if any was removed.

    An integer variable that is fixed at a fraction stays, and so does the last variable of a program.
    """
    fixed = w.column_left & w.removable & (w.lb == w.ub)
    fixed &= ~(w.integer & (w.lb != np.round(w.lb)))
    if fixed.any() and not (w.column_left & ~fixed).any():
        fixed[np.flatnonzero(fixed)[0]] = False  # a program has at least one variable
    columns = np.flatnonzero(fixed)
    if not len(columns):
        return False
    w.steps.append(FixedVariableMultipliers(columns, w.T[:, columns], w.R[:, columns]))
    S = sparse.csr_array(sparse.diags_array((~fixed).astype(float)))
    w.drop_variables(columns, S, np.where(fixed, w.lb, 0.0), "fixed variables")
    return True


def substitute_defined_variables(w: WorkingProgram) -> bool:
    """Remove from ``w`` the variables that equalities define, and these equalities; return True if any was removed.

    An equality can define any of its continuous variables that have no bounds.
    """
    chosen = _choose_defined_variables(w)
    if not chosen:
        return False
    rows, columns = (np.array(part, dtype=int) for part in zip(*chosen, strict=True))
    definitions = w.R[rows]
    pivots = np.asarray(definitions[np.arange(len(rows)), columns]).reshape(-1)
    others = sparse.csr_array(sparse.diags_array(~np.isin(np.arange(len(w.low)), rows) * 1.0) @ w.R[:, columns])
    w.steps.append(SubstitutionMultipliers(rows, pivots, w.T[:, columns], others))
    S, s = _variable_substitution(w, definitions, columns, pivots, w.low[rows])
    w.drop_rows(rows, "defining equalities")
    w.drop_variables(columns, S, s, "defined variables")
    return True


def _variable_substitution(
    w: WorkingProgram, definitions: sparse.csr_array, columns: Index, pivots: Array, right: Array
) -> tuple[sparse.csr_array, Array]:
    """Return S (n, n) and s (n,) of the substitution ``x = S x + s``, which replaces variables that equalities define.

    Args:
        w: the program, with n variables x.
        definitions: (k, n) rows of the equalities ``definitions · x = right``.
        columns: (k,) the variables that the equalities define.
        pivots: (k,) the coefficients of these variables in their equalities.
        right: (k,) right-hand sides.
    """
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
class SubstitutedVariableCosts:
    """Counts for each variable, from which ``worth`` computes whether its substitution saves time.

    A substitution adds coefficients to a program and removes others. It saves time if it does not add too many.

    Attributes:
        in_rows: (n,) the number of rows with the variable.
        in_curvature: (n,) the number of non-zeros in the variable's column of Q.
        in_variables: (n,) the number of original variables that depend on the variable.
        dense: True if the program is solved with dense matrices, so that every substitution saves time.
    """

    in_rows: Index
    in_curvature: Index
    in_variables: Index
    dense: bool

    @classmethod
    def of(cls, w: WorkingProgram) -> SubstitutedVariableCosts:
        """Return the counts for all variables of a program."""
        rows, curvature, variables = (_count_variable_entries(matrix, len(w.lb)) for matrix in (w.R, w.Q, w.T))
        return cls(rows, curvature, variables, dense=int(w.column_left.sum()) <= _DENSE)

    def fill(self, columns: Index, length: int) -> Index:
        """Estimate the number of coefficients (k,) that the substitution of each variable adds.

        Args:
            columns: (k,) the variables of one equality, each of which the equality could define.
            length: the number of other variables in the equality.
        """
        curved = self.in_curvature[columns]
        rest = (self.in_rows[columns] - 1) + (self.in_variables[columns] - 1) + 2 * curved
        return length * (rest + np.where(curved > 0, length, 0))

    def worth(self, columns: Index, length: int) -> Mask:
        """Return a bool mask (k,) of the variables whose substitution saves time; the arguments are as for ``fill``."""
        gone = 1 + length + self.in_rows[columns] + 2 * self.in_curvature[columns]
        return np.full(len(columns), self.dense) | (self.fill(columns, length) <= _MOST_FILL * gone)


def _choose_defined_variables(w: WorkingProgram) -> list[tuple[int, int]]:
    """Choose variables to substitute; return pairs (row, variable) of an equality and the variable that it defines.

    A variable is chosen only if its substitution saves time (see ``SubstitutedVariableCosts``) and its coefficient is
    not much smaller than the largest one of the equality. The variable of a pair is in the equality of no other pair.
    """
    free = w.column_left & w.removable & ~w.integer & (w.lb == -np.inf) & (w.ub == np.inf)
    lengths = np.diff(w.R.indptr)
    rows = np.flatnonzero(w.row_left & ~w.fixed_rows & (w.low == w.high) & (lengths > 0))
    if not free.any() or not len(rows):
        return []
    costs, chosen, left = SubstitutedVariableCosts.of(w), [], int(w.column_left.sum())
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


def _count_variable_entries(matrix: sparse.csr_array | None, n: int) -> Index:
    """Count the stored entries of each of the n columns of a matrix; all counts are 0 if the matrix is None."""
    return np.zeros(n, dtype=int) if matrix is None else np.bincount(matrix.indices, minlength=n)
