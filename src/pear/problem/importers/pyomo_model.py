"""Import of Pyomo models, with Pyomo's standard representation of expressions."""

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

# Kinds of components that can be imported, or that hold no part of the program.
_TAKEN = {"Var", "Constraint", "Objective", "Block", "Param", "Set", "RangeSet", "Expression", "Suffix", "BuildAction"}
_TAKEN |= {"BuildCheck", "ConstraintList", "VarList", "SetOf"}


def from_pyomo(
    model: Any, predicted: Names = None, rows: Names = None, recourse: Any = None, known: Names = None
) -> Model:
    """Import a linear, quadratic or integer program from a Pyomo ``ConcreteModel``.

    The model is neither solved nor changed. Names are those of Pyomo (``charge[3]``). Both bounds of a fixed variable
    (``x.fix(2)``) are its value. A product of a fixed and another variable is linear, as for Pyomo's solvers.

    Args:
        model: a concrete model, or a block.
        predicted: what is predicted. The name of a variable means its cost, the name of a row its right-hand side, and
            a pair (row, variable) the coefficient of the variable in the row. The predicted values are the costs, then
            the right-hand sides, then the coefficients, each in the order of this list. Other numbers keep the values
            of the model. By default all costs that are not in ``known`` are predicted.
        rows: names of further rows whose right-hand sides are predicted. Every row with a predicted number must be an
            equality or have one limit. With ``rows``, ``predicted`` may be an empty list, so that no cost is predicted.
        recourse: the rule for decisions that violate the true rows, needed to train if rows are predicted: a
            dictionary from names of rows to prices per unit of violation, a ``pear.Penalty`` or a ``pear.Projection``.
            An equality may have a pair of prices, (too little, too much). ``Model.with_recourse`` adds one later.
        known: names of the numbers that are known for every sample and passed with every call. The name of a row means
            its right-hand side. The name of a variable means its cost, or its value if the variable is fixed; ``x.lb``
            and ``x.ub`` mean the bounds of x. ``demand`` means all of ``demand[0]``, ``demand[1]``, ….

    Raises:
        DataError: ``model`` is no concrete model, has no objective or several, or has parts that cannot be imported:
            nonlinear expressions, quadratic constraints, SOS, disjunctions, complementarities, or variables that are
            neither real nor integer; or ``predicted`` names a fixed variable.
        ProblemError: bounds cross, the objective is not convex, or a name is wrong or comes twice.
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
    """Return the arrays of a Pyomo model, and the names of its fixed variables.

    Args:
        model: the Pyomo model.
        pyo: the module ``pyomo.environ``.
    """
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
    objective = _only_pyomo_objective(where, list(model.component_data_objects(pyo.Objective, active=True)))
    goal = _PyomoExpression(f"{where}: objective {objective.name}", objective.expr, place, standard)
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


class _PyomoExpression:
    """A Pyomo expression of the n variables z of a model, as ``½ zᵀQz + valuesᵀz[columns] + constant``.

    Args:
        where: the name of the expression in messages.
        expression: the Pyomo expression.
        place: the position of each variable in z, by the id of the variable.
        standard: Pyomo's function ``generate_standard_repn``.

    Attributes:
        constant: the constant.
        columns: the positions of the variables of the linear terms.
        values: the coefficients of the linear terms.
        quadratic: (n, n) Q, or None without quadratic terms.
    """

    def __init__(self, where: str, expression: Any, place: dict[int, int], standard: Callable[..., Any]) -> None:
        parts = standard(expression, compute_values=True, quadratic=True)
        if parts.nonlinear_expr is not None:
            raise DataError(
                f"{where} is not linear or quadratic: {parts.nonlinear_expr}; write it with linear terms, or as "
                "pear.Problem with a smooth term"
            )
        n = len(place)
        self.constant = float(parts.constant)
        self.columns = np.array([self._position(where, v, place) for v in parts.linear_vars], dtype=int)
        self.values = np.array(parts.linear_coefs, dtype=float)
        self.quadratic: Any = None
        if len(parts.quadratic_vars):
            one, two = ([self._position(where, pair[k], place) for pair in parts.quadratic_vars] for k in (0, 1))
            half = sparse.csr_array((np.array(parts.quadratic_coefs, dtype=float), (one, two)), shape=(n, n))
            self.quadratic = sparse.csr_array(half + half.T)

    @staticmethod
    def _position(where: str, variable: Any, place: dict[int, int]) -> int:
        """Return the position of a variable, after a check that it is an active variable of the model."""
        if id(variable) not in place:
            raise DataError(f"{where} uses {variable.name}, which is no active variable of this model; pass the whole")
        return place[id(variable)]


def _only_pyomo_objective(where: str, active: list[Any]) -> Any:
    """Return the only active objective, after a check that there are no others."""
    if len(active) != 1:
        raise DataError(f"{where} has {len(active)} active objectives; expected one: deactivate the others, or add it")
    return active[0]


def _pyomo_bounds(where: str, variable: Any) -> tuple[float, float]:
    """Return the bounds of a variable; both are its value if the variable is fixed."""
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
    """Return the constraints of a Pyomo model as rows with limits, after a check that none is quadratic."""
    forms: list[_PyomoExpression] = []
    low, high = np.full(len(constraints), -np.inf), np.full(len(constraints), np.inf)
    for i, row in enumerate(constraints):
        form = _PyomoExpression(f"{where}: constraint {row.name}", row.body, place, standard)
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
