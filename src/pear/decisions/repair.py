"""Repair: from a candidate of a solver to a solution that is exact to rounding.

For a given working set of active constraints, the optimality conditions are one reduced linear system. Its solution is
optimal if no inactive constraint is violated and no multiplier has the wrong sign, however inexact the candidate was.
Otherwise constraints are exchanged (block principal pivoting): violated constraints enter the working set, and
constraints whose multiplier has the wrong sign leave it. All these wrong constraints are exchanged at once. If their
number has not fallen for more than three exchanges in a row, only the last of them is exchanged until it falls again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.kkt_residual import kkt_gradient
from pear.optimality.rule import FEASIBLE, ROUNDOFF, SHARP
from pear.optimality.verification import Verification, verify
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.dense_reduced_systems import DenseReducedSystems
from pear.sensitivity.exact_refinement import refine_solution
from pear.sensitivity.reduced_systems import ReducedSystems, reduced_systems
from pear.sensitivity.sparse_reduced_systems import sparse_system_plan
from pear.solvers.candidate import Start

_Solve = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]

_VERDICT_PROPERTIES = ("wrong", "unbalanced", "none_wrong", "kkt_residual", "solved")
_COMPILED_EXCHANGES = 3  # compiled exchanges in the time of one exchange that is not compiled
_PROXIMAL = 100  # the most factorisations of a proximal search; an interior point takes longer
_PATIENCE = 3  # the most exchanges in a row after which the number of wrong constraints has not fallen


@dataclass(frozen=True)
class RepairResult:
    """The outcome of ``repair``.

    Attributes:
        x: (B, n) the last points, exact for solved samples.
        duals: the multipliers of these points.
        working: the working sets of these points.
        solved: (B,) bool, whether all optimality conditions hold.
        exchanges: (B,) the number of changes of the working set.
        sharpened: (B,) KKT residuals in extended precision, for points that float64 is too coarse to verify; NaN for
            other points.
        systems: the factorised systems if one factorisation solved the whole batch, otherwise None.
        verdict: the verification if one factorisation or one compiled call solved the whole batch, otherwise None.
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
    """Find exact solutions, by solving programs for guessed working sets and exchanging constraints.

    The repair of a sample ends when all optimality conditions hold, or after ``max_exchanges``.

    Args:
        qp: the programs.
        x: (B, n) points near the solutions.
        duals: the multipliers of these points. If multipliers are not unique, the result has those nearest to
            ``duals``.
        working: guessed working sets.
        max_exchanges: the largest number of changes of a sample's working set; ``repair_sparse`` may make more before.
    """
    start = Start(x, duals, working, torch.ones_like(x[:, 0], dtype=torch.bool))
    compiled = repair_sparse(qp, start, max_exchanges) if qp.is_sparse else None
    if compiled is not None and bool(compiled.solved.all()):
        return compiled
    factored, first = (
        _repair_in_cuda_graph(qp, x, duals, working) if x.is_cuda else _repair_on_working_set(qp, x, duals, working)
    )
    point, multipliers, wrong, verdict = _refine_repaired(factored, first, working)
    good, none = verdict.solved, torch.zeros(qp.batch, dtype=torch.long, device=x.device)
    exact = torch.full_like(x[:, 0], torch.nan)
    if bool(good.all()):
        return RepairResult(point, multipliers, working, good, none, exact, factored, verdict)
    good = good.clone()
    exact = _repair_in_extended_precision(verdict, working, good, point, multipliers)
    found = RepairResult(point, multipliers, working.map(torch.clone), good, none, exact)
    todo = (~good & (wrong.count() > 0) & factored.usable).nonzero()[:, 0]
    if len(todo) and max_exchanges:
        # each exchange begins with the candidate's multipliers, because those of a contradictory set may be huge
        _repair_by_exchanges(qp, found, duals, wrong[todo], todo, factored.cheap, max_exchanges)
    return found


