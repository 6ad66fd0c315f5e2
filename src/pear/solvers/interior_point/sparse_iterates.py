"""The iterates of the sparse interior-point method, for one large convex program at a time.

The method is Mehrotra's predictor and corrector with a few centrality correctors. Each step solves the quasi-definite
system of ``solvers.linalg.saddle``, whose structure is analysed once for all iterations and all samples. The method
stops early, because the pipeline then exchanges active constraints until the point is exact.

Why not a library? These are processor seconds for one sample, to a verified solution with a KKT residual below 1e-13:

===================================  =========  ======  ==========  ==============
program                              variables  ours    PIQP 0.6.4  Clarabel 0.11
===================================  =========  ======  ==========  ==============
paths on a 40×40 grid                3,120      0.016   0.016       0.031
paths on a 100×100 grid              19,800     0.269   0.147       0.286
paths on a 200×200 grid              79,600     1.26    1.01        7.02
paths on a 280×280 grid              156,240    2.77    3.02        15.5
20 batteries over 168 hours          10,080     0.100   0.037       0.108
transport from 50 to 100 places      5,000      0.040   0.028       0.040
rows of neighbouring variables       30,000     0.609   0.246       0.534
curvature with random couplings      1,000      0.015   0.017       0.065
curvature with random couplings      2,000      0.028   0.073       0.138
curvature with random couplings      4,000      0.060   0.495       0.395
===================================  =========  ======  ==========  ==============

PIQP is faster if the factors of the system are cheap. If couplings in the curvature fill the factors, PIQP takes 8
times as long at 4,000 variables, because it has no conjugate gradients. It also holds Python's global lock, so that
samples cannot be solved in parallel. ``pear bench sparse-solvers`` repeats all rows but that of neighbouring variables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pear.compile.jit import allocating
from pear.solvers.linalg import Array
from pear.solvers.linalg.saddle import Saddle, SaddlePattern

Solution = tuple[Array, Array, Array]
"""A point x (n,), row multipliers (p + m,), and multipliers (n,) of upper bounds minus those of lower bounds."""

_MAX_ITERATIONS = 80
_SHIFT = 1e-8
_STEP = 0.995
_CORRECTORS = 2  # centrality correctors per iteration; each takes one solve, and a factorisation takes ten or twenty
_LONG = 0.95  # no corrector is tried for a longer step
_GAIN = 0.02  # least gain in step length for which a corrector is kept
_FURTHER = 0.3  # a corrector is computed for a step that is longer than possible by this amount
_BAND = 0.1  # products of multiplier and distance within this factor of their mean are not corrected
_MARGIN = 0.03  # complementarity must be this much more accurate, because it shows which constraints are active
_CLOSE = 1e-6  # solves are refined once the error is smaller
_HELD = 1e18  # diagonal entry that holds variables whose bounds coincide, and removes absent rows
_DIVERGED = 1e14
_PATIENCE = 15  # iterations without a better point
_INSIDE = 3e-3  # least distance of a warm start from its limits, relative to its size


class IteratePoint(NamedTuple):
    """A primal-dual point of the sparse interior-point method.

    The limits are the lower bounds, the upper bounds and the inequalities, in this order. The distances to the limits
    are separate variables, because they must be positive even if x is infeasible. The distance to an absent limit is 1,
    and its multiplier is 0.

    Attributes:
        x: (n,) decisions.
        y: (p,) multipliers of the equalities.
        distance: (2n + m,) distances to the limits.
        multiplier: (2n + m,) multipliers of the limits.
    """

    x: Array
    y: Array
    distance: Array
    multiplier: Array


class SparseIterates:
    """The iterates for one sample of ``min ½xᵀHx + cᵀx, Ax = b, Gx ≤ h, lb ≤ x ≤ ub``.

    Args:
        pattern: H and the rows J = [A; G].
        p: the number of equalities.
        c: (n,) the cost.
        rhs: (p + m,) the right-hand sides.
        lb, ub: (n,) the bounds.
        start: a point near the solution, of the form of the property ``point``; None for a cold start.

    Attributes:
        error: the error of the best iterate so far.
        iterations: the number of iterations so far.
        ended: True if no further progress is possible.
    """

    def __init__(
        self, pattern: SaddlePattern, p: int, c: Array, rhs: Array, lb: Array, ub: Array, start: Solution | None = None
    ) -> None:
        self.pattern, self.p = pattern, p
        self.dual_scale = max(_largest(c), 1e-300)
        self.size = _typical_iterate_size(rhs, p, lb, ub)
        self.curved = bool(pattern.curvature.any())
        # shifts are relative to the curvature of the objective, or to cost over size without curvature
        self.max_curvature = float(pattern.curvature.max(initial=0.0)) or self.dual_scale / self.size
        self.pinned = lb == ub
        n, rows = len(c), ~np.isinf(rhs[p:])
        self.present = np.concatenate([np.isfinite(lb) & ~self.pinned, np.isfinite(ub) & ~self.pinned, rows])
        self.absent = np.concatenate([np.zeros(p, bool), ~rows])
        self.c, self.rhs, self.lb, self.ub = c, np.where(self.absent, 0.0, rhs), lb, ub
        self.count = max(int(self.present.sum()), 1)
        self.bounds, self.rows = slice(2 * n), slice(2 * n, None)
        self.error, self.iterations, self.ended, self._best_at = np.inf, 0, False, 0
        with np.errstate(all="ignore"):
            self._best = self._cold_start() if start is None else self._warm_start(*start)
            self._record(self._best)

    def run(self, tol: float) -> bool:
        """Continue the iterations until ``tol`` is reached or no further progress is possible.

        Args:
            tol: relative accuracy of feasibility, stationarity and complementarity.

        Returns:
            Whether ``tol`` is reached.
        """
        with np.errstate(all="ignore"):  # a large error shows that the iterates diverge, not an overflow
            while not self.ended and self.error > tol:
                spent = self.iterations >= _MAX_ITERATIONS
                spent = spent or _largest(self._multipliers(self._now)) > _DIVERGED * self.dual_scale
                moved = None if spent else self._advance(self._now, *self._state)
                self.iterations += 1
                if moved is None:
                    self.ended = True
                else:
                    self._record(moved)
        return self.error <= tol

    @property
    def point(self) -> Solution:
        """The best iterate: x (n,), multipliers of the rows (p + m,), and of upper minus lower bounds (n,)."""
        q, n = self._best, len(self.c)
        return q.x, self._multipliers(q), q.multiplier[n : 2 * n] - q.multiplier[:n]

    def _record(self, q: IteratePoint) -> None:
        """Make q the current iterate, and the best one if its error is the smallest so far."""
        self._now = q
        self._off_now = self._distance_errors(q)
        dual, primal, gap = self._state = self._residuals(q)
        error = self._relative_error(q, dual, primal, gap)
        if error < self.error:
            self._best, self.error, self._best_at = q, error, self.iterations
        self.ended = not np.isfinite(error) or self.iterations > self._best_at + _PATIENCE

    # -- one iteration -----------------------------------------------------------------------------------------------

    def _advance(self, q: IteratePoint, dual: Array, primal: Array, gap: float) -> IteratePoint | None:
        """Return the iterate after q; None if the system cannot be factored.

        Args:
            q: the current iterate.
            dual, primal, gap: the results of ``_residuals`` for q.
        """
        weight = np.where(self.present, q.multiplier / q.distance, 0.0)
        D = np.where(self.pinned, _HELD, _combine_iterate_bounds(weight[self.bounds], 1)) + _SHIFT * self.max_curvature
        E = np.full(len(self.rhs), _SHIFT / self.max_curvature)
        E[self.p :] += np.where(self.present[self.rows], q.distance[self.rows] / self._safe_multipliers(q), _HELD)
        system = self.pattern.factor(D, E)
        if not system.succeeded:
            return None
        inner = min(1e-6, 1e-2 * gap / (1.0 + abs(gap)))
        mu, product = gap / self.count, q.multiplier * q.distance
        step = self._newton_step(system, q, dual, primal, -product, inner)
        there = _move_iterate(q, step, *self._step_lengths(q, step))
        after = float(there.multiplier @ there.distance) / self.count
        centre = (after / mu) ** 3 * mu if mu > 0 else 0.0
        goal = centre - product - step.multiplier * step.distance
        step = self._newton_step(system, q, dual, primal, goal, inner)
        for _ in range(_CORRECTORS):
            alpha, beta = self._step_lengths(q, step)
            if min(alpha, beta) >= _LONG:
                break
            ahead = _move_iterate(q, step, min(1.0, alpha + _FURTHER), min(1.0, beta + _FURTHER))
            wider = goal + _centre_iterate(ahead, centre)
            other = self._newton_step(system, q, dual, primal, wider, inner)
            if min(self._step_lengths(q, other)) < min(alpha, beta) + _GAIN:
                break
            step, goal = other, wider
        alpha, beta = self._step_lengths(q, step)
        return _move_iterate(q, step, min(1.0, _STEP * alpha), min(1.0, _STEP * beta))

    def _newton_step(
        self, system: Saddle, q: IteratePoint, dual: Array, primal: Array, goal: Array, inner: float
    ) -> IteratePoint:
        """Return a Newton step: the changes of x, distances and multipliers.

        Args:
            system: the factored system at q.
            q: the current iterate.
            dual, primal: the residuals at q, which the step removes to first order.
            goal: (2n + m,) by how much the products of multiplier and distance are to change, to first order.
            inner: the tolerance of conjugate gradients.
        """
        p, rows, limits = self.p, self.rows, (q, self.present, self._off_now, goal)
        r = -primal
        r[p:] = np.where(self.present[rows], r[p:] - goal[rows] / self._safe_multipliers(q), 0.0)
        f = np.where(self.pinned, 0.0, iterate_bound_terms(*limits) - dual)
        dx, dv = system.solve(f, r, inner, refinements=int(self.error < _CLOSE))
        dx = np.where(self.pinned, 0.0, dx)
        return IteratePoint(dx, dv[:p], *iterate_limit_steps(*limits, dx, dv[p:]))

    def _step_lengths(self, q: IteratePoint, d: IteratePoint) -> tuple[float, float]:
        """Return the longest primal and dual steps that keep distances and multipliers positive.

        The two lengths are equal if the objective is curved.
        """
        primal, dual = (iterate_step_length(*pair, 1.0 / _STEP) for pair in zip(q[2:], d[2:], strict=True))
        shorter = min(primal, dual)
        return (shorter, shorter) if self.curved else (primal, dual)

    # -- measures ----------------------------------------------------------------------------------------------------

    def _multipliers(self, q: IteratePoint) -> Array:
        """Return the multipliers (p + m,) of the rows."""
        return np.concatenate([q.y, q.multiplier[self.rows]])

    def _safe_multipliers(self, q: IteratePoint) -> Array:
        """Return the multipliers (m,) of the inequalities, with 1 in place of zeros, so that they can be divisors."""
        return np.where(q.multiplier[self.rows] > 0, q.multiplier[self.rows], 1.0)

    def _distance_errors(self, q: IteratePoint) -> Array:
        """Return the differences (2n,) between the distances of x to its bounds and ``q.distance``."""
        off = np.concatenate([q.x - self.lb, self.ub - q.x]) - q.distance[self.bounds]
        return np.where(self.present[self.bounds], off, 0.0)

    def _residuals(self, q: IteratePoint) -> tuple[Array, Array, float]:
        """Return the residuals of stationarity (n,) and of the rows (p + m,), and the complementarity gap."""
        v, bounds = self._multipliers(q), q.multiplier[self.bounds]
        dual = self.pattern.H @ q.x + self.c + self.pattern.JT @ v - _combine_iterate_bounds(bounds, -1)
        primal = self.pattern.J @ q.x - self.rhs
        primal[self.p :] += q.distance[self.rows]
        return dual, np.where(self.absent, 0.0, primal), float(q.multiplier @ q.distance)

    def _relative_error(self, q: IteratePoint, dual: Array, primal: Array, gap: float) -> float:
        """Return the largest of the relative errors of stationarity, feasibility and complementarity.

        The error of complementarity is first divided by ``_MARGIN``.

        Args:
            q: the iterate.
            dual, primal, gap: the results of ``_residuals`` for q.
        """
        size = max(_largest(q.x), 1e-9 * self.size)
        dual_scale = max(self.dual_scale, _largest(self.pattern.H @ q.x))
        violation = max(_largest(primal), _largest(self._off_now))
        stationarity = _largest(np.where(self.pinned, 0.0, dual))
        return max(stationarity / dual_scale, violation / size, gap / self.count / size / dual_scale / _MARGIN)

    # -- first iterates ----------------------------------------------------------------------------------------------

    def _cold_start(self) -> IteratePoint:
        """Return a first iterate whose x minimises the objective plus penalties.

        The penalties are on row residuals, and on the distance from the point nearest to zero within the bounds.
        """
        pattern = self.pattern
        D = np.where(self.pinned, _HELD, self.max_curvature)
        E = np.where(self.absent, _HELD, np.concatenate([np.full(self.p, _SHIFT), np.ones(len(self.absent) - self.p)]))
        system = pattern.factor(D, E / self.max_curvature)
        inside = np.where(self.pinned, self.lb, np.clip(0.0, self.lb, self.ub))
        rest = np.where(self.absent, 0.0, self.rhs - pattern.J @ inside)
        dx, v = system.solve(-self.c - pattern.H @ inside, rest, 1e-6)
        return self._move_inside(inside + np.where(self.pinned, 0.0, dx), v)

    def _move_inside(self, x: Array, v: Array) -> IteratePoint:
        """Return an iterate with decisions x (n,) and multipliers v (p + m,) of the rows.

        Its distances to the limits exceed the largest violation of x.
        """
        slope = self.pattern.H @ x + self.c + self.pattern.JT @ v
        nearest = float(self._distances(x)[self.present].min(initial=0.0))
        slopes = np.abs(slope)[self.present[self.bounds].reshape(2, -1).any(0)]
        multiplier = max(float(slopes.mean()) if slopes.size else 0.0, 1e-2 * self.dual_scale)
        return self._point_inside(x, v, slope, max(-1.5 * nearest, 1e-2 * self.size, 0.1 * _largest(x)), multiplier)

    def _warm_start(self, x: Array, v: Array, bound: Array) -> IteratePoint:
        """Return the first iterate from x, v and ``bound``, the parts of a point in the form of the property ``point``.

        Its distances to the limits and its multipliers of the limits are raised above zero.
        """
        size = max(_largest(x), 1e-9 * self.size)
        return self._point_inside(x, v, -bound, _INSIDE * size, _INSIDE * self.dual_scale)

    def _point_inside(self, x: Array, v: Array, slope: Array, distance: float, multiplier: float) -> IteratePoint:
        """Return an iterate with decisions x (n,) and multipliers v (p + m,) of the rows.

        ``slope`` (n,) has the multipliers of the lower bounds minus those of the upper bounds. Distances to limits are
        at least ``distance``, and multipliers of limits at least ``multiplier``.
        """
        multipliers = np.maximum(np.concatenate([slope, -slope, v[self.p :]]), multiplier)
        distances = np.where(self.present, np.maximum(self._distances(x), distance), 1.0)
        return IteratePoint(x, v[: self.p], distances, np.where(self.present, multipliers, 0.0))

    def _distances(self, x: Array) -> Array:
        """Return the distances (2n + m,) of x to all limits. The numbers of absent limits have no meaning."""
        return np.concatenate([x - self.lb, self.ub - x, (self.rhs - self.pattern.J @ x)[self.p :]])


def _typical_iterate_size(rhs: Array, p: int, lb: Array, ub: Array) -> float:
    """Estimate the size of decisions: the largest right-hand side of an equality, or the median limit if it is larger.

    The median is not changed by a few huge limits that are never reached.
    """
    limits = np.abs(np.concatenate([rhs[p:], lb, ub]))
    limits = limits[np.isfinite(limits) & (limits > 0)]
    return max(_largest(rhs[:p]), float(np.median(limits)) if limits.size else 0.0) or 1.0


def _move_iterate(q: IteratePoint, d: IteratePoint, primal: float, dual: float) -> IteratePoint:
    """Return q moved along d: x and the distances by the step length ``primal``, the multipliers by ``dual``."""
    lengths = primal, dual, primal, dual
    return IteratePoint(*(value + length * change for value, change, length in zip(q, d, lengths, strict=True)))


def _centre_iterate(q: IteratePoint, mu: float) -> Array:
    """Return changes (2n + m,) of the products of multiplier and distance that move outliers towards ``mu``.

    Products within a band around ``mu`` do not change. The next step can then be longer.
    """
    product = q.multiplier * q.distance
    return np.maximum(np.clip(product, _BAND * mu, mu / _BAND) - product, -mu / _BAND)


def _combine_iterate_bounds(values: Array, sign: int) -> Array:
    """Return the values of the lower bounds plus ``sign`` times those of the upper bounds: (2n,) values give (n,)."""
    lower, upper = np.split(values, 2)
    return lower + sign * upper


def _largest(values: Array) -> float:
    """Return the largest absolute value; 0 for an empty array."""
    return float(np.abs(values).max(initial=0.0))


@allocating
def iterate_bound_terms(q: IteratePoint, present: Array, off: Array, goal: Array) -> Array:
    """Compute the terms (n,) that the bounds add to the right-hand side of a Newton step.

    Args:
        q: the iterate.
        present: (2n + m,) bool, False for absent limits.
        off: (2n,) the differences between the distances of x to its bounds and ``q.distance``.
        goal: (2n + m,) the intended changes of the products of multiplier and distance.
    """
    n = len(q.x)
    pull = np.zeros(n)
    for k in range(2 * n):
        if present[k]:
            value = (goal[k] - q.multiplier[k] * off[k]) / q.distance[k]
            if k < n:
                pull[k] += value
            else:
                pull[k - n] -= value
    return pull


@allocating
def iterate_limit_steps(
    q: IteratePoint, present: Array, off: Array, goal: Array, dx: Array, dv: Array
) -> tuple[Array, Array]:
    """Compute the changes of the distances and of the multipliers in a Newton step, (2n + m,) each.

    Args:
        q, present, off, goal: as in ``iterate_bound_terms``.
        dx: (n,) the change of x.
        dv: (m,) the change of the multipliers of the inequalities.
    """
    n = len(dx)
    distance, multiplier = np.zeros(len(present)), np.zeros(len(present))
    for k in range(len(present)):
        if not present[k]:
            continue
        if k < 2 * n:
            distance[k] = off[k] + (dx[k] if k < n else -dx[k - n])
            multiplier[k] = (goal[k] - q.multiplier[k] * distance[k]) / q.distance[k]
        else:
            multiplier[k] = dv[k - 2 * n]
            safe = q.multiplier[k] if q.multiplier[k] > 0 else 1.0
            distance[k] = (goal[k] - q.distance[k] * multiplier[k]) / safe
    return distance, multiplier


@allocating
def iterate_step_length(value: Array, change: Array, longest: float) -> float:
    """Return the longest step, at most ``longest``, along which positive values (k,) stay positive.

    A step of length 1 changes the values by ``change`` (k,).
    """
    for k in range(len(value)):
        if change[k] < 0 and value[k] < -longest * change[k]:
            longest = value[k] / -change[k]
    return longest
