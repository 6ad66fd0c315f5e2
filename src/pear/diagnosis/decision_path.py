"""The decisions between the true and the predicted cost, and the regret that each part of the error causes.

With e = ĉ − c and z*(t) the decision under c + t e, regret is ``eᵀ(z̄ − z*(1))`` with ``z̄ = ∫₀¹ z*(t) dt``: the
derivative of the optimal value by t is eᵀz*(t). Costs and values are those of the minimised problem here.

z*(t) is piecewise constant for linear and integer programs and piecewise linear for quadratic ones, so that z̄ is a
finite sum once the breakpoints are known. Between two decisions, at t and t + τ and d apart, the straight line is
optimal up to a duality gap of κ/4 with ``κ = −τ eᵀd − dᵀHd``, and the trapezoid rule is off by κ/2 at most: κ = 0
proves a piece. Two constant pieces of a linear program meet where their values cross, so that their parts add up
whatever the rounding. All samples are searched together, one solve of a batch in each round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.solve import solve
from pear.optimality.rule import GAP
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.sensitivity.curvature_sign import has_singular_curvature
from pear.sensitivity.projection import project_and_test_curvature

ACCURACY = 1e-8
"""Largest accepted difference of a sample's regret and the sum of its parts, relative to the terms of its value."""
_STRAIGHT = 1e-11  # a piece is straight if κ is at most this, relative to the same size
_SAME = 1e-13  # two decisions of a linear program are worth the same on a piece if κ is at most this
_INSIDE = 1e-9  # violation up to which an extrapolated decision is feasible, relative to the decisions' size
_MAX_ROUNDS = 200
MAX_PIECES = 2_000
"""The search gives a sample up after this many pieces."""


@dataclass(frozen=True)
class DecisionPath:
    """The decisions between c and ĉ: their mean, and where they change.

    Attributes:
        mean: (B, n) the mean decision z̄.
        margin: (B,) the first t at which the decision under c + t e changes (LP, MILP), or its active set (QP); 1 where
            nothing changes.
        pieces: (B,) int64, number of integrated pieces.
        found: (B,) bool, False where the search was given up.
        size: (B,) size of the terms that make up the optimal value.
    """

    mean: Tensor
    margin: Tensor
    pieces: Tensor
    found: Tensor
    size: Tensor


