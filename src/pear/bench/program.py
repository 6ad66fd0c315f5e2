"""Programs of the benchmark as numpy arrays, one sample at a time, and how far a point is from solving one.

Built from the problem's own fields, not from the form that the solvers see, so that it can judge that form too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pear.problem import Problem

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Program:
    """One ``min ½ zᵀHz + cᵀz`` subject to ``Az = b, Gz ≤ h, lb ≤ z ≤ ub``; absent limits are infinite.

    Attributes:
        H, c: (n, n) and (n,).
        A, b: (p, n) and (p,).
        G, h: (m, n) and (m,).
        lb, ub: (n,).
    """

    H: Array
    c: Array
    A: Array
    b: Array
    G: Array
    h: Array
    lb: Array
    ub: Array


def programs(problem: Problem, cost: Array, smoothing: float, Q: Array | None = None) -> list[Program]:
    """The samples of a problem under ``cost`` (B, n), minimised; Q (B, n, n) replaces the problem's."""
    n, sign = problem.n, 1.0 if problem.sense == "min" else -1.0

    def field(name: str, i: int, empty: tuple[int, ...], dimensions: int, fill: float = 0.0) -> Array:
        value = getattr(problem, name)
        if value is None:
            return np.full(empty, fill)
        array: Array = value.numpy()
        return array[i] if array.ndim > dimensions else array

    def one(i: int) -> Program:
        curvature = field("Q", i, (n, n), 2) if Q is None else Q[i]
        return Program(
            H=sign * curvature + smoothing * np.eye(n),
            c=sign * cost[i],
            A=field("A", i, (0, n), 2),
            b=field("b", i, (0,), 1),
            G=field("G", i, (0, n), 2),
            h=field("h", i, (0,), 1),
            lb=field("lb", i, (n,), 1, -np.inf),
            ub=field("ub", i, (n,), 1, np.inf),
        )

    return [one(i) for i in range(len(cost))]


def kkt_residual(program: Program, x: Array, equality: Array, inequality: Array, bound: Array) -> float:
    """Largest scaled violation of the optimality conditions at x (n,) with multipliers (p,), (m,) and (n,).

    Primal violations are divided by the norm of the row and by the size of the decision; stationarity and multipliers
    (times the norm of their row) by the size of the forces; complementarity by both.
    """
    p = program
    norm_A, norm_G = _norms(p.A), _norms(p.G)
    size, force = _sizes(p, x)
    slack = np.concatenate([(p.h - p.G @ x) / norm_G, x - p.lb, p.ub - x]) / size
    multiplier = np.concatenate([inequality * norm_G, np.maximum(-bound, 0), np.maximum(bound, 0)]) / force
    parts = [
        (p.A @ x - p.b) / norm_A / size,
        (p.H @ x + p.c + p.A.T @ equality + p.G.T @ inequality + bound) / force,
        np.minimum(slack, 0),
        np.minimum(multiplier, 0),
        multiplier * np.where(np.isinf(slack), 1.0, slack),  # an absent constraint may carry nothing at all
    ]
    worst = np.abs(np.concatenate(parts)).max()
    return float(worst) if np.isfinite(worst) else np.inf


@dataclass(frozen=True)
class Rows:
    """All constraints of a program as unit rows, ``Ex = f`` and ``Cx ≤ d``; a pinned variable is an equality.

    Attributes:
        E, f: (p + pinned, n) and right-hand sides.
        C, d: (k, n) and right-hand sides: the finite ones of G, then lower, then upper bounds.
        size, force: the units of the decision and of the multipliers.
    """

    E: Array
    f: Array
    C: Array
    d: Array
    size: float
    force: float

    @classmethod
    def of(cls, p: Program, x: Array) -> Rows:
        """Stack the constraints of ``p``; the units are those at x (n,)."""
        norm_A, norm_G, one = _norms(p.A), _norms(p.G), np.eye(len(x))
        present, pinned, lower, upper = _present(p)
        return cls(
            np.vstack([p.A / norm_A[:, None], one[pinned]]),
            np.concatenate([p.b / norm_A, p.lb[pinned]]),
            np.vstack([(p.G / norm_G[:, None])[present], -one[lower], one[upper]]),
            np.concatenate([(p.h / norm_G)[present], -p.lb[lower], p.ub[upper]]),
            *_sizes(p, x),
        )

    def slack(self, x: Array) -> Array:
        """(k,) in units of size."""
        return np.asarray((self.d - self.C @ x) / self.size)

    def own_multipliers(self, p: Program, y: Array, w: Array) -> tuple[Array, Array, Array]:
        """From multipliers y of E and w of C back to those of A, G and the bounds of ``p``."""
        present, pinned, lower, upper = _present(p)
        inequality, bound = np.zeros(len(p.h)), np.zeros(len(p.c))
        rows, at_lower, at_upper = np.split(w, np.cumsum([present.sum(), lower.sum()]))
        inequality[present] = rows / _norms(p.G)[present]
        bound[pinned] = y[len(p.b) :]
        bound[lower] -= at_lower
        bound[upper] += at_upper
        return y[: len(p.b)] / _norms(p.A), inequality, bound


def _present(p: Program) -> tuple[Mask, Mask, Mask, Mask]:
    """Which rows of G, pinned variables, lower and upper bounds there are."""
    pinned = p.lb == p.ub
    return np.isfinite(p.h), pinned, np.isfinite(p.lb) & ~pinned, np.isfinite(p.ub) & ~pinned


def _norms(rows: Array) -> Array:
    norms = np.linalg.norm(rows, axis=1)
    return np.where(norms > 0, norms, 1.0)


def _sizes(p: Program, x: Array) -> tuple[float, float]:
    """Largest finite magnitude of decision and right-hand sides, and of cost and the curvature's pull; 1 for 0."""
    limits = np.abs(np.concatenate([x, p.b / _norms(p.A), p.h / _norms(p.G), p.lb, p.ub]))
    size, force = limits[np.isfinite(limits)].max(), np.abs(np.concatenate([p.c, p.H @ x])).max()
    return float(size) or 1.0, float(force) or 1.0
