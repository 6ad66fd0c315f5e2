"""``CvxpyMatrices``: the matrices of a CVXPY problem as functions of its parameters, from CVXPY's canonical form."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import DataError
from pear.presolving.row_program import Array, Mask
from pear.problem.importers.cvxpy_copy import CvxpyCopy
from pear.problem.importers.cvxpy_leaves import (
    integer_leaf_entries,
    leaf_bounds,
    leaf_entry_names,
    leaf_has_structure,
    leaf_structure,
    place_leaf_entries,
    tighten_leaf_bounds,
)
from pear.problem.importers.cvxpy_names import WHERE, name_cvxpy_variables
from pear.problem.importers.cvxpy_tags import TaggedRows, locate_tags
from pear.problem.importers.linear_map import linear_map
from pear.problem.importers.model_arrays import ModelArrays
from pear.problem.importers.row_limits import RowLimits


class CvxpyMatrices:
    """The matrices of a copied CVXPY problem, as functions of its parameters.

    They are CVXPY's canonical form: ``½ zᵀPz + qᵀz + d`` is minimised subject to ``b + Az = 0`` in the first rows and
    ``b + Az ≥ 0`` in the others. CVXPY makes this form for the solver Clarabel, which comes with CVXPY and accepts
    quadratic objectives.

    Args:
        copy: the copied problem.
        sign: 1 if the original problem minimises, −1 if it maximises.

    Attributes:
        sign: as given.
        P: (n, n) for n variables, or None for a linear objective. P, q, d, A and b are those with all parameters at 0.
        q: (n,).
        d: the constant of the objective.
        A: (r, n) for r rows.
        b: (r,).
        equalities: the number of equalities among the r rows.
        limits: the rows of those constraints that contain predicted parameters or have a price.
    """

    def __init__(self, copy: CvxpyCopy, sign: float) -> None:
        data, _, _ = copy.tagged.get_problem_data("CLARABEL")
        self.sign, self._tags = sign, copy.tags
        self._program, self._curved = data["param_prob"], "P" in data
        row_tags = [one.tag for one in copy.constraints]
        self._zero = {p.id: np.zeros(p.shape) for p in (*copy.predicted, *copy.known, *copy.tags, *row_tags)}
        self.equalities = int(data["dims"].zero)
        self.P, self.q, self.d, self.A, self.b = self.matrices_at({}, constant=True)
        if len(self.b) != self.equalities + int(data["dims"].nonneg):
            raise DataError(f"{WHERE} needs a cone ({data['dims']}), which cannot be taken; write it with linear terms")
        self._constraints = copy.constraints
        self.limits = TaggedRows(copy.limits, lambda values: self.matrices_at(values)[4])

    def matrices_at(self, values: dict[int, Any], constant: bool = False) -> tuple[Any, Array, float, Any, Array]:
        """Return P, q, d, A and b at values of the parameters.

        Args:
            values: values of parameters, by their ids. All other parameters are 0.
            constant: True for the whole matrices, False to leave out the parts that do not depend on any parameter.
        """
        found = self._program.apply_parameters(self._zero | values, zero_offset=not constant, quad_obj=self._curved)
        P, (q, d, A, b) = (found[0], found[1:]) if self._curved else (None, found)
        return P, np.asarray(q, dtype=float).reshape(-1), float(np.squeeze(d)), A, np.asarray(b, dtype=float)

    def check_parameters(self, predicted: list[Any]) -> None:
        """Check that predicted parameters of the copy change nothing but the objective and the rows in ``limits``."""
        random = np.random.default_rng(0)
        for p in predicted:
            _, _, _, A, b = self.matrices_at({p.id: 1.0 + random.random(p.shape)})
            what = f"{WHERE}: the predicted parameter {p.name()}"
            entries = sparse.coo_array(A)
            touched = np.unique(entries.row[entries.data != 0])
            inside = self.limits.mask()
            if not inside[touched].all() or (b[~inside] != 0).any():
                raise DataError(
                    f"{what} stands inside a nonlinear function of the objective; it may multiply decisions alone: "
                    "write sum_squares(x - p) as sum_squares(x) - 2 * p @ x"
                )

    def maps(self, predicted: list[Any]) -> tuple[sparse.csr_array, Array, sparse.csr_array]:
        """Compute derivatives with respect to the k entries of the predicted parameters of the copy.

        Returns:
            The derivatives of the costs (n, k), with the signs of the original problem; of the constant of the
            minimised objective (k,); and of b (r, k).

        Raises:
            DataError: the matrices are not linear in a parameter.
        """
        blocks = [linear_map(partial(self._parameter_terms, p), p.size) for p in predicted]
        if any(block is None for block in blocks):
            raise DataError(f"{WHERE}: its costs are not linear in the predicted parameters; predict the costs instead")
        M, n = sparse.csr_array(sparse.hstack(blocks)), len(self.q)
        return self.sign * M[:n], M[n : n + 1].toarray().reshape(-1), M[n + 1 :]

    def _parameter_terms(self, parameter: Any, values: Array) -> Array:
        """Return what the values (k,) of one parameter add to q, d and b, concatenated to (n + 1 + r,)."""
        _, q, d, _, b = self.matrices_at({parameter.id: values.reshape(parameter.shape)})
        return np.concatenate([q, [d], b])

    def _row_names(self) -> tuple[str, ...]:
        """Return the names of the r rows.

        A row has the name of its constraint, with an index if the constraint has several rows. A row that CVXPY has
        added is called "auxiliary row 7", for example. The rows of a constraint are found by its tag, a parameter that
        is added to its right-hand side. Each entry of each tag is set to a different number, and this number then
        appears in b (r,) at the row of the entry, wherever CVXPY has placed that row.
        """
        names, values, labels = [f"auxiliary row {i}" for i in range(len(self.b))], {}, [""]
        for one in self._constraints:
            numbers = len(labels) + np.arange(one.tag.size, dtype=float)
            values[one.tag.id] = numbers.reshape(one.tag.shape)
            labels += [f"{one.name}[{j}]" if one.tag.size > 1 else one.name for j in range(one.tag.size)]
        response = self.matrices_at(values)[4]
        for row in np.flatnonzero(response).tolist():
            names[row] = labels[round(abs(response[row]))]
        return tuple(names)

    def model_arrays(self, problem: Any, kept: Mask) -> tuple[ModelArrays, dict[str, Tensor]]:
        """Return the original problem as ``ModelArrays``, and the columns of its variables.

        Args:
            problem: the original problem.
            kept: (r,) bool, True for rows that must stay rows. Other rows with one variable may become bounds.

        Returns:
            The arrays, with the signs of the original problem; and, by the names of the variables, the columns of each
            variable in the shape of the variable.
        """
        n, sign = len(self.q), self.sign
        names, integer = np.full(n, "", dtype=object), np.zeros(n, dtype=bool)
        layout: dict[str, Tensor] = {}
        low = np.where(np.arange(len(self.b)) < self.equalities, self.b, -np.inf)
        rows = RowLimits(sparse.csr_array(-self.A), low, self.b, self._row_names(), canonical=True)
        rows, lb, ub = rows.split_bounds(kept)
        columns, _ = locate_tags(self._tags, lambda values: self.matrices_at(values)[1])
        for v, at in zip(problem.variables(), columns, strict=True):
            if v.name() in layout:
                raise DataError(
                    f"{WHERE}: two variables are called {v.name()}; decisions come back by name: give each its own"
                )
            least, most = leaf_bounds(v)
            if leaf_has_structure(v):
                zero = leaf_structure(v) < 0
                at, least, most = at[place_leaf_entries(v)[0]], np.where(zero, 0.0, least), np.where(zero, 0.0, most)
            layout[v.name()] = torch.tensor(at)
            names[at.reshape(-1)[::-1]] = leaf_entry_names(v)[::-1]  # the first of several entries names a variable
            integer[at] = integer_leaf_entries(v, "boolean") | integer_leaf_entries(v, "integer")
            tighten_leaf_bounds(lb, ub, at, least, most)
        variables = name_cvxpy_variables(names.tolist(), names == "")
        Q = sign * self.P if self.P is not None and self.P.count_nonzero() else None
        sense = "min" if sign > 0 else "max"
        return ModelArrays(WHERE, rows, sign * self.q, lb, ub, Q, sense, integer, sign * self.d, variables), layout