def repair_sparse(qp: QuadraticProgram, start: Start, max_exchanges: int) -> RepairResult | None:
    """Repair sparse programs in one compiled call for all samples; return None if that is not possible.

    A compiled exchange takes a third of the time of one that is not compiled. Therefore three times as many exchanges
    as ``max_exchanges`` are allowed. If the objective is not linear, a proximal search follows where they fail.
    """
    plan = sparse_system_plan(qp) if qp.is_sparse else None
    if plan is None:
        return None
    from pear.solvers.exchanges.exchange_calls import call_exchange_search

    proximal = 0 if qp.is_linear else _PROXIMAL  # simplex methods are faster
    found = call_exchange_search(qp, plan, start, _COMPILED_EXCHANGES * max_exchanges, proximal)
    verdict = verify(qp, found.x, found.duals, found.working)
    solved, unknown = found.done & verdict.solved, torch.full_like(found.x[:, 0], torch.nan)
    kept = verdict if bool(solved.all()) else None
    return RepairResult(found.x, found.duals, found.working, solved, found.exchanges, unknown, verdict=kept)


def _repair_by_exchanges(
    qp: QuadraticProgram, found: RepairResult, start: Duals, wrong: ActiveSet, todo: Tensor, cheap: bool, most: int
) -> None:
    """Exchange constraints of k samples and solve again, until the samples are solved or ``most`` is reached.

    Args:
        qp: the programs of the whole batch.
        found: the points of the whole batch, which are updated in place.
        start: the multipliers of the whole batch from which the repair started.
        wrong: the constraints of the k samples to exchange first.
        todo: (k,) the positions of the samples.
        cheap: whether factorisations are cheap enough to exchange single constraints. If not, the repair of a sample
            ends when the number of its wrong constraints has not fallen for three exchanges in a row.
        most: the largest number of exchanges of a sample.
    """
    held, sub = found.working[todo], qp[todo]
    fewest = torch.full_like(todo, torch.iinfo(torch.long).max)
    patience = torch.full_like(todo, _PATIENCE)
    for _ in range(most):
        chosen, fewest, patience = _choose_repair_exchanges(wrong, fewest, patience)
        held = _repair_working_set(sub, held, chosen, found.x[todo])
        found.working.put(todo, held)
        found.exchanges[todo] += 1
        if not cheap:
            on = (patience > 0).nonzero()[:, 0]
            todo, sub, held, fewest, patience = todo[on], sub[on], held[on], fewest[on], patience[on]
        if not len(todo):
            return
        systems, first = _repair_on_working_set(sub, found.x[todo], start[todo], held)
        point, multipliers, wrong, verdict = _refine_repaired(systems, first, held)
        good = verdict.solved.clone()
        found.sharpened[todo] = _repair_in_extended_precision(verdict, held, good, point, multipliers)
        found.x[todo], found.solved[todo] = point, good
        found.duals.put(todo, multipliers)
        on = (~good & (wrong.count() > 0) & systems.usable).nonzero()[:, 0]
        if not len(on):
            return
        todo, sub, held, wrong, fewest, patience = todo[on], sub[on], held[on], wrong[on], fewest[on], patience[on]


