"""Compiled loops of the sparse interior point over its bounds and inequalities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pear.compile.jit import allocating
from pear.solvers.linalg import Array


class Point(NamedTuple):
    """A primal-dual point of the sparse interior point.

    The limits are the lower bounds, the upper bounds and the inequalities. Distances are variables of their own while x
    is infeasible. For an absent limit the distance is 1 and the multiplier is 0.

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


@allocating
def pull_of_bounds(q: Point, present: Array, off: Array, goal: Array) -> Array:
    """Return (n,) the terms that the bounds add to the right-hand side of a Newton step.

    Args:
        q: the point.
        present: (2n + m,) bool, True where a limit exists.
        off: (2n,) differences between the distances of x to its bounds and ``q.distance``.
        goal: (2n + m,) intended changes of the products of multiplier and distance.
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
def step_along_limits(q: Point, present: Array, off: Array, goal: Array, dx: Array, dv: Array) -> tuple[Array, Array]:
    """Return the changes (2n + m,) of distances and of multipliers that belong to a Newton step.

    Args:
        q, present, off, goal: as in ``pull_of_bounds``.
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
def ratio_test(value: Array, change: Array, longest: float) -> float:
    """Return the longest step, at most ``longest``, that keeps the values positive."""
    for k in range(len(value)):
        if change[k] < 0 and value[k] < -longest * change[k]:
            longest = value[k] / -change[k]
    return longest
