"""Verified solutions of large sparse programs, one sample at a time: a hint, then the reduced system, as everywhere.

The conditions, tolerances and the final active set are those of the dense path (``geometry/scale.py``, ``active.py``,
``residual.py``). What differs is that systems are factored on their non-zeros, and that the built-in interior point
stays at hand: where the exchange of constraints does not settle, it goes on from where it was, more accurately.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pear.decisions.failures import fate
from pear.decisions.pipeline import finite
from pear.optimality.active import final, guess
from pear.optimality.point import ActiveSet, Duals, Status
from pear.optimality.residual import gradient, kkt_residual
from pear.optimality.scale import scaled
from pear.problem.canonical import matvec
from pear.problem.sparse import SparseProgram
from pear.sensitivity.curvature import least_curvature
from pear.sensitivity.sparse_reduced import SparseReduced
from pear.sensitivity.sparse_verified import SparseVerified, in_threads, program_of, sample_of
from pear.sensitivity.verified import Start
from pear.solvers.interior_point.sparse import Interior
from pear.solvers.registry import COMPILED, Backend, available, get, kind_of

logger = logging.getLogger("pear")

_ACCURACIES = (1e-8, 1e-10, 1e-12)
_TOLERANCES = (1e-6, 1e-9)
_EXCHANGES = 20
_LAST_EXCHANGES = 40
_PATIENCE = 3
_TOLERANCE = 1e-10  # as in polish.py
_SIGN = 1e-12
_SHARP = 1e-13
_OPTIMAL = 1e-9  # largest KKT residual of anything that is called solved
_KEPT = 2**26  # numbers in the factors that a batch keeps for its gradient


@dataclass
class Exact:
    """A verified point of one sample, and the system that it was computed with."""

    x: Tensor
    duals: Duals
    working: ActiveSet
    system: SparseReduced
    exchanges: int


def solve_sparse(
    qp: SparseProgram, backend: Backend, start: Start | None = None, builtin_first: bool = False
) -> SparseVerified:
    """Solve a batch of sparse continuous programs; every returned solution satisfies its optimality conditions.

    Args:
        qp: the programs.
        backend: the solver that gives hints; "pear" is the built-in sparse interior point.
        start: remembered solutions; where one still passes the check, no solver is called.
        builtin_first: ask the built-in solver before ``backend``; of a linear program with several solutions the
            backend still finds a vertex.
    """
    B = qp.batch
    solvers = _solvers(qp, backend, builtin_first)
    refused = torch.where(finite(qp), int(Status.SOLVED), int(Status.NOT_FINITE)).to(torch.int8)
    if least_curvature(qp) < 0:
        refused[refused == int(Status.SOLVED)] = int(Status.NOT_CONVEX)
    result = _blank(qp, refused)

    def one(i: int) -> None:
        if result.status[i] != int(Status.SOLVED):
            return
        known = start is not None and bool(start.known[i])
        before = start[torch.tensor([i])] if start is not None and known else None
        found, reused, status = _solve_one(sample_of(qp, i), solvers, before)
        result.status[i] = int(status)
        if found is not None:
            _put(result, i, found, reused)

    in_threads(one, B)
    return _finish(result)


# -- one sample ------------------------------------------------------------------------------------------------------


def _solve_one(qp: SparseProgram, solvers: list[Backend], start: Start | None) -> tuple[Exact | None, bool, Status]:
    """The verified solution or None, whether a remembered set passed unchanged, and the fate of the sample."""
    if start is not None:
        found = _polish(qp, start.x, start.duals, start.active, _EXCHANGES)
        if found is not None:
            reused, found.exchanges = found.exchanges == 0, 0
            return found, reused, Status.SOLVED
    status, first, between = Status.INACCURATE, solvers[0], None
    for solver in solvers if bool((qp.lb <= qp.ub).all()) else ():
        if solver is not first and between is None:
            logger.warning("%s left a sample unverified; asking %s", first.name, solver.name)
        for x, duals, exchanges in _interior_hints(qp, start) if solver.name == "pear" else _hints(qp, solver):
            found = _polish(qp, x, duals, guess(qp, x, duals), exchanges)
            if found is None:
                continue
            if not (solver is first and _seeks_vertex(qp, solvers)) or found.system.is_curved():
                return found, False, Status.SOLVED
            between = found  # exact, and between several vertices that are as good: a simplex method picks one
            break
        if between is not None and solver is not first:
            break
        # a sample without a solution would go through all of them, and a linear program settles that
        status = fate(qp) if solver is first and between is None else status
        if status != Status.INACCURATE:
            break
    if between is not None:
        return between, False, Status.SOLVED
    return None, False, status if status != Status.INACCURATE else fate(qp)


def _seeks_vertex(qp: SparseProgram, solvers: list[Backend]) -> bool:
    """A linear program whose second solver is a simplex method."""
    return qp.is_linear and len(solvers) > 1 and "milp" in solvers[1].kinds


def _solvers(qp: SparseProgram, backend: Backend, builtin_first: bool) -> list[Backend]:
    """The solver asked for and the built-in one, then whoever else takes sparse matrices."""
    named = [backend] if backend.name == "pear" else [backend, get("pear")]
    named = named[::-1] if builtin_first else named
    others = [b for b in available() if b not in named and b.name not in ("daqp", COMPILED) and kind_of(qp) in b.kinds]
    return named + others


def _hints(qp: SparseProgram, solver: Backend) -> Iterator[tuple[Tensor, Duals, int]]:
    for tol in _TOLERANCES:
        hint = solver.solve(qp, tol)
        if bool(hint.x.isfinite().all()):
            yield hint.x, hint.duals.map(torch.nan_to_num), _LAST_EXCHANGES


def _interior_hints(qp: SparseProgram, warm: Start | None) -> Iterator[tuple[Tensor, Duals, int]]:
    """The built-in interior point, ever more accurate: from what is remembered, then from scratch."""
    for start in ((warm.x, warm.duals), None) if warm is not None else (None,):
        method = Interior.of(qp, start)
        if method is None:
            return
        for tol in _ACCURACIES:
            reached = method.run(tol)
            yield *method.point, _EXCHANGES if reached else _LAST_EXCHANGES
            if not reached:
                break


def _polish(qp: SparseProgram, x: Tensor, duals: Duals, active: ActiveSet, max_exchanges: int) -> Exact | None:
    """Solve exactly on the working set and exchange wrong constraints until none is left; None where that fails."""
    working, fewest, patience = active, None, _PATIENCE
    for exchanges in range(max_exchanges + 1):
        system = SparseReduced(qp, working.fixed[0].numpy(), working.rows[0].numpy())
        if not system.usable:
            return None
        # from the hint's multipliers each time: on a contradictory set they grow without limit, and would stay large
        point, multipliers = _held(qp, x, duals, working)
        for _ in range(3):
            point, multipliers = _step(qp, system, point, multipliers, working)
            wrong, unbalanced = _judge(qp, point, multipliers, working)
            count = int(wrong.count())
            if count or unbalanced <= _SHARP:
                break
        if count == 0:
            good = unbalanced <= _TOLERANCE and float(kkt_residual(qp, point, multipliers)) <= _OPTIMAL
            return Exact(point, multipliers, working, system, exchanges) if good else None
        if fewest is not None and count >= fewest:
            patience -= 1
            if patience < 0:
                return None
        fewest = count if fewest is None else min(fewest, count)
        working = _flip(qp, working, wrong, point)
        x = point
    return None


def _held(qp: SparseProgram, x: Tensor, duals: Duals, working: ActiveSet) -> tuple[Tensor, Duals]:
    x = torch.where(working.lower, qp.lb, torch.where(working.upper, qp.ub, x)).nan_to_num()
    inequality = torch.where(working.rows, duals.inequality, 0.0)
    return x, Duals(duals.equality.nan_to_num(), inequality.nan_to_num(), torch.zeros_like(x))


def _step(
    qp: SparseProgram, system: SparseReduced, x: Tensor, duals: Duals, working: ActiveSet
) -> tuple[Tensor, Duals]:
    """Add a solution of the reduced system, and read the bounds' multipliers off the gradient."""
    slope = gradient(qp, x, duals)
    rows = torch.where(working.rows, qp.h - matvec(qp.G, x), 0.0)
    rest = torch.cat([qp.b - matvec(qp.A, x), rows], 1)
    dx, dv, _ = system.solve(-slope[0].numpy(), rest[0].numpy())
    x = x + torch.from_numpy(dx)
    change = torch.from_numpy(dv)[None]
    equality, inequality = duals.equality + change[:, : qp.p], duals.inequality + change[:, qp.p :]
    slope = gradient(qp, x, Duals(equality, inequality, x))
    return x, Duals(equality, inequality, torch.where(working.fixed, -slope, 0.0))


