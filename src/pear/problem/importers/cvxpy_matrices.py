"""The matrices of a CVXPY problem as functions of its predicted parameters, read from CVXPY's canonical form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.errors import DataError
from pear.problem.importers.cvxpy_structure import (
    has_structure,
    independent_names,
    place_variables,
    spread_entries,
    structure_of,
    tighten,
)
from pear.problem.importers.linear_map import linear_map
from pear.problem.importers.model_arrays import ModelArrays, join_names
from pear.problem.importers.row_limits import Array, RowLimits, read_price
from pear.problem.known_map import entry_names as names_of_entries
from pear.wording import count_noun

WHERE = "the CVXPY problem"


def parameters_in(expression: Any, parameters: Sequence[Any]) -> list[Any]:
    """Those of ``parameters`` that occur in an expression, a constraint or the attributes of a variable."""
    inside = {id(p) for p in expression.parameters()}
    return [p for p in parameters if id(p) in inside]


def parameter_names(parameters: Sequence[Any]) -> list[str]:
    """The names of CVXPY parameters."""
    return [p.name() for p in parameters]


def constraint_name(constraint: Any, i: int) -> str:
    """The label of a constraint, or its number where it has none."""
    return getattr(constraint, "label", None) or f"constraint {i}"


def entry_names(leaf: Any) -> list[str]:
    """Names of the entries of a variable or parameter, row by row: price, or price[0], …, or price[0,1], …."""
    return list(names_of_entries(leaf.name(), leaf.shape))


def sign_of(leaf: Any) -> dict[str, bool]:
    """The sign of a parameter or variable as a keyword argument of CVXPY; empty where it has none."""
    above, below = leaf.is_nonneg(), leaf.is_nonpos()
    return {} if above == below else {"nonneg" if above else "nonpos": True}


@dataclass(frozen=True)
class TaggedConstraint:
    """A constraint whose rows are to be found in CVXPY's matrices.

    CVXPY does not say which rows of its matrices belong to a constraint. A parameter that is added to the right side of
    the constraint, its tag, shows them: these are the rows whose right-hand sides depend on the tag.

    Attributes:
        name: the label or the number of the constraint.
        constraint: the constraint with the tag on its right side: ``left ≤ right + tag``.
        tag: a CVXPY parameter with the shape of the constraint.
        equality: whether the constraint is an equality.
        predicted_by: names of the predicted parameters in the constraint.
        price: the price per unit of violation, which may be a pair for an equality; None where there is none.
    """

    name: str
    constraint: Any
    tag: Any
    equality: bool
    predicted_by: tuple[str, ...]
    price: Any

    @classmethod
    def tagging(cls, name: str, constraint: Any, predicted: Sequence[Any], price: Any, cvxpy: Any) -> TaggedConstraint:
        """Add a tag to a constraint of the copied problem."""
        tag = cvxpy.Parameter(constraint.shape, value=np.zeros(constraint.shape))
        kind = type(constraint).__name__
        left, right = (*constraint.args, 0.0)[:2]
        left, right = (-left, -right) if kind == "NonNeg" else (left, right)
        equality = kind in ("Equality", "Zero")
        tagged = left == right + tag if equality else left <= right + tag
        return cls(name, tagged, tag, equality, tuple(parameter_names(parameters_in(constraint, predicted))), price)

    def spread_price(self, price: Any) -> Array:
        """A price in the shape of the constraint, from a number or an array that can be broadcast to the shape."""
        try:
            return np.broadcast_to(np.asarray(price, dtype=float), self.tag.shape)
        except ValueError as error:
            raise DataError(
                f"{WHERE}: the price of {self.name} has shape {np.shape(price)}; expected a number, or one for each "
                f"row in the shape of the constraint, {self.tag.shape}"
            ) from error


def locate_tags(tags: Sequence[Any], respond: Callable[[dict[int, Any]], Array]) -> tuple[list[NDArray[np.int_]], int]:
    """Find where each entry of each tag stands in a vector that depends on the tags.

    Every entry is set to a number of its own. The vector then shows this number, up to its sign, at the entry's
    position.

    Args:
        tags: CVXPY parameters.
        respond: a function from values of the tags, by their ids, to the vector, in which each entry appears once.

    Returns:
        For each tag the positions of its entries; and the length of the vector.
    """
    starts = np.cumsum([1, *(tag.size for tag in tags)])
    numbers = [s + np.arange(tag.size).reshape(tag.shape) for tag, s in zip(tags, starts, strict=False)]
    response = respond({tag.id: number.astype(float) for tag, number in zip(tags, numbers, strict=True)})
    place = np.zeros(starts[-1], dtype=int)
    found = np.flatnonzero(response)
    place[np.abs(response[found]).round().astype(int)] = found
    return [place[number] for number in numbers], len(response)


class TaggedRows:
    """The positions of the rows of tagged constraints in CVXPY's matrices.

    Args:
        tagged: the constraints.
        respond: a function from values of the tags, by their ids, to their contributions to the right-hand sides (r,).
    """

    def __init__(self, tagged: Sequence[TaggedConstraint], respond: Callable[[dict[int, Any]], Array]) -> None:
        rows, self.total = locate_tags([one.tag for one in tagged], respond)
        self._rows = tuple(zip(tagged, rows, strict=True))

    def mask(self) -> NDArray[np.bool_]:
        """Which rows belong to tagged constraints, (r,) bool. These rows may not become bounds."""
        found = np.zeros(self.total, dtype=bool)
        for _, at in self._rows:
            found[at] = True
        return found

    def prices(self) -> tuple[Array, Array]:
        """Prices (r,) for rows below their right-hand side, and for rows above it; infinite where there is none."""
        little, much = np.full(self.total, np.inf), np.full(self.total, np.inf)
        for one, at in self._rows:
            if one.price is None:
                raise DataError(
                    f"{WHERE}: {one.name} depends on {join_names(one.predicted_by)}, which is predicted, and recourse "
                    "has no price for it; say what a unit of its violation costs: recourse={constraint: price, …}"
                )
            sides = read_price(WHERE, one.name, one.price, one.equality)
            little[at], much[at] = (one.spread_price(side) for side in sides)
        return little, much

    def sentences(self, recourse: bool) -> list[str]:
        """Sentences for the report: which constraints are predicted, and that a recourse is missing."""
        found = [
            f"The right-hand side{'s' * (at.size > 1)} of {one.name} ({count_noun(at.size, 'row')}) "
            f"depend{'s' * (at.size == 1)} on {join_names(one.predicted_by)}."
            for one, at in self._rows
            if one.predicted_by
        ]
        missing = "To train, declare what a violation costs: recourse={constraint: price}, or m.with_recourse(…)."
        return [*found, missing] if found and not recourse else found


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
