"""``PEARLoss`` of a model that predicts right-hand sides: regret with recourse, and its exact gradient.

With ẑ the decision under the forecast and C(z) what doing z comes to under the truth, recourse included,
``R = C(ẑ) − min C``, and with w = ∇C(ẑ) one solve ``[H Jᵀ; J 0][p; q] = [w; 0]`` gives ``∂R/∂ĉ = −p`` and
``∂R/∂(right-hand sides) = q``. Two terms pull where R is flat: guidance, by the predicted costs under the true
right-hand sides; and V, the least violation that an infeasible forecast allows beyond that of the truth. V is convex,
zero where the forecast is feasible, and its derivative is minus the multipliers of a linear program.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions.one_pass import RegretCall, Regrets
from pear.decisions.recourse import Forecast, Realised, RecourseDecider, Values, predicts_costs
from pear.decisions.solve import fail
from pear.decisions.warm_starts import rows_of
from pear.errors import ProblemError
from pear.losses.layer import derivatives
from pear.losses.regret import regret_of_program
from pear.optimality.point import Status
from pear.problem.elastic import Elastic
from pear.sensitivity.projection import inject_normal, project

if TYPE_CHECKING:
    from pear.losses.last_call import LastCall
    from pear.losses.pear import PEARLoss


class _Slopes(NamedTuple):
    """Derivatives by costs (B, n), and by b, h, lb and ub (B, r)."""

    cost: Tensor
    sides: dict[str, Tensor]

    def by_values(self, decider: RecourseDecider) -> Tensor:
        """(B, k) derivatives by the predicted values."""
        model = decider.model
        assert model.cost_map is not None
        assert model.constraint_map is not None
        return model.cost_map.pull_back(self.cost) + model.constraint_map.pull_back(self.sides)


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
        parts, extra, pull, found = _regrets(loss, decider, (forecast, truth), ids, wanted)
        fail(parts.status, loss.on_failure, "the forecast", spreads=wanted)
        fail(torch.where(parts.status == 0, parts.true_status, 0), loss.on_failure, "the truth")
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
    extra, slopes = _guided(loss.current_guidance, decider, pair, ideal.x, ids)
    violation, violation_slopes = _excess(decider, found, truth, ids)
    loss.seconds["solve"] += time.perf_counter() - began
    began = time.perf_counter()
    exact = injected = value.new_zeros(len(value), decider.model.inputs)
    if wanted:
        exact, injected = _gradients(loss.injection, decider, found, realised, forecast.cost - truth.cost, ids)
        exact, injected = (torch.where(good[:, None], one, 0.0) for one in (exact, injected))
    more = slopes.by_values(decider) + violation_slopes.by_values(decider)
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
    return parts, torch.where(good, extra + violation, 0.0), injected + torch.where(keep, more, 0.0), found


def _gradients(
    injection: float,
    decider: RecourseDecider,
    found: Forecast,
    realised: Realised,
    error: Tensor,
    ids: list[Hashable] | None,
) -> tuple[Tensor, Tensor]:
    """(B, k) of the regret, exact and with the normal component of the error of the costs, (B, n)."""
    elastic, solved = decider.elastic, found.solved
    upstream = _on_all(elastic, torch.where(realised.upstream.isfinite(), realised.upstream, 0.0))
    by_cost, _, _, by_b, _, by_h, *_ = derivatives(solved, decider.plain.sign, upstream, by_rows=True)
    slopes = _Slopes(by_cost()[:, : elastic.n], elastic.by_sides(by_b(), by_h()))
    exact = slopes.by_values(decider)
    if injection == 0 or not predicts_costs(decider.model):
        return exact, exact
    error = torch.where(solved.solved[:, None] & error.isfinite(), error, 0.0)
    tangent = project(solved, _on_all(elastic, error))[:, : elastic.n]
    program = rows_of(decider.plain, ids).canonical(error)
    normal = inject_normal(program, error, tangent, injection) - tangent
    return exact, slopes._replace(cost=slopes.cost + normal).by_values(decider)


def _guided(
    strength: float, decider: RecourseDecider, pair: tuple[Values, Values], best: Tensor, ids: list[Hashable] | None
) -> tuple[Tensor, _Slopes]:
    """α F, with its derivative: the gap of the true decision under the predicted costs and true right-hand sides."""
    forecast, truth = pair
    nothing = _no_slopes(decider, len(best))
    if strength == 0 or not predicts_costs(decider.model):
        return best.new_zeros(len(best)), nothing
    solved = decider.guide(forecast.cost, truth, ids)
    known = solved.solved
    gap = regret_of_program(decider.truths.problem, best, solved.as_start(), solved.qp)
    pull = strength * decider.plain.sign * (best - solved.x)[:, : decider.elastic.n]
    return torch.where(known, strength * gap, 0.0), nothing._replace(cost=torch.where(known[:, None], pull, 0.0))


def _excess(
    decider: RecourseDecider, found: Forecast, truth: Values, ids: list[Hashable] | None
) -> tuple[Tensor, _Slopes]:
    """V, with its derivative: the least violation that a forecast allows beyond what the truth does."""
    allowed = decider.least_violation(truth, ids, found.least.value > 0).value
    value = (found.least.value - allowed).clamp(min=0)
    more = (value > 0)[:, None]
    by_b, by_h = (torch.where(more, slope, 0.0) for slope in (found.least.by_b, found.least.by_h))
    slopes = _no_slopes(decider, len(value))
    return value, slopes._replace(sides=decider.elastic.by_sides(by_b, by_h))


def _no_slopes(decider: RecourseDecider, batch: int) -> _Slopes:
    qp = decider.forecasts.problem
    p, m = (0 if side is None else side.shape[-1] for side in (qp.b, qp.h))
    zero = torch.zeros(batch, max(p, m, decider.elastic.n), dtype=torch.float64, device=qp.device)
    return _Slopes(zero[:, : decider.elastic.n], decider.elastic.by_sides(zero[:, :p], zero[:, :m]))


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
