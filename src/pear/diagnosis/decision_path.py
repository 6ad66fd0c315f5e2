"""The decisions between the true cost c and the predicted cost ĉ, and their mean.

With e = ĉ − c, let z*(t) be the optimal decision under the cost c + t e, and ``z̄ = ∫₀¹ z*(t) dt`` the mean decision.
The derivative of the optimal value with respect to t is eᵀz*(t). The regret is therefore ``eᵀ(z̄ − z*(1))``. Costs and
values in this file are those of the minimised problem.

z*(t) is piecewise constant for linear and integer programs and piecewise linear for quadratic programs, so that z̄ is a
sum over pieces. A piece is found as follows. Let z*(t) and z*(t + τ) be known, let d be their difference, and let H be
the curvature of the objective. With ``κ = −τ eᵀd − dᵀHd``, every point of the straight line between the two decisions
is optimal up to a duality gap of κ/4. The integral of eᵀz along this line is that of eᵀz*(t) up to an error of κ/2.
If κ = 0, the line is a piece. Two constant pieces of a linear program meet at the t where their costs are equal.

The search treats all samples together and solves one batch of programs in each round.
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
from pear.sensitivity.convexity import lacks_strict_convexity
from pear.sensitivity.projection import project_and_test_curvature

ACCURACY = 1e-8
"""Largest accepted difference between a regret and the sum of its parts, relative to the terms of the optimal value."""
_STRAIGHT = 1e-11  # a line is a piece if κ is at most this, relative to the terms of the optimal value
_SAME = 1e-13  # the same limit for linear programs
_INSIDE = 1e-9  # violation up to which an extrapolated decision is feasible, relative to the decision's size
_MAX_ROUNDS = 200
MAX_PIECES = 2_000
"""The search gives up on a sample after this many pieces."""


@dataclass(frozen=True)
class DecisionPath:
    """The decisions between the true cost c and the predicted cost ĉ = c + e for B samples.

    Attributes:
        mean: (B, n) the mean decision z̄.
        margin: (B,) the smallest t at which the decision under c + t e changes; for a quadratic program, the smallest t
            at which the decision leaves its first straight line. 1 if there is no such t.
        pieces: (B,) int64, the number of pieces of the path. On a piece, z*(t) is constant or moves along a line.
        found: (B,) bool, False for samples on which the search gave up.
        size: (B,) ``Σⱼ (|cⱼ| + |eⱼ|) (|zⱼ*(0)| + |zⱼ*(1)|)``, to which accuracies are relative.
    """

    mean: Tensor
    margin: Tensor
    pieces: Tensor
    found: Tensor
    size: Tensor


def follow_decision_path(
    problem: Problem, true: Tensor, predicted: Tensor, best: Tensor, chosen: Tensor, solver: str
) -> DecisionPath:
    """Return the path of decisions from the true to the predicted costs.

    Args:
        problem: the decision problem, without a smooth term φ.
        true: (B, n) true costs c, in the problem's own sense.
        predicted: (B, n) predicted costs ĉ.
        best: (B, n) the decisions under c.
        chosen: (B, n) the decisions under ĉ.
        solver: name of the solver, as in ``pear.solve``.
    """
    cost, error = problem.sign * true, problem.sign * (predicted - true)
    size = ((cost.abs() + error.abs()) * (best.abs() + chosen.abs())).sum(1)
    search = _DecisionPathSearch(problem, cost, error, solver, size)
    search.run(best, chosen)
    return DecisionPath(search.pieces.integral, search.pieces.margin(size), search.pieces.count, ~search.failed, size)


@dataclass
class _DecisionPathIntervals:
    """K intervals of t in which the decisions under c + t e are not yet known. Each belongs to one sample.

    The symbols are those of the module's docstring.

    Attributes:
        rows: (K,) sample of each interval.
        start, end: (K,) ends of the interval.
        first, last: (K, n) decisions at both ends.
        first_slope, last_slope: (K, n) derivatives of the decisions with respect to t at both ends.
        depth: (K,) the number of splits that led to the interval.
    """

    rows: Tensor
    start: Tensor
    end: Tensor
    first: Tensor
    last: Tensor
    first_slope: Tensor
    last_slope: Tensor
    depth: Tensor

    def __getitem__(self, index: Tensor) -> _DecisionPathIntervals:
        return _DecisionPathIntervals(*(value[index] for value in vars(self).values()))

    @staticmethod
    def concatenate(parts: list[_DecisionPathIntervals]) -> _DecisionPathIntervals:
        """Return the intervals of several objects as one object."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return _DecisionPathIntervals(*(torch.cat(column) for column in columns))


