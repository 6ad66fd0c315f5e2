"""Import of CVXPY problems, by CVXPY's own canonical form. Its parameters become the predicted values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import DataError
from pear.problem.cost_map import CostMap
from pear.problem.importers.cvxpy_checks import (
    WHERE,
    check_form,
    check_leaves,
    constraint_name,
    integer_marks,
    predicted_parameters,
    sign_of,
    variable_bounds,
)
from pear.problem.importers.cvxpy_rows import (
    TaggedConstraint,
    TaggedRows,
    check_parameter_use,
    constraint_prices,
    locate_tags,
)
from pear.problem.importers.files_and_packages import import_optional
from pear.problem.importers.linear_map import linear_map
from pear.problem.importers.model_arrays import ModelArrays, join_names
from pear.problem.importers.predicted_rows import constraint_map, penalty
from pear.problem.importers.row_limits import Array, RowLimits
from pear.problem.model import Model


def from_cvxpy(problem: Any, parameters: Any = None, recourse: Any = None) -> Model:
    """A linear, quadratic or integer program from a ``cvxpy.Problem``, whose parameters are predicted.

    CVXPY brings the problem to matrices, and the cost map is read off how the objective depends on the parameters:
    ``m.cost(ŷ)`` are the costs of all variables under the predicted values ŷ. A parameter may also stand in linear
    constraints, beside the decisions: ``A @ x <= demand``. Then ``m.right_hand_sides(ŷ)`` are theirs, and ``recourse``
    says what a decision pays that violates what came true. The problem itself stays as it is: nothing is solved, and no
    value is set.

    Predicted values are those of the parameters in the order given, each flattened row by row (NumPy's order, C), and
    called ``price[0]``, ``price[1]``, …, or ``price[0,1]`` for a matrix. Decisions come back by the names of the
    variables in their own shapes. What CVXPY adds to write ``abs``, ``max``, ``norm1`` and the like becomes further
    variables, ``auxiliary[0]``, …, which ``decision`` leaves out.

    Args:
        problem: CVXPY's, with a linear or convex quadratic objective and linear constraints (also those that become
            linear: ``abs(x) <= 1``, ``max(x) <= y``).
        parameters: a ``cvxpy.Parameter`` or several, those that are predicted; their values are not needed. Left out,
            all of the problem. The others must have a value, which is taken as it is. Without any parameter all costs
            are predicted, and the problem's own are ``m.known``.
        recourse: needed to train where constraints hold predicted parameters; ``m.with_recourse`` adds it later. A
            dictionary from constraints, or their labels, to the price of a unit of violation: a number, or one for each
            row; for an equality also a pair, where the left side is too little and where it is too much. Or a
            ``pear.Penalty`` or ``pear.Projection`` for the rows of ``m.problem``.

    Raises:
        DataError: it is another object, holds what cannot be taken (cones, quadratic constraints, symmetric or complex
            variables), a parameter stands where no predicted one may, or one that is not predicted has no value; a
            price belongs to no constraint. Says which, and what to do.
        ProblemError: bounds cross, or two variables have the same name.
        MissingExtraError: CVXPY is not installed.

    Example:
        >>> import cvxpy as cp
        >>> import pear
        >>> price, buy, sell = cp.Parameter(2, name="price"), cp.Variable(2, name="buy"), cp.Variable(2, name="sell")
        >>> cost = price @ (buy - sell) + 0.1 * cp.sum(sell)
        >>> plan = cp.Problem(cp.Minimize(cost), [buy >= 0, buy <= 1, sell >= 0, cp.sum(sell) <= cp.sum(buy)])
        >>> m = pear.from_cvxpy(plan, [price])
        >>> m.cost([1.0, 3.0]).tolist()
        [1.0, 3.0, -0.9, -2.9]
        >>> m.decision(pear.solve(m, [[1.0, 3.0]]).x)["sell"].tolist()
        [[0.0, 1.0]]

        Orders of two products, whose demand is predicted; a missing piece costs 3, one left over 1:

        >>> demand, order = cp.Parameter(2, name="demand"), cp.Variable(2, name="order", nonneg=True)
        >>> meet = order == demand
        >>> shop = cp.Problem(cp.Minimize(0), [meet, cp.sum(order) <= 10])
        >>> m = pear.from_cvxpy(shop, [demand], recourse={meet: (3.0, 1.0)})
        >>> pear.regret(m, [[4.0, 5.0]], [[2.0, 6.0]]).tolist()
        [5.0]
    """
    cvxpy = import_optional("cvxpy", "cvxpy", "a problem of CVXPY")
    if not isinstance(problem, cvxpy.Problem):
        raise DataError(f"expected a cvxpy.Problem, got {type(problem).__name__}; write cvxpy.Problem(objective, rows)")
    predicted = predicted_parameters(problem, parameters, cvxpy)
    check_leaves(problem, predicted)
    copy = _Copy.of(problem, predicted, constraint_prices(problem.constraints, recourse), cvxpy)
    check_form(copy.problem, copy.predicted)
    canonical = _Canonical(copy, 1.0 if type(problem.objective).__name__ == "Minimize" else -1.0)
    canonical.check_fixed(copy.predicted)
    arrays, layout = _arrays(problem, canonical)
    if not predicted:
        made = arrays.model(layout=layout, notes=_notes(problem, predicted, arrays))
        return replace(made, recourse=_recourse(canonical, arrays.rows, recourse))
    labels = [label for p in predicted for label in entry_names(p)]
    M, moved, D = canonical.maps(copy.predicted)
    constants = [label for label, moves in zip(labels, moved.tolist(), strict=True) if moves]
    notes = _notes(problem, predicted, arrays, constants, M) + canonical.limits.sentences(recourse is not None)
    made = arrays.model(cost_map=CostMap(M, arrays.costs, labels), layout=layout, notes=notes)
    own = constraint_map(arrays.rows, D[arrays.rows.numbers])
    return replace(made, constraint_map=own, recourse=_recourse(canonical, arrays.rows, recourse))


def _recourse(canonical: _Canonical, rows: RowLimits, given: Any) -> Any:
    """Prices of constraints as a ``Penalty`` of the rows of A and G; anything but a dictionary is returned as it is."""
    if not isinstance(given, Mapping):
        return given
    little, much = canonical.limits.prices()
    return penalty(rows, little[rows.numbers], much[rows.numbers])


@dataclass(frozen=True)
class _Copy:
    """A copy of the problem with continuous variables, and with constants for parameters that are not predicted.

    CVXPY has no canonical form for some integer problems, and takes products of two parameters only where one is a
    number. Nothing of the original is touched.

    Attributes:
        problem: the copy.
        predicted: the predicted parameters of the copy.
        tags: for every variable of the original, a parameter of its shape.
        limits: the constraints that contain predicted parameters or have a price, each with a tag of its own.
        tagged: the copy with these constraints, and with ``Σ tag · variable`` added to its objective. The tags show
            which columns belong to each variable, and which rows to each constraint.
    """

    problem: Any
    predicted: list[Any]
    tags: list[Any]
    limits: list[TaggedConstraint]
    tagged: Any

    @staticmethod
    def of(problem: Any, predicted: list[Any], prices: dict[int, Any], cvxpy: Any) -> _Copy:
        """Copy a checked problem. ``prices`` are the prices of its constraints, by constraint number."""
        chosen = {id(p) for p in predicted}
        replaced: dict[int, Any] = {
            id(p): cvxpy.Parameter(p.shape, name=p.name(), value=np.zeros(p.shape), **sign_of(p))
            if id(p) in chosen
            else cvxpy.Constant(p.value)
            for p in problem.parameters()
        }
        tags, terms = [], []
        for v in problem.variables():
            replaced[id(v)] = cvxpy.Variable(v.shape, name=v.name(), **sign_of(v))
            tags.append(cvxpy.Parameter(v.shape, value=np.zeros(v.shape)))
            terms.append(cvxpy.sum(cvxpy.multiply(tags[-1], replaced[id(v)])))
        objective = problem.objective.tree_copy(replaced)
        rows = [_labelled(row.tree_copy(replaced), row) for row in problem.constraints]
        copies = [replaced[id(p)] for p in predicted]
        limits = {
            i: TaggedConstraint.of(constraint_name(row, i), row, copies, prices.get(i), cvxpy)
            for i, row in enumerate(rows)
            if i in prices or any(p is other for p in copies for other in row.parameters())
        }
        moved = [limits[i].row if i in limits else row for i, row in enumerate(rows)]
        return _Copy(
            cvxpy.Problem(objective, rows),
            copies,
            tags,
            list(limits.values()),
            cvxpy.Problem(type(objective)(sum(terms, objective.expr)), moved),
        )


def _labelled(copy: Any, original: Any) -> Any:
    if label := getattr(original, "label", None):  # older versions of CVXPY have none
        copy.set_label(label)
    return copy


class _Canonical:
    """CVXPY's matrices of a copy, as functions of its parameters.

    Args:
        copy: the copied problem. Its canonical form is the one for the solver Clarabel, which comes with CVXPY and
            accepts quadratic objectives.
        sign: 1 to minimise, −1 to maximise. CVXPY's canonical form always minimises.
    """

    def __init__(self, copy: _Copy, sign: float) -> None:
        data, _, _ = copy.tagged.get_problem_data("CLARABEL")
        self.sign, self.tags = sign, copy.tags
        self._program, self._curved = data["param_prob"], "P" in data
        row_tags = [one.tag for one in copy.limits]
        self._zero = {p.id: np.zeros(p.shape) for p in (*copy.predicted, *copy.tags, *row_tags)}
        self.equalities = int(data["dims"].zero)
        self.P, self.q, self.d, self.A, self.b = self.at({}, constant=True)
        if len(self.b) != self.equalities + int(data["dims"].nonneg):
            raise DataError(f"{WHERE} needs a cone ({data['dims']}), which cannot be taken; write it with linear terms")
        self.limits = TaggedRows(copy.limits, lambda values: self.at(values)[4])

    def at(self, values: dict[int, Any], constant: bool = False) -> tuple[Any, Array, float, Any, Array]:
        """P, q, d, A and b of ``½ zᵀPz + qᵀz + d`` and ``b + Az ≥ 0`` (= 0 in the first rows) at parameter values.

        Args:
            values: values of parameters, by their ids; other parameters are 0.
            constant: True for the whole, False for the part that is linear in the values.
        """
        found = self._program.apply_parameters(self._zero | values, zero_offset=not constant, quad_obj=self._curved)
        P, (q, d, A, b) = (found[0], found[1:]) if self._curved else (None, found)
        return P, np.asarray(q, dtype=float).reshape(-1), float(np.squeeze(d)), A, np.asarray(b, dtype=float)

    def check_fixed(self, predicted: list[Any]) -> None:
        """Check that only costs and right-hand sides, and no matrices, depend on the predicted parameters."""
        random = np.random.default_rng(0)
        for p in predicted:
            P, _, _, A, b = self.at({p.id: 1.0 + random.random(p.shape)})
            if P is not None and np.abs(P.data).max(initial=0.0) > 0:
                raise DataError(
                    f"{WHERE}: the predicted parameter {p.name()} multiplies a quadratic term of the objective; it may "
                    "multiply linear terms alone: give it a value and leave it out of parameters"
                )
            check_parameter_use(p.name(), A, b, self.limits)

    def maps(self, predicted: list[Any]) -> tuple[sparse.csr_array, Array, sparse.csr_array]:
        """Derivatives of costs (n, k), the objective's constant (k,) and right-hand sides (r, k) by the parameters."""
        blocks = [linear_map(partial(self._depends, p), p.size) for p in predicted]
        if any(block is None for block in blocks):
            raise DataError(f"{WHERE}: its costs are not linear in the predicted parameters; predict the costs instead")
        M, n = sparse.csr_array(sparse.hstack(blocks)), len(self.q)
        return self.sign * M[:n], M[n : n + 1].toarray().reshape(-1), M[n + 1 :]

    def _depends(self, parameter: Any, values: Array) -> Array:
        """q, d and b, concatenated (n + 1 + r,), for the values of one parameter in C order."""
        _, q, d, _, b = self.at({parameter.id: values.reshape(parameter.shape)})
        return np.concatenate([q, [d], b])

    def columns(self) -> list[Any]:
        """The positions in z of the entries of each original variable, in the shape of the variable."""
        return locate_tags(self.tags, lambda values: self.at(values)[1])[0]


