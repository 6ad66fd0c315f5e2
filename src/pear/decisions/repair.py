"""Repair: from a candidate to a solution that is exact to rounding.

For a working set the optimality conditions are one reduced linear system. Its solution is optimal if no inactive
constraint is violated and no multiplier has the wrong sign; then it does not matter how inexact the candidate was. If
not, constraints are exchanged (block principal pivoting): violated ones enter and wrongly signed ones leave, all at
once as long as their number falls, one at a time (the last in order) when it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.kkt_residual import lagrangian_gradient
from pear.optimality.rule import FEASIBLE, ROUNDOFF, SHARP
from pear.optimality.verify import Verification, verify
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.dense_reduced import ReducedKKT
from pear.sensitivity.exact_refinement import refine_solution
from pear.sensitivity.reduced_systems import ReducedSystems, reduced_systems

_Solve = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]

_SAID = ("wrong", "unbalanced", "none_wrong", "kkt_residual", "solved")
_PATIENCE = 3  # exchanges in a row that need not bring down the number of wrong constraints


@dataclass(frozen=True)
class RepairResult:
    """The outcome of ``repair``.

    Attributes:
        x, duals: the last points and multipliers, exact where solved.
        working: the working sets they belong to.
        solved: (B,) bool, where every optimality condition holds.
        exchanges: (B,) how often the working set was changed.
        sharpened: (B,) the exact KKT residual where float64 alone could not show the point to be optimal, else NaN.
        systems, verdict: the factorised systems and the verdict, where one factorisation solved the whole batch.
    """

    x: Tensor
    duals: Duals
    working: ActiveSet
    solved: Tensor
    exchanges: Tensor
    sharpened: Tensor
    systems: ReducedSystems | None = None
    verdict: Verification | None = None


def repair(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet, max_exchanges: int) -> RepairResult:
    """Solve exactly on the working sets and exchange constraints until every condition holds.

    Args:
        qp: the programs.
        x, duals: (B, n) a point and its multipliers near the solution; where multipliers are not unique, those nearest
            to these are found.
        working: guessed working sets.
        max_exchanges: how often a sample's set may be changed.
    """
    factored, first = _replayed(qp, x, duals, working) if x.is_cuda else _first(qp, x, duals, working)
    point, multipliers, wrong, verdict = _refined(factored, first, working)
    good, none = verdict.solved, torch.zeros(qp.batch, dtype=torch.long, device=x.device)
    exact = torch.full_like(x[:, 0], torch.nan)
    if bool(good.all()):
        return RepairResult(point, multipliers, working, good, none, exact, factored, verdict)
    good = good.clone()
    exact = _sharpen(verdict, working, good, point, multipliers)
    found = RepairResult(point, multipliers, working.map(torch.clone), good, none, exact)
    todo = (~good & (wrong.count() > 0) & factored.usable).nonzero()[:, 0]
    if len(todo) and max_exchanges:
        # each time from the candidate's multipliers: on a contradictory set they grow without limit and stay large
        _exchange(qp, found, duals, wrong[todo], todo, factored.cheap, max_exchanges)
    return found


def _exchange(
    qp: QuadraticProgram, found: RepairResult, start: Duals, wrong: ActiveSet, todo: Tensor, cheap: bool, most: int
) -> None:
    """Exchange constraints of the samples ``todo`` (k,), and write their new points into ``found``.

    Args:
        qp: the programs of the whole batch.
        found: the points of the whole batch, which are updated.
        start: the multipliers that the samples started from.
        wrong: (k,) the constraints to exchange first.
        todo: (k,) the samples.
        cheap: whether exchanging a single constraint is worth a factorisation.
        most: the exchanges of each sample at most.
    """
    held, sub = found.working[todo], qp[todo]
    fewest = torch.full_like(todo, torch.iinfo(torch.long).max)
    patience = torch.full_like(todo, _PATIENCE)
    for _ in range(most):
        chosen, fewest, patience = _choose(wrong, fewest, patience)
        held = _flip(sub, held, chosen, found.x[todo])
        found.working.put(todo, held)
        found.exchanges[todo] += 1
        if not cheap:
            on = (patience > 0).nonzero()[:, 0]
            todo, sub, held, fewest, patience = todo[on], sub[on], held[on], fewest[on], patience[on]
        if not len(todo):
            return
        systems, first = _first(sub, found.x[todo], start[todo], held)
        point, multipliers, wrong, verdict = _refined(systems, first, held)
        good = verdict.solved.clone()
        found.sharpened[todo] = _sharpen(verdict, held, good, point, multipliers)
        found.x[todo], found.solved[todo] = point, good
        found.duals.put(todo, multipliers)
        on = (~good & (wrong.count() > 0) & systems.usable).nonzero()[:, 0]
        if not len(on):
            return
        todo, sub, held, wrong, fewest, patience = todo[on], sub[on], held[on], wrong[on], fewest[on], patience[on]


def sharpen_points(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> RepairResult:
    """Refine points (B, n) with exact residuals where only digits are missing; no constraint is exchanged."""
    x, duals, verdict = x.clone(), duals.map(torch.clone), verify(qp, x, duals, working)
    good = verdict.solved.clone()
    residual = _sharpen(verdict, working, good, x, duals)
    return RepairResult(x, duals, working, good, torch.zeros(qp.batch, dtype=torch.long, device=x.device), residual)


def _sharpen(verdict: Verification, working: ActiveSet, good: Tensor, x: Tensor, duals: Duals) -> Tensor:
    """Refine with exact residuals the points that have no wrong constraint and are still not exact.

    Args:
        verdict: the verdict on the points x (B, n) with their duals.
        working: the constraints that are held there.
        good, x, duals: updated where a point becomes exact.

    Returns:
        (B,) KKT residuals of the points that become exact, NaN elsewhere.
    """
    sharpened = torch.full_like(x[:, 0], torch.nan)
    if verdict.qp.is_sparse or x.is_cuda:
        return sharpened
    for i in (verdict.none_wrong & ~verdict.solved).nonzero():
        finer = refine_solution(verdict.qp[i], x[i], duals[i], working[i])
        if bool(finer.solved):
            good[i], x[i], sharpened[i] = True, finer.x, finer.kkt_residual
            duals.put(i, finer.duals)
    return sharpened


def _first(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> tuple[ReducedSystems, Verification]:
    """Solve with the working set held; returns the systems and the verdict on their solution."""
    systems = reduced_systems(qp, working)
    return systems, _solve_on(qp, systems, x, duals, working)


def _solve_on(
    qp: QuadraticProgram, systems: ReducedSystems, x: Tensor, duals: Duals, working: ActiveSet
) -> Verification:
    x = torch.where(working.lower, qp.lb, torch.where(working.upper, qp.ub, x)).nan_to_num()
    inequality = torch.where(working.rows, duals.inequality, 0.0).nan_to_num()
    duals = Duals(duals.equality.nan_to_num(), inequality, duals.bound)
    x, duals = _step(qp, working, x, duals, systems.step)
    return verify(qp, x, duals, working)


def _replayed(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> tuple[ReducedSystems, Verification]:
    """``_first`` of dense programs on a GPU, in one launch where that is worth it."""
    systems, verdict = ReducedKKT.replayed(qp, working, _full_verdict, x, duals)
    vars(verdict)["qp"] = qp
    return systems, verdict


def _full_verdict(
    systems: ReducedKKT, qp: QuadraticProgram, working: ActiveSet, x: Tensor, duals: Duals
) -> Verification:
    """The verdict of ``_solve_on`` with all its properties computed and without the programs, for a CUDA graph."""
    verdict = _solve_on(qp, systems, x, duals, working)
    for name in _SAID:
        getattr(verdict, name)
    vars(verdict)["qp"] = None
    return verdict


def _refined(
    systems: ReducedSystems, verdict: Verification, working: ActiveSet
) -> tuple[Tensor, Duals, ActiveSet, Verification]:
    """Refine where nothing is to be exchanged; returns point, multipliers, the wrong constraints, and the verdict."""
    qp, x, duals = verdict.qp, verdict.x, verdict.duals
    # nothing is to be exchanged and the point is not exact yet: refine, then solve more carefully
    for solve in (systems.step, systems.solve_carefully):
        stuck = verdict.none_wrong & (verdict.unbalanced > SHARP)
        lost = verdict.none_wrong & ~(verdict.unbalanced <= FEASIBLE)
        some_stuck, some_lost = torch.stack([stuck.any(), lost.any()]).tolist()
        if not some_stuck:
            break
        x, duals = _step(qp, working, x, duals, solve, stuck)
        verdict = verify(qp, x, duals, working)
    else:
        lost = verdict.none_wrong & ~(verdict.unbalanced <= FEASIBLE)
        some_lost = bool(lost.any())
    if not some_lost:
        return x, duals, verdict.wrong, verdict
    # still nothing to exchange: the objective falls along a direction in which it is flat
    downhill = systems.flat(-lagrangian_gradient(qp, x, duals))
    wrong, length = _ratio_test(verdict, downhill, working, lost)
    return x + length * downhill, duals, wrong, verdict


def _ratio_test(
    verdict: Verification, direction: Tensor, working: ActiveSet, where: Tensor
) -> tuple[ActiveSet, Tensor]:
    """Find how far a direction (B, n) leads to the first constraint, which then enters the working set.

    Returns:
        The wrong constraints with that one added for the samples in ``where``, and the (B, 1) length of the step.
    """
    qp, x, wrong = verdict.qp, verdict.x, verdict.wrong
    rates = torch.cat([matvec(qp.G, direction), -direction, direction], 1)
    slacks = torch.cat([qp.h - matvec(qp.G, x), x - qp.lb, qp.ub - x], 1).clamp(min=0)
    met = ~torch.cat([working.rows, working.fixed, working.fixed], 1) & (
        rates > ROUNDOFF * direction.abs().amax(1)[:, None]
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
    qp: QuadraticProgram,
    working: ActiveSet,
    x: Tensor,
    duals: Duals,
    solve: _Solve,
    where: Tensor | None = None,
) -> tuple[Tensor, Duals]:
    """Add a solution of the reduced system, and read the bounds' multipliers off the gradient.

    A sample whose system could not be factored has no finite solution and stays where it is; so do those not in
    ``where``, so that no sample's result depends on its neighbours.
    """
    rows = torch.where(working.rows, qp.h - matvec(qp.G, x), 0.0)
    changes = solve(-lagrangian_gradient(qp, x, duals), qp.b - matvec(qp.A, x), rows)[:3]
    change = torch.cat(changes, 1)
    take = (change.abs() < torch.inf).all(1) if where is None else where & (change.abs() < torch.inf).all(1)
    dx, d_equality, d_inequality = torch.where(take[:, None], change, 0.0).split([qp.n, qp.p, qp.m], 1)
    x, equality, inequality = x + dx, duals.equality + d_equality, duals.inequality + d_inequality
    slope = lagrangian_gradient(qp, x, Duals(equality, inequality, x))
    return x, Duals(equality, inequality, torch.where(working.fixed, -slope, 0.0))


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


def _flip(qp: QuadraticProgram, working: ActiveSet, exchange: ActiveSet, x: Tensor) -> ActiveSet:
    """Exchange constraints: those in the set leave it and the others enter; no variable is held at both bounds."""
    lower, upper = working.lower ^ exchange.lower, working.upper ^ exchange.upper
    both = lower & upper
    nearer_lower = (x - qp.lb).abs() <= (x - qp.ub).abs()
    return ActiveSet(working.rows ^ exchange.rows, lower & ~(both & ~nearer_lower), upper & ~(both & nearer_lower))
