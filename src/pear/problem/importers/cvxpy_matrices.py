"""The matrices of a CVXPY problem as functions of its predicted parameters, read from CVXPY's canonical form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.errors import DataError
from pear.problem.importers.cvxpy_names import WHERE, constraint_name, entry_names, parameters_in, sign_of
from pear.problem.importers.cvxpy_structure import (
    has_structure,
    independent_names,
    place_variables,
    spread_entries,
    structure_of,
    tighten,
)
from pear.problem.importers.cvxpy_tags import TaggedConstraint, TaggedRows, locate_tags
from pear.problem.importers.linear_map import linear_map
from pear.problem.importers.model_arrays import ModelArrays
from pear.problem.importers.row_limits import Array, RowLimits


@dataclass(frozen=True)
class ProblemCopy:
    """A copy of the problem with continuous variables, and with constants for parameters at their values.

    CVXPY has no canonical form for some integer problems, and takes products of two parameters only where one is a
    number. The original stays unchanged.

    Attributes:
        problem: the copy.
        predicted: the predicted parameters of the copy.
        known: the known parameters of the copy.
        tags: for every variable of the original, a parameter of its shape.
        constraints: all constraints, each with a tag of its own.
        limits: those of them that contain predicted parameters or have a price.
        tagged: the copy with the tagged constraints, and with ``Σ tag · variable`` added to its objective. The tags
            show which columns belong to each variable, and which rows to each constraint.
    """

    problem: Any
    predicted: list[Any]
    known: list[Any]
    tags: list[Any]
    constraints: list[TaggedConstraint]
    limits: list[TaggedConstraint]
    tagged: Any

    @classmethod
    def of(
        cls, problem: Any, predicted: list[Any], known: Mapping[Any, Any], prices: dict[int, Any], cvxpy: Any
    ) -> ProblemCopy:
        """Copy a checked problem.

        Args:
            problem: the original.
            predicted: its predicted parameters.
            known: for the id of each known parameter, the parameter and the expression that stand for it in the copy.
            prices: the prices of its constraints, by constraint number.
            cvxpy: the module.
        """
        replaced: dict[int, Any] = {}
        copies = [_copy_leaf(p, cvxpy.Parameter, len(independent_names(p)), replaced, cvxpy) for p in predicted]
        replaced |= {at: expression for at, (_, expression) in known.items()}
        for p in problem.parameters():
            if id(p) not in replaced:
                replaced[id(p)] = cvxpy.Constant(p.value)
        tags, terms = [], []
        for v in problem.variables():
            own = _copy_leaf(v, cvxpy.Variable, place_variables(v)[1], replaced, cvxpy)
            tags.append(cvxpy.Parameter(own.shape, value=np.zeros(own.shape)))
            terms.append(cvxpy.sum(cvxpy.multiply(tags[-1], own)))
        objective = problem.objective.tree_copy(replaced)
        rows = [row.tree_copy(replaced) for row in problem.constraints]
        for row, original in zip(rows, problem.constraints, strict=True):
            if label := getattr(original, "label", None):  # older versions of CVXPY have none
                row.set_label(label)
        constraints = [
            TaggedConstraint.tagging(constraint_name(row, i), row, copies, prices.get(i), cvxpy)
            for i, row in enumerate(rows)
        ]
        limits = [one for i, one in enumerate(constraints) if i in prices or parameters_in(rows[i], copies)]
        tagged = cvxpy.Problem(type(objective)(sum(terms, objective.expr)), [one.constraint for one in constraints])
        plain = [parameter for parameter, _ in known.values()]
        return cls(cvxpy.Problem(objective, rows), copies, plain, tags, constraints, limits, tagged)


def _copy_leaf(leaf: Any, kind: Any, size: int, replaced: dict[int, Any], cvxpy: Any) -> Any:
    """Copy a variable or parameter, and note in ``replaced`` what stands for it in the copied problem.

    Args:
        leaf: the original.
        kind: ``cvxpy.Variable`` or ``cvxpy.Parameter``.
        size: the number of independent entries, which the copy of a symmetric, diagonal or sparse one has.
        replaced: the expressions of the copied problem, by the ids of what they stand for.
        cvxpy: the module.
    """
    structured = has_structure(leaf)
    made = kind((size,) if structured else leaf.shape, name=leaf.name(), **sign_of(leaf))
    if kind is cvxpy.Parameter:
        made.value = np.zeros(made.shape)
    replaced[id(leaf)] = spread_entries(made, leaf, cvxpy) if structured else made
    return made


class CanonicalForm:
    """CVXPY's matrices of a copied problem, as functions of its parameters.

    The canonical form is the one for the solver Clarabel, which comes with CVXPY and accepts quadratic objectives.

    Args:
        copy: the copied problem.
        sign: 1 to minimise, −1 to maximise. CVXPY's canonical form always minimises.
    """

    def __init__(self, copy: ProblemCopy, sign: float) -> None:
        data, _, _ = copy.tagged.get_problem_data("CLARABEL")
        self.sign, self.tags = sign, copy.tags
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
        """P, q, d, A and b of ``½ zᵀPz + qᵀz + d`` and ``b + Az ≥ 0`` (= 0 in the first rows) at parameter values.

        Args:
            values: values of parameters, by their ids; other parameters are 0.
            constant: True for the whole, False for the part that is linear in the values.
        """
        found = self._program.apply_parameters(self._zero | values, zero_offset=not constant, quad_obj=self._curved)
        P, (q, d, A, b) = (found[0], found[1:]) if self._curved else (None, found)
        return P, np.asarray(q, dtype=float).reshape(-1), float(np.squeeze(d)), A, np.asarray(b, dtype=float)

    def check_parameters(self, predicted: list[Any]) -> None:
        """Check that predicted parameters change the objective and tagged constraints alone."""
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
        """Derivatives of costs (n, k), the objective's constant (k,) and right-hand sides (r, k) by the parameters."""
        blocks = [linear_map(partial(self._parameter_terms, p), p.size) for p in predicted]
        if any(block is None for block in blocks):
            raise DataError(f"{WHERE}: its costs are not linear in the predicted parameters; predict the costs instead")
        M, n = sparse.csr_array(sparse.hstack(blocks)), len(self.q)
        return self.sign * M[:n], M[n : n + 1].toarray().reshape(-1), M[n + 1 :]

    def _parameter_terms(self, parameter: Any, values: Array) -> Array:
        """q, d and b, concatenated (n + 1 + r,), for the values of one parameter in C order."""
        _, q, d, _, b = self.matrices_at({parameter.id: values.reshape(parameter.shape)})
        return np.concatenate([q, [d], b])

    def _row_names(self) -> tuple[str, ...]:
        """The names of the rows of A: of constraints, by entry in C order; "row 7" where CVXPY has added the row.

        Every entry of every tag gets a number, which appears at its row, for CVXPY brings equalities first.
        """
        names, values, labels = [f"row {i}" for i in range(len(self.b))], {}, [""]
        for one in self._constraints:
            numbers = len(labels) + np.arange(one.tag.size, dtype=float)
            values[one.tag.id] = numbers.reshape(one.tag.shape)
            labels += [f"{one.name}[{j}]" if one.tag.size > 1 else one.name for j in range(one.tag.size)]
        response = self.matrices_at(values)[4]
        for row in np.flatnonzero(response).tolist():
            names[row] = labels[round(abs(response[row]))]
        return tuple(names)

    def model_arrays(self, problem: Any, kept: NDArray[np.bool_]) -> tuple[ModelArrays, dict[str, Tensor]]:
        """The arrays of the original problem, in its own sense, and the columns of its variables by name.

        ``kept`` (r,) bool are rows that may not become bounds.
        """
        n, sign = len(self.q), self.sign
        names, integer = np.full(n, "", dtype=object), np.zeros(n, dtype=bool)
        layout: dict[str, Tensor] = {}
        low = np.where(np.arange(len(self.b)) < self.equalities, self.b, -np.inf)
        rows = RowLimits(sparse.csr_array(-self.A), low, self.b, self._row_names())
        rows, lb, ub = rows.split_bounds(kept)
        columns, _ = locate_tags(self.tags, lambda values: self.matrices_at(values)[1])
        for v, at in zip(problem.variables(), columns, strict=True):
            if v.name() in layout:
                raise DataError(
                    f"{WHERE}: two variables are called {v.name()}; decisions come back by name: give each its own"
                )
            least, most = _variable_bounds(v)
            if has_structure(v):
                zero = structure_of(v) < 0
                at, least, most = at[place_variables(v)[0]], np.where(zero, 0.0, least), np.where(zero, 0.0, most)
            layout[v.name()] = torch.tensor(at)
            names[at.reshape(-1)[::-1]] = entry_names(v)[::-1]  # the first of several entries names a variable
            integer[at] = _integer_entries(v, "boolean") | _integer_entries(v, "integer")
            tighten(lb, ub, at, least, most)
        variables = number_added(names.tolist(), names == "")
        Q = sign * self.P if self.P is not None and self.P.count_nonzero() else None
        sense = "min" if sign > 0 else "max"
        return ModelArrays(WHERE, rows, sign * self.q, lb, ub, Q, sense, integer, sign * self.d, variables), layout


