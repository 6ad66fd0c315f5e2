"""Import of Pyomo models, by Pyomo's standard representation of expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from pear.errors import DataError
from pear.optional_packages import import_optional
from pear.problem.importers.model_arrays import ModelArrays, Names
from pear.problem.importers.row_limits import RowLimits
from pear.problem.model import Model

# Kinds of components that are taken, or that hold no part of the program.
_TAKEN = {"Var", "Constraint", "Objective", "Block", "Param", "Set", "RangeSet", "Expression", "Suffix", "BuildAction"}
_TAKEN |= {"BuildCheck", "ConstraintList", "VarList", "SetOf"}


def from_pyomo(
    model: Any, predicted: Names = None, rows: Names = None, recourse: Any = None, known: Names = None
) -> Model:
    """A linear, quadratic or integer program from a Pyomo ``ConcreteModel``. Nothing is solved or changed.

    Names are Pyomo's own (``charge[3]``). A variable that is fixed (``x.fix(2)``) becomes a column with both bounds at
    its value; products with it count as linear, as for Pyomo's own solvers.

    Args:
        model: a concrete model, or a block.
        predicted: names of the variables whose costs are predicted, in the order of the predictions; the others keep
            the model's own. Names of rows stand for their right-hand sides, as in ``rows``. If omitted, all costs are
            predicted that are not known.
        rows: names of rows with a single limit whose right-hand sides are predicted. Their values follow the predicted
            costs. ``predicted`` may then be empty.
        recourse: the rule for decisions that violate the true rows, needed to train with ``rows``. Either a dictionary
            from names of rows to prices per unit of violation, for an equality also a pair (too little, too much), or a
            ``pear.Penalty`` or ``pear.Projection``. ``m.with_recourse`` can add it later.
        known: names of rows and variables whose numbers are known for every sample, and come with every call: a row's
            right-hand side, a variable's cost, or its value where it is fixed; ``x.lb`` and ``x.ub`` for bounds. The
            name of an array (``demand`` for ``demand[0]``, ``demand[1]``, …) stands for all its entries.

    Raises:
        DataError: it is another object, or holds what cannot be taken: not one objective, nonlinear expressions,
            quadratic constraints, SOS, disjunctions, complementarities, variables on other sets.
        ProblemError: bounds cross, the objective is not convex, or a name is wrong.
        MissingExtraError: Pyomo is not installed.
    """
    pyo = import_optional("pyomo.environ", "pyomo", "a model of Pyomo")
    if not isinstance(model, pyo.Block) or not model.is_constructed():
        raise DataError(
            f"expected a pyomo.environ.ConcreteModel, got {type(model).__name__}; of an abstract model, pass "
            "model.create_instance(data)"
        )
    arrays, fixed = pyomo_arrays(model, pyo)
    chosen = [predicted] if isinstance(predicted, str) else list(predicted or ())
    if useless := [name for name in chosen if name in fixed]:
        raise DataError(
            f"{arrays.where}: {useless[0]} is fixed, so that its cost changes no decision; leave it out of predicted, "
            "or unfix it"
        )
    return arrays.model(predicted, limits=rows, recourse=recourse, known=known)


def pyomo_arrays(model: Any, pyo: Any) -> tuple[ModelArrays, set[str]]:
    """The arrays of a model, and the names of its fixed variables."""
    where = f"the Pyomo model {model.name}"
    for part in model.component_objects(active=True):
        if part.ctype.__name__ not in _TAKEN:
            raise DataError(
                f"{where}: {part.name} is a {part.ctype.__name__}, which cannot be taken; expected variables, linear "
                "constraints and one objective: write it with linear rows and integer variables, or transform it first"
            )
    variables = list(model.component_data_objects(pyo.Var, descend_into=True))
    if not variables:
        raise DataError(f"{where} has no variables; add them before it is taken")
    place = {id(v): i for i, v in enumerate(variables)}
    standard = import_optional("pyomo.repn", "pyomo", "a model of Pyomo").generate_standard_repn
    objective = _only_objective(where, list(model.component_data_objects(pyo.Objective, active=True)))
    goal = _QuadraticForm(f"{where}: objective {objective.name}", objective.expr, place, standard)
    costs = np.zeros(len(variables))
    costs[goal.columns] = goal.values
    constraints = list(model.component_data_objects(pyo.Constraint, active=True))
    bounds = [_pyomo_bounds(where, v) for v in variables]
    arrays = ModelArrays(
        where,
        _pyomo_rows(where, constraints, place, standard),
        costs,
        np.array([low for low, _ in bounds]),
        np.array([high for _, high in bounds]),
        goal.quadratic,
        "max" if objective.sense == pyo.maximize else "min",
        np.array([not v.is_continuous() for v in variables]),
        goal.constant,
        tuple(v.name for v in variables),
    )
    return arrays, {v.name for v in variables if v.fixed}


class _QuadraticForm:
    """An expression as ``½ zᵀQz + linearᵀz + constant``."""

    def __init__(self, where: str, expression: Any, place: dict[int, int], standard: Callable[..., Any]) -> None:
        parts = standard(expression, compute_values=True, quadratic=True)
        if parts.nonlinear_expr is not None:
            raise DataError(
                f"{where} is not linear or quadratic: {parts.nonlinear_expr}; write it with linear terms, or as "
                "pear.Problem with a smooth term"
            )
        n = len(place)
        self.constant = float(parts.constant)
        self.columns = np.array([self._at(where, v, place) for v in parts.linear_vars], dtype=int)
        self.values = np.array(parts.linear_coefs, dtype=float)
        self.quadratic: Any = None
        if len(parts.quadratic_vars):
            one, two = ([self._at(where, pair[k], place) for pair in parts.quadratic_vars] for k in (0, 1))
            half = sparse.csr_array((np.array(parts.quadratic_coefs, dtype=float), (one, two)), shape=(n, n))
            self.quadratic = sparse.csr_array(half + half.T)

    @staticmethod
    def _at(where: str, variable: Any, place: dict[int, int]) -> int:
        if id(variable) not in place:
            raise DataError(f"{where} uses {variable.name}, which is no active variable of this model; pass the whole")
        return place[id(variable)]


def _only_objective(where: str, active: list[Any]) -> Any:
    """The one active objective."""
    if len(active) != 1:
        raise DataError(f"{where} has {len(active)} active objectives; expected one: deactivate the others, or add it")
    return active[0]


def _pyomo_bounds(where: str, variable: Any) -> tuple[float, float]:
    """The bounds of a variable, both equal to its value where it is fixed."""
    if not (variable.is_continuous() or variable.is_integer() or variable.is_binary()):
        raise DataError(
            f"{where}: {variable.name} lies in {variable.domain}; expected reals, integers or binaries: write it with "
            "rows and integer variables"
        )
    if variable.fixed:
        return float(variable.value), float(variable.value)
    low, high = variable.bounds
    return -np.inf if low is None else float(low), np.inf if high is None else float(high)


def _pyomo_rows(where: str, constraints: list[Any], place: dict[int, int], standard: Callable[..., Any]) -> RowLimits:
    """Return the linear constraints of a Pyomo model as rows with limits; raise if one is quadratic."""
    forms: list[_QuadraticForm] = []
    low, high = np.full(len(constraints), -np.inf), np.full(len(constraints), np.inf)
    for i, row in enumerate(constraints):
        form = _QuadraticForm(f"{where}: constraint {row.name}", row.body, place, standard)
        if form.quadratic is not None:
            raise DataError(
                f"{where}: constraint {row.name} is quadratic, which cannot be taken; expected linear constraints: "
                "approximate it by linear rows"
            )
        forms.append(form)
        if row.has_lb():
            low[i] = row.lb - form.constant
        if row.has_ub():
            high[i] = row.ub - form.constant
    start = np.cumsum([0, *(len(form.columns) for form in forms)])
    columns, values = (np.concatenate([np.empty(0), *(getattr(f, k) for f in forms)]) for k in ("columns", "values"))
    matrix = sparse.csr_array((values, columns.astype(int), start), shape=(len(forms), len(place)))
    return RowLimits(matrix, low, high, tuple(row.name for row in constraints))
