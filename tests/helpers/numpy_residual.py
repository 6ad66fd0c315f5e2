"""The library's definition of the KKT residual, written a second time in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pear_lab.judge.judged_program import JudgedProgram

Array = NDArray[np.float64]


def kkt_residual(program: JudgedProgram, x: Array, equality: Array, inequality: Array, bound: Array) -> float:
    """Return the largest scaled violation of the optimality conditions at x (n,) with multipliers (p,), (m,) and (n,).

    Primal violations are divided by the norm of the row and by the size of the decision. Stationarity, and multipliers
    times the norm of their row, are divided by the size of the objective's gradient. Complementarity is divided by
    both.
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


def _norms(rows: Array) -> Array:
    return _positive(np.linalg.norm(rows, axis=1))


def _positive(values: Array) -> Array:
    """Return the values, with zeros replaced by 1, as divisors."""
    return np.where(values > 0, values, 1.0)


def _sizes(p: JudgedProgram, x: Array) -> tuple[float, float]:
    """Return the largest magnitude of the decision, and that of cost and Hx, with a floor if these are zero."""
    max_curvature = np.diag(p.H).max()
    limits = np.abs(np.concatenate([p.b, p.h, p.lb, p.ub]))
    largest = max(np.abs(p.c).max() / (max_curvature or 1.0), limits[np.isfinite(limits)].max(initial=0.0)) or 1.0
    size = max(np.abs(x).max(), 1e-9 * largest)
    dual_scale = max(np.abs(p.c).max(), np.abs(p.H @ x).max(), 1e-9 * largest * max_curvature)
    return float(size), float(dual_scale) or 1.0