def _arrays(problem: Any, canonical: _Canonical) -> tuple[ModelArrays, dict[str, Tensor]]:
    """The arrays in the sense of the original, and the columns of its variables by name."""
    variables, columns = problem.variables(), canonical.columns()
    n, sign = len(canonical.q), canonical.sign
    names = np.full(n, "", dtype=object)
    integer = np.zeros(n, dtype=bool)
    layout: dict[str, Tensor] = {}
    low = np.where(np.arange(len(canonical.b)) < canonical.equalities, canonical.b, -np.inf)
    rows = RowLimits(sparse.csr_array(-canonical.A), low, canonical.b, _row_names(problem))
    rows, lb, ub = rows.without_bounds(canonical.limits.kept())
    for v, at in zip(variables, columns, strict=True):
        if v.name() in layout:
            raise DataError(
                f"{WHERE}: two variables are called {v.name()}; decisions come back by name: give each its own"
            )
        layout[v.name()] = torch.tensor(at)
        names[at.reshape(-1)] = entry_names(v)
        integer[at] = integer_marks(v, "boolean") | integer_marks(v, "integer")
        least, most = variable_bounds(v)
        lb[at], ub[at] = np.maximum(lb[at], least), np.minimum(ub[at], most)
    added = np.flatnonzero(names == "")
    names[added] = [f"auxiliary[{i}]" for i in range(len(added))]
    return ModelArrays(
        WHERE,
        rows,
        sign * canonical.q,
        lb,
        ub,
        sign * canonical.P if canonical.P is not None and canonical.P.count_nonzero() else None,
        "min" if sign > 0 else "max",
        integer,
        sign * canonical.d,
        tuple(names),
    ), layout


