"""``DecisionLayer``: the decision as a differentiable function of everything the problem is made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from pear.decisions.recourse import Values
from pear.decisions.solve import OnFailure, fail
from pear.errors import ProblemError
from pear.losses.eager import eager
from pear.losses.module import DecisionModule
from pear.problem import Model, Problem
from pear.problem.canonical import matvec, tmatvec
from pear.problem.convert import as_batch
from pear.problem.keys import as_keys
from pear.problem.problem import FIELDS
from pear.sensitivity.projection import project_any, require_unique
from pear.sensitivity.verified import Verified
from pear.solvers.fused import FusedDecisions


class DecisionLayer(DecisionModule):
    """z*(c, Q, A, b, G, h, lb, ub) with exact derivatives, for any loss on the decision.

    For an upstream gradient w the backward pass solves the reduced system once more,
    ``[H Jᵀ; J 0][p; q] = [w; 0]``, with the factorisation of the forward pass, and reads every derivative off it:
    ``∂c = −p``, ``∂Q = −½(p zᵀ + z pᵀ)``, ``∂(right-hand sides) = q``, ``∂J = −(v pᵀ + q zᵀ)`` with the multipliers v,
    and for a variable at a bound ``∂bound = w − Hp − Jᵀq``. Inactive constraints have derivative zero, weakly active
    ones count as active; where rows are linearly dependent, right-hand sides get the derivative of least norm, with
    rows scaled to length one.

    Args:
        problem: what is decided; an integer problem is relaxed. A ``Model`` maps predicted values to costs, and, where
            it predicts them, to right-hand sides: then the decision is that of the elastic problem of its recourse.
        smoothing: λ ≥ 0, or "auto".
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise", or "mask": failed samples get a decision and derivatives of zero, and a warning.

    Attributes:
        status: (B,) int8 of ``pear.Status`` of the last call, or None.

    Example:
        >>> import torch, pear
        >>> layer = pear.DecisionLayer(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), smoothing=1.0)
        >>> cost = torch.tensor([[0.2, 0.4]], requires_grad=True)
        >>> z = layer(cost)
        >>> z[0, 0].backward()
        >>> z, cost.grad
        (tensor([[0.6000, 0.4000]], grad_fn=<_DecisionBackward>), tensor([[-0.5000,  0.5000]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        smoothing: float | Literal["auto"] = 0.0,
        solver: str = "auto",
        on_failure: OnFailure = "raise",
    ) -> None:
        super().__init__(problem, smoothing, solver, on_failure)
        self.status: Tensor | None = None

    @eager
    def forward(
        self,
        cost: Tensor,
        Q: Tensor | None = None,
        A: Tensor | None = None,
        b: Tensor | None = None,
        G: Tensor | None = None,
        h: Tensor | None = None,
        lb: Tensor | None = None,
        ub: Tensor | None = None,
        keys: Tensor | Iterable[Hashable] | None = None,
    ) -> Tensor:
        """Decide for a batch.

        Args:
            cost: (B, n), or (B, k) values that the cost map of a ``Model`` takes.
            Q: (n, n) or (B, n, n) curvature for this call, as all that follow instead of the problem's.
            A: (p, n) or (B, p, n) equality rows.
            b: (p,) or (B, p) their right-hand sides.
            G: (m, n) or (B, m, n) inequality rows.
            h: (m,) or (B, m) their right-hand sides.
            lb: (n,) or (B, n) lower bounds.
            ub: (n,) or (B, n) upper bounds.
            keys: B sample ids, as for ``PEARLoss``.

        Returns:
            (B, n) decisions in the dtype of ``cost``.
        """
        cost = as_batch(cost)
        ids = as_keys(keys, len(cost), self.problem)
        fields: dict[str, Any] = dict(zip(FIELDS, (Q, A, b, G, h, lb, ub), strict=True))
        given = {name: value for name, value in fields.items() if value is not None}
        if self.recourse_model is not None:
            return self._under_forecast(cost, ids, given)
        cost = self.costs(cost, ids)
        scale = self.settled(cost, ids, **given)
        lam, cost, given = scale.value, scale.times_units(cost), scale.fields(given)
        fields |= given
        by_rows = torch.is_grad_enabled() and any(_wants_gradient(given.get(name)) for name in FIELDS[1:])
        # The backward pass is about these, whatever is assigned later.
        decider, problem = self.decider, self.decider.problem
        with decider.locked(ids):
            solved: Verified | FusedDecisions | None = None
            if decider.fused is not None and not by_rows:  # whose derivatives need the reduced systems
                solved = decider.fused.decide(cost.detach(), lam, ids, given)
            if solved is None:
                solved = decider.solve(cost.detach(), lam, ids, **given)
        if isinstance(solved, FusedDecisions):
            self.status = torch.zeros(len(cost), dtype=torch.int8, device=solved.x.device)
        else:
            self.status = solved.status
            trained = torch.is_grad_enabled() and cost.requires_grad
            fail(self.status, self.on_failure, "the decision layer", spreads=trained)

        def verified() -> Verified:
            """The solutions with everything that is known about them."""
            rows = None if ids is None or problem.batch is None else torch.tensor(ids)
            again = decider.solve(cost.detach(), lam, None, rows, **given)
            fail(again.status, "raise", "the derivative of the decision layer")
            return again

        decision: Tensor = _Decision.apply(solved, verified, problem.sign, cost, *fields.values())
        return scale.times_units(decision)

    def _under_forecast(self, values: Tensor, ids: list[Hashable] | None, given: dict[str, Any]) -> Tensor:
        """(B, n) elastic decisions under predicted values (B, k), differentiable."""
        if given:
            raise ProblemError(
                f"{', '.join(given)} came with a model that predicts right-hand sides; put them into its problem"
            )
        decider = self.recourse_decider(values.detach(), ids)
        forecast, elastic = decider.values(values, ids), decider.elastic
        with decider.locked(ids):
            found = decider.decide(
                Values(forecast.cost.detach(), {k: v.detach() for k, v in forecast.sides.items()}), ids
            )
        self.status = found.solved.status
        trained = torch.is_grad_enabled() and values.requires_grad
        fail(self.status, self.on_failure, "the decision layer", spreads=trained)
        fields: dict[str, Any] = dict.fromkeys(FIELDS) | elastic.fields(forecast.sides)
        cost = torch.cat([forecast.cost, found.cost[:, elastic.n :]], 1)
        again = lambda: found.solved  # noqa: E731 (never asked: the solutions are verified)
        decision: Tensor = _Decision.apply(found.solved, again, self.problem.sign, cost, *fields.values())
        return decision[:, : elastic.n].to(values.dtype)


class _Decision(torch.autograd.Function):
    """Forward: the verified decision. Backward: one solve with the same factorisation."""

    @staticmethod
    def forward(
        ctx: Any,
        solved: Verified | FusedDecisions,
        verified: Callable[[], Verified],
        sign: int,
        cost: Tensor,
        *fields: Tensor | None,
    ) -> Tensor:
        ctx.solved, ctx.verified, ctx.sign = solved, verified, sign
        ctx.inputs = [(t.dtype, tuple(t.shape)) if isinstance(t, Tensor) else None for t in (cost, *fields)]
        if isinstance(solved, FusedDecisions):
            return solved.x.to(cost.dtype, copy=True)
        return torch.where(solved.solved[:, None], solved.x, 0.0).to(cost.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        by_rows = any(ctx.needs_input_grad[5:])
        compiled, found = isinstance(ctx.solved, FusedDecisions), None
        if compiled:
            found = _compiled_derivatives(ctx.solved, ctx.sign, up.double())
        if found is None:
            solved = ctx.verified() if compiled else ctx.solved
            found = derivatives(solved, ctx.sign, up.double(), by_rows)
        grads: list[Tensor | None] = []
        for needed, kind, derivative in zip(ctx.needs_input_grad[3:], ctx.inputs, found, strict=False):
            grads.append(_shaped(derivative(), *kind) if needed and kind is not None else None)
        return (None, None, None, *grads, *[None] * (len(ctx.inputs) - len(grads)))


def _compiled_derivatives(decided: FusedDecisions, sign: int, w: Tensor) -> list[Any] | None:
    """Those by cost and Q, which the compiled projection gives; None where some decision may not be unique."""
    p, z = decided.project(w), decided.x
    if p is None:
        return None
    return [lambda: -sign * p, lambda: -0.5 * sign * (p[:, :, None] * z[:, None, :] + z[:, :, None] * p[:, None, :])]


def derivatives(solved: Verified, sign: int, w: Tensor, by_rows: bool) -> list[Any]:
    """One closure per input (cost, Q, A, b, G, h, lb, ub), each giving a (B, …) derivative.

    Args:
        solved: the forward pass.
        sign: of the problem.
        w: (B, n) upstream gradient.
        by_rows: whether any but the first two will be asked for.
    """
    qp, z, duals, active = solved.qp, solved.x, solved.duals, solved.active
    w = torch.where(solved.solved[:, None], w, torch.zeros_like(w))
    q_eq = q_in = w[:, :0]
    if by_rows:
        p, q_eq, q_in, unique = solved.systems.project(w, least_multipliers=True)
    else:
        p, unique = project_any(solved, w)
    require_unique(solved, unique)
    keep = solved.solved[:, None]
    p, q_eq, q_in = (torch.where(keep, v, torch.zeros_like(v)) for v in (p, q_eq, q_in))

    def outer(a: Tensor, c: Tensor) -> Tensor:
        return a[:, :, None] * c[:, None, :]

    def at_bound(where: Tensor) -> Tensor:
        slope = w - matvec(qp.H, p) - tmatvec(qp.A, q_eq) - tmatvec(qp.G, q_in)
        return torch.where(where, slope, torch.zeros_like(slope))

    # a variable whose bounds coincide follows the one that its multiplier belongs to
    pinned = qp.lb == qp.ub
    upper = active.upper | (active.lower & pinned & (duals.bound > 0))
    return [
        lambda: -sign * p,
        lambda: -0.5 * sign * (outer(p, z) + outer(z, p)),
        lambda: -(outer(duals.equality, p) + outer(q_eq, z)),
        lambda: q_eq,
        lambda: -(outer(torch.where(active.rows, duals.inequality, 0.0), p) + outer(q_in, z)),
        lambda: q_in,
        lambda: at_bound(active.lower & ~upper),
        lambda: at_bound(upper),
    ]


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _shaped(derivative: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Sum over the batch where the input was shared, and over variables where it was one number for all."""
    if len(shape) == derivative.dim() - 1:
        derivative = derivative.sum(0)
    elif not shape:
        derivative = derivative.sum()
    return derivative.to(dtype)