def _judge(qp: SparseProgram, x: Tensor, duals: Duals, working: ActiveSet) -> tuple[ActiveSet, float]:
    """Which constraints are on the wrong side, and how far stationarity and held constraints are from zero."""
    s = scaled(qp, x, duals)
    free = qp.lb != qp.ub
    wrong = ActiveSet(
        torch.where(working.rows, s.push_rows + _SIGN, s.rows + _TOLERANCE) < 0,
        (torch.where(working.lower, s.push_lower + _SIGN, s.lower + _TOLERANCE) < 0) & free,
        (torch.where(working.upper, s.push_upper + _SIGN, s.upper + _TOLERANCE) < 0) & free,
    )
    held = torch.where(working.rows, s.rows, 0.0)
    parts = (s.stationarity, s.equality, held)
    return wrong, max(float(part.abs().max()) if part.numel() else 0.0 for part in parts)


def _flip(qp: SparseProgram, working: ActiveSet, wrong: ActiveSet, x: Tensor) -> ActiveSet:
    """What was in goes out, what was out comes in; a variable is never held at both bounds."""
    lower, upper = working.lower ^ wrong.lower, working.upper ^ wrong.upper
    both = lower & upper
    nearer = (x - qp.lb).abs() <= (x - qp.ub).abs()
    return ActiveSet(working.rows ^ wrong.rows, lower & ~(both & ~nearer), upper & ~(both & nearer))


