"""``pear.diagnose``: from a forecast and what came true to a ``Diagnosis``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from pear.decisions.solve import check_smoothing, check_solver, fail, solve, solve_verified
from pear.diagnosis.constraints import binding_prices, named_constraints
from pear.diagnosis.diagnosis import Diagnosis
from pear.diagnosis.frames import column_of_groups
from pear.diagnosis.inputs import Inputs, read_groups, read_inputs
from pear.diagnosis.path import ACCURACY, follow
from pear.diagnosis.sentences import said
from pear.diagnosis.tangent import split_error
from pear.losses.regret import outcome
from pear.optimality.point import ActiveSet
from pear.problem import Model, Problem


def diagnose(
    problem: Problem | Model,
    predicted: Any,
    true: Any,
    groups: Any = None,
    names: Sequence[Any] | None = None,
    smoothing: float | Literal["auto"] = "auto",
    solver: str = "auto",
) -> Diagnosis:
    """What the errors of a forecast cost, and which of them: of any forecaster, and without a gradient.

    Every sample's regret is attributed to the values that were predicted: with e = ĉ − c, ``a = e ∘ (z̄ − z*(ĉ))`` and
    z̄ the mean of the decisions under ``c + t e``, t from 0 to 1, which adds up to the regret exactly. It is the
    gradient of regret, integrated on the way from truth to forecast: ½ eⱼ gⱼ where the active set stays the same.

    Args:
        problem: what is decided; integer programs as such. A ``Model`` maps predicted values (B, k) to costs.
        predicted: (B, n) or (B, k), tensor, array, DataFrame or list.
        true: what came true, of the same shape.
        groups: (B,) a label for each sample, or dates, which are grouped by hour, month or weekday.
        names: of the predicted values; those of columns or of the model where left out.
        smoothing: λ of the smoothed problem at which the squared error is split; "auto" as ``PEARLoss`` picks it.
        solver: "auto" or a name that ``pear solvers`` lists.

    Raises:
        SolveError: a sample has no decision under the forecast or under the truth; names it.
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
    chosen, best = (_decide(given.problem, cost, solver) for cost in (given.predicted_cost, given.true_cost))
    judged = outcome(given.problem, chosen.x, best.x, given.true_cost)
    parts = _attribute(given, judged.regret, best.x, chosen.x, solver)
    relaxed = given.problem.relaxed()
    error = split_error(relaxed, given.predicted_cost, given.true_cost, smoothing, solver)
    qp = relaxed.canonical(given.true_cost)
    constraints = named_constraints(problem, qp, given.variables)
    costs = given.predicted_cost, given.true_cost
    held, ideal = (binding_prices(relaxed, cost, solver, constraints) for cost in costs)
    arrays: dict[str, Tensor] = {
        **{"regret": judged.regret, "best": judged.best, "attribution": parts.attribution, "attributed": parts.known},
        **{"squared_error": error.total, "tangent": error.tangent, "normal": error.normal, "margin": parts.margin},
        **{"tangent_at_forecast": error.at_forecast, "pieces": parts.pieces},
        **{"degenerate": error.degenerate, "zero_gradient": error.zero_gradient},
        **{"decision": chosen.x, "best_decision": best.x, "predicted": given.predicted, "true": given.true},
    }
    found = Diagnosis(
        **{name: value.cpu().numpy() for name, value in arrays.items()},
        sentences=[],
        normalized_regret=judged.normalized,
        constraint_names=constraints.names,
        constraint_kinds=constraints.kinds,
        binding=held.binding,
        shadow_price=held.price,
        best_binding=ideal.binding,
        best_shadow_price=ideal.price,
        active=constraints.active(chosen.active, qp.p),
        best_active=constraints.active(best.active, qp.p),
        names=given.names,
        variables=given.variables,
        groups=labels,
        grouped_by=column_of_groups(grouped_by),
        sense=given.problem.sense,
        integer=given.problem.is_integer,
        linear=given.problem.phi is None and qp.is_linear,
        smoothing=error.smoothing.note,
    )
    found.sentences.extend([*said(found), *parts.notes])
    return found


class _Decided(NamedTuple):
    """Decisions (B, n), and what is tight there."""

    x: Tensor
    active: ActiveSet


def _decide(problem: Problem, cost: Tensor, solver: str) -> _Decided:
    """The decisions that ``pear.regret`` judges."""
    if problem.is_integer:
        solution = solve(problem, cost, solver=solver)
        return _Decided(solution.x, solution.active)
    solved = solve_verified(problem, cost, 0.0, solver)
    fail(solved.status, "raise", "the problem")
    return _Decided(solved.x, solved.active)


class _Parts(NamedTuple):
    """Regret by predicted value, and what was seen on the way from truth to forecast."""

    attribution: Tensor
    known: Tensor
    margin: Tensor
    pieces: Tensor
    notes: list[str]


def _attribute(given: Inputs, regret: Tensor, best: Tensor, chosen: Tensor, solver: str) -> _Parts:
    """(B, k) parts of the regret, NaN where they are not known to add up to it."""
    if given.problem.phi is not None:
        nothing = torch.full_like(given.true, torch.nan)
        note = "The objective has a smooth term φ, under which decisions move along curves: regret is not attributed."
        unknown = torch.zeros(len(regret), dtype=torch.bool)
        return _Parts(nothing, unknown, nothing[:, 0], unknown.long(), [note])
    path = follow(given.problem, given.true_cost, given.predicted_cost, best, chosen, solver)
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
    margin = torch.where(path.found, path.margin, torch.nan)
    return _Parts(torch.where(known[:, None], parts, torch.nan), known, margin, path.pieces, notes)