class _DecisionPathPieces:
    """The pieces found so far. On a piece, the decision is constant or moves along a straight line.

    Args:
        like: (B, n) a tensor of the decisions' shape, dtype and device.

    Attributes:
        integral: (B, n) the sum of the integrals of the decisions over the pieces.
        count: (B,) the number of pieces of each sample.
        records: for each call of ``add`` a tensor (K, 5): sample, start and end of a piece, and eᵀz at both ends, for
            the sample's error e and decision z.
    """

    def __init__(self, like: Tensor) -> None:
        self.integral = torch.zeros_like(like)
        self.count = torch.zeros(len(like), dtype=torch.int64, device=like.device)
        self.records: list[Tensor] = []

    def add(self, rows: Tensor, start: Tensor, end: Tensor, left: Tensor, right: Tensor, error: Tensor) -> None:
        """Add K pieces.

        Args:
            rows: (K,) sample of each piece.
            start, end: (K,) ends of the piece.
            left, right: (K, n) decisions at both ends.
            error: (B, n) errors e of all samples.
        """
        length = end - start
        self.integral.index_add_(0, rows, (0.5 * length)[:, None] * (left + right))
        self.count.index_add_(0, rows, torch.ones_like(rows))
        slopes = ((error[rows] * z).sum(1) for z in (left, right))
        self.records.append(torch.stack([rows.to(start), start, end, *slopes], 1))

    def margin(self, size: Tensor) -> Tensor:
        """Return the t (B,) at which each sample's decision leaves its first straight line; 1 if it never does.

        ``size`` (B,) is the ``size`` of ``DecisionPath``.
        """
        margin = torch.ones_like(size)
        if not self.records:
            return margin
        table = torch.cat(self.records).cpu().numpy()
        table = table[table[:, 2] > table[:, 1]]
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        samples, first, count = np.unique(table[:, 0].astype(int), return_index=True, return_counts=True)
        for sample, begin, end in zip(samples, first, first + count, strict=True):
            margin[sample] = self._first_change(table[begin:end], float(size[sample]))
        return margin

    @staticmethod
    def _first_change(records: NDArray[np.float64], size: float) -> float:
        """Return the t at which eᵀz, for error e and decision z, leaves its first straight line; 1 if it never does.

        Args:
            records: (K, 5) the records of one sample, in the order of t.
            size: the ``size`` of ``DecisionPath`` for this sample.
        """
        _, start, end, low, high = (column.tolist() for column in records.T)
        rounding, change = 1e-9 * size, (high[0] - low[0]) / (end[0] - start[0])
        for i in range(1, len(end)):
            expected = low[0] + change * (end[i] - start[0])
            if abs(low[i] - high[i - 1]) > rounding or abs(high[i] - expected) > rounding:
                return float(start[i])
        return 1.0


