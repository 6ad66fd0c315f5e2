"""``reduce_program``: a smaller program with the same decisions, and the way back to the original program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from pear.presolving.multiplier_steps import MultiplierStep
from pear.presolving.remove_rows import (
    remove_dependent_equality_rows,
    remove_duplicate_rows,
    remove_empty_rows,
    remove_single_variable_rows,
)
from pear.presolving.remove_variables import remove_fixed_variables, substitute_defined_variables
from pear.presolving.row_program import Array, Index, Mask, RowProgram
from pear.presolving.working_program import WorkingProgram

_STEPS = (
    remove_empty_rows,
    remove_single_variable_rows,
    remove_fixed_variables,
    remove_duplicate_rows,
    substitute_defined_variables,
)


@dataclass(frozen=True)
class ProgramReduction:
    """A reduced program, and the map ``z = T w + t`` from its variables w to the original variables z.

    Attributes:
        program: the reduced program, with s rows and k variables.
        rows: (s,) the numbers, in the original program, of the rows of the reduced program.
        columns: (k,) the numbers, in the original program, of the variables of the reduced program.
        T: (n, k) matrix of the map.
        t: (n,) constant of the map.
        removed: how many rows, limits and variables were removed, by kind, such as "duplicate rows".
        steps: the records from which multipliers are restored, in the order of the steps of presolve.
        original_rows: the number r of rows of the original program.
    """

    program: RowProgram
    rows: Index
    columns: Index
    T: sparse.csr_array
    t: Array
    removed: Mapping[str, int]
    steps: tuple[MultiplierStep, ...]
    original_rows: int

    def sentence(self) -> str:
        """Return a sentence about what was removed, such as "Presolve removed 2 duplicate rows, 1 fixed variable."."""
        found = []
        for kind, number in self.removed.items():
            singular = kind.replace("equalities", "equality").replace("variables", "variable")
            singular = singular.replace("rows", "row").replace("limits", "limit")
            found.append(f"{number:,} {singular if number == 1 else kind}")
        return f"Presolve removed {', '.join(found) or 'nothing'}."

    def multipliers(self, gradient: Array, y: Array, bound: Array) -> tuple[Array, Array]:
        """Compute the multipliers of the original program from those of the reduced program.

        Args:
            gradient: (B, n) gradient of the minimised objective at the decisions z of the original program.
            y: (B, s) multipliers of the reduced rows, positive at an upper limit and negative at a lower limit.
            bound: (B, k) multipliers of the reduced bounds, with the same signs.

        Returns:
            The multipliers y (B, r) of the original rows and those (B, n) of the original bounds, which satisfy
            ``gradient + rowsᵀ y + bound = 0``.
        """
        whole_y, whole_bound = np.zeros((len(y), self.original_rows)), np.zeros(gradient.shape)
        whole_y[:, self.rows], whole_bound[:, self.columns] = y, bound
        for step in reversed(self.steps):
            step.restore(gradient, whole_y, whole_bound)
        return whole_y, whole_bound


def reduce_program(
    program: RowProgram,
    fixed_rows: Mask | None = None,
    removable: Mask | None = None,
) -> ProgramReduction:
    """Remove the rows of a program that other constraints imply, and the variables that other variables determine.

    Empty and duplicate rows and dependent equalities are dropped, rows with one variable become bounds, fixed
    variables become constants, and continuous variables without bounds that an equality defines are substituted.

    Args:
        program: the program, with r rows and n variables.
        fixed_rows: (r,) bool, True for rows that must stay, because their limits are predicted or have a price. The
            substitution of variables may still change their coefficients and shift their limits. None for no row.
        removable: (n,) bool, True for variables that may be removed; None for all.

    Raises:
        ProblemError: rows contradict each other or a bound. The message names a row.

    Example:
        >>> import numpy as np
        >>> from scipy import sparse
        >>> free = np.full(3, np.inf)
        >>> rows = sparse.csr_array([[1.0, -1.0, 0.0], [0.0, 2.0, 0.0]])  # z0 − z1 = 0.5, and 2 z1 ≤ 3
        >>> found = reduce_program(RowProgram(rows, np.array([0.5, -np.inf]), np.array([0.5, 3.0]), -free, free))
        >>> found.T.toarray().tolist(), found.t.tolist()
        ([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.5, 0.0, 0.0])
        >>> found.program.ub.tolist()
        [1.5, inf]
    """
    n, r = program.n, len(program.low)
    w = WorkingProgram(
        program,
        np.zeros(r, dtype=bool) if fixed_rows is None else fixed_rows,
        np.ones(n, dtype=bool) if removable is None else removable,
    )
    while any(step(w) for step in _STEPS):
        pass
    remove_dependent_equality_rows(w)
    rows, columns = np.flatnonzero(w.row_left), np.flatnonzero(w.column_left)
    reduced = RowProgram(
        rows=w.R[rows][:, columns],
        low=w.low[rows],
        high=w.high[rows],
        lb=w.lb[columns],
        ub=w.ub[columns],
        Q=None if w.Q is None or not w.Q.nnz else w.Q[columns][:, columns],
        integer=None if program.integer is None else program.integer[columns],
        names=tuple(program.name_of(int(row)) for row in rows),
    )
    return ProgramReduction(reduced, rows, columns, w.T[:, columns], w.t, w.removed, tuple(w.steps), r)
