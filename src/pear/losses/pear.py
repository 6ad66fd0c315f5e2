"""``PEARLoss``: the regret of a predicted cost, with its exact gradient from one projection."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from pear.decisions.remembered import Regrets, Remembered
from pear.decisions.solve import (
    OnFailure,
    check_on_failure,
    check_smoothing,
    check_solver,
    choose_smoothing,
    fail,
    solve_verified,
)
from pear.decisions.warm_starts import Memory, as_keys, check_rows, rows_of
from pear.errors import NotUniqueError, ProblemError
from pear.losses.regret import check_injection, check_pair, gradient_error, regret, true_curvature
from pear.optimality.point import Status
from pear.problem import Problem
from pear.problem.convert import as_batch
from pear.sensitivity.projection import inject_normal, project
from pear.sensitivity.verified import Start, Verified

Reduction = Literal["mean", "sum", "none"]


class _Batch(NamedTuple):
    """What one call was given, detached.

    Attributes:
        predicted, true: (B, n) costs; Q, true_Q: curvatures, or None.
        ids: keys, or None; some: without keys, the samples' numbers, or None where they are all there.
        smoothing: λ.
        wanted: whether anybody will ask for a gradient.
    """

    predicted: Tensor
    true: Tensor
    ids: list[Hashable] | None
    some: Tensor | None
    Q: Any
    true_Q: Any
    smoothing: float
    wanted: bool

    def rows(self, index: Tensor) -> _Batch:
        """Some of the samples; what they share stays shared."""
        ids = None if self.ids is None else [self.ids[i] for i in index.tolist()]
        Q, true_Q = (v[index] if isinstance(v, Tensor) and v.dim() == 3 else v for v in (self.Q, self.true_Q))
        predicted, true = self.predicted[index], self.true[index]
        return self._replace(predicted=predicted, true=true, ids=ids, some=index, Q=Q, true_Q=true_Q)

    def rows_of(self, problem: Problem) -> Problem:
        """The problem of these samples."""
        if self.ids is None and self.some is not None:
            return problem[self.some]
        return rows_of(problem, self.ids)


@dataclass
class LastCall:
    """What happened in the last call of a loss.

    Attributes:
        decision: (B, n) decisions taken under the predicted costs, in float64; zero where a sample failed.
        regret: (B,) regret of each sample; zero where it was masked.
        reuse_rate: share of samples whose remembered active set passed the check, so that no solver was called; zero on
            a GPU for problems that its kernel solves, which is faster than a check.
        kkt_residual: (B,) as in ``pear.solve``.
    """

    decision: Tensor
    regret: Tensor
    reuse_rate: float
    kkt_residual: Tensor
    _parts: Regrets = field(repr=False)
    _wanted: bool = field(repr=False)
    _verify: Callable[[], Verified] = field(repr=False)

    @cached_property
    def status(self) -> Tensor:
        """(B,) int8 of ``pear.Status``: the failure of the predicted problem, or else of the true one."""
        return torch.where(self._parts.status == 0, self._parts.true_status, self._parts.status)

    @property
    def repaired_rate(self) -> float:
        """Share of samples whose solver's active set was wrong and was exchanged."""
        return float(self._parts.repaired.sum()) / max(len(self.regret), 1)

    @property
    def zero_gradient_rate(self) -> float:
        """Share of samples whose gradient is exactly zero; NaN where no gradient was asked for."""
        zero = float((self._parts.exact == 0).all(1).sum()) if self._wanted else math.nan
        return zero / max(len(self.regret), 1)

    @cached_property
    def _verified(self) -> Verified:
        return self._verify()

    @property
    def weakly_active(self) -> Tensor:
        """(B,) number of weakly active constraints; computed when asked for."""
        return self._verified.weak.count()

    @property
    def tangent_dim(self) -> Tensor:
        """(B,) dimension of each sample's tangent space; computed when asked for."""
        return self._verified.reduced.tangent_dim()