def entry_names(leaf: Any) -> list[str]:
    """Names of the entries of a variable or parameter, row by row: price, or price[0], …, or price[0,1], …."""
    if not leaf.shape:
        return [leaf.name()]
    return [f"{leaf.name()}[{','.join(str(i) for i in at)}]" for at in np.ndindex(leaf.shape)]


def _row_names(problem: Any) -> tuple[str, ...]:
    names = ((constraint_name(row, i), row) for i, row in enumerate(problem.constraints))
    return tuple(f"{name}[{j}]" if row.size > 1 else name for name, row in names for j in range(row.size))


def _notes(
    problem: Any, predicted: list[Any], arrays: ModelArrays, constants: list[str] | None = None, M: Any = None
) -> list[str]:
    """The importer's own sentences for the report."""
    chosen = {id(p) for p in predicted}
    taken = [p for p in problem.parameters() if id(p) not in chosen]
    added = np.array([name.startswith("auxiliary[") for name in arrays.variables])
    notes = []
    if taken:
        notes.append(f"Parameters taken at their values: {join_names([p.name() for p in taken])}.")
    if added.any():
        own = "a variable of its own, auxiliary[0]" if added.sum() == 1 else f"{added.sum()} variables of its own"
        notes.append(f"CVXPY adds {own}; decisions leave them out.")
    if constants:
        notes.append(
            f"A term of the objective with {join_names(constants)} and no decision is left out: it changes none."
        )
    if M is not None and M[added].nnz:
        notes.append(
            "Costs of auxiliary variables depend on predicted values, which must keep the sign that the problem "
            "declares (nonneg, nonpos): with the other sign the problem is unbounded."
        )
    return notes
