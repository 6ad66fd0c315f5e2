"""Import of CVXPY problems, whose parameters are the predicted and the known values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import DataError
from pear.optional_packages import import_optional
from pear.presolving.row_program import Index, Mask
from pear.problem.cost_map import CostMap
from pear.problem.importers.cvxpy_checks import (
    check_cvxpy_constraint,
    check_cvxpy_objective,
    check_cvxpy_variables_and_parameters,
    check_known_cvxpy_parameters,
    relax_cvxpy_checks_of_quad_form,
)
from pear.problem.importers.cvxpy_copy import CvxpyCopy
from pear.problem.importers.cvxpy_derivatives import CvxpyDerivatives, read_predicted_cvxpy_derivatives
from pear.problem.importers.cvxpy_leaves import independent_leaf_names
from pear.problem.importers.cvxpy_matrices import CvxpyMatrices
from pear.problem.importers.cvxpy_names import WHERE, cvxpy_constraint_name, name_cvxpy_variables
from pear.problem.importers.model_arrays import ModelArrays
from pear.problem.importers.row_limits import RowLimits
from pear.problem.importers.row_prices import check_row_prices
from pear.problem.model import Model
from pear.wording import join_names


def from_cvxpy(
    problem: Any, predicted: Any = None, recourse: Any = None, known: Any = None, *, parameters: Any = None
) -> Model:
    """Import a linear, quadratic or integer program from a ``cvxpy.Problem``, whose parameters are predicted.

    CVXPY converts the problem to matrices. The cost map is read from how the objective depends on the parameters. The
    result is a ``Model`` m, and ``m.cost(ŷ)`` are the costs of all variables under the predicted values ŷ. A parameter
    may also occur in linear constraints, as a term or as a coefficient of decisions: ``A @ x <= demand``,
    ``yields @ x >= 3``. Then ``m.right_hand_sides(ŷ)`` and ``m.coefficients(ŷ)`` compute the predicted limits and
    coefficients, and ``recourse`` is the rule for decisions that violate the true constraints. The CVXPY problem is
    neither solved nor changed.

    The predicted values are those of the parameters in the given order, each flattened row by row (NumPy's order, C).
    They are called ``price[0]``, ``price[1]``, …, or ``price[0,1]`` for a matrix. ``known`` names the parameters whose
    values are known at the time of the decision and differ between samples: the level of a battery, holdings, this
    month's covariance matrix. Decisions are returned by the names of the variables, in their shapes. CVXPY writes
    ``abs``, ``max``, ``norm1`` and the like with additional variables, ``auxiliary[0]``, …, which ``decision`` leaves
    out.

    Args:
        problem: the CVXPY problem, with a linear or convex quadratic objective and constraints that are linear or
            become linear: ``abs(x) <= 1``, ``max(x) <= y``.
        predicted: one or several ``cvxpy.Parameter``, which are predicted and need no values. By default all parameters
            of the problem that are not known. All other parameters must have values, which become constants. If no
            parameter is predicted, all costs are predicted, and ``m.known`` has the costs of the problem.
        recourse: the rule for decisions that violate the true constraints, needed to train if constraints hold
            predicted parameters; ``m.with_recourse`` can add it later. Either a dictionary from constraints, or their
            labels, to prices per unit of violation, or a ``pear.Penalty`` or ``pear.Projection`` for the rows of
            ``m.problem``. A price is a number, or an array with one number for each row. An equality may have a pair
            of prices: the first for a left side that is too small, the second for one that is too large.
        known: one or several ``cvxpy.Parameter``, whose values are known for every sample and are passed with every
            call: ``pear.solve(m, ŷ, known={"level": levels})``. They may occur wherever CVXPY's rules for parameters
            (DPP) allow them: in costs, right-hand sides and rows, in ``norm1(w - w0)``, in ``quad_form(w, Sigma)`` with
            a Sigma that is declared PSD, and as weights of quadratic terms.
        parameters: an earlier name of ``predicted``.

    Raises:
        DataError: ``problem`` is another object, or has parts that cannot be imported (cones, quadratic constraints,
            semidefinite or complex variables); a predicted parameter occurs where it may not, another parameter has no
            value, two variables have the same name, or a price belongs to no constraint. The message says which, and
            what to do.
        ProblemError: bounds cross, or the recourse does not fit.
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

        Orders of two products, whose demand is predicted. A missing piece costs 3, and a piece left over costs 1:

        >>> demand, order = cp.Parameter(2, name="demand"), cp.Variable(2, name="order", nonneg=True)
        >>> meet = order == demand
        >>> shop = cp.Problem(cp.Minimize(0), [meet, cp.sum(order) <= 10])
        >>> m = pear.from_cvxpy(shop, predicted=[demand], recourse={meet: (3.0, 1.0)})
        >>> pear.regret(m, [[4.0, 5.0]], [[2.0, 6.0]]).tolist()
        [5.0]

        Sales at predicted prices, from a stock that is known every day:

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
    told = _chosen_cvxpy_parameters(problem, known if known is not None else (), "known", cvxpy)
    predicted = _predicted_cvxpy_parameters(problem, predicted if parameters is None else parameters, told, cvxpy)
    check_known_cvxpy_parameters(told, predicted)
    check_cvxpy_variables_and_parameters(problem, predicted, told)
    copy = CvxpyCopy.of(problem, predicted, told, _cvxpy_problem_prices(problem.constraints, recourse), cvxpy)
    with relax_cvxpy_checks_of_quad_form(cvxpy):
        for i, constraint in enumerate(copy.problem.constraints):
            check_cvxpy_constraint(constraint, i, copy.predicted, copy.known)
        check_cvxpy_objective(copy.problem.objective, copy.predicted, copy.known)
    matrices = CvxpyMatrices(copy, 1.0 if type(problem.objective).__name__ == "Minimize" else -1.0)
    matrices.check_parameters(copy.predicted)
    labels = [label for p in predicted for label in independent_leaf_names(p)]
    M, constant_terms, D = matrices.maps(copy.predicted) if predicted else (None, np.zeros(0), None)
    by_known = CvxpyDerivatives.read(matrices, told, copy.known) if told else None
    kept = matrices.limits.mask()
    if by_known is not None:
        by_known.check_costs(predicted)
        kept |= by_known.changed_rows()
    arrays, layout = matrices.model_arrays(problem, kept)
    constants = [label for label, term in zip(labels, constant_terms.tolist(), strict=True) if term]
    notes = _cvxpy_problem_notes(problem, [*predicted, *told], arrays, constants, M)
    notes += matrices.limits.sentences(recourse is not None) if predicted else []
    notes += [] if by_known is None else [by_known.sentence()]
    by_predicted, multiplying = read_predicted_cvxpy_derivatives(matrices, predicted, copy.predicted)
    notes += [f"Predicted coefficients of rows: {join_names(multiplying)}."] if multiplying else []
    removable = np.ones(len(arrays.costs), dtype=bool)
    for part in (by_known, by_predicted):
        removable &= True if part is None else ~part.changed_variables()
    arrays, layout, M, columns, removed = _reduce_cvxpy_problem(arrays, layout, M, removable, kept, recourse)
    cost_map = None if M is None else CostMap(M, arrays.costs, labels)
    made = arrays.model(cost_map=cost_map, layout=layout, notes=[*notes, *removed])
    coefficients = {} if by_predicted is None else by_predicted.coefficients(arrays, columns)
    return replace(
        made,
        constraint_map=None if D is None else arrays.rows.constraint_map(D[arrays.rows.numbers], coefficients),
        recourse=_cvxpy_problem_recourse(matrices, arrays.rows, recourse),
        known_map=None if by_known is None else by_known.known_map(arrays, columns),
        curvature_map=None if by_predicted is None else by_predicted.curvature_map(columns, copy.predicted),
    )


def _reduce_cvxpy_problem(
    arrays: ModelArrays,
    layout: dict[str, Tensor],
    M: Any,
    removable: Mask,
    kept: Mask,
    recourse: Any,
) -> tuple[ModelArrays, dict[str, Tensor], Any, Index, list[str]]:
    """Remove redundant rows, and variables that CVXPY has added, by presolve. The user's variables stay.

    A variable whose cost depends on predicted values stays as well, because otherwise the constant of the objective
    would depend on predicted values. If ``recourse`` has a number for each row or variable, nothing is removed, because
    these numbers are in the order of all rows or variables.

    Args:
        arrays: the arrays of CVXPY's matrices.
        layout: the columns of the user's variables, by name.
        M: (n, k) matrix of the cost map; None if no parameter is predicted.
        removable: (n,) bool, False for variables whose costs, coefficients or curvature depend on known parameters, or
            on predicted parameters if these multiply decisions in constraints or quadratic terms.
        kept: (r,) bool, True for rows of CVXPY's matrices that are predicted or known, or have a price.
        recourse: the recourse that the user passed.

    Returns:
        The arrays, the layout and the matrix of the cost map after presolve; the numbers of the variables that are
        left; and sentences for the report.
    """
    n = len(arrays.costs)
    removable = removable.copy()
    for at in layout.values():
        removable[at.numpy()] = False
    if M is not None:
        removable &= np.diff(M.indptr) == 0
    if _cvxpy_recourse_has_arrays(recourse):
        return arrays, layout, M, np.arange(n), []
    small, reduction = arrays.reduced(removable, kept[arrays.rows.numbers])
    if reduction is None:
        return arrays, layout, M, np.arange(n), []
    place = torch.from_numpy(np.searchsorted(reduction.columns, np.arange(n)))
    moved = {name: place[at] for name, at in layout.items()}
    added = np.ones(len(small.variables), dtype=bool)
    for at in moved.values():
        added[at.numpy()] = False
    small = replace(small, variables=name_cvxpy_variables(small.variables, added))
    M = None if M is None else sparse.csr_array(reduction.T.T @ M)
    return small, moved, M, reduction.columns, [reduction.sentence()]


def _cvxpy_recourse_has_arrays(recourse: Any) -> bool:
    """Return True for a ``Penalty`` or ``Projection`` with a number for each row or variable."""
    if recourse is None or isinstance(recourse, Mapping):
        return False
    values = (getattr(recourse, field.name) for field in fields(recourse))
    return any(np.ndim(one) for value in values for one in (value if isinstance(value, tuple) else (value,)))


def _cvxpy_problem_recourse(matrices: CvxpyMatrices, rows: RowLimits, given: Any) -> Any:
    """Return a recourse in the form that a ``Model`` takes.

    Args:
        matrices: CVXPY's matrices. If the user passed a dictionary, their ``limits`` hold its prices.
        rows: the rows of the model.
        given: the recourse that the user passed. A dictionary becomes a ``Penalty``; any other recourse is returned
            unchanged.
    """
    if not isinstance(given, Mapping):
        return given
    little, much = matrices.limits.prices()
    return rows.penalty(little[rows.numbers], much[rows.numbers])


def _cvxpy_problem_prices(constraints: Sequence[Any], recourse: Any) -> dict[int, Any]:
    """Return the prices in a dictionary ``recourse``, by the number of the constraint; empty for any other recourse.

    Raises:
        DataError: a key of the dictionary is neither a constraint of the problem nor the name of exactly one.
        ProblemError: ``recourse`` is neither a dictionary, a ``Penalty``, a ``Projection`` nor None.
    """
    if not isinstance(recourse, Mapping):
        check_row_prices(WHERE, recourse, "constraints, or their names, to prices, {constraint: 9.0}")
        return {}
    names = [cvxpy_constraint_name(row, i) for i, row in enumerate(constraints)]
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


def _cvxpy_problem_notes(
    problem: Any, given: list[Any], arrays: ModelArrays, constants: Sequence[str] = (), M: Any = None
) -> list[str]:
    """Return sentences for the report about constant parameters, added variables, left-out terms and required signs.

    Args:
        problem: the CVXPY problem.
        given: the predicted and the known parameters.
        arrays: the arrays of CVXPY's matrices.
        constants: the names of predicted values that change the constant of the objective.
        M: (n, k) matrix of the cost map; None if no parameter is predicted.
    """
    taken = [p.name() for p in problem.parameters() if not any(p is one for one in given)]
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


def _predicted_cvxpy_parameters(problem: Any, given: Any, known: list[Any], cvxpy: Any) -> list[Any]:
    """Return the predicted parameters: those that the user passed, or by default all that are not known."""
    if given is None:
        return [p for p in problem.parameters() if not any(p is one for one in known)]
    return _chosen_cvxpy_parameters(problem, given, "predicted", cvxpy)


def _chosen_cvxpy_parameters(problem: Any, given: Any, name: str, cvxpy: Any) -> list[Any]:
    """Return the parameters that the user passed as the argument ``name``, one or several, as a list."""
    inside = problem.parameters()
    chosen = [given] if isinstance(given, cvxpy.Parameter) else list(given)
    for i, one in enumerate(chosen):
        if not isinstance(one, cvxpy.Parameter):
            raise DataError(f"{WHERE}: {name}[{i}] is a {type(one).__name__}; expected a cvxpy.Parameter")
        if not any(one is p for p in inside):
            raise DataError(
                f"{WHERE}: the parameter {one.name()} is not in it; its parameters: "
                f"{join_names([p.name() for p in inside]) or 'none'}. Pass those that are {name}, the same objects as "
                "in the problem"
            )
        if any(one is other for other in chosen[:i]):
            raise DataError(f"{WHERE}: the parameter {one.name()} is given twice; pass each once")
    return chosen
