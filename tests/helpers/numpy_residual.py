"""The KKT residual in numpy: the judge of the tests, which shares no code with the library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import pear
from pear.optimality.duals_and_active_sets import Duals
from pear_lab.judge.judged_program import JudgedProgram, judged_fields, judged_programs

Array = NDArray[np.float64]


def kkt_residual(program: JudgedProgram, x: Array, equality: Array, inequality: Array, bound: Array) -> float:
    """Return the largest scaled violation of the optimality conditions at x (n,) with multipliers (p,), (m,) and (n,).

    Primal violations are divided by the norm of the row and by the size of the decision. Stationarity, and multipliers
    times the norm of their row, are divided by the size of the objective's gradient. Complementarity is divided by
    both. Hx may be nothing but rounding: the size of the gradient is therefore at least a millionth of the terms of Hx.
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


def batch_residual(programs: Sequence[JudgedProgram], x: Tensor, duals: Duals) -> float:
    """Return the largest ``kkt_residual`` of the programs of a batch at x (B, n) with multipliers."""
    parts = [part.double().cpu().numpy() for part in (x, duals.equality, duals.inequality, duals.bound)]
    return max(kkt_residual(*row) for row in zip(programs, *parts, strict=True))


def solution_residual(
    problem: pear.Problem, cost: Tensor, x: Tensor, duals: Duals | None, smoothing: float = 0.0
) -> float:
    """Return the largest ``kkt_residual`` of solutions x (B, n) of a problem under costs (B, n)."""
    assert duals is not None
    costs = cost.detach().double().cpu().numpy()
    return batch_residual(judged_programs(judged_fields(problem), costs, smoothing, problem.sense), x, duals)


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
    cost = np.abs(p.c).max()
    terms = min(1e-6 * (np.abs(p.H) @ np.abs(x)).max(), 1e3 * cost if cost else np.inf)
    dual_scale = max(cost, np.abs(p.H @ x).max(), terms, 1e-9 * largest * max_curvature)
    return float(size), float(dual_scale) or 1.0