def number_added(names: Sequence[str], added: NDArray[np.bool_]) -> tuple[str, ...]:
    """Rename the variables that CVXPY has ``added`` to auxiliary[0], auxiliary[1], …; the others keep their names."""
    numbers = np.cumsum(added) - 1
    return tuple(f"auxiliary[{numbers[i]}]" if added[i] else name for i, name in enumerate(names))


def _integer_entries(variable: Any, name: str) -> Any:
    """Which entries of a variable are declared "boolean" or "integer", bool in its shape."""
    given = variable.attributes[name]
    found = np.full(variable.shape, given is True)
    if isinstance(given, bool):
        return found
    try:
        found[tuple(np.asarray(positions) for positions in given)] = True
    except IndexError as error:
        raise DataError(
            f"{WHERE}: {name}={given} of variable {variable.name()} does not fit its shape {variable.shape}; CVXPY "
            f"takes one list of positions for each dimension, as NumPy does: {name}=[[0, 2]], for example"
        ) from error
    return found


def _variable_bounds(variable: Any) -> tuple[Array, Array]:
    """Bounds of a variable in its shape, infinite where there are none."""
    low = np.full(variable.shape, 0.0 if variable.is_nonneg() else -np.inf)
    high = np.full(variable.shape, 0.0 if variable.is_nonpos() else np.inf)
    given = variable.attributes.get("bounds") or (None, None)
    sides = [None if side is None else getattr(side, "value", side) for side in given]
    low = low if sides[0] is None else np.maximum(low, np.broadcast_to(sides[0], low.shape))
    high = high if sides[1] is None else np.minimum(high, np.broadcast_to(sides[1], high.shape))
    binary = _integer_entries(variable, "boolean")
    return np.where(binary, np.maximum(low, 0.0), low), np.where(binary, np.minimum(high, 1.0), high)
