"""Programs of the benchmark as numpy arrays, one sample at a time, and how far a point is from solving one.

Built from the problem's own fields, not from the form that the solvers see, so that it tests that form too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
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
        array: Array = (value if value.layout == torch.strided else value.to_dense()).numpy()
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
    (times the norm of their row) by the size of the objective's gradient; complementarity by both.
    """
    p = program
    norm_A, norm_G = _norms(p.A), _norms(p.G)
    size, dual_scale = _sizes(p, x)
    slack = np.concatenate([(p.h - p.G @ x) / norm_G, x - p.lb, p.ub - x]) / size
    multiplier = np.concatenate([inequality * norm_G, np.maximum(-bound, 0), np.maximum(bound, 0)]) / dual_scale
    parts = [
        (p.A @ x - p.b) / norm_A / size,
        (p.H @ x + p.c + p.A.T @ equality + p.G.T @ inequality + bound) / dual_scale,
        np.minimum(slack, 0),
        np.minimum(multiplier, 0),
        multiplier * np.where(np.isinf(slack), 1.0, slack),  # an absent constraint may carry nothing at all
    ]
    worst = np.abs(np.concatenate(parts)).max()
    return float(worst) if np.isfinite(worst) else np.inf


@dataclass(frozen=True)
class UnitRows:
    """All constraints of a program as unit rows, ``Ex = f`` and ``Cx ≤ d``; a pinned variable is an equality.

    Attributes:
        E, f: (p + pinned, n) and right-hand sides.
        C, d: (k, n) and right-hand sides: the finite ones of G, then lower, then upper bounds.
    """

    E: Array
    f: Array
    C: Array
    d: Array

    @classmethod
    def of(cls, p: Program) -> UnitRows:
        """Stack the constraints of ``p``."""
        norm_A, norm_G, one = _norms(p.A), _norms(p.G), np.eye(len(p.c))
        present, pinned = np.isfinite(p.h), p.lb == p.ub
        lower, upper = np.isfinite(p.lb) & ~pinned, np.isfinite(p.ub) & ~pinned
        return cls(
            np.vstack([p.A / norm_A[:, None], one[pinned]]),
            np.concatenate([p.b / norm_A, p.lb[pinned]]),
            np.vstack([(p.G / norm_G[:, None])[present], -one[lower], one[upper]]),
            np.concatenate([(p.h / norm_G)[present], -p.lb[lower], p.ub[upper]]),
        )

    def slack(self, x: Array) -> Array:
        """(k,) slacks, each relative to its own right-hand side or the largest entry of x, whichever is larger."""
        return np.asarray((self.d - self.C @ x) / _positive(np.maximum(np.abs(self.d), np.abs(x).max())))

    def miss(self, x: Array) -> Array:
        """(p + pinned,) by how much the equalities are missed, in the same units."""
        return np.asarray(np.abs(self.E @ x - self.f) / _positive(np.maximum(np.abs(self.f), np.abs(x).max())))

    def gradient_of(self, y: Array, w: Array) -> Array:
        """(n,) what multipliers of E and C add to the gradient of the objective."""
        return np.asarray(self.E.T @ y + self.C.T @ w)


def _norms(rows: Array) -> Array:
    return _positive(np.linalg.norm(rows, axis=1))


def _positive(values: Array) -> Array:
    """The values, and 1 where they are zero, so that they can be divided by."""
    return np.where(values > 0, values, 1.0)


def _sizes(p: Program, x: Array) -> tuple[float, float]:
    """Largest magnitude of the decision, and of cost and Hx, with a floor where these are zero."""
    max_curvature = np.diag(p.H).max()
    limits = np.abs(np.concatenate([p.b, p.h, p.lb, p.ub]))
    largest = max(np.abs(p.c).max() / (max_curvature or 1.0), limits[np.isfinite(limits)].max(initial=0.0)) or 1.0
    size = max(np.abs(x).max(), 1e-9 * largest)
    dual_scale = max(np.abs(p.c).max(), np.abs(p.H @ x).max(), 1e-9 * largest * max_curvature)
    return float(size), float(dual_scale) or 1.0