class _Search:
    """The data that all rounds of the search share.

    Attributes:
        true: (B, n) true cost c of the minimised problem.
        error: (B, n) error e of the predicted cost.
        qp: the relaxed programs; None for an oracle, whose objective is linear.
        linear: whether they have no curvature.
        jumps: whether decisions can jump.
        by_solve: whether ``pear.solve`` decides, in integers or by an oracle.
        straight: (B,) κ up to which a piece is straight.
        tolerance: (B,) largest excess cost of a decision that still counts as optimal.
    """

    def __init__(self, problem: Problem, true: Tensor, error: Tensor, solver: str, size: Tensor) -> None:
        self.problem, self.true, self.error, self.solver = problem, true, error, solver
        self.qp = problem.relaxed().canonical(true) if problem.has_program else None
        self.linear = self.qp is None or self.qp.is_linear
        self.jumps = self.qp is None or self.linear or bool(has_singular_curvature(self.qp).any())
        self.straight = (_SAME if self.linear else _STRAIGHT) * size
        self.by_solve = problem.is_integer or not problem.has_program
        self.tolerance = (GAP if self.by_solve else _STRAIGHT) * size

    def decide(self, rows: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Decide samples ``rows`` at t (k,). Return decisions (k, n), NaN for failed ones, and their slopes dz/dt."""
        problem = self.problem[rows]
        cost = self.problem.sign * (self.true[rows] + t[:, None] * self.error[rows])
        if self.by_solve:
            x = solve(problem, cost, solver=self.solver, on_failure="mask").x
            return x, torch.zeros_like(x)
        solved = solve_continuous_programs(problem, cost, 0.0, self.solver)
        x = torch.where(solved.solved[:, None], solved.x, torch.nan)
        if self.linear:
            return x, torch.zeros_like(x)
        slope, curved = project_and_test_curvature(solved, torch.where(solved.solved[:, None], self.error[rows], 0.0))
        return x, torch.where(curved[:, None], -slope, 0.0)

    def curvature(self, rows: Tensor, d: Tensor) -> Tensor:
        """Return H d (k, n), with the curvature H of samples ``rows``."""
        if self.qp is None:
            return torch.zeros_like(d)
        H = self.qp.H
        return matvec(H if H.shape[0] == 1 else H[rows], d)

    def bend(self, rows: Tensor, length: Tensor, d: Tensor) -> Tensor:
        """Return κ (k,) of straight lines over ``length`` (k,) in t, between decisions with difference d (k, n)."""
        return -length * (self.error[rows] * d).sum(1) - (d * self.curvature(rows, d)).sum(1)

    def excess(self, rows: Tensor, t: Tensor, z: Tensor, best: Tensor) -> Tensor:
        """Return how much more z costs than ``best``, (k,), at the points t between truth and forecast."""
        w = z - best
        slope = self.true[rows] + t[:, None] * self.error[rows] + self.curvature(rows, best + 0.5 * w)
        return (slope * w).sum(1)

    def feasible(self, rows: Tensor, z: Tensor) -> Tensor:
        """Return a mask (k,) of the points z that satisfy the constraints."""
        assert self.qp is not None
        qp = self.qp[rows]
        violations = [(matvec(qp.A, z) - qp.b).abs(), matvec(qp.G, z) - qp.h, qp.lb - z, z - qp.ub]
        worst = torch.cat([v.expand(len(z), -1) for v in violations], 1).amax(1)
        return worst <= _INSIDE * (1 + z.abs().amax(1))


@dataclass
class _Intervals:
    """Intervals of t in which the decisions are not yet known.

    Attributes:
        rows: (k,) sample of each interval.
        start, end: (k,) ends of the interval.
        first, last: (k, n) decisions at both ends.
        first_slope, last_slope: (k, n) derivatives of the decisions by t at both ends.
        depth: (k,) how often the interval was split.
    """

    rows: Tensor
    start: Tensor
    end: Tensor
    first: Tensor
    last: Tensor
    first_slope: Tensor
    last_slope: Tensor
    depth: Tensor

    def __getitem__(self, index: Tensor) -> _Intervals:
        return _Intervals(*(value[index] for value in vars(self).values()))

    @staticmethod
    def cat(parts: list[_Intervals]) -> _Intervals:
        """Join the intervals of several objects into one."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return _Intervals(*(torch.cat(column) for column in columns))


class _Pieces:
    """The straight pieces found so far: their integral (B, n), their count (B,), and records (k, 5) for the margin."""

    def __init__(self, like: Tensor) -> None:
        self.integral = torch.zeros_like(like)
        self.count = torch.zeros(len(like), dtype=torch.int64, device=like.device)
        self.records: list[Tensor] = []

    def add(self, rows: Tensor, start: Tensor, end: Tensor, left: Tensor, right: Tensor, error: Tensor) -> None:
        """Integrate lines from ``left`` to ``right`` (k, n)."""
        length = end - start
        self.integral.index_add_(0, rows, (0.5 * length)[:, None] * (left + right))
        self.count.index_add_(0, rows, torch.ones_like(rows))
        slopes = ((error[rows] * z).sum(1) for z in (left, right))
        self.records.append(torch.stack([rows.to(start), start, end, *slopes], 1))

    def margin(self, size: Tensor) -> Tensor:
        """Return the t (B,) at which the decision first leaves its straight line; 1 if it never does."""
        margin = torch.ones_like(size)
        if not self.records:
            return margin
        table = torch.cat(self.records).cpu().numpy()
        table = table[table[:, 2] > table[:, 1]]
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        samples, first, count = np.unique(table[:, 0].astype(int), return_index=True, return_counts=True)
        for sample, begin, end in zip(samples, first, first + count, strict=True):
            margin[sample] = _first_change(table[begin:end], float(size[sample]))
        return margin


def follow_decisions(
    problem: Problem, true: Tensor, predicted: Tensor, best: Tensor, chosen: Tensor, solver: str
) -> DecisionPath:
    """Follow the decisions from true to predicted costs.

    Args:
        problem: the decision problem, without φ.
        true: (B, n) true costs c, in the problem's own sense.
        predicted: (B, n) predicted costs ĉ.
        best: (B, n) the decisions under c.
        chosen: (B, n) the decisions under ĉ.
        solver: name of the solver, as in ``pear.solve``.
    """
    cost, error = problem.sign * true, problem.sign * (predicted - true)
    size = ((cost.abs() + error.abs()) * (best.abs() + chosen.abs())).sum(1)
    search = _Search(problem, cost, error, solver, size)
    rows = (error != 0).any(1).nonzero()[:, 0]
    pieces, failed = _Pieces(cost), torch.zeros(len(cost), dtype=torch.bool, device=cost.device)
    pieces.integral[(error == 0).all(1)] = chosen[(error == 0).all(1)]
    zero, one = torch.zeros(len(rows)).to(cost), torch.ones(len(rows)).to(cost)
    slopes = [torch.zeros_like(best[rows])] * 2
    if not search.linear:
        slopes = [search.decide(rows, t)[1] for t in (zero, one)]
    todo = _Intervals(rows, zero, one, best[rows], chosen[rows], slopes[0], slopes[1], torch.zeros_like(rows))
    for _ in range(_MAX_ROUNDS):
        todo = _close_straight(search, pieces, todo)
        todo = todo[~failed[todo.rows] & (pieces.count[todo.rows] < MAX_PIECES)]
        if not len(todo.rows):
            break
        todo = _split_intervals(search, pieces, todo, failed)
    failed[todo.rows] = True
    failed |= pieces.count >= MAX_PIECES
    return DecisionPath(pieces.integral, pieces.margin(size), pieces.count, ~failed, size)


def _close_straight(search: _Search, pieces: _Pieces, todo: _Intervals) -> _Intervals:
    """Integrate the intervals whose straight line is proven, and return the others."""
    if search.jumps:  # what is optimal at both ends is so between them: of two tied decisions the one nearer to ĉ
        todo = todo[~_close_from_end(search, pieces, todo, todo.start, todo.first, search.straight, last=True)]
        todo = todo[~_close_from_end(search, pieces, todo, todo.end, todo.last, search.straight, last=False)]
    bend = search.bend(todo.rows, todo.end - todo.start, todo.last - todo.first)
    straight = bend <= search.straight[todo.rows]
    done = todo[straight]
    pieces.add(done.rows, done.start, done.end, done.first, done.last, search.error)
    return todo[~straight]


def _split_intervals(search: _Search, pieces: _Pieces, todo: _Intervals, failed: Tensor) -> _Intervals:
    """Decide at a point inside every interval, integrate the sides that prove straight, and return the others."""
    t = _next_point_to_decide(search, todo)
    z, slope = search.decide(todo.rows, t)
    lost = z.isnan().any(1)
    failed[todo.rows[lost]] = True
    todo, t, z, slope = todo[~lost], t[~lost], z[~lost], slope[~lost]
    left = _Intervals(todo.rows, todo.start, t, todo.first, z, todo.first_slope, slope, todo.depth + 1)
    right = _Intervals(todo.rows, t, todo.end, z, todo.last, slope, todo.last_slope, todo.depth + 1)
    if search.jumps:
        left = left[~_close_from_end(search, pieces, todo, t, z, search.tolerance, last=False)]
        right = right[~_close_from_end(search, pieces, todo, t, z, search.tolerance, last=True)]
    return _Intervals.cat([left, right])


def _close_from_end(
    search: _Search, pieces: _Pieces, todo: _Intervals, t: Tensor, best: Tensor, allowed: Tensor, last: bool
) -> Tensor:
    """Continue the decision of one end of each interval to t, and integrate where it is as good there as ``best``.

    Args:
        search: the data that all rounds share.
        pieces: receives the finished pieces.
        todo: the k intervals.
        t: (k,) a point inside each interval.
        best: (k, n) the decisions at t.
        allowed: (B,) largest excess cost of the continued decision.
        last: True to continue the last decision backwards, False to continue the first one forwards.

    Returns:
        A mask (k,) of the intervals that were integrated.
    """
    end, z, slope = (todo.end, todo.last, todo.last_slope) if last else (todo.start, todo.first, todo.first_slope)
    reached = z + (t - end)[:, None] * slope
    low, high, left, right = (t, end, reached, z) if last else (end, t, z, reached)
    allowed = allowed[todo.rows]
    known = search.excess(todo.rows, t, reached, best) <= allowed
    if not search.linear:
        bend = search.bend(todo.rows, high - low, right - left)
        known &= search.feasible(todo.rows, reached) & (bend.abs() <= allowed)
    pieces.add(todo.rows[known], low[known], high[known], left[known], right[known], search.error)
    return known


def _next_point_to_decide(search: _Search, todo: _Intervals) -> Tensor:
    """Return the t (k,) to decide at next: where the continued decisions of both ends meet, otherwise the middle."""
    e, d, length = search.error[todo.rows], todo.last - todo.first, todo.end - todo.start
    gap = search.excess(todo.rows, todo.start, todo.last, todo.first)  # of the last decision where the first is best
    rate = -(e * d).sum(1)  # how fast that falls with t
    if search.linear:
        u = gap / rate
    else:
        k_first, k_last = ((e * slope).sum(1) for slope in (todo.first_slope, todo.last_slope))
        meet = (rate + k_last * length) / (k_last - k_first)  # s_a + k_a u = s_b − k_b (length − u)
        # of the values: those of the first end less those of the last, both continued
        behind = todo.last - length[:, None] * todo.last_slope
        start = -search.excess(todo.rows, todo.start, behind, todo.first)
        slope = rate + k_last * length
        root = _quadratic_root(0.5 * (k_first - k_last), slope, start, length)
        turn = todo.depth % (3 if search.jumps else 2)
        u = torch.where(turn == 0, meet, torch.where((turn == 1) & search.jumps, root, torch.nan))
    inside = (u > 0) & (u < length)
    return todo.start + torch.where(inside, u, 0.5 * length)


def _quadratic_root(a: Tensor, b: Tensor, c: Tensor, length: Tensor) -> Tensor:
    """Return a root of a u² + b u + c; it lies in (0, length) if one does."""
    q = -0.5 * (b + torch.where(b < 0, -1.0, 1.0) * (b * b - 4 * a * c).clamp(min=0).sqrt())
    first, second = q / a, c / q
    return torch.where((second > 0) & (second < length), second, first)


def _first_change(pieces: NDArray[np.float64], size: float) -> float:
    """Return the t at which eᵀz leaves the line of the first piece, from the sorted records (k, 5) of one sample."""
    _, start, end, low, high = (column.tolist() for column in pieces.T)
    rounding, change = 1e-9 * size, (high[0] - low[0]) / (end[0] - start[0])
    for i in range(1, len(end)):
        expected = low[0] + change * (end[i] - start[0])
        if abs(low[i] - high[i - 1]) > rounding or abs(high[i] - expected) > rounding:
            return float(start[i])
    return 1.0
