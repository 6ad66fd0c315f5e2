"""From a batch of programs to verified solutions: remembered sets first, then the solver, then whoever can help."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.decisions.failures import diagnose
from pear.decisions.repair import optimal, polish
from pear.optimality.active import final, guess
from pear.optimality.point import ActiveSet, Duals, Status
from pear.optimality.residual import gradient, kkt_residual
from pear.optimality.rule import OPTIMAL
from pear.optimality.scale import Scaled, scaled
from pear.problem.canonical import QuadraticProgram
from pear.sensitivity.curvature import is_convex
from pear.sensitivity.reduced import ReducedKKT
from pear.sensitivity.verified import CompiledPart, GPUPart, Start, Verified
from pear.solvers.active_set import batch as compiled
from pear.solvers.active_set.gpu import batch as gpu
from pear.solvers.registry import COMPILED, ON_GPU, Backend, available, kind_of

logger = logging.getLogger("pear")

_ROUNDS = ((1e-6, 8), (1e-10, 60))
"""Accuracy asked of the solver, and how many exchanges it is trusted for, in the first and second round."""

_FROM_MEMORY = 8  # exchanges that are cheaper than a solver
_WILD = 1e3  # a hint this far from optimal says nothing by its multipliers


def solve_exactly(
    qp: QuadraticProgram, backend: Backend, start: Start | None = None, check_convexity: bool = False
) -> Verified:
    """Solve a batch of continuous programs; every returned solution satisfies its optimality conditions.

    Args:
        qp: the programs (B of them, 0 allowed).
        backend: the solver that gives hints.
        start: remembered solutions; where one still passes the check, no solver is called.
        check_convexity: give samples with an indefinite H the status NOT_CONVEX, instead of trusting them.
    """
    run = _Run(qp, check_convexity)
    if backend.name == COMPILED:
        run.attempt_compiled()
    elif backend.name == ON_GPU and gpu.supports(qp):
        run.attempt_on_gpu()
    elif start is not None:
        run.attempt(run.todo() & start.known, start.x, start.duals, start.active, _FROM_MEMORY)
        run.reused = run.verified & (run.exchanges == 0)
        run.exchanges.zero_()
    for solver, tol, exchanges in _rounds(backend, qp):
        todo = run.todo()
        if not bool(todo.any()):
            break
        if solver.name != backend.name and run.tried:
            logger.warning("%s left %d samples unverified; asking %s", backend.name, int(todo.sum()), solver.name)
        run.tried = True
        hint = solver.solve(qp[todo.nonzero()[:, 0]], tol)
        run.attempt_hint(todo, hint.x, hint.duals, exchanges)
    return run.finish()


def _rounds(backend: Backend, qp: QuadraticProgram) -> Iterator[tuple[Backend, float, int]]:
    """Whom to ask, how accurately, and how many exchanges to try: the solver twice, then whatever else is installed.

    A hint is worth what its verified solution is worth, so that in the last resort it may come from anywhere.
    """
    if backend.name != COMPILED:  # whose answers are verified already: what it left, it cannot do better
        for tol, exchanges in _ROUNDS:
            yield backend, tol, exchanges
    for other in available():
        if other.name not in (backend.name, COMPILED) and kind_of(qp) in other.kinds:
            yield other, *_ROUNDS[-1]


class _Run:
    """The state of one batch on its way to being verified."""

    def __init__(self, qp: QuadraticProgram, check_convexity: bool) -> None:
        B, n, p, m = qp.batch, qp.n, qp.p, qp.m
        self.qp = qp
        self.x = qp.c.new_zeros(B, n)
        self.duals = Duals(qp.c.new_zeros(B, p), qp.c.new_zeros(B, m), qp.c.new_zeros(B, n))
        self.active = no_constraints(B, n, m, qp.c.device)
        self.refused = torch.where(finite(qp), 0, int(Status.NOT_FINITE)).to(torch.int8)
        if check_convexity:
            self.refused[(self.refused == 0) & ~is_convex(qp.H)] = int(Status.NOT_CONVEX)
        self.verified = torch.zeros(B, dtype=torch.bool, device=qp.c.device)
        self.reused = self.verified.clone()
        self.exchanges = torch.zeros(B, dtype=torch.long, device=qp.c.device)
        self.reduced: ReducedKKT | None = None
        self.compiled: CompiledPart | GPUPart | None = None
        self.measured: Scaled | None = None
        self.tried = True  # whether the solver that was asked for had its chance

    def todo(self) -> Tensor:
        return (self.refused == 0) & ~self.verified

    def attempt_compiled(self) -> None:
        """Let the compiled method do what it can; its solutions are verified by the same rules."""
        qp, where = self.qp, self.todo()
        self.tried = compiled.supports(qp.n, qp.p + qp.m)
        if not self.tried or not bool(where.any()):
            return
        index = np.arange(qp.batch)
        states = compiled.new_states(qp.batch, qp.n, qp.p + qp.m)
        programs = compiled.programs_of(qp)
        cost, home = np.ascontiguousarray(qp.c.numpy()), compiled.default_start(programs)
        found = compiled.solve(programs, cost, index, states, index, home)
        done = (where & torch.from_numpy(found.code == compiled.SOLVED)).nonzero()[:, 0]
        self.x[done] = torch.from_numpy(found.x)[done]
        self.duals.put(done, duals_of(found)[done])
        self.active.put(done, active_of(found)[done])
        self.verified[done] = True
        self.compiled = CompiledPart(self.verified.clone(), programs, states)

    def attempt_on_gpu(self) -> None:
        """One kernel for the batch, on its device; what it finds is judged like any hint."""
        qp, where = self.qp, self.todo()
        plan = gpu.prepare(qp) if qp.batch else None
        if plan is None:
            return
        found = plan.solve(qp)
        rows = torch.where(found.rows, found.y[:, qp.p :], 0.0)
        duals = Duals(found.y[:, : qp.p], rows, torch.zeros_like(found.x))
        active = ActiveSet(found.rows, found.lower, found.upper)
        duals = replace(duals, bound=torch.where(active.fixed, -gradient(qp, found.x, duals), 0.0))
        measured = scaled(qp, found.x, duals)
        good = where & found.ended & optimal(qp, measured, active)
        keep = good[:, None]
        self.x = torch.where(keep, found.x, self.x)
        self.duals = Duals(*(torch.where(keep, v, 0.0) for v in (duals.equality, duals.inequality, duals.bound)))
        self.active = _masked(active, good)
        self.verified = self.verified | good
        self.compiled = GPUPart(good, found, active)
        self.measured = measured if bool(good.all()) else None

    def attempt_hint(self, where: Tensor, x: Tensor, duals: Duals, max_exchanges: int) -> None:
        """Polish the solver's points for the samples in ``where``; x and duals hold those rows only."""
        index = where.nonzero()[:, 0]
        sub = self.qp[index]
        x, duals = x.nan_to_num(), duals.map(torch.nan_to_num)
        # multipliers of a solver that ran away are worse than none
        wild = kkt_residual(sub, x, duals) > _WILD
        duals = duals.map(lambda value: torch.where(wild[:, None], 0.0, value))
        self._polish(index, sub, x, duals, guess(sub, x, duals), max_exchanges)

    def attempt(self, where: Tensor, x: Tensor, duals: Duals, active: ActiveSet, max_exchanges: int) -> None:
        """Polish remembered points; the arguments hold every row of the batch."""
        index = where.nonzero()[:, 0]
        self._polish(index, self.qp[index], x[index], duals[index], active[index], max_exchanges)

    def _polish(
        self, index: Tensor, sub: QuadraticProgram, x: Tensor, duals: Duals, active: ActiveSet, max_exchanges: int
    ) -> None:
        if not len(index):
            return
        result = polish(sub, x, duals, active, max_exchanges)
        # huge multipliers that cancel each other make every tolerance relative to them meaningless
        good = result.verified & (kkt_residual(sub, result.x, result.duals) <= OPTIMAL)
        done = index[good]
        self.x[done] = result.x[good]
        self.duals.put(done, result.duals[good])
        self.active.put(done, result.active[good])
        self.verified[done] = True
        self.exchanges[index] += result.exchanges + (~good)
        self.reduced = result.reduced if len(done) == self.qp.batch else None

    def finish(self) -> Verified:
        """Final active sets, residuals and the fate of what is left."""
        qp, B = self.qp, self.qp.batch
        status = torch.full((B,), int(Status.SOLVED), dtype=torch.int8, device=qp.c.device)
        failed = ~self.verified
        if bool(failed.any()):
            status = self.refused.clone()
            rest = self.todo()
            if bool(rest.any()):
                status[rest] = diagnose(qp[rest.nonzero()[:, 0]])
            qp = self.qp = _without(qp, failed)
        working = self.active
        active, weak = (_masked(s, self.verified) for s in final(qp, self.x, self.duals, working, self.measured))
        part = self.compiled.narrowed(active) if isinstance(self.compiled, GPUPart) else self.compiled
        residual = kkt_residual(qp, self.x, self.duals) if B else qp.c.new_zeros(0)
        residual = torch.where(failed, torch.nan, residual)
        reduced = self.reduced if self.reduced is not None and bool(working.same(active).all()) else None
        repaired = (self.exchanges > 0) & self.verified
        fate = (status, residual, repaired, self.reused)
        return Verified(qp, self.x, self.duals, active, weak, *fate, working, part, reduced)