class _DecisionPathSearch:
    """The search for the pieces of the paths of B samples (see the module).

    Args:
        problem: the decision problem.
        true: (B, n) true cost c of the minimised problem.
        error: (B, n) error e of the predicted cost.
        solver: name of the solver, as in ``pear.solve``.
        size: (B,) ``Σⱼ (|cⱼ| + |eⱼ|) (|zⱼ*(0)| + |zⱼ*(1)|)``, to which accuracies are relative.

    Attributes:
        qp: the relaxed programs; None for an oracle, whose objective is linear.
        linear: whether the objective is linear.
        jumps: whether decisions can jump while t grows, because the objective is not strictly convex.
        by_solve: whether ``pear.solve`` finds the decisions, because there are integers or an oracle.
        straight: (B,) the largest κ (see the module) at which a line counts as a piece.
        tolerance: (B,) the largest excess cost of a decision that counts as optimal.
        pieces: the pieces found so far.
        failed: (B,) bool, the samples on which the search has given up.
    """

    def __init__(self, problem: Problem, true: Tensor, error: Tensor, solver: str, size: Tensor) -> None:
        self.problem, self.true, self.error, self.solver = problem, true, error, solver
        self.qp = problem.relaxed().canonical(true) if problem.has_program else None
        self.linear = self.qp is None or self.qp.is_linear
        self.jumps = self.qp is None or self.linear or bool(lacks_strict_convexity(self.qp).any())
        self.straight = (_SAME if self.linear else _STRAIGHT) * size
        self.by_solve = problem.is_integer or not problem.has_program
        self.tolerance = (GAP if self.by_solve else _STRAIGHT) * size
        self.pieces, self.failed = (
            _DecisionPathPieces(true),
            torch.zeros(len(true), dtype=torch.bool, device=true.device),
        )

    def run(self, best: Tensor, chosen: Tensor) -> None:
        """Find the pieces of all paths, from the decisions ``best`` (B, n) at t = 0 to ``chosen`` (B, n) at t = 1."""
        exact = (self.error == 0).all(1)
        self.pieces.integral[exact] = chosen[exact]
        rows = (~exact).nonzero()[:, 0]
        zero, one = torch.zeros(len(rows)).to(self.true), torch.ones(len(rows)).to(self.true)
        slopes = [torch.zeros_like(best[rows])] * 2
        if not self.linear:
            slopes = [self.decide(rows, t)[1] for t in (zero, one)]
        todo = _DecisionPathIntervals(
            rows, zero, one, best[rows], chosen[rows], slopes[0], slopes[1], torch.zeros_like(rows)
        )
        for _ in range(_MAX_ROUNDS):
            todo = self._integrate_straight(todo)
            todo = todo[~self.failed[todo.rows] & (self.pieces.count[todo.rows] < MAX_PIECES)]
            if not len(todo.rows):
                break
            todo = self._split(todo)
        self.failed[todo.rows] = True
        self.failed |= self.pieces.count >= MAX_PIECES

    def decide(self, rows: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Decide samples under c + t e, the true cost plus the share t of the error.

        Args:
            rows: (K,) numbers of K samples.
            t: (K,) points between 0 and 1.

        Returns:
            The decisions (K, n), NaN for samples that fail, and their derivatives with respect to t, (K, n).
        """
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

    def _curvature_times(self, rows: Tensor, d: Tensor) -> Tensor:
        """Return H d, (K, n), for d (K, n) and the curvature H of each of K samples ``rows`` (K,)."""
        if self.qp is None:
            return torch.zeros_like(d)
        H = self.qp.H
        return matvec(H if H.shape[0] == 1 else H[rows], d)

    def _bend(self, rows: Tensor, length: Tensor, d: Tensor) -> Tensor:
        """Return the κ (see the module) of K lines of ``length`` (K,) in t, whose ends differ by d (K, n)."""
        return -length * (self.error[rows] * d).sum(1) - (d * self._curvature_times(rows, d)).sum(1)

    def _excess(self, rows: Tensor, t: Tensor, z: Tensor, best: Tensor) -> Tensor:
        """Return by how much K decisions cost more than optimal ones under c + t e.

        Args:
            rows: (K,) sample of each decision.
            t: (K,) the share of the error e that is added to the true cost c.
            z: (K, n) the decisions.
            best: (K, n) the optimal decisions.
        """
        w = z - best
        slope = self.true[rows] + t[:, None] * self.error[rows] + self._curvature_times(rows, best + 0.5 * w)
        return (slope * w).sum(1)

    def _feasible(self, rows: Tensor, z: Tensor) -> Tensor:
        """Return a mask (K,) of the K points z (K, n) that satisfy the constraints of their samples ``rows``."""
        assert self.qp is not None
        qp = self.qp[rows]
        violations = [(matvec(qp.A, z) - qp.b).abs(), matvec(qp.G, z) - qp.h, qp.lb - z, z - qp.ub]
        worst = torch.cat([v.expand(len(z), -1) for v in violations], 1).amax(1)
        return worst <= _INSIDE * (1 + z.abs().amax(1))

    def _integrate_straight(self, todo: _DecisionPathIntervals) -> _DecisionPathIntervals:
        """Add the intervals that are pieces to ``pieces``, and return the other intervals.

        An interval is a piece if the straight line between the decisions at both ends is optimal. If decisions can
        jump, it is also a piece if the line of decisions from one end stays optimal up to the other end.
        """
        if self.jumps:  # a decision that is optimal at both ends is optimal between them; prefer the one under ĉ
            todo = todo[~self._continue_from_end(todo, todo.start, todo.first, self.straight, last=True)]
            todo = todo[~self._continue_from_end(todo, todo.end, todo.last, self.straight, last=False)]
        bend = self._bend(todo.rows, todo.end - todo.start, todo.last - todo.first)
        straight = bend <= self.straight[todo.rows]
        done = todo[straight]
        self.pieces.add(done.rows, done.start, done.end, done.first, done.last, self.error)
        return todo[~straight]

    def _split(self, todo: _DecisionPathIntervals) -> _DecisionPathIntervals:
        """Decide at a point inside every interval, and return the intervals on both sides that are no pieces yet.

        The search gives up on samples that have no decision at the point.
        """
        t = self._next_point(todo)
        z, slope = self.decide(todo.rows, t)
        lost = z.isnan().any(1)
        self.failed[todo.rows[lost]] = True
        todo, t, z, slope = todo[~lost], t[~lost], z[~lost], slope[~lost]
        left = _DecisionPathIntervals(todo.rows, todo.start, t, todo.first, z, todo.first_slope, slope, todo.depth + 1)
        right = _DecisionPathIntervals(todo.rows, t, todo.end, z, todo.last, slope, todo.last_slope, todo.depth + 1)
        if self.jumps:
            left = left[~self._continue_from_end(todo, t, z, self.tolerance, last=False)]
            right = right[~self._continue_from_end(todo, t, z, self.tolerance, last=True)]
        return _DecisionPathIntervals.concatenate([left, right])

    def _continue_from_end(
        self, todo: _DecisionPathIntervals, t: Tensor, best: Tensor, allowed: Tensor, last: bool
    ) -> Tensor:
        """Extend the decision at one end of each interval along its slope to t, and add optimal lines to ``pieces``.

        Args:
            todo: the K intervals.
            t: (K,) a point of each interval.
            best: (K, n) the decisions at t.
            allowed: (B,) how much more than ``best`` the extended decision of each sample may cost at t.
            last: True to extend the last decision backwards, False to extend the first decision forwards.

        Returns:
            A mask (K,) of the intervals whose line was added.
        """
        end, z, slope = (todo.end, todo.last, todo.last_slope) if last else (todo.start, todo.first, todo.first_slope)
        reached = z + (t - end)[:, None] * slope
        low, high, left, right = (t, end, reached, z) if last else (end, t, z, reached)
        allowed = allowed[todo.rows]
        known = self._excess(todo.rows, t, reached, best) <= allowed
        if not self.linear:
            bend = self._bend(todo.rows, high - low, right - left)
            known &= self._feasible(todo.rows, reached) & (bend.abs() <= allowed)
        self.pieces.add(todo.rows[known], low[known], high[known], left[known], right[known], self.error)
        return known

    def _next_point(self, todo: _DecisionPathIntervals) -> Tensor:
        """Return the point t (K,) of each of K intervals to decide at next.

        The decisions at both ends of an interval are continued as straight lines. The point is where these lines cost
        the same if the objective is linear. Otherwise ``depth`` selects in turn where their eᵀz are equal, where they
        cost the same (if decisions can jump), and the middle. A point outside the interval is replaced by the middle.
        """
        e, d, length = self.error[todo.rows], todo.last - todo.first, todo.end - todo.start
        gap = self._excess(todo.rows, todo.start, todo.last, todo.first)  # of the last decision at the start
        rate = -(e * d).sum(1)  # how fast this gap falls with t
        if self.linear:
            u = gap / rate
        else:
            k_first, k_last = ((e * slope).sum(1) for slope in (todo.first_slope, todo.last_slope))
            meet = (rate + k_last * length) / (k_last - k_first)  # s_a + k_a u = s_b − k_b (length − u)
            # the difference of the values of both lines is a quadratic function of u
            behind = todo.last - length[:, None] * todo.last_slope
            start = -self._excess(todo.rows, todo.start, behind, todo.first)
            slope = rate + k_last * length
            root = self._root_inside(0.5 * (k_first - k_last), slope, start, length)
            turn = todo.depth % (3 if self.jumps else 2)
            u = torch.where(turn == 0, meet, torch.where((turn == 1) & self.jumps, root, torch.nan))
        inside = (u > 0) & (u < length)
        return todo.start + torch.where(inside, u, 0.5 * length)

    @staticmethod
    def _root_inside(a: Tensor, b: Tensor, c: Tensor, length: Tensor) -> Tensor:
        """Return a root u (K,) of each of K polynomials a u² + b u + c, one in (0, length) if there is such a root."""
        q = -0.5 * (b + torch.where(b < 0, -1.0, 1.0) * (b * b - 4 * a * c).clamp(min=0).sqrt())
        first, second = q / a, c / q
        return torch.where((second > 0) & (second < length), second, first)