def repair_last_digits(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> RepairResult:
    """Refine points (B, n) with residuals in extended precision, without an exchange of constraints."""
    x, duals, verdict = x.clone(), duals.map(torch.clone), verify(qp, x, duals, working)
    good = verdict.solved.clone()
    residual = _repair_in_extended_precision(verdict, working, good, x, duals)
    return RepairResult(x, duals, working, good, torch.zeros(qp.batch, dtype=torch.long, device=x.device), residual)


def _repair_in_extended_precision(
    verdict: Verification, working: ActiveSet, good: Tensor, x: Tensor, duals: Duals
) -> Tensor:
    """Refine points that have no wrong constraint but are not exact yet, with residuals in extended precision.

    Args:
        verdict: the verification of the points.
        working: the working sets of the points.
        good: (B,) bool, whether a point is exact; updated in place.
        x: (B, n) points; updated in place.
        duals: the multipliers of the points; updated in place.

    Returns:
        (B,) KKT residuals of the points that become exact; NaN for all others, and always if sparse or on a GPU.
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


def _repair_on_working_set(
    qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet
) -> tuple[ReducedSystems, Verification]:
    """Solve the reduced systems of the working sets; return the systems and the verification of their solutions."""
    systems = reduced_systems(qp, working)
    return systems, _repair_with_systems(qp, systems, x, duals, working)


def _repair_with_systems(
    qp: QuadraticProgram, systems: ReducedSystems, x: Tensor, duals: Duals, working: ActiveSet
) -> Verification:
    """Solve the factored reduced systems, starting from points x (B, n) and multipliers, and verify the solutions."""
    x = torch.where(working.lower, qp.lb, torch.where(working.upper, qp.ub, x)).nan_to_num()
    inequality = torch.where(working.rows, duals.inequality, 0.0).nan_to_num()
    duals = Duals(duals.equality.nan_to_num(), inequality, duals.bound)
    x, duals = _take_repair_step(qp, working, x, duals, systems.step)
    return verify(qp, x, duals, working)


def _repair_in_cuda_graph(
    qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet
) -> tuple[ReducedSystems, Verification]:
    """Return what ``_repair_on_working_set`` returns, for dense programs on a GPU, with a CUDA graph if possible."""
    systems, verdict = DenseReducedSystems.replayed(qp, working, _repair_for_cuda_graph, x, duals)
    vars(verdict)["qp"] = qp
    return systems, verdict


def _repair_for_cuda_graph(
    systems: DenseReducedSystems, qp: QuadraticProgram, working: ActiveSet, x: Tensor, duals: Duals
) -> Verification:
    """Return what ``_repair_with_systems`` returns, in a form that a CUDA graph can record.

    All properties of the verification are computed here, so that the graph contains them.
    """
    verdict = _repair_with_systems(qp, systems, x, duals, working)
    for name in _VERDICT_PROPERTIES:
        getattr(verdict, name)
    vars(verdict)["qp"] = None
    return verdict


def _refine_repaired(
    systems: ReducedSystems, verdict: Verification, working: ActiveSet
) -> tuple[Tensor, Duals, ActiveSet, Verification]:
    """Refine the points of samples whose working set has no wrong constraint.

    A constraint is wrong if it is inactive and violated, or active with a multiplier of the wrong sign. A point that
    stays inexact moves downhill, along a direction without curvature, up to a constraint, which is exchanged next.

    Args:
        systems: the reduced systems of the working sets.
        verdict: the verification of the points.
        working: the working sets.

    Returns:
        Points (B, n), multipliers, the constraints to exchange next, and the verification before such a move.
    """
    qp, x, duals = verdict.qp, verdict.x, verdict.duals
    # if no constraint is wrong and the point is not exact yet: refine, then solve more carefully
    for solve in (systems.step, systems.solve_carefully):
        stuck = verdict.none_wrong & (verdict.unbalanced > SHARP)
        lost = verdict.none_wrong & ~(verdict.unbalanced <= FEASIBLE)
        some_stuck, some_lost = torch.stack([stuck.any(), lost.any()]).tolist()
        if not some_stuck:
            break
        x, duals = _take_repair_step(qp, working, x, duals, solve, stuck)
        verdict = verify(qp, x, duals, working)
    else:
        lost = verdict.none_wrong & ~(verdict.unbalanced <= FEASIBLE)
        some_lost = bool(lost.any())
    if not some_lost:
        return x, duals, verdict.wrong, verdict
    # if still no constraint is wrong, the objective falls along a direction without curvature
    downhill = systems.flat(-kkt_gradient(qp, x, duals))
    wrong, length = _find_repair_limit(verdict, downhill, working, lost)
    return x + length * downhill, duals, wrong, verdict


def _find_repair_limit(
    verdict: Verification, direction: Tensor, working: ActiveSet, where: Tensor
) -> tuple[ActiveSet, Tensor]:
    """Find the constraint that a direction meets first, by a ratio test.

    Args:
        verdict: the verification of the points.
        direction: (B, n) the direction.
        working: the working sets.
        where: (B,) bool, the samples that move along the direction.

    Returns:
        The wrong constraints of ``verdict`` and the constraint that is met first, and the step lengths (B, 1).
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


def _take_repair_step(
    qp: QuadraticProgram,
    working: ActiveSet,
    x: Tensor,
    duals: Duals,
    solve: _Solve,
    where: Tensor | None = None,
) -> tuple[Tensor, Duals]:
    """Add a solution of the reduced system to points and multipliers, and return both.

    The multiplier of an active bound balances the gradient. A sample whose system could not be factored does not move.

    Args:
        qp: the programs.
        working: the working sets.
        x: (B, n) points.
        duals: the multipliers of the points.
        solve: a function that solves the reduced systems.
        where: (B,) bool, the samples to change; None changes all.
    """
    rows = torch.where(working.rows, qp.h - matvec(qp.G, x), 0.0)
    changes = solve(-kkt_gradient(qp, x, duals), qp.b - matvec(qp.A, x), rows)[:3]
    change = torch.cat(changes, 1)
    take = (change.abs() < torch.inf).all(1) if where is None else where & (change.abs() < torch.inf).all(1)
    dx, d_equality, d_inequality = torch.where(take[:, None], change, 0.0).split([qp.n, qp.p, qp.m], 1)
    x, equality, inequality = x + dx, duals.equality + d_equality, duals.inequality + d_inequality
    slope = kkt_gradient(qp, x, Duals(equality, inequality, x))
    return x, Duals(equality, inequality, torch.where(working.fixed, -slope, 0.0))


def _choose_repair_exchanges(wrong: ActiveSet, fewest: Tensor, patience: Tensor) -> tuple[ActiveSet, Tensor, Tensor]:
    """Choose the constraints to exchange: all wrong constraints, or only the last in the order rows, lower, upper.

    Only the last is exchanged if the number of wrong constraints is not below ``fewest`` and ``patience`` is 0.

    Args:
        wrong: the wrong constraints.
        fewest: (B,) the smallest number of wrong constraints so far.
        patience: (B,) how often all wrong constraints may still be exchanged although ``fewest`` does not fall.

    Returns:
        The chosen constraints, and the updated ``fewest`` and ``patience``.
    """
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


def _repair_working_set(qp: QuadraticProgram, working: ActiveSet, exchange: ActiveSet, x: Tensor) -> ActiveSet:
    """Return the working sets after an exchange.

    Constraints in ``exchange`` leave the working set if they are members, and enter it otherwise. A variable that would
    then be at both bounds is at the bound nearer to x (B, n).
    """
    lower, upper = working.lower ^ exchange.lower, working.upper ^ exchange.upper
    both = lower & upper
    nearer_lower = (x - qp.lb).abs() <= (x - qp.ub).abs()
    return ActiveSet(working.rows ^ exchange.rows, lower & ~(both & ~nearer_lower), upper & ~(both & nearer_lower))


class FailedRepairs(dict[tuple[int, bytes], str]):
    """Guessed working sets from which a repair failed, each with the name of the first solver that led to this guess.

    A repair that fails from a guess nearly always fails from the same guess of another solver, too, because both
    candidates agree to several digits. A later candidate of the same solver is more accurate, and is repaired again.
    """

    def add_failed(self, index: Tensor, guess: ActiveSet, solver: str) -> None:
        """Store guesses from which the repair failed.

        Args:
            index: (k,) positions of the samples.
            guess: the k guessed working sets of these samples.
            solver: the name of the solver whose candidates led to the guesses.
        """
        for key in self._keys_of_guesses(index, guess):
            self.setdefault(key, solver)

    def have_failed(self, index: Tensor, guess: ActiveSet, solver: str) -> Tensor:
        """Return which guesses already led to a failed repair with another solver, (k,) bool.

        The arguments are those of ``add_failed``.
        """
        failed = [self.get(key, solver) != solver for key in self._keys_of_guesses(index, guess)]
        return torch.tensor(failed, dtype=torch.bool, device=index.device)

    @staticmethod
    def _keys_of_guesses(index: Tensor, guess: ActiveSet) -> list[tuple[int, bytes]]:
        """Return a key of each guess: the position of its sample, and the members of its working set as bytes."""
        rows = torch.cat([guess.rows, guess.lower, guess.upper], 1).cpu().numpy()
        return [(i, row.tobytes()) for i, row in zip(index.tolist(), rows, strict=True)]
