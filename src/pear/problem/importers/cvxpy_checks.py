"""Checks that a CVXPY problem can be imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pear.errors import DataError
from pear.problem.importers.model_arrays import join_names
from pear.problem.importers.row_limits import Array

WHERE = "the CVXPY problem"
_ROWS = ("Equality", "Inequality", "Zero", "NonPos", "NonNeg")
_SHAPED = ("symmetric", "diag", "PSD", "NSD", "hermitian", "complex", "imag", "sparsity")


def predicted_parameters(problem: Any, parameters: Any, cvxpy: Any) -> list[Any]:
    """The parameters that are predicted: those given, or all of the problem."""
    inside = problem.parameters()
    if parameters is None:
        return list(inside)
    chosen = [parameters] if isinstance(parameters, cvxpy.Parameter) else list(parameters)
    for i, one in enumerate(chosen):
        if not isinstance(one, cvxpy.Parameter):
            raise DataError(f"{WHERE}: parameters[{i}] is a {type(one).__name__}; expected a cvxpy.Parameter")
        if not any(one is p for p in inside):
            names = join_names([p.name() for p in inside]) or "none"
            raise DataError(
                f"{WHERE}: the parameter {one.name()} is not in it; its parameters: {names}. Pass those that are "
                "predicted, the same objects as in the problem"
            )
        if any(one is other for other in chosen[:i]):
            raise DataError(f"{WHERE}: the parameter {one.name()} is given twice; pass each once")
    return chosen


def check_leaves(problem: Any, predicted: list[Any]) -> None:
    """Check that variables are plain, other parameters have values, and names of predicted parameters are unique."""
    if not problem.variables():
        raise DataError(f"{WHERE} has no variables; a decision needs at least one")
    for v in problem.variables():
        strange = [name for name in _SHAPED if v.attributes.get(name)]
        if strange:
            raise DataError(
                f"{WHERE}: variable {v.name()} is declared {strange[0]}, which cannot be taken; declare a plain "
                "variable and write the property as constraints (X == X.T, for example)"
            )
        bound_by = [p for p in predicted if any(p is other for other in v.parameters())]
        if bound_by:
            name = bound_by[0].name()
            raise DataError(
                f"{WHERE}: the predicted parameter {name} stands in the bounds of variable {v.name()}; write them as "
                f"constraints, which can have a price: {v.name()} <= {name}"
            )
    for p in problem.parameters():
        if not any(p is one for one in predicted) and p.value is None:
            raise DataError(
                f"{WHERE}: the parameter {p.name()} is not predicted and has no value; set {p.name()}.value, or name "
                "it in parameters"
            )
    for p in predicted:
        if strange := [name for name in _SHAPED if p.attributes.get(name)]:
            raise DataError(
                f"{WHERE}: the predicted parameter {p.name()} is declared {strange[0]}; predicted values have no such "
                "structure: declare a plain parameter"
            )
    names = [p.name() for p in predicted]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise DataError(f"{WHERE}: two predicted parameters are called {twice[0]}; give each its own name")


def check_form(problem: Any, predicted: list[Any]) -> None:
    """Check for a convex quadratic objective, linear rows, and both linear in the predicted parameters.

    Args:
        problem: without integers, and with numbers for parameters that are not predicted.
        predicted: its parameters.
    """
    for i, row in enumerate(problem.constraints):
        _check_row(row, i)
        inside = [p.name() for p in predicted if any(p is other for other in row.parameters())]
        if inside and not (all(part.is_affine() for part in row.args) and row.is_dcp(dpp=True)):
            raise DataError(
                f"{WHERE}: {constraint_name(row, i)}, {shorten(row)}, is not linear in decisions and predicted "
                f"parameters ({join_names(inside)}); expected a linear constraint, as A @ x <= p: write it so, or "
                "predict the product or the function itself as one parameter"
            )
    _check_objective(problem.objective, predicted)


def _check_row(row: Any, i: int) -> None:
    what = f"{WHERE}: {constraint_name(row, i)}, {shorten(row)},"
    if type(row).__name__ not in _ROWS:
        raise DataError(
            f"{what} is of kind {type(row).__name__}, which cannot be taken; expected linear constraints: leave it "
            "out, or approximate it by linear ones"
        )
    if not row.is_dcp():
        raise DataError(f"{what} is not convex by CVXPY's rules (DCP); rewrite it with linear expressions")
    if not all(part.is_pwl() for part in row.args):
        quadratic = all(part.is_quadratic() for part in row.args)
        kind = "is a quadratic constraint" if quadratic else f"needs a cone, from {_culprit(row.args, 'is_pwl')}"
        raise DataError(
            f"{what} {kind}, which cannot be taken; expected linear constraints (abs, max, norm1 and the like become "
            "linear): move it into the objective, or approximate it by linear ones"
        )


def _check_objective(objective: Any, predicted: list[Any]) -> None:
    expression = objective.expr
    if not objective.is_dcp():
        hint = ""
        if unsigned := [p.name() for p in predicted if any(p is o for o in expression.parameters()) and not sign_of(p)]:
            hint = f"; where {unsigned[0]} multiplies a convex expression, declare it with nonneg=True"
        shape = "convex" if type(objective).__name__ == "Minimize" else "concave"
        raise DataError(f"{WHERE}: the objective, {shorten(expression)}, is not {shape} by CVXPY's rules (DCP){hint}")
    if not expression.is_qpwa():
        raise DataError(
            f"{WHERE}: the objective needs a cone, from {_culprit([expression], 'is_qpwa')}; expected linear, "
            "quadratic and piecewise-linear terms: replace it, or write the problem as pear.Problem with a smooth term"
        )
    if not objective.is_dcp(dpp=True):
        names = join_names([p.name() for p in predicted if any(p is o for o in expression.parameters())])
        raise DataError(
            f"{WHERE}: the objective is not linear in the predicted parameters ({names}): a product of two of them, a "
            "power or a function; predict the product or the function itself as one parameter"
        )


def _culprit(expressions: list[Any], test: str) -> str:
    """The innermost expression that fails a test, as short text."""
    return next((shorten(e) for top in expressions for e in _failing(top, test)), shorten(expressions[0]))


def _failing(expression: Any, test: str) -> Iterator[Any]:
    for part in expression.args:
        yield from _failing(part, test)
    if not getattr(expression, test)():
        yield expression


def shorten(expression: Any) -> str:
    """An expression or constraint as CVXPY prints it, shortened to 80 characters."""
    text = " ".join(str(expression).split())
    return text if len(text) <= 80 else f"{text[:77]}…"


def constraint_name(row: Any, i: int) -> str:
    """The label of a constraint, or its number where it has none."""
    return getattr(row, "label", None) or f"constraint {i}"


def sign_of(leaf: Any) -> dict[str, bool]:
    """The sign of a parameter or variable as a keyword argument of CVXPY; empty where it has none."""
    above, below = leaf.is_nonneg(), leaf.is_nonpos()
    return {} if above == below else {"nonneg" if above else "nonpos": True}


def integer_marks(variable: Any, name: str) -> Any:
    """Which entries of a variable are "boolean" or "integer", bool in its shape."""
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


def variable_bounds(variable: Any) -> tuple[Array, Array]:
    """Bounds of a variable in its shape, infinite where there are none."""
    low, high = np.full(variable.shape, -np.inf), np.full(variable.shape, np.inf)
    given = variable.attributes.get("bounds") or (None, None)
    if variable.is_nonneg():
        low[...] = 0.0
    if variable.is_nonpos():
        high[...] = 0.0
    sides = [None if side is None else getattr(side, "value", side) for side in given]
    low = low if sides[0] is None else np.maximum(low, np.broadcast_to(sides[0], low.shape))
    high = high if sides[1] is None else np.minimum(high, np.broadcast_to(sides[1], high.shape))
    binary = integer_marks(variable, "boolean")
    return np.where(binary, np.maximum(low, 0.0), low), np.where(binary, np.minimum(high, 1.0), high)
