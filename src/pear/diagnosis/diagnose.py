"""``pear.diagnose``: make a ``Diagnosis`` of predicted and true values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from pear.decisions.solution import Solution
from pear.decisions.solve import check_smoothing, check_solver, report_failures, solve, solve_verified
from pear.diagnosis.constraint_prices import name_constraints, price_constraints
from pear.diagnosis.decision_path import ACCURACY, follow_decisions
from pear.diagnosis.diagnosis import Diagnosis, name_group_column
from pear.diagnosis.diagnosis_inputs import Inputs, read_groups, read_inputs
from pear.diagnosis.diagnosis_sentences import describe_diagnosis
from pear.diagnosis.error_split import split_error
from pear.losses.regret import compare_decisions
from pear.problem import Model, Problem
from pear.sensitivity.verified_solutions import VerifiedSolutions


def diagnose(
    problem: Problem | Model,
    predicted: Any,
    true: Any,
    groups: Any = None,
    names: Sequence[Any] | None = None,
    smoothing: float | Literal["auto"] = "auto",
    solver: str = "auto",
) -> Diagnosis:
    """Measure what the errors of a forecast cost, and which errors cause the cost. No gradient is needed.

    The regret of every sample is attributed to the predicted values. With e = ĉ − c the parts are
    ``a = e ∘ (z̄ − z*(ĉ))``, where z̄ is the mean of the decisions under ``c + t e``, t from 0 to 1. They add up to the
    regret exactly. They are the gradient of regret, integrated from the true to the predicted cost: ½ eⱼ gⱼ where the
    active set stays the same.

    Args:
        problem: the decision problem. Integers stay integers. A ``Model`` maps predicted values (B, k) to costs.
        predicted: (B, n) predicted costs, or (B, k) predicted values: a tensor, array, DataFrame or list.
        true: the true costs or values, of the same shape.
        groups: (B,) a label for each sample, or dates, which are grouped by hour, month or weekday.
        names: names of the predicted values; left out, those of the columns or of the model.
        smoothing: λ of the smoothed problem at which the squared error is split; "auto" as ``PEARLoss`` picks it.
        solver: "auto" or a name that ``pear solvers`` lists.

    Raises:
        SolveError: a sample has no decision under the forecast or under the truth; the message names it.
        ProblemError: shapes, names or groups do not fit.

    Example:
        >>> import pear
        >>> choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
        >>> print(pear.diagnose(choose_one, [[2.0, 1.0], [1.0, 2.0]], [[1.0, 3.0], [1.0, 3.0]]).sentences[0])
        The decisions lose 100 % of the best value (2 of 2); all of it in 1 of 2 samples.
    """
    check_smoothing(smoothing)
    check_solver(solver)
    given = read_inputs(problem, predicted, true, names)
    labels, grouped_by = read_groups(groups, len(given.true))
    costs = given.predicted_cost, given.true_cost
    chosen, best = (_decide_as_judged(given.problem, cost, solver) for cost in costs)
    judged = compare_decisions(given.problem, chosen.x, best.x, given.true_cost)
    attributed, notes = _attribute_regret(given, judged.regret, best.x, chosen.x, solver)
    relaxed = given.problem.relaxed()
    error = split_error(relaxed, *costs, smoothing, solver)
    qp = relaxed.canonical(given.true_cost)
    constraints = name_constraints(problem, qp, given.variables)
    (binding, price), (best_binding, best_price) = (
        price_constraints(relaxed, cost, solver, constraints) for cost in costs
    )
    arrays: dict[str, Tensor] = {
        **attributed,
        **{name: value for name, value in vars(error).items() if name != "smoothing"},
        **{"regret": judged.regret, "best": judged.best, "decision": chosen.x, "best_decision": best.x},
        **{"predicted": given.predicted, "true": given.true},
    }
    found = Diagnosis(
        **{name: value.cpu().numpy() for name, value in arrays.items()},
        sentences=[],
        normalized_regret=judged.normalized,
        constraint_names=constraints.names,
        constraint_kinds=constraints.kinds,
        binding=binding,
        shadow_price=price,
        best_binding=best_binding,
        best_shadow_price=best_price,
        active=constraints.active(chosen.active, qp.p),
        best_active=constraints.active(best.active, qp.p),
        names=given.names,
        variables=given.variables,
        groups=labels,
        grouped_by=name_group_column(grouped_by),
        sense=given.problem.sense,
        integer=given.problem.is_integer,
        linear=given.problem.phi is None and qp.is_linear,
        smoothing=error.smoothing.note,
    )
    found.sentences.extend([*describe_diagnosis(found), *notes])
    return found


def _decide_as_judged(problem: Problem, cost: Tensor, solver: str) -> Solution | VerifiedSolutions:
    """Compute the optimal decisions for costs (B, n), in the same way as ``pear.regret`` computes them."""
    if problem.is_integer:
        return solve(problem, cost, solver=solver)
    solved = solve_verified(problem, cost, 0.0, solver)
    report_failures(solved.status, "raise", "the problem")
    return solved


def _attribute_regret(
    given: Inputs, regret: Tensor, best: Tensor, chosen: Tensor, solver: str
) -> tuple[dict[str, Tensor], list[str]]:
    """Attribute regret (B,) to the predicted values.

    Returns:
        The attributes ``attribution``, ``attributed``, ``margin`` and ``pieces`` of a ``Diagnosis``, and sentences on
        the samples whose regret is not attributed.
    """
    if given.problem.phi is not None:
        nothing = torch.full_like(given.true, torch.nan)
        unknown = torch.zeros(len(regret), dtype=torch.bool)
        note = "The objective has a smooth term φ, under which decisions move along curves: regret is not attributed."
        empty = {"attribution": nothing, "attributed": unknown, "margin": nothing[:, 0], "pieces": unknown.long()}
        return empty, [note]
    path = follow_decisions(given.problem, given.true_cost, given.predicted_cost, best, chosen, solver)
    gradient = given.problem.sign * (path.mean - chosen)
    if given.cost_map is not None:
        gradient = given.cost_map.pull_back(gradient)
    parts = (given.predicted - given.true) * gradient
    known = path.found & ((parts.sum(1) - regret).abs() <= ACCURACY * path.size)
    notes = []
    if not bool(known.all()):
        notes.append(
            f"The regret of {int((~known).sum())} samples is not attributed: their decisions between truth and "
            "forecast could not be followed to the end."
        )
    attributed = {
        "attribution": torch.where(known[:, None], parts, torch.nan),
        "attributed": known,
        "margin": torch.where(path.found, path.margin, torch.nan),
        "pieces": path.pieces,
    }
    return attributed, notes