def duals_of(found: compiled.Outcome) -> Duals:
    """The multipliers that the compiled method found."""
    return Duals(*(torch.from_numpy(v) for v in (found.equality, found.inequality, found.bound)))


def active_of(found: compiled.Outcome) -> ActiveSet:
    """The constraints that are tight at the solutions of the compiled method."""
    return ActiveSet(*(torch.from_numpy(v) for v in (found.rows, found.lower, found.upper)))


def finite(qp: QuadraticProgram) -> Tensor:
    """(B,) bool: cost and data are numbers; only bounds and h may be infinite."""
    good = qp.c.isfinite().all(1)
    for value in (qp.H, qp.A, qp.b, qp.G):
        good = good & value.isfinite().flatten(1).all(1)
    for value in (qp.h, qp.lb, qp.ub):
        good = good & ~value.isnan().any(1)
    return good


def _without(qp: QuadraticProgram, failed: Tensor) -> QuadraticProgram:
    """The same batch with zeros for whatever is not a number in a failed sample, so that it reaches nobody else."""

    def clean(value: Tensor, infinite: bool) -> Tensor:
        alien = value.isnan() if infinite else ~value.isfinite()
        where = failed.view(-1, *[1] * (value.dim() - 1))
        return torch.where(where & alien, torch.zeros_like(value), value) if bool(alien.any()) else value

    data: dict[str, Any] = {name: clean(getattr(qp, name), False) for name in ("H", "c", "A", "b", "G")}
    data |= {name: clean(getattr(qp, name), True) for name in ("h", "lb", "ub")}
    return replace(qp, **data)


def no_constraints(B: int, n: int, m: int, device: torch.device) -> ActiveSet:
    """The active set in which nothing is active."""
    rows, bounds = (torch.zeros(B, k, dtype=torch.bool, device=device) for k in (m, n))
    return ActiveSet(rows, bounds, bounds.clone())


def _masked(active: ActiveSet, where: Tensor) -> ActiveSet:
    keep = where[:, None]
    return ActiveSet(active.rows & keep, active.lower & keep, active.upper & keep)
