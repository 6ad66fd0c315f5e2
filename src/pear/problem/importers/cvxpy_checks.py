"""Checks that a CVXPY problem can be imported, with the reason where it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pear.errors import DataError
from pear.problem.importers.cvxpy_names import WHERE, constraint_name, parameter_names, parameters_in, sign_of
from pear.wording import join_names

_LINEAR_KINDS = ("Equality", "Inequality", "Zero", "NonPos", "NonNeg")
_REFUSED = ("PSD", "NSD", "hermitian", "complex", "imag")


def check_variables_and_parameters(problem: Any, predicted: list[Any], known: list[Any]) -> None:
    """Check that variables are plain, other parameters have values, and names of predicted parameters are unique."""
    if not problem.variables():
        raise DataError(f"{WHERE} has no variables; a decision needs at least one")
    for v in problem.variables():
        if structure := [name for name in _REFUSED if v.attributes.get(name)]:
            raise DataError(
                f"{WHERE}: variable {v.name()} is declared {structure[0]}, which cannot be taken; expected real "
                "variables, which may be symmetric, diagonal or sparse: declare such a one"
            )
        if bound_by := parameter_names(parameters_in(v, [*predicted, *known])):
            kind = "predicted" if parameters_in(v, predicted) else "known"
            raise DataError(
                f"{WHERE}: the {kind} parameter {bound_by[0]} stands in the bounds of variable {v.name()}; write "
                f"them as constraints, which can have a price: {v.name()} <= {bound_by[0]}"
            )
    for p in problem.parameters():
        if not any(p is one for one in (*predicted, *known)) and p.value is None:
            raise DataError(
                f"{WHERE}: the parameter {p.name()} is not predicted and has no value; set {p.name()}.value, or name "
                "it in predicted, or in known where it comes with every sample"
            )
    for p in predicted:
        if structure := [name for name in _REFUSED if p.attributes.get(name)]:
            raise DataError(
                f"{WHERE}: the predicted parameter {p.name()} is declared {structure[0]}; predicted values have no "
                "such structure: declare a plain, symmetric or diagonal parameter"
            )
    names = parameter_names(predicted)
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise DataError(f"{WHERE}: two predicted parameters are called {twice[0]}; give each its own name")


def check_constraint(constraint: Any, i: int, predicted: list[Any], known: list[Any]) -> None:
    """Check that a constraint of the copied problem is linear, or becomes linear, also in predicted parameters."""
    what = f"{WHERE}: {constraint_name(constraint, i)}, {_shorten(constraint)},"
    if type(constraint).__name__ not in _LINEAR_KINDS:
        raise DataError(
            f"{what} is of kind {type(constraint).__name__}, which cannot be taken; expected linear constraints: leave "
            "it out, or approximate it by linear ones"
        )
    if not constraint.is_dcp():
        raise DataError(f"{what} is not convex by CVXPY's rules (DCP); rewrite it with linear expressions")
    parts = constraint.args
    if not all(part.is_pwl() for part in parts):
        quadratic = all(part.is_quadratic() for part in parts)
        kind = "is a quadratic constraint" if quadratic else f"needs a cone, from {_culprit(parts, 'is_pwl')}"
        raise DataError(
            f"{what} {kind}, which cannot be taken; expected linear constraints (abs, max, norm1 and the like become "
            "linear): move it into the objective, or approximate it by linear ones"
        )
    inside = parameter_names(parameters_in(constraint, predicted))
    if inside and not (all(part.is_affine() for part in parts) and constraint.is_dcp(dpp=True)):
        raise DataError(
            f"{what} is not linear in decisions and predicted parameters ({join_names(inside)}); expected a linear "
            "constraint, as A @ x <= p: write it so, or predict the product or the function itself as one parameter"
        )
    told = parameter_names(parameters_in(constraint, known))
    if told and not constraint.is_dcp(dpp=True):
        raise DataError(
            f"{what} is not linear in its parameters ({join_names([*inside, *told])}): a product of two of them, a "
            "power or a function; pass the product or the function itself as one parameter"
        )


def check_objective(objective: Any, predicted: list[Any], known: list[Any]) -> None:
    """Check that the objective is convex, at most quadratic, and linear in the predicted and known parameters."""
    expression = objective.expr
    inside = parameters_in(expression, [*predicted, *known])
    if not objective.is_dcp():
        unsigned = [p.name() for p in inside if not sign_of(p)]
        hint = f"; where {unsigned[0]} multiplies a convex expression, declare it with nonneg=True" if unsigned else ""
        shape = "convex" if type(objective).__name__ == "Minimize" else "concave"
        raise DataError(f"{WHERE}: the objective, {_shorten(expression)}, is not {shape} by CVXPY's rules (DCP){hint}")
    if not expression.is_qpwa():
        raise DataError(
            f"{WHERE}: the objective needs a cone, from {_culprit([expression], 'is_qpwa')}; expected linear, "
            "quadratic and piecewise-linear terms: replace it, or write the problem as pear.Problem with a smooth term"
        )
    if not objective.is_dcp(dpp=True):
        raise DataError(
            f"{WHERE}: the objective is not linear in the {'' if parameters_in(expression, known) else 'predicted '}"
            f"parameters ({join_names(parameter_names(inside))}): a product of two of them, a power or a function; "
            f"{'pass' if parameters_in(expression, known) else 'predict'} the product or the function itself as one "
            "parameter"
        )


def _culprit(expressions: list[Any], test: str) -> str:
    """The innermost expression that fails a test, as short text."""
    return next((_shorten(e) for top in expressions for e in _failing_parts(top, test)), _shorten(expressions[0]))


def _failing_parts(expression: Any, test: str) -> Iterator[Any]:
    """The parts of an expression that fail a test, innermost first."""
    for part in expression.args:
        yield from _failing_parts(part, test)
    if not getattr(expression, test)():
        yield expression


def _shorten(expression: Any) -> str:
    """An expression or constraint as CVXPY prints it, shortened to 80 characters."""
    text = " ".join(str(expression).split())
    return text if len(text) <= 80 else f"{text[:77]}…"