class PEARLoss(nn.Module):
    """Regret of the decision, ``R = f(z*(ĉ); c) − f(z*(c); c)``, with gradient ``g = P(ĉ − c)``.

    f is the objective that is differentiated, smoothing included, so that the loss is never negative, falls to zero at
    ĉ = c, and agrees with finite differences. With a predicted curvature (``Q``, ``true_Q``) the gradient is
    ``g = P[(ĉ − c) + (Q̂ − Q) z*]`` for ĉ and ``½ (g z*ᵀ + z* gᵀ)`` for Q̂. An integer problem is trained on its
    continuous relaxation.

    Args:
        problem: what is decided. Where it carries fields per sample, ``keys`` selects its rows.
        smoothing: λ, the curvature added to the objective; "auto" picks it from the first batch of true costs.
        injection: β, how much of the normal component is added to the gradient of ĉ (0: the exact gradient).
        solver: "auto" or a name that ``pear solvers`` lists.
        on_failure: "raise", or "mask" to leave failed samples out of the loss, with a warning.
        reduction: "mean" (over the samples that are solved), "sum" or "none".

    Attributes:
        last: a ``LastCall`` with the decisions and statistics of the last call.
        samples, reused: totals since construction.
        seconds: time spent so far on solving ("solve") and on projecting ("gradient"). Where the compiled method does
            both in one pass, all of it counts as "solve".
        profile: False; set to True to have that pass told apart, into "solve", "verify" and "project". That takes a
            second look at every batch, so that it is for benchmarks.

    Example:
        >>> import torch, pear
        >>> loss = pear.PEARLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), smoothing=1.0, injection=0.0)
        >>> predicted = torch.tensor([[0.2, 0.4]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[0.4, 0.2]]))
        >>> value.backward()
        >>> round(value.item(), 6), predicted.grad
        (0.04, tensor([[-0.2000,  0.2000]]))
    """

    def __init__(
        self,
        problem: Problem,
        smoothing: float | Literal["auto"] = 0.1,
        injection: float = 0.1,
        solver: str = "auto",
        on_failure: OnFailure = "raise",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_on_failure(on_failure)
        if reduction not in ("mean", "sum", "none"):
            raise ProblemError(f"reduction must be 'mean', 'sum' or 'none'; got {reduction!r}")
        check_injection(injection)
        check_smoothing(smoothing)
        check_solver(solver)
        self.problem = problem.relaxed()
        self.smoothing = smoothing
        self.injection = float(injection)
        self.solver = solver
        self.on_failure = on_failure
        self.reduction = reduction
        self.last: LastCall | None = None
        self.samples = self.reused = 0
        self.seconds = {"solve": 0.0, "gradient": 0.0}
        self.profile = False
        self._predicted, self._true = Memory(), Memory()
        self.remembered = Remembered(self.problem, solver)

    def forward(
        self,
        predicted: Tensor,
        true: Any,
        keys: Tensor | Iterable[Hashable] | None = None,
        Q: Tensor | None = None,
        true_Q: Tensor | None = None,
    ) -> Tensor:
        """Regret of a batch.

        Args:
            predicted: (B, n) predicted costs ĉ.
            true: (B, n) true costs c.
            keys: B sample ids. The active set of a sample is remembered under its id and checked before any solver is
                called; the true problem is solved once. Where the problem has fields per sample, ids are its rows.
            Q: (n, n) or (B, n, n) predicted curvature.
            true_Q: the curvature of the bill; the problem's own where it is left out.

        Returns:
            A scalar, or (B,) with reduction "none", in the dtype of ``predicted``.
        """
        predicted, true = as_batch(predicted), as_batch(true)
        check_pair(predicted, true)
        self.smoothing = lam = choose_smoothing(self.problem, true, self.smoothing)
        ids = None if keys is None else as_keys(keys, len(predicted))
        check_rows(self.problem, ids)
        true_Q = true_curvature(self.problem, Q, true_Q, len(predicted))
        wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (predicted, Q))
        batch = _Batch(predicted.detach(), true.detach(), ids, None, Q, true_Q, lam, wanted)
        parts, good = self._compiled(batch) or (self._general(batch), None)
        if good is None:
            fail(parts.status, self.on_failure, "the predicted costs")
            fail(torch.where(parts.status == 0, parts.true_status, 0), self.on_failure, "the true costs")
            good = int(((parts.status == 0) & (parts.true_status == 0)).sum())
        self._record(batch, parts)
        shares = {"none": 0, "sum": 1, "mean": max(good, 1)}[self.reduction]
        value: Tensor = _Regret.apply(predicted, true, Q, true_Q, parts, shares, self.problem.sign)
        return value

    def _compiled(self, batch: _Batch) -> tuple[Regrets, int | None] | None:
        """All in one pass, and what that leaves in the general way; None where the pass is not to be had.

        Returns:
            The regrets, and how many of them are good, where that is known without looking.
        """
        began = time.perf_counter()
        b = batch
        found = self.remembered.regret(b.predicted, b.true, b.smoothing, self.injection, b.ids, b.Q, b.true_Q)
        self._count(time.perf_counter() - began, batch)
        if found is None:
            return None
        parts, left = found
        if len(left) == 0:
            return parts, len(parts.value)
        if len(left) == len(batch.predicted):
            return None
        try:
            parts.put(left, self._general(batch.rows(left)))
        except NotUniqueError:
            return None  # the general way for the whole batch knows the samples' own numbers
        return parts, None

    def _count(self, seconds: float, batch: _Batch) -> None:
        """Book the time of the one pass: all under "solve", or, to order, in parts that are timed afterwards."""
        fields = {} if batch.Q is None else {"Q": batch.Q}
        passes = None
        if self.profile:
            passes = self.remembered.time_passes(batch.predicted, batch.smoothing, batch.ids, fields)
        for name, part in zip(("verify", "project"), passes or (), strict=False):
            self.seconds[name] = self.seconds.get(name, 0.0) + min(part, seconds)
            seconds -= min(part, seconds)
        self.seconds["solve"] += seconds

    def _general(self, batch: _Batch) -> Regrets:
        """Step by step, for every device, solver and fate."""
        predicted, true, ids, Q, lam = batch.predicted, batch.true, batch.ids, batch.Q, batch.smoothing
        problem = batch.rows_of(self.problem)
        true_Q = true_curvature(problem, Q, batch.true_Q, len(predicted))
        began = time.perf_counter()
        solved = self._solve(problem, predicted, lam, ids, Q)
        ideal, ideal_status = self._solve_true(problem, true, lam, ids, true_Q)
        self.seconds["solve"] += time.perf_counter() - began
        good = (solved.solved & (ideal_status == Status.SOLVED))[:, None]
        bill = problem.canonical(true, lam, Q=true_Q)
        value = torch.where(good[:, 0], regret(problem, solved, ideal, bill), 0.0)
        began = time.perf_counter()
        exact = injected = torch.zeros_like(solved.x)
        if batch.wanted:
            error = torch.where(good, gradient_error(solved, predicted, true, Q, true_Q), 0.0)
            exact = torch.where(good, project(solved, error), 0.0)
            injected = torch.where(good, inject_normal(solved.qp, error, exact, self.injection), 0.0)
        self.seconds["gradient"] += time.perf_counter() - began
        x, best = torch.where(good, solved.x, 0.0), torch.where(good, ideal.x, 0.0)
        fate = (solved.status, ideal_status, solved.kkt_residual, solved.reused, solved.repaired)
        return Regrets(value, exact, injected, x, best, *fate)

    def _solve(
        self, problem: Problem, cost: Tensor, lam: float, ids: list[Hashable] | None, Q: Tensor | None
    ) -> Verified:
        """The predicted problem, from the remembered active sets where there are any."""
        start = None if ids is None else self._predicted.recall(ids)
        solved = solve_verified(problem, cost, lam, self.solver, start, Q=Q)
        if ids is not None:
            self._predicted.store(ids, solved.as_start())
        return solved

    def _solve_true(
        self, problem: Problem, cost: Tensor, lam: float, ids: list[Hashable] | None, Q: Any
    ) -> tuple[Start, Tensor]:
        """The true problem: kept as it is where a sample came with this very cost before."""
        stamp = torch.cat([cost.double(), cost.new_full((len(cost), 1), lam if Q is None else math.nan).double()], 1)
        start = None if ids is None else self._true.recall(ids)
        if ids is not None and start is not None and self._true.stamped(ids, stamp):
            return start, torch.zeros(len(cost), dtype=torch.int8, device=cost.device)
        ideal = solve_verified(problem, cost, lam, self.solver, start, Q=Q)
        if ids is not None:
            self._true.store(ids, ideal.as_start(), stamp)
        return ideal.as_start(), ideal.status

    def _verify(self, batch: _Batch) -> Verified:
        problem = batch.rows_of(self.problem)
        return solve_verified(problem, batch.predicted, batch.smoothing, self.solver, Q=batch.Q)

    def count(self, samples: int, reused: int) -> None:
        """Add samples that were trained on outside ``forward``, and how many of them kept their working set."""
        self.samples += samples
        self.reused += reused

    def record(self, predicted: Tensor, true: Tensor, keys: Tensor, parts: Regrets) -> None:
        """Count a batch that was trained on outside ``forward``, and keep it as ``last``.

        Args:
            predicted, true: (B, n) costs; keys: (B,) ids; parts: what came of them.
        """
        ids = as_keys(keys, len(predicted))
        self._record(_Batch(predicted, true, ids, None, None, None, float(self.smoothing), True), parts)

    def _record(self, batch: _Batch, parts: Regrets) -> None:
        reused, samples = int(parts.reused.sum()), len(parts.value)
        self.count(samples, reused)
        self.last = LastCall(
            decision=parts.x,
            regret=parts.value,
            reuse_rate=reused / max(samples, 1),
            kkt_residual=parts.kkt_residual,
            _parts=parts,
            _wanted=batch.wanted,
            _verify=lambda: self._verify(batch),
        )


