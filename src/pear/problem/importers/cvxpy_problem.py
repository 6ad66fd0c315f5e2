"""Import of CVXPY problems, whose parameters become the predicted values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.errors import DataError
from pear.optional_packages import import_optional
from pear.problem.cost_map import CostMap
from pear.problem.importers.cvxpy_checks import check_constraint, check_objective, check_variables_and_parameters
from pear.problem.importers.cvxpy_known import (
    KnownTerms,
    check_known,
    copy_parameter,
    curvature_map,
    parametric_quadratic_forms,
    read_coefficients,
    read_curvature,
)
from pear.problem.importers.cvxpy_matrices import CanonicalForm, ProblemCopy, number_added
from pear.problem.importers.cvxpy_names import WHERE, constraint_name, parameter_names
from pear.problem.importers.cvxpy_structure import independent_names
from pear.problem.importers.model_arrays import ModelArrays
from pear.problem.importers.row_limits import RowLimits, check_recourse_type
from pear.problem.model import Model
from pear.wording import join_names


def from_cvxpy(
    problem: Any, predicted: Any = None, recourse: Any = None, known: Any = None, *, parameters: Any = None
) -> Model:
    """A linear, quadratic or integer program from a ``cvxpy.Problem``, whose parameters are predicted.

    CVXPY brings the problem to matrices, and the cost map is read off how the objective depends on the parameters:
    ``m.cost(ŷ)`` are the costs of all variables under the predicted values ŷ. A parameter may also stand in linear
    constraints, beside the decisions or as their coefficient: ``A @ x <= demand``, ``yields @ x >= 3``. Then
    ``m.right_hand_sides(ŷ)`` and ``m.coefficients(ŷ)`` are theirs, and ``recourse`` says what a decision pays that
    violates the true constraints. The problem itself stays as it is: nothing is solved, and no value is set.

    Predicted values are those of the parameters in the order given, each flattened row by row (NumPy's order, C), and
    called ``price[0]``, ``price[1]``, …, or ``price[0,1]`` for a matrix. What is known when the decision is made and
    differs from sample to sample is ``known``: the level of a battery, holdings, the Σ of this month. Decisions come
    back by the names of the variables in their own shapes. What CVXPY adds to write ``abs``, ``max``, ``norm1`` and the
    like becomes further variables, ``auxiliary[0]``, …, which ``decision`` leaves out.

    Args:
        problem: CVXPY's, with a linear or convex quadratic objective and linear constraints (also those that become
            linear: ``abs(x) <= 1``, ``max(x) <= y``).
        predicted: a ``cvxpy.Parameter`` or several, those that are predicted; their values are not needed. Left out,
            all of the problem that are not known. The others must have a value, which is taken as it is. Without any
            parameter all costs are predicted, and the problem's own are ``m.known``.
        recourse: needed to train where constraints hold predicted parameters; ``m.with_recourse`` adds it later. A
            dictionary from constraints, or their labels, to the price of a unit of violation: a number, or one for each
            row; for an equality also a pair, where the left side is too little and where it is too much. Or a
            ``pear.Penalty`` or ``pear.Projection`` for the rows of ``m.problem``.
        known: a ``cvxpy.Parameter`` or several, whose values are known for every sample, and come with every call:
            ``pear.solve(m, ŷ, known={"level": levels})``. They may stand wherever CVXPY's rules for parameters (DPP)
            allow them: in costs, right-hand sides and rows, in ``norm1(w - w0)``, in ``quad_form(w, Sigma)`` with a
            Sigma that is declared PSD, and as weights of quadratic terms.
        parameters: an earlier name of ``predicted``.

    Raises:
        DataError: it is another object, holds what cannot be taken (cones, quadratic constraints, semidefinite or
            complex variables), a parameter stands where no predicted one may, or one that is not predicted has no
            value; a price belongs to no constraint. Says which, and what to do.
        ProblemError: bounds cross, or two variables have the same name.
        MissingExtraError: CVXPY is not installed.

    Example:
        >>> import cvxpy as cp
        >>> import pear
        >>> price, buy, sell = cp.Parameter(2, name="price"), cp.Variable(2, name="buy"), cp.Variable(2, name="sell")
        >>> cost = price @ (buy - sell) + 0.1 * cp.sum(sell)
        >>> plan = cp.Problem(cp.Minimize(cost), [buy >= 0, buy <= 1, sell >= 0, cp.sum(sell) <= cp.sum(buy)])
        >>> m = pear.from_cvxpy(plan, predicted=[price])
        >>> m.cost([1.0, 3.0]).tolist()
        [1.0, 3.0, -0.9, -2.9]
        >>> m.decision(pear.solve(m, [[1.0, 3.0]]).x)["sell"].tolist()
        [[0.0, 1.0]]

        Orders of two products, whose demand is predicted; a missing piece costs 3, one left over 1:

        >>> demand, order = cp.Parameter(2, name="demand"), cp.Variable(2, name="order", nonneg=True)
        >>> meet = order == demand
        >>> shop = cp.Problem(cp.Minimize(0), [meet, cp.sum(order) <= 10])
        >>> m = pear.from_cvxpy(shop, predicted=[demand], recourse={meet: (3.0, 1.0)})
        >>> pear.regret(m, [[4.0, 5.0]], [[2.0, 6.0]]).tolist()
        [5.0]

        Selling what is in stock, which is known every day, at predicted prices:

        >>> stock, sold = cp.Parameter(name="stock"), cp.Variable(2, name="sold", nonneg=True)
        >>> m = pear.from_cvxpy(
        ...     cp.Problem(cp.Maximize(price @ sold), [cp.sum(sold) <= stock]), predicted=[price], known=[stock]
        ... )
        >>> pear.solve(m, [[1.0, 2.0], [4.0, 3.0]], known={"stock": [5.0, 7.0]}).x.tolist()
        [[0.0, 5.0], [7.0, 0.0]]
    """
    cvxpy = import_optional("cvxpy", "cvxpy", "a problem of CVXPY")
    if not isinstance(problem, cvxpy.Problem):
        raise DataError(f"expected a cvxpy.Problem, got {type(problem).__name__}; write cvxpy.Problem(objective, rows)")
    if parameters is not None and predicted is not None:
        raise DataError(f"{WHERE}: predicted= and parameters= are two names of one argument; pass predicted= alone")
    told = _chosen_parameters(problem, known if known is not None else (), "known", cvxpy)
    predicted = _predicted_parameters(problem, predicted if parameters is None else parameters, told, cvxpy)
    check_known(told, predicted)
    check_variables_and_parameters(problem, predicted, told)
    stand_ins = {id(p): copy_parameter(p, cvxpy) for p in told}
    copy = ProblemCopy.of(problem, predicted, stand_ins, _constraint_prices(problem.constraints, recourse), cvxpy)
    with parametric_quadratic_forms(cvxpy):
        for i, constraint in enumerate(copy.problem.constraints):
            check_constraint(constraint, i, copy.predicted, copy.known)
        check_objective(copy.problem.objective, copy.predicted, copy.known)
    canonical = CanonicalForm(copy, 1.0 if type(problem.objective).__name__ == "Minimize" else -1.0)
    canonical.check_parameters(copy.predicted)
    labels = [label for p in predicted for label in independent_names(p)]
    M, constant_terms, D = canonical.maps(copy.predicted) if predicted else (None, np.zeros(0), None)
    terms = KnownTerms.read(canonical, told, copy.known) if told else None
    kept = canonical.limits.mask()
    if terms is not None:
        terms.check_costs(predicted)
        kept |= terms.rows()
    arrays, layout = canonical.model_arrays(problem, kept)
    constants = [label for label, term in zip(labels, constant_terms.tolist(), strict=True) if term]
    notes = _report_notes(problem, [*predicted, *told], arrays, constants, M)
    notes += canonical.limits.sentences(recourse is not None) if predicted else []
    notes += [] if terms is None else [terms.sentence()]
    weights = read_curvature(canonical, predicted, copy.predicted)
    multiplied, multiplying = read_coefficients(canonical, predicted, copy.predicted) or (None, [])
    notes += [f"Predicted coefficients of rows: {join_names(multiplying)}."] if multiplying else []
    removable = np.ones(len(arrays.costs), dtype=bool)
    for part in (terms, weights, multiplied):
        removable &= True if part is None else ~part.columns()
    arrays, layout, M, columns, removed = _reduce(arrays, layout, M, removable, kept, recourse)
    cost_map = None if M is None else CostMap(M, arrays.costs, labels)
    made = arrays.model(cost_map=cost_map, layout=layout, notes=[*notes, *removed])
    coefficients = {} if multiplied is None else multiplied.coefficients(arrays, columns)
    constraint_map = None if D is None else arrays.rows.constraint_map(D[arrays.rows.numbers], coefficients)
    known_map = None if terms is None else terms.map(arrays, columns)
    row_recourse = _row_recourse(canonical, arrays.rows, recourse)
    curved = None if weights is None else curvature_map(weights, columns, copy.predicted)
    return replace(
        made, constraint_map=constraint_map, recourse=row_recourse, known_map=known_map, curvature_map=curved
    )


def _reduce(
    arrays: ModelArrays,
    layout: dict[str, Tensor],
    M: Any,
    removable: NDArray[np.bool_],
    kept: NDArray[np.bool_],
    recourse: Any,
) -> tuple[ModelArrays, dict[str, Tensor], Any, NDArray[np.int_], list[str]]:
    """Remove CVXPY's own variables and the rows that the model does not need; the problem's variables all stay.

    A variable whose cost depends on predicted values stays, because the constant of the objective would depend on them.
    If a recourse has a value for each row or variable, nothing is removed.

    Args:
        arrays: the arrays of CVXPY's canonical form.
        layout: the columns of the problem's own variables.
        M: (n, k) the cost map, or None.
        removable: (n,) bool, variables that no known value multiplies.
        kept: (r,) bool, rows of the canonical form that are predicted or known, or have a price.
        recourse: as the user passed it.

    Returns:
        The arrays, the layout and the cost map after presolve, the numbers of the variables that are left, and
        sentences for the report.
    """
    n = len(arrays.costs)
    removable = removable.copy()
    for at in layout.values():
        removable[at.numpy()] = False
    if M is not None:
        removable &= np.diff(M.indptr) == 0
    if any(np.ndim(one) for one in _recourse_numbers(recourse)):
        return arrays, layout, M, np.arange(n), []
    small, reduction = arrays.reduced(removable, kept[arrays.rows.numbers])
    if reduction is None:
        return arrays, layout, M, np.arange(n), []
    place = torch.from_numpy(np.searchsorted(reduction.columns, np.arange(n)))
    moved = {name: place[at] for name, at in layout.items()}
    added = np.ones(len(small.variables), dtype=bool)
    for at in moved.values():
        added[at.numpy()] = False
    small = replace(small, variables=number_added(small.variables, added))
    M = None if M is None else sparse.csr_array(reduction.T.T @ M)
    return small, moved, M, reduction.columns, [reduction.sentence()]


def _recourse_numbers(recourse: Any) -> list[Any]:
    """The numbers of a ``Penalty`` or ``Projection``; none for a dictionary, whose prices belong to constraints."""
    if recourse is None or isinstance(recourse, Mapping):
        return []
    values = [getattr(recourse, field.name) for field in fields(recourse)]
    return [number for value in values for number in (value if isinstance(value, tuple) else (value,))]


def _row_recourse(canonical: CanonicalForm, rows: RowLimits, given: Any) -> Any:
    """Prices of constraints as a ``Penalty`` of the rows of A and G; anything but a dictionary is returned as it is."""
    if not isinstance(given, Mapping):
        return given
    little, much = canonical.limits.prices()
    return rows.penalty(little[rows.numbers], much[rows.numbers])


def _constraint_prices(constraints: Sequence[Any], recourse: Any) -> dict[int, Any]:
    """The price of each constraint that ``recourse`` names, by constraint number; empty where it is not a dictionary.

    Raises:
        DataError: a key is not a constraint of the problem.
        ProblemError: ``recourse`` is neither a dictionary nor a recourse.
    """
    if not isinstance(recourse, Mapping):
        check_recourse_type(WHERE, recourse, "constraints, or their names, to prices, {constraint: 9.0}")
        return {}
    names = [constraint_name(row, i) for i, row in enumerate(constraints)]
    found: dict[int, Any] = {}
    for key, price in recourse.items():
        at = [i for i, row in enumerate(constraints) if row is key or (isinstance(key, str) and names[i] == key)]
        if len(at) != 1:
            raise DataError(
                f"{WHERE}: recourse names {key!s}, which is {'no' if not at else 'more than one'} constraint of it; "
                f"expected the constraints themselves or their names, {join_names(names) or 'of which there are none'}"
            )
        found[at[0]] = price
    return found


def _report_notes(
    problem: Any, predicted: list[Any], arrays: ModelArrays, constants: Sequence[str] = (), M: Any = None
) -> list[str]:
    """The importer's own sentences for the report."""
    taken = [p.name() for p in problem.parameters() if not any(p is one for one in predicted)]
    added = np.array([name.startswith("auxiliary[") for name in arrays.variables])
    own = "a variable of its own, auxiliary[0]" if added.sum() == 1 else f"{added.sum()} variables of its own"
    notes = [
        taken and f"Parameters taken at their values: {join_names(taken)}.",
        added.any() and f"CVXPY adds {own}; decisions leave them out.",
        constants
        and f"A term of the objective with {join_names(constants)} and no decision is left out: it changes none.",
        M is not None
        and M[added].nnz
        and "Costs of auxiliary variables depend on predicted values, which must keep the sign that the problem "
        "declares (nonneg, nonpos): with the other sign the problem is unbounded.",
    ]
    return [str(note) for note in notes if note]


def _predicted_parameters(problem: Any, given: Any, known: list[Any], cvxpy: Any) -> list[Any]:
    """The parameters that are predicted: those given, or all of the problem that are not known."""
    if given is None:
        return [p for p in problem.parameters() if not any(p is one for one in known)]
    return _chosen_parameters(problem, given, "predicted", cvxpy)


def _chosen_parameters(problem: Any, given: Any, name: str, cvxpy: Any) -> list[Any]:
    """The parameters that the argument ``name`` gives, one or several."""
    inside = problem.parameters()
    chosen = [given] if isinstance(given, cvxpy.Parameter) else list(given)
    for i, one in enumerate(chosen):
        if not isinstance(one, cvxpy.Parameter):
            raise DataError(f"{WHERE}: {name}[{i}] is a {type(one).__name__}; expected a cvxpy.Parameter")
        if not any(one is p for p in inside):
            raise DataError(
                f"{WHERE}: the parameter {one.name()} is not in it; its parameters: "
                f"{join_names(parameter_names(inside)) or 'none'}. Pass those that are {name}, the same objects as in "
                "the problem"
            )
        if any(one is other for other in chosen[:i]):
            raise DataError(f"{WHERE}: the parameter {one.name()} is given twice; pass each once")
    return chosen
