"""``regret``, ``normalized_regret`` and ``regret_gradient``: the loss due to wrong decisions, and its gradient."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from pear.decisions.choose_smoothing import choose_smoothing
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.decision_device import on_chosen_device
from pear.decisions.failures import OnFailure, check_on_failure, report_failures
from pear.decisions.regret_finder import CostRegretFinder
from pear.errors import ProblemError, VariableNamesInErrors
from pear.losses.cost_pairs import detach_cost_pair, true_curvature_of_pair
from pear.losses.defaults import GRADIENT
from pear.losses.regret_outcome import regret_outcome_of_forecast
from pear.losses.sample_weights import read_weights
from pear.optimality.status import Status
from pear.problem import Model, Problem
from pear.problem.known_samples import fill_known_samples
from pear.problem.model import model_variable_names
from pear.problem.oracle import program_of_oracle
from pear.problem.pandas_data import check_pandas_rows, series_as_sample_row, shared_pandas_index
from pear.sensitivity.projection import inject_into_projection, project
from pear.setting_checks import check_number_setting


@on_chosen_device
def regret_gradient(
    problem: Problem | Model,
    predicted: Any,
    true: Any,
    smoothing: float | Literal["auto"] = GRADIENT.smoothing,
    injection: float = GRADIENT.injection,
    solver: str = "auto",
    on_failure: OnFailure = "raise",
    Q: Any = None,
    true_Q: Any = None,
    known: Any = None,
) -> Tensor:
    """Compute the gradient of regret with respect to the predicted cost, in closed form.

    ``g = P[(ĉ − c) + (Q̂ − Q) z*]`` with ``P = H⁻¹ − H⁻¹Jᵀ(JH⁻¹Jᵀ)⁻¹JH⁻¹`` at the decision z* under ĉ. H is the
    curvature of the smoothed objective, and J has the normals of the active constraints as rows. P rescales the error
    of the objective's gradient by H⁻¹ and projects it onto the tangent space of the active constraints.

    Args:
        problem: the decision problem; an integer problem is relaxed. A ``Model`` maps predicted values (B, k) to costs.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.
        smoothing: λ, the curvature that is added to the objective, or "auto".
        injection: β. A vector of β times the length of g is added to g, in the direction of the component of the
            rescaled error that P removes. With 0 the gradient is exact.
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" raises an error for failed samples; "mask" warns, and the rows of failed samples are zero.
        Q: (n, n) or (B, n, n) predicted curvature Q̂.
        true_Q: the curvature Q of the true objective; the problem's own if omitted.
        known: the known values of each sample, if the model has any; see ``Model.with_known``.

    Returns:
        (B, n) in the dtype of ``predicted``. With a cost map, the gradient with respect to the values, (B, k).

    Example:
        >>> import pear
        >>> simplex = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> pear.regret_gradient(simplex, [[0.2, 0.4]], [[0.4, 0.2]], smoothing=1.0)
        tensor([[-0.2000,  0.2000]], dtype=torch.float64)
    """
    check_on_failure(on_failure)
    check_number_setting("injection", injection, least=0.0)
    problem = program_of_oracle(fill_known_samples(problem, known, predicted), "regret_gradient")
    plain, cost_map, predicted, true = detach_cost_pair(problem, predicted, true)
    names, problem = model_variable_names(problem), plain.relaxed()
    true_Q = true_curvature_of_pair(problem, Q, true_Q, len(predicted))
    scale = choose_smoothing(problem, true, smoothing, Q=Q)
    problem, Q, true_Q = scale.problem(problem), scale.curvature(Q), scale.curvature(true_Q)
    predicted, true = scale.times_units(predicted), scale.times_units(true)
    solved = solve_continuous_programs(problem, predicted, scale.value, solver, Q=Q)
    report_failures(solved.status, on_failure, "the predicted costs")
    error = CostRegretFinder.gradient_error(solved, predicted, true, Q, true_Q)
    known = error.isfinite().all(1)
    report_failures(torch.where(known, int(Status.SOLVED), int(Status.NOT_FINITE)), on_failure, "the true costs")
    error = torch.where(known[:, None], error, 0.0)
    with VariableNamesInErrors(names):
        g = inject_into_projection(solved, error, project(solved, error), injection)
    g = scale.times_units(g).to(predicted.dtype)
    return g if cost_map is None else cost_map.pull_back(g)


def regret(
    problem: Problem | Model,
    predicted: Any,
    true: Any,
    solver: str = "auto",
    Q: Any = None,
    true_Q: Any = None,
    time_limit: float | None = None,
    known: Any = None,
) -> Any:
    """Compute the regret of each sample, ``f(z*(ĉ); c) − f(z*(c); c)``, in the unit of the costs.

    f is the objective, and z* the best decision. For maximisation the sign changes, so that regret is never negative.
    Decisions respect integers and use no smoothing. For a model that predicts right-hand sides, regret is the realised
    cost of the decision under the forecast, recourse included, minus the least cost under the truth.

    If several decisions are equally good under the forecast, the one that the solver returns counts, and the regret may
    depend on the solver. Forecasts of decision trees often have several best decisions, because they repeat values.

    Args:
        problem: the decision problem. A ``Model`` maps predicted values (B, k) to costs.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.
        solver: "auto" or a name that ``pear solvers`` lists.
        Q: (n, n) or (B, n, n) predicted curvature.
        true_Q: the curvature of the true objective; the problem's own if omitted.
        time_limit: seconds for all integer programs together; None sets no limit.
        known: the known values of each sample, if the model has any; see ``Model.with_known``.

    Returns:
        (B,) float64: a Series with the same index if ``predicted`` or ``true`` is a pandas table, otherwise a tensor.

    Raises:
        SolveError: a sample is not solved, or is not proven optimal within the time limit.

    Example:
        >>> import pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> pear.regret(choose_one, [[2.0, 1.0], [1.0, 2.0]], [[1.0, 3.0], [1.0, 3.0]])
        tensor([2., 0.], dtype=torch.float64)
    """
    found = regret_outcome_of_forecast(problem, predicted, true, solver, Q, true_Q, time_limit, known).regret
    index = shared_pandas_index(series_as_sample_row(true), series_as_sample_row(predicted))
    if index is None:
        return found
    import pandas

    return pandas.Series(found.cpu().numpy(), index, name="regret")


def normalized_regret(
    problem: Problem | Model,
    predicted: Any,
    true: Any,
    solver: str = "auto",
    Q: Any = None,
    true_Q: Any = None,
    time_limit: float | None = None,
    known: Any = None,
    weight: Any = None,
) -> float:
    """Compute the normalised regret, ``Σ regret / Σ |f(z*(c); c)|``, with sums over all samples.

    f is the objective, and z*(c) the best decision under the true costs c. The normalised regret relates the loss due
    to wrong decisions to the value of the best decisions, and has no unit. If nothing is lost, it is 0. If something is
    lost and all best values are 0, or tiny compared with the regret, it is infinite; use ``pear.regret`` instead.

    The arguments are those of ``pear.regret``, and ``weight``.

    Args:
        weight: (B,) how much each sample counts in both sums; by default all samples count equally.

    Example:
        >>> import pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> round(pear.normalized_regret(choose_one, [[2.0, 1.0]], [[1.0, 3.0]]), 6)
        2.0
    """
    tables = {"true": series_as_sample_row(true), "predicted": series_as_sample_row(predicted), "weight": weight}
    check_pandas_rows(tables)
    outcome = regret_outcome_of_forecast(problem, predicted, true, solver, Q, true_Q, time_limit, known)
    if not len(outcome.regret):
        raise ProblemError(
            "predicted and true have no rows, and the regret of no samples is undefined; pass at least one row"
        )
    weights = None if weight is None else read_weights(weight, len(outcome.regret))
    return outcome.weighted(weights).normalized
