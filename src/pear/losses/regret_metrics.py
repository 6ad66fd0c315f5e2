"""``regret``, ``normalized_regret`` and ``regret_gradient``: the loss by wrong decisions, and its gradient."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_verified
from pear.decisions.decision_device import follow_costs
from pear.decisions.failures import OnFailure, check_on_failure, report_failures
from pear.decisions.regrets import gradient_error
from pear.decisions.smoothing import choose_smoothing
from pear.decisions.solve import solve
from pear.errors import ProblemError, name_variables_in_errors
from pear.losses.defaults import GRADIENT
from pear.losses.recourse_outcome import RecourseOutcome
from pear.losses.sample_weights import read_weights
from pear.optimality.duals_and_active_sets import Status
from pear.optimality.rule import ROUNDOFF
from pear.problem import CostMap, Model, Problem
from pear.problem.array_conversion import as_batch
from pear.problem.keys_and_columns import check_same_order
from pear.problem.known_samples import bring_known
from pear.problem.model import problem_and_cost_map, recourse_model, variable_names
from pear.problem.oracle import program_of
from pear.problem.predicted_curvature import without_curvature
from pear.problem.row_pairing import check_paired_rows, shared_index
from pear.sensitivity.projection import inject_normal, project
from pear.setting_checks import check_number_setting
from pear.solvers.time_limit import within


@follow_costs
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
    """Compute the gradient of regret by the predicted cost, in closed form.

    ``g = P[(ĉ − c) + (Q̂ − Q) z*]`` with ``P = H⁻¹ − H⁻¹Jᵀ(JH⁻¹Jᵀ)⁻¹JH⁻¹`` at the decision z* under ĉ. P rescales the
    error of the objective's gradient by the curvature H and projects it onto the tangent space of the active
    constraints J.

    Args:
        problem: the decision problem; an integer problem is relaxed. A ``Model`` maps predicted values (B, k) to costs.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.
        smoothing: λ, or "auto".
        injection: β, the share of the normal component that is added; with 0 the gradient is exact.
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise" raises an error for failed samples; "mask" warns, and their rows are zero.
        Q: (n, n) or (B, n, n) predicted curvature.
        true_Q: the curvature of the true objective; the problem's own if omitted.
        known: the known values of each sample, if the model has any; see ``Model.with_known``.

    Returns:
        (B, n) in the dtype of ``predicted``; (B, k), by the predicted values, with a cost map.

    Example:
        >>> import pear
        >>> simplex = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> pear.regret_gradient(simplex, [[0.2, 0.4]], [[0.4, 0.2]], smoothing=1.0)
        tensor([[-0.2000,  0.2000]], dtype=torch.float64)
    """
    check_on_failure(on_failure)
    check_number_setting("injection", injection, least=0.0)
    problem = program_of(bring_known(problem, known, predicted), "regret_gradient")
    plain, cost_map, predicted, true = _detached_costs(problem, predicted, true)
    names, problem = variable_names(problem), plain.relaxed()
    true_Q = true_curvature(problem, Q, true_Q, len(predicted))
    scale = choose_smoothing(problem, true, smoothing, Q=Q)
    problem, Q, true_Q = scale.problem(problem), scale.curvature(Q), scale.curvature(true_Q)
    predicted, true = scale.times_units(predicted), scale.times_units(true)
    solved = solve_verified(problem, predicted, scale.value, solver, Q=Q)
    report_failures(solved.status, on_failure, "the predicted costs")
    error = gradient_error(solved, predicted, true, Q, true_Q)
    known = error.isfinite().all(1)
    report_failures(torch.where(known, int(Status.SOLVED), int(Status.NOT_FINITE)), on_failure, "the true costs")
    error = torch.where(known[:, None], error, 0.0)
    with name_variables_in_errors(names):
        g = inject_normal(solved, error, project(solved, error), injection)
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

    For maximisation the sign changes, so that regret is never negative. Decisions respect integers and use no
    smoothing. For a model that predicts right-hand sides, regret is the realised cost of the decision under the
    forecast, recourse included, minus the least cost under the truth.

    Args:
        problem: the decision problem. A ``Model`` maps predicted values (B, k) to costs.
        predicted: (B, n) predicted costs.
        true: (B, n) true costs.
        solver: "auto" or a name that ``pear solvers`` lists.
        Q: predicted curvature.
        true_Q: the curvature of the true objective; the problem's own if omitted.
        time_limit: seconds for all integer programs together; None sets no limit.
        known: the known values of each sample, if the model has any; see ``Model.with_known``.

    Returns:
        (B,) float64: a tensor, or, where ``predicted`` or ``true`` is a table of pandas, a Series with its index.

    Raises:
        SolveError: a sample is not solved, or is not proven optimal within the time limit.

    Example:
        >>> import pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> pear.regret(choose_one, [[2.0, 1.0], [1.0, 2.0]], [[1.0, 3.0], [1.0, 3.0]])
        tensor([2., 0.], dtype=torch.float64)
    """
    found = outcome_of_forecast(problem, predicted, true, solver, Q, true_Q, time_limit, known).regret
    index = shared_index(true, predicted)
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

    It relates the loss by wrong decisions to the value of the best decisions, and has no unit. Where all best values
    are exactly 0, there is nothing to relate it to: it is 0 if nothing is lost, otherwise infinite; use ``pear.regret``
    there. The arguments are those of ``pear.regret``, and ``weight``: (B,) how much each sample counts in both sums.

    Example:
        >>> import pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> round(pear.normalized_regret(choose_one, [[2.0, 1.0]], [[1.0, 3.0]]), 6)
        2.0
    """
    check_paired_rows({"true": true, "predicted": predicted, "weight": weight})
    outcome = outcome_of_forecast(problem, predicted, true, solver, Q, true_Q, time_limit, known)
    weights = None if weight is None else read_weights(weight, len(outcome.regret))
    return outcome.weighted(weights).normalized


@follow_costs
def outcome_of_forecast(
    problem: Problem | Model,
    predicted: Any,
    true: Any,
    solver: str = "auto",
    Q: Any = None,
    true_Q: Any = None,
    time_limit: float | None = None,
    known: Any = None,
) -> Outcome:
    """Decide under predicted and under true costs, and compare; the arguments are those of ``pear.regret``."""
    problem = bring_known(problem, known, predicted)
    model = recourse_model(problem)
    if model is not None:
        return _outcome_with_recourse(model, predicted, true, solver, Q if true_Q is None else true_Q, time_limit)
    plain, weighted, true_weighted = without_curvature(problem, predicted, true)
    Q, true_Q = (weighted, true_weighted) if weighted is not None else (Q, true_Q)
    problem, _, predicted, true = _detached_costs(plain, predicted, true)
    predicted, true = predicted.double(), true.double()
    true_Q = true_curvature(problem, Q, true_Q, len(predicted))
    with within(time_limit):
        chosen = solve(problem, predicted, solver=solver, Q=Q).x
        best = solve(problem, true, solver=solver, Q=true_Q).x
    return compare_decisions(problem, chosen, best, true, true_Q)


def _outcome_with_recourse(
    model: Model, predicted: Any, true: Any, solver: str, Q: Any, time_limit: float | None
) -> Outcome:
    """Return the outcome of a model that predicts right-hand sides: its regret includes what the recourse costs."""
    if Q is not None:
        raise ProblemError("Q came with a model that predicts right-hand sides; predict the one or the other")
    check_same_order(model, predicted, true)
    values, came_true = as_batch(predicted).detach().double(), as_batch(true).detach().double()
    check_pair(values, came_true)
    with within(time_limit):
        score = RecourseOutcome(model, came_true, solver=solver)
        return Outcome(score(values), score.best)


class Outcome(NamedTuple):
    """The regrets of decisions and the values of the best decisions, under the true costs, in float64.

    Attributes:
        regret: (B,) the regret of each sample.
        best: (B,) the value of the best decision of each sample.
    """

    regret: Tensor
    best: Tensor

    def weighted(self, weight: Tensor | None) -> Outcome:
        """Multiply regrets and best values by the samples' weights (B,), relative to their mean; None changes nothing.

        The normalised regret then is the weighted one, ``Σ w regret / Σ w |best|``.
        """
        if weight is None:
            return self
        shares = weight.to(self.regret) / weight.to(self.regret).mean()
        return Outcome(shares * self.regret, shares * self.best)

    @property
    def normalized(self) -> float:
        """The normalised regret ``Σ regret / Σ |best|``; see ``share_of_best`` for best values of 0."""
        return share_of_best(float(self.regret.sum()), float(self.best.abs().sum()))

    @property
    def score(self) -> float:
        """A finite number to compare forecasts by: the normalised regret, or the mean regret where all best are 0."""
        mean = float(self.regret.sum() / max(len(self.regret), 1))
        return self.normalized if bool(self.best.any()) and math.isfinite(self.normalized) else mean


def share_of_best(lost: float, best: float) -> float:
    """Return lost / best; where the best value is 0, 0 if nothing is lost and otherwise infinity.

    A best value that is tiny compared with the loss, as a rounding error is, counts as 0.

    Example:
        >>> share_of_best(1.0, 4.0), share_of_best(0.0, 0.0), share_of_best(1.0, 0.0), share_of_best(1.0, 1e-17)
        (0.25, 0.0, inf, inf)
    """
    if abs(best) > ROUNDOFF * abs(lost):
        return lost / best
    return 0.0 if lost <= 0 else lost * math.inf


def compare_decisions(problem: Problem, chosen: Tensor, best: Tensor, true: Tensor, true_Q: Any = None) -> Outcome:
    """Compare decisions with the best decisions under the true costs.

    Args:
        problem: the decision problem.
        chosen: (B, n) decisions.
        best: (B, n) best decisions under the true costs.
        true: (B, n) true costs.
        true_Q: true curvature; the problem's own if omitted.
    """
    paid, ideal = (problem.objective(z.double(), true.double(), Q=true_Q) for z in (chosen, best))
    return Outcome(problem.sign * (paid - ideal), ideal)


def _detached_costs(
    problem: Problem | Model, predicted: Any, true: Any
) -> tuple[Problem, CostMap | None, Tensor, Tensor]:
    """Return the problem without its cost map, the cost map, and detached predicted and true costs (B, n)."""
    plain, cost_map = problem_and_cost_map(problem)
    check_same_order(problem, predicted, true)
    pair = as_batch(predicted).detach(), as_batch(true).detach()
    check_pair(*pair)
    forecast, costs = pair if cost_map is None else (cost_map(pair[0]), cost_map(pair[1]))
    return plain, cost_map, forecast, costs


def check_pair(predicted: Tensor, true: Tensor) -> None:
    """Raise ProblemError where predicted and true costs differ in shape, or seem to be swapped."""
    if true.requires_grad and not predicted.requires_grad and torch.is_grad_enabled():
        raise ProblemError(
            "the true costs require a gradient and the predicted ones do not, so that the two are probably swapped; "
            "call loss(predicted, true)"
        )
    if predicted.shape != true.shape:
        raise ProblemError(
            f"predicted and true costs must have the same shape; got {tuple(predicted.shape)} and {tuple(true.shape)}"
        )


def true_curvature(problem: Problem, Q: Any, true_Q: Any, batch: int) -> Any:
    """Return the curvature of the true objective where a curvature Q is predicted, otherwise None.

    Args:
        problem: the decision problem, whose Q is the default of ``true_Q``.
        Q: predicted curvature, or None.
        true_Q: (n, n) or (B, n, n) true curvature, or None.
        batch: B, the number of samples.
    """
    if Q is None and true_Q is not None:
        raise ProblemError(
            "true_Q was given without Q; pass the predicted curvature as Q, or put true_Q into the problem"
        )
    if Q is None:
        return None
    if true_Q is None and problem.Q is None:
        raise ProblemError("Q was given, but neither true_Q nor a Q in the problem to compare it with; pass true_Q")
    true_Q = problem.Q if true_Q is None else torch.as_tensor(true_Q)
    n = problem.n
    if tuple(true_Q.shape) not in ((n, n), (batch, n, n)):
        raise ProblemError(f"true_Q must have shape {(n, n)} or {(batch, n, n)}; got {tuple(true_Q.shape)}")
    return true_Q
