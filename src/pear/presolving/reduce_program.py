"""``reduce_program``: a smaller program with the same decisions, and the way back to the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from pear.presolving.multiplier_steps import MultiplierStep
from pear.presolving.row_program import Array, Index, Mask, RowProgram
from pear.presolving.row_steps import (
    drop_dependent_equalities,
    drop_empty_rows,
    merge_duplicate_rows,
    turn_singletons_into_bounds,
)
from pear.presolving.variable_steps import drop_fixed_variables, substitute_defined_variables
from pear.presolving.working_program import WorkingProgram

_STEPS = (
    drop_empty_rows,
    turn_singletons_into_bounds,
    drop_fixed_variables,
    merge_duplicate_rows,
    substitute_defined_variables,
)


@dataclass(frozen=True)
class Reduction:
    """A reduced program, and the map ``z = T w + t`` from its variables w to the original ones.

    Attributes:
        program: the reduced program.
        rows: the original numbers of its rows.
        columns: the original numbers of its variables.
        T: (n, columns) matrix of the map.
        t: (n,) constant of the map.
        removed: how many rows and variables each kind of step has removed, by its name.
        steps: what gives the multipliers back, in the order of the reduction.
        original_rows: the number of rows of the original.
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
        """What was removed, in a sentence: Presolve removed 2 duplicate rows, 1 fixed variable."""
        found = []
        for kind, number in self.removed.items():
            singular = kind.replace("equalities", "equality").replace("variables", "variable")
            singular = singular.replace("rows", "row").replace("limits", "limit")
            found.append(f"{number:,} {singular if number == 1 else kind}")
        return f"Presolve removed {', '.join(found) or 'nothing'}."

    def multipliers(self, gradient: Array, y: Array, bound: Array) -> tuple[Array, Array]:
        """The multipliers of the original program from those of the reduced one.

        Args:
            gradient: (B, n) gradient of the minimised objective at the original decisions.
            y: (B, rows) multipliers of the reduced rows, positive at the upper limit.
            bound: (B, columns) multipliers of the reduced bounds, likewise.

        Returns:
            (B, original rows) of the rows and (B, n) of the bounds, with ``gradient + rowsᵀ y + bound = 0``.
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
) -> Reduction:
    """Remove what a program does not need: rows that say nothing new, and variables that others determine.

    Empty and duplicate rows and dependent equalities are dropped, rows with one variable become bounds, fixed
    variables become constants, and continuous variables without bounds that an equality defines are substituted.

    Args:
        program: the program.
        fixed_rows: (r,) bool, rows that must stay rows, because their limits are predicted or have a price; None for
            none. Their coefficients may change, and their limits may be shifted.
        removable: (n,) bool, variables that may disappear; None for all.

    Raises:
        ProblemError: two rows, or a row and a bound, contradict each other. The message names the row.

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
    drop_dependent_equalities(w)
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
    return Reduction(reduced, rows, columns, w.T[:, columns], w.t, w.removed, tuple(w.steps), r)