class _Regret(torch.autograd.Function):
    """Puts gradients that are known in closed form behind a value.

    ``shares`` is what the sum over the samples is divided by, 0 where they are to stay apart.
    """

    @staticmethod
    def forward(
        ctx: Any,
        predicted: Tensor,
        true: Tensor,
        Q: Tensor | None,
        true_Q: Tensor | None,
        parts: Regrets,
        shares: int,
        sign: int,
    ) -> Tensor:
        ctx.parts, ctx.shares, ctx.sign = parts, shares, sign
        ctx.inputs = [None if t is None else (t.dtype, t.dim()) for t in (predicted, true, Q, true_Q)]
        value = parts.value.clone() if shares == 0 else parts.value.sum() / shares
        return value.to(predicted.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        parts, z, best = ctx.parts, ctx.parts.x, ctx.parts.best
        u = up.double()[:, None] if ctx.shares == 0 else up.double() / ctx.shares
        grads: list[Tensor | None] = [None] * 4
        if ctx.needs_input_grad[0]:
            grads[0] = u * parts.injected
        if ctx.needs_input_grad[1]:
            grads[1] = u * ctx.sign * (z - best)
        if ctx.needs_input_grad[2]:
            half = 0.5 * (u * parts.exact)[:, :, None] * z[:, None, :]
            grads[2] = half + half.mT
        if ctx.needs_input_grad[3]:
            outer = z[:, :, None] * z[:, None, :] - best[:, :, None] * best[:, None, :]
            grads[3] = 0.5 * ctx.sign * (u[..., None] * outer)
        for i, kind in enumerate(ctx.inputs):
            grad = grads[i]
            if grad is not None and kind is not None:
                shared = i >= 2 and kind[1] == 2
                grads[i] = (grad.sum(0) if shared else grad).to(kind[0])
        return (*grads, None, None, None)
