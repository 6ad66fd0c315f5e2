"""``PEARLoss`` of a model that predicts right-hand sides: regret with recourse, and its exact gradient.

With ẑ the decision under the forecast and C(z) what doing z comes to under the truth, recourse included,
``R = C(ẑ) − min C``, and with w = ∇C(ẑ) one solve ``[H Jᵀ; J 0][p; q] = [w; 0]`` gives ``∂R/∂ĉ = −p`` and
``∂R/∂(right-hand sides) = q``. Three terms pull where R is flat, all convex and never negative:

* F, the gap of the true decision under the predicted costs and true right-hand sides, with derivative z° − z;
* D, how far the least cost v lies above its tangent at the truth, under the true costs and predicted right-hand sides:
  ``D = v(b̂) − v(b) + y°ᵀ(b̂ − b)`` with the true multipliers y°, and derivative y° − y;
* V, the least violation that an infeasible forecast allows beyond that of the truth, with derivative −y.

Guidance multiplies F and D, and falls to zero.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions.recourse import Forecast, Realised, RecourseDecider, Values
from pear.decisions.solve import fail
from pear.errors import ProblemError
from pear.losses.layer import derivatives
from pear.losses.regret import regret_of_program
from pear.optimality.point import Status
from pear.problem.canonical import QuadraticProgram, matvec
from pear.problem.elastic import Elastic
from pear.problem.keys import rows_of
from pear.sensitivity.projection import inject_normal, project
from pear.solvers.base import Start
from pear.solvers.fused import RegretCall, Regrets

if TYPE_CHECKING:
    from pear.losses.last_call import LastCall
    from pear.losses.pear import PEARLoss


class _Slopes(NamedTuple):
    """Derivatives by costs (B, n), and by b and h of the elastic problem."""

    cost: Tensor
    b: Tensor
    h: Tensor

    def plus(self, other: _Slopes) -> _Slopes:
        """Of the sum."""
        return _Slopes(*(one + more for one, more in zip(self, other, strict=True)))

    def by_values(self, decider: RecourseDecider, where: Tensor) -> Tensor:
        """(B, k) derivatives by the predicted values of samples ``where`` (B,); zero for the others."""
        model = decider.model
        assert model.cost_map is not None
        assert model.constraint_map is not None
        sides = decider.elastic.by_sides(self.b, self.h)
        slope = model.cost_map.pull_back(self.cost) + model.constraint_map.pull_back(sides)
        return torch.where(where[:, None], slope, 0.0)


def regret_with_recourse(
    loss: PEARLoss, predicted: Tensor, true: Tensor, ids: list[Hashable] | None, Q: Any
) -> tuple[Tensor, LastCall]:
    """The value of ``PEARLoss`` for predicted and true values (B, k), and what happened in the call.

    Args:
        loss: of a model with a constraint map.
        predicted: (B, k); true: the same that came true.
        ids: of the samples, or None.
        Q: a predicted curvature, which is refused.
    """
    if Q is not None:
        raise ProblemError("Q came with a model that predicts right-hand sides; predict the one or the other")
    if true.requires_grad and torch.is_grad_enabled():
        raise ProblemError(
            "a derivative by the true values was asked for, and a model that predicts right-hand sides has none; pass "
            "true.detach()"
        )
    wanted = torch.is_grad_enabled() and predicted.requires_grad
    decider = loss.recourse_decider(true.detach(), ids)
    with decider.locked(ids):
        forecast, truth = (decider.values(values.detach(), ids) for values in (predicted, true))
        known = decider.known_failures(forecast, truth, ids) if loss.on_failure == "mask" else (None, None)
        parts, extra, pull, found = _regrets(loss, decider, (forecast, truth), ids, wanted)
        statuses = parts.status, torch.where(parts.status == 0, parts.true_status, 0)
        for status, told, what in zip(statuses, known, ("the forecast", "the truth"), strict=True):
            fresh = status if told is None else torch.where(told == 0, status, 0)  # each is warned of once
            fail(fresh, loss.on_failure, what, spreads=wanted and what == "the forecast")
        good = (parts.status == 0) & (parts.true_status == 0)
        call = RegretCall(
            found.cost, truth.cost, 0.0, loss.injection, ids, guidance=loss.current_guidance, fields=found.fields
        )
        last = loss.record(call, parts, wanted)
    shares = {"none": 0, "sum": 1, "mean": max(int(good.sum()), 1)}[loss.reduction]
    value: Tensor = _Known.apply(predicted, parts.value + extra, pull, shares)
    loss.guided(int(wanted))
    return value, last


def _regrets(
    loss: PEARLoss,
    decider: RecourseDecider,
    pair: tuple[Values, Values],
    ids: list[Hashable] | None,
    wanted: bool,
) -> tuple[Regrets, Tensor, Tensor, Forecast]:
    """The regrets of a batch, what guidance and V add to them (B,), the gradient of all of it (B, k), the decisions."""
    forecast, truth = pair
    began = time.perf_counter()
    found = decider.decide(forecast, ids)
    ideal, ideal_status = decider.best(truth, ids)
    n, solved = decider.elastic.n, found.solved
    realised = decider.realise(solved.x[:, :n], truth, ids, wanted)
    true_status = torch.where(ideal_status == Status.SOLVED, realised.status, ideal_status)
    good = solved.solved & (true_status == Status.SOLVED)
    value = regret_of_program(decider.truths.problem, realised.x, ideal, realised.program)
    extra, pull = _cost_gap(loss.current_guidance, decider, pair, ideal.x, ids)
    gap, towards = _side_gap(loss.current_guidance, decider, pair, found, (ideal, realised.program), ids)
    violation, back = _excess(decider, found, truth, ids)
    loss.seconds["solve"] += time.perf_counter() - began
    began = time.perf_counter()
    exact = gradient = value.new_zeros(len(value), decider.model.inputs)
    injected = exact
    if wanted:
        slopes = _slopes(decider, found, realised)
        normal = _normal(loss.injection, decider, found, forecast.cost - truth.cost, ids)
        more = _Slopes(pull, *back).plus(_Slopes(torch.zeros_like(pull), *towards))
        exact = slopes.by_values(decider, good)
        injected = slopes._replace(cost=slopes.cost + normal).by_values(decider, good)
        gradient = slopes._replace(cost=slopes.cost + normal).plus(more).by_values(decider, good)
    loss.seconds["gradient"] += time.perf_counter() - began
    keep = good[:, None]
    parts = Regrets(
        value=torch.where(good, value, 0.0),
        exact=exact,
        injected=injected,
        x=torch.where(keep, solved.x[:, :n], 0.0),
        best=torch.where(keep, ideal.x[:, :n], 0.0),
        status=solved.status,
        true_status=true_status,
        kkt_residual=solved.kkt_residual,
        reused=solved.reused,
        repaired=solved.repaired,
    )
    return parts, torch.where(good, extra + gap + violation, 0.0), gradient, found


def _slopes(decider: RecourseDecider, found: Forecast, realised: Realised) -> _Slopes:
    """Of the regret, exact."""
    elastic = decider.elastic
    upstream = _on_all(elastic, torch.where(realised.upstream.isfinite(), realised.upstream, 0.0))
    by_cost, _, _, by_b, _, by_h, *_ = derivatives(found.solved, decider.plain.sign, upstream, by_rows=True)
    return _Slopes(by_cost()[:, : elastic.n], by_b(), by_h())


def _normal(
    strength: float, decider: RecourseDecider, found: Forecast, error: Tensor, ids: list[Hashable] | None
) -> Tensor:
    """(B, n) the normal component of the error of the costs (B, n) that injection adds to the gradient."""
    if strength == 0 or not decider.model.predicts_costs:
        return torch.zeros_like(error)
    error = torch.where(found.solved.solved[:, None] & error.isfinite(), error, 0.0)
    tangent = project(found.solved, _on_all(decider.elastic, error))[:, : decider.elastic.n]
    return inject_normal(rows_of(decider.plain, ids).canonical(error), error, tangent, strength) - tangent


def _cost_gap(
    strength: float, decider: RecourseDecider, pair: tuple[Values, Values], best: Tensor, ids: list[Hashable] | None
) -> tuple[Tensor, Tensor]:
    """α F, and its slope by costs."""
    forecast, truth = pair
    if strength == 0 or not decider.model.predicts_costs:
        return torch.zeros_like(best[:, 0]), torch.zeros_like(forecast.cost)
    solved = decider.guide(forecast.cost, truth, ids)
    gap = regret_of_program(decider.truths.problem, best, solved.as_start(), solved.qp)
    pull = decider.plain.sign * (best - solved.x)[:, : decider.elastic.n]
    return strength * torch.where(solved.solved, gap, 0.0), strength * torch.where(solved.solved[:, None], pull, 0.0)


def _side_gap(
    strength: float,
    decider: RecourseDecider,
    pair: tuple[Values, Values],
    found: Forecast,
    ideal: tuple[Start, QuadraticProgram],
    ids: list[Hashable] | None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """α D, and its slopes by b and h of the elastic problem; zero where a projection's forecast is infeasible."""
    (forecast, truth), (best, program) = pair, ideal
    solved = found.solved
    if strength == 0:
        zero = solved.duals
        return torch.zeros_like(found.least.value), (torch.zeros_like(zero.equality), torch.zeros_like(zero.inequality))
    if decider.model.predicts_costs:
        solved = decider.guide_sides(truth.cost, found, ids)
    by_b, by_h = decider.multipliers(best)
    sides, true_sides = (decider.elastic.fields(values.sides) for values in (forecast, truth))
    value = _value(solved.qp, solved.x) - _value(program, best.x)
    for name, multiplier in (("b", by_b), ("h", by_h)):
        if name in sides:
            change = sides[name] - true_sides[name]
            value = value + (multiplier * torch.where(change.isfinite(), change, 0.0)).sum(1)
    usable = solved.solved & ((found.least.value == 0) | (decider.weights is None))
    slopes = by_b - solved.duals.equality, by_h - solved.duals.inequality
    pulls = tuple(strength * torch.where(usable[:, None], slope, 0.0) for slope in slopes)
    return strength * torch.where(usable, value.clamp(min=0), 0.0), (pulls[0], pulls[1])


