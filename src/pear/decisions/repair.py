"""Verify, repair, polish: from a hint to a solution that is exact to rounding.

For a guessed active set the optimality conditions are one reduced linear system. Its solution is optimal if no inactive
constraint is violated and no multiplier has the wrong sign; then it does not matter how inexact the hint was. If not,
constraints are exchanged (block principal pivoting): violated ones enter and wrongly signed ones leave, all at once as
long as their number falls, one at a time (the last in order) when it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.point import ActiveSet, Duals
from pear.optimality.residual import gradient
from pear.optimality.scale import Scaled, scaled
from pear.problem.canonical import QuadraticProgram, matvec
from pear.sensitivity.reduced import ReducedKKT

TOLERANCE = 1e-10
"""Scaled violation up to which an exact solution may differ from feasible and stationary."""

_SIGN = 1e-12  # a multiplier that is negative beyond rounding leaves; stricter than TOLERANCE, so that it stays out

_Solve = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]

_SHARP = 1e-13
_PATIENCE = 3
_ROUNDOFF = 1e-12


@dataclass(frozen=True)
class Polished:
    """The outcome of ``polish``.

    Attributes:
        x, duals: the last points and multipliers, exact where verified.
        active: the working sets they belong to.
        verified: (B,) bool.
        exchanges: (B,) how often the working set was changed.
        reduced: the factorisation, if one pass verified the whole batch; else None.
    """

    x: Tensor
    duals: Duals
    active: ActiveSet
    verified: Tensor
    exchanges: Tensor
    reduced: ReducedKKT | None


def polish(qp: QuadraticProgram, x: Tensor, duals: Duals, active: ActiveSet, max_exchanges: int) -> Polished:
    """Solve exactly on the guessed active sets and exchange constraints until every condition holds.

    Args:
        qp: the programs.
        x, duals: (B, n) a point and its multipliers near the solution; where multipliers are not unique, those nearest
            to these are found.
        active: guessed active sets.
        max_exchanges: how often a sample's set may be changed.
    """
    start, x, duals, active = duals, x.clone(), duals.map(torch.clone), active.map(torch.clone)
    exchanges = torch.zeros(qp.batch, dtype=torch.long, device=x.device)
    verified = torch.zeros(qp.batch, dtype=torch.bool, device=x.device)
    fewest = torch.full_like(exchanges, torch.iinfo(torch.long).max)
    patience = torch.full_like(exchanges, _PATIENCE)
    todo = torch.arange(qp.batch, device=x.device)
    reduced: ReducedKKT | None = None
    for attempt in range(max_exchanges + 1):
        sub, working = (qp, active) if attempt == 0 else (qp[todo], active[todo])
        kkt = ReducedKKT(sub, working)
        # from the hint's multipliers each time: on a contradictory set they grow without limit, and would stay large
        point, multipliers, wrong, good = _solve_on(sub, kkt, x[todo], start[todo], working)
        x[todo] = point
        duals.put(todo, multipliers)
        verified[todo] = good
        if attempt == 0 and bool(good.all()):
            reduced = kkt
        bad = ~good & wrong.count().gt(0)
        todo, wrong, working = todo[bad], wrong[bad], working[bad]
        if attempt == max_exchanges or not len(todo):
            break
        exchange, fewest[todo], patience[todo] = _choose(wrong, fewest[todo], patience[todo])
        active.put(todo, _flip(sub[bad], working, exchange, x[todo]))
        exchanges[todo] += 1
    return Polished(x, duals, active, verified, exchanges, reduced)


def _solve_on(
    qp: QuadraticProgram, kkt: ReducedKKT, x: Tensor, duals: Duals, active: ActiveSet
) -> tuple[Tensor, Duals, ActiveSet, Tensor]:
    """Solve with the working set held; returns point, multipliers, the wrong constraints, and where all is well."""
    x = torch.where(active.lower, qp.lb, torch.where(active.upper, qp.ub, x)).nan_to_num()
    inequality = torch.where(active.rows, duals.inequality, torch.zeros_like(duals.inequality)).nan_to_num()
    duals = Duals(duals.equality.nan_to_num(), inequality, torch.zeros_like(x))
    everywhere = torch.ones(qp.batch, dtype=torch.bool, device=x.device)
    x, duals = _step(qp, active, x, duals, kkt.solve, everywhere)
    wrong, unbalanced = _judge(qp, x, duals, active)
    # nothing to exchange, and not yet exact: refine once more, then look closer
    for solve in (kkt.solve, kkt.solve_carefully):
        stuck = (wrong.count() == 0) & (unbalanced > _SHARP)
        if not bool(stuck.any()):
            return x, duals, wrong, (wrong.count() == 0)
        x, duals = _step(qp, active, x, duals, solve, stuck)
        wrong, unbalanced = _judge(qp, x, duals, active)
    good = (wrong.count() == 0) & (unbalanced <= TOLERANCE)
    # still nothing to exchange: the objective falls along a direction in which it is flat
    downhill = kkt.flat(-gradient(qp, x, duals))
    wrong, length = _block(qp, x, downhill, active, wrong, ~good & (wrong.count() == 0))
    return x + length * downhill, duals, wrong, good


def _rest(qp: QuadraticProgram, x: Tensor, duals: Duals, active: ActiveSet) -> tuple[Tensor, Tensor, Tensor]:
    """What the conditions of the working set lack at this point: the right-hand side of the reduced system."""
    rows = torch.where(active.rows, qp.h - matvec(qp.G, x), torch.zeros_like(duals.inequality))
    return -gradient(qp, x, duals), qp.b - matvec(qp.A, x), rows


def _block(
    qp: QuadraticProgram, x: Tensor, direction: Tensor, active: ActiveSet, wrong: ActiveSet, where: Tensor
) -> tuple[ActiveSet, Tensor]:
    """Downhill along a flat direction until the first constraint is met; that one has to enter.

    Returns:
        ``wrong`` with that constraint added for the samples in ``where``, and the (B, 1) length of the way.
    """
    rates = torch.cat([matvec(qp.G, direction), -direction, direction], 1)
    slacks = torch.cat([qp.h - matvec(qp.G, x), x - qp.lb, qp.ub - x], 1).clamp(min=0)
    met = ~torch.cat([active.rows, active.fixed, active.fixed], 1) & (
        rates > _ROUNDOFF * direction.abs().amax(1)[:, None]
    )
    length, first = torch.where(met, slacks / torch.where(met, rates, 1.0), torch.inf).min(1, keepdim=True)
    where = where[:, None] & length.isfinite()
    entering = (torch.arange(rates.shape[1], device=x.device) == first) & where
    m, n = qp.m, qp.n
    wrong = ActiveSet(
        wrong.rows | entering[:, :m], wrong.lower | entering[:, m : m + n], wrong.upper | entering[:, m + n :]
    )
    return wrong, torch.where(where, length, 0.0)


def _step(
    qp: QuadraticProgram, active: ActiveSet, x: Tensor, duals: Duals, solve: _Solve, where: Tensor
) -> tuple[Tensor, Duals]:
    """Add a solution of the reduced system, and read the bounds' multipliers off the gradient.

    A sample whose system could not be factored has no finite solution and stays where it is; so do those not in
    ``where``, so that no sample's result depends on its neighbours.
    """
    dx, d_equality, d_inequality, _ = solve(*_rest(qp, x, duals, active))
    take = where & torch.cat([dx, d_equality, d_inequality], 1).isfinite().all(1)
    x = x + torch.where(take[:, None], dx, 0.0)
    equality = duals.equality + torch.where(take[:, None], d_equality, 0.0)
    inequality = duals.inequality + torch.where(take[:, None], d_inequality, 0.0)
    slope = gradient(qp, x, Duals(equality, inequality, x))
    return x, Duals(equality, inequality, torch.where(active.fixed, -slope, torch.zeros_like(x)))


def optimal(qp: QuadraticProgram, measured: Scaled, active: ActiveSet) -> Tensor:
    """(B,) bool: where a point on its working set satisfies every condition, to the tolerances of this module."""
    wrong, unbalanced = _judge_measured(qp, measured, active)
    return (wrong.count() == 0) & (unbalanced <= TOLERANCE)


def _judge(qp: QuadraticProgram, x: Tensor, duals: Duals, active: ActiveSet) -> tuple[ActiveSet, Tensor]:
    """Which constraints are on the wrong side, and (B,) how far stationarity and held constraints are from zero."""
    return _judge_measured(qp, scaled(qp, x, duals), active)


def _judge_measured(qp: QuadraticProgram, s: Scaled, active: ActiveSet) -> tuple[ActiveSet, Tensor]:
    free = qp.lb != qp.ub
    wrong = ActiveSet(
        torch.where(active.rows, s.push_rows + _SIGN, s.rows + TOLERANCE) < 0,
        (torch.where(active.lower, s.push_lower + _SIGN, s.lower + TOLERANCE) < 0) & free,
        (torch.where(active.upper, s.push_upper + _SIGN, s.upper + TOLERANCE) < 0) & free,
    )
    held = torch.where(active.rows, s.rows, torch.zeros_like(s.rows))
    return wrong, torch.cat([s.stationarity, s.equality, held], 1).abs().amax(1)


def _choose(wrong: ActiveSet, fewest: Tensor, patience: Tensor) -> tuple[ActiveSet, Tensor, Tensor]:
    """All wrong constraints while their number falls (or patience lasts), else the last one alone."""
    count = wrong.count()
    fell = count < fewest
    together = fell | (patience > 0)
    patience = torch.where(fell, torch.full_like(patience, _PATIENCE), (patience - 1).clamp(min=0))
    flat = torch.cat([wrong.rows, wrong.lower, wrong.upper], 1)
    position = torch.arange(flat.shape[1], device=flat.device)
    last = torch.where(flat, position, torch.full_like(position, -1)).amax(1, keepdim=True)
    flat = flat & (together[:, None] | (position == last))
    m, n = wrong.rows.shape[1], wrong.lower.shape[1]
    chosen = ActiveSet(flat[:, :m], flat[:, m : m + n], flat[:, m + n :])
    return chosen, torch.minimum(fewest, count), patience


def _flip(qp: QuadraticProgram, active: ActiveSet, exchange: ActiveSet, x: Tensor) -> ActiveSet:
    """Exchange: what was in goes out, what was out comes in; a variable is never held at both bounds."""
    lower, upper = active.lower ^ exchange.lower, active.upper ^ exchange.upper
    both = lower & upper
    nearer_lower = (x - qp.lb).abs() <= (x - qp.ub).abs()
    return ActiveSet(active.rows ^ exchange.rows, lower & ~(both & ~nearer_lower), upper & ~(both & nearer_lower))