# -- the batch -------------------------------------------------------------------------------------------------------


def _blank(qp: SparseProgram, status: Tensor) -> SparseVerified:
    B, n, p, m = qp.batch, qp.n, qp.p, qp.m

    def none() -> ActiveSet:
        rows, lower, upper = (torch.zeros(B, k, dtype=torch.bool) for k in (m, n, n))
        return ActiveSet(rows, lower, upper)

    flags = torch.zeros(B, dtype=torch.bool)
    return SparseVerified(
        qp=qp,
        x=qp.c.new_zeros(B, n),
        duals=Duals(qp.c.new_zeros(B, p), qp.c.new_zeros(B, m), qp.c.new_zeros(B, n)),
        active=none(),
        weak=none(),
        status=status,
        kkt_residual=qp.c.new_full((B,), torch.nan),
        repaired=flags,
        reused=flags.clone(),
        working=none(),
        systems=[None] * B,
    )


def _put(result: SparseVerified, i: int, found: Exact, reused: bool) -> None:
    """Write one sample: its point, its tight constraints and how it was found."""
    at = torch.tensor([i])
    qp = sample_of(program_of(result), i)
    active, weak = final(qp, found.x, found.duals, found.working)
    result.x[at] = found.x
    for target, value in (
        (result.duals, found.duals),
        (result.working, found.working),
        (result.active, active),
        (result.weak, weak),
    ):
        target.put(at, value)
    result.kkt_residual[at] = kkt_residual(qp, found.x, found.duals)
    result.repaired[i], result.reused[i] = found.exchanges > 0, reused
    room = _KEPT - sum(kept.fill for kept in result.systems if kept is not None)
    if found.system.fill <= room and bool(found.working.same(active).all()):
        result.systems[i] = found.system


def _finish(result: SparseVerified) -> SparseVerified:
    """Failed samples may hold anything: nothing of theirs may reach the others, so their numbers are made finite."""
    failed = ~result.solved
    if bool(failed.any()):
        qp = result.qp
        data = {name: _clean(getattr(qp, name), failed) for name in ("c", "b", "h", "lb", "ub")}
        result.qp = _replaced(qp, data)
    return result


def _clean(value: Tensor, failed: Tensor) -> Tensor:
    alien = value.isnan()
    return torch.where(failed[:, None] & alien, 0.0, value) if bool(alien.any()) else value


def _replaced(qp: Any, data: dict[str, Tensor]) -> Any:
    data["c"] = torch.where(data["c"].isfinite(), data["c"], 0.0)
    return replace(qp, **data)