def _excess(
    decider: RecourseDecider, found: Forecast, truth: Values, ids: list[Hashable] | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """V, the least violation that a forecast allows beyond what the truth does, and its slopes by b and h."""
    least = found.least
    allowed = decider.least_violation(truth, ids, least.value > 0).value
    value = (least.value - allowed).clamp(min=0)
    more = (value > 0)[:, None]
    return value, (torch.where(more, least.by_b, 0.0), torch.where(more, least.by_h, 0.0))


def _value(program: QuadraticProgram, x: Tensor) -> Tensor:
    """(B,) the objective of the programs at x."""
    return (x * (0.5 * matvec(program.H, x) + program.c)).sum(1)


def _on_all(elastic: Elastic, values: Tensor) -> Tensor:
    """(B, n + slacks) from (B, n), with zeros for the slacks."""
    return torch.cat([values, values.new_zeros(len(values), len(elastic.price))], 1)


class _Known(torch.autograd.Function):
    """Puts a gradient (B, k) that is known behind values (B,); ``shares`` as of ``GuidedRegret``."""

    @staticmethod
    def forward(ctx: Any, predicted: Tensor, each: Tensor, gradient: Tensor, shares: int) -> Tensor:
        ctx.gradient, ctx.shares, ctx.dtype = gradient, shares, predicted.dtype
        return (each.clone() if shares == 0 else each.sum() / shares).to(predicted.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        u = up.double()[:, None] if ctx.shares == 0 else up.double() / ctx.shares
        return (u * ctx.gradient).to(ctx.dtype), None, None, None
