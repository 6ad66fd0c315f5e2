"""Checks that a CVXPY problem can be imported. The error messages say why it cannot, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from pear.errors import DataError
from pear.problem.importers.cvxpy_leaves import leaf_sign
from pear.problem.importers.cvxpy_names import WHERE, cvxpy_constraint_name, cvxpy_parameters_in
from pear.wording import join_names

_LINEAR_KINDS = ("Equality", "Inequality", "Zero", "NonPos", "NonNeg")
_REFUSED = ("PSD", "NSD", "hermitian", "complex", "imag")


def check_cvxpy_variables_and_parameters(problem: Any, predicted: list[Any], known: list[Any]) -> None:
    """Check the variables and the parameters of a CVXPY problem.

    The problem must have a variable. Variables and predicted parameters must be real, and not declared semidefinite.
    The bounds of variables must not contain predicted or known parameters. A parameter that is neither predicted nor
    known must have a value. The names of predicted parameters must differ, and so must those of known parameters.

    Args:
        problem: the CVXPY problem.
        predicted: the predicted parameters.
        known: the known parameters.

    Raises:
        DataError: the problem fails one of these checks.
    """
    if not problem.variables():
        raise DataError(f"{WHERE} has no variables; a decision needs at least one")
    for v in problem.variables():
        if structure := [name for name in _REFUSED if v.attributes.get(name)]:
            raise DataError(
                f"{WHERE}: variable {v.name()} is declared {structure[0]}, which cannot be taken; expected real "
                "variables, which may be symmetric, diagonal or sparse: declare such a one"
            )
        if bound_by := [p.name() for p in cvxpy_parameters_in(v, [*predicted, *known])]:
            kind = "predicted" if cvxpy_parameters_in(v, predicted) else "known"
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
    for kind, names in (("predicted", [p.name() for p in predicted]), ("known", [p.name() for p in known])):
        if twice := [name for i, name in enumerate(names) if name in names[:i]]:
            raise DataError(f"{WHERE}: two {kind} parameters are called {twice[0]}; give each its own name")


def check_cvxpy_constraint(constraint: Any, i: int, predicted: list[Any], known: list[Any]) -> None:
    """Check that a constraint is piecewise linear in decisions, and linear in predicted and known parameters.

    A constraint with a predicted parameter must be linear in decisions.

    Args:
        constraint: a constraint of a ``CvxpyCopy``.
        i: the number of the constraint, for messages.
        predicted: the predicted parameters of the copy.
        known: the known parameters of the copy.
    """
    what = f"{WHERE}: {cvxpy_constraint_name(constraint, i)}, {_shorten_checked_cvxpy_text(constraint)},"
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
        kind = (
            "is a quadratic constraint"
            if quadratic
            else f"needs a cone, from {_text_failing_cvxpy_check(parts, 'is_pwl')}"
        )
        raise DataError(
            f"{what} {kind}, which cannot be taken; expected linear constraints (abs, max, norm1 and the like become "
            "linear): move it into the objective, or approximate it by linear ones"
        )
    inside = [p.name() for p in cvxpy_parameters_in(constraint, predicted)]
    if inside and not (all(part.is_affine() for part in parts) and constraint.is_dcp(dpp=True)):
        raise DataError(
            f"{what} is not linear in decisions and predicted parameters ({join_names(inside)}); expected a linear "
            "constraint, as A @ x <= p: write it so, or predict the product or the function itself as one parameter"
        )
    told = [p.name() for p in cvxpy_parameters_in(constraint, known)]
    if told and not constraint.is_dcp(dpp=True):
        raise DataError(
            f"{what} is not linear in its parameters ({join_names([*inside, *told])}): a product of two of them, a "
            "power or a function; pass the product or the function itself as one parameter"
        )


def check_cvxpy_objective(objective: Any, predicted: list[Any], known: list[Any]) -> None:
    """Check that an objective is convex and at most quadratic, and linear in predicted and known parameters.

    Args:
        objective: the objective of a ``CvxpyCopy``.
        predicted: the predicted parameters of the copy.
        known: the known parameters of the copy.
    """
    expression = objective.expr
    inside = cvxpy_parameters_in(expression, [*predicted, *known])
    if not objective.is_dcp():
        unsigned = [p.name() for p in inside if not leaf_sign(p)]
        hint = f"; where {unsigned[0]} multiplies a convex expression, declare it with nonneg=True" if unsigned else ""
        text = _shorten_checked_cvxpy_text(expression)
        shape = "convex" if type(objective).__name__ == "Minimize" else "concave"
        raise DataError(f"{WHERE}: the objective, {text}, is not {shape} by CVXPY's rules (DCP){hint}")
    if not expression.is_qpwa():
        cone = _text_failing_cvxpy_check([expression], "is_qpwa")
        raise DataError(
            f"{WHERE}: the objective needs a cone, from {cone}; expected linear, quadratic and piecewise-linear terms: "
            "replace it, or write the problem as pear.Problem with a smooth term"
        )
    if not objective.is_dcp(dpp=True):
        kind, advice = ("", "pass") if cvxpy_parameters_in(expression, known) else ("predicted ", "predict")
        raise DataError(
            f"{WHERE}: the objective is not linear in the {kind}parameters ({join_names([p.name() for p in inside])}): "
            f"a product of two of them, a power or a function; {advice} the product or the function itself as one "
            "parameter"
        )


def check_known_cvxpy_parameters(known: Sequence[Any], predicted: Sequence[Any]) -> None:
    """Check that no known parameter is also predicted or complex."""
    for p in known:
        if any(p is one for one in predicted):
            raise DataError(f"{WHERE}: the parameter {p.name()} is predicted and known; name it once")
        if structure := [name for name in ("complex", "imag", "hermitian") if p.attributes.get(name)]:
            raise DataError(
                f"{WHERE}: the known parameter {p.name()} is declared {structure[0]}; expected real numbers"
            )


def relax_cvxpy_checks_of_quad_form(cvxpy: Any) -> AbstractContextManager[Any]:
    """Return a context in which CVXPY's rules for parameters allow ``quad_form(x, P)`` with a parameter P.

    Without the context CVXPY refuses such a P, which only solvers of quadratic programs accept. Older versions of CVXPY
    refuse it in the context as well.
    """
    scope = getattr(cvxpy.utilities.scopes, "quad_form_dpp_scope", None)
    return nullcontext() if scope is None else cast("AbstractContextManager[Any]", scope())


def _text_failing_cvxpy_check(expressions: list[Any], test: str) -> str:
    """Return the text of the innermost part that fails a test, in the first expression that fails it.

    If no expression fails the test, the text of the first expression is returned.

    Args:
        expressions: CVXPY expressions.
        test: the name of CVXPY's method that tests an expression, such as "is_pwl".
    """
    return next(
        (_shorten_checked_cvxpy_text(e) for top in expressions for e in _parts_failing_cvxpy_check(top, test)),
        _shorten_checked_cvxpy_text(expressions[0]),
    )


def _parts_failing_cvxpy_check(expression: Any, test: str) -> Iterator[Any]:
    """Yield the parts of an expression that fail a test, innermost first."""
    for part in expression.args:
        yield from _parts_failing_cvxpy_check(part, test)
    if not getattr(expression, test)():
        yield expression


def _shorten_checked_cvxpy_text(expression: Any) -> str:
    """Return an expression or constraint as CVXPY prints it, in at most 80 characters."""
    text = " ".join(str(expression).split())
    return text if len(text) <= 80 else f"{text[:77]}…"
