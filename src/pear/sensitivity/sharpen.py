"""The last refinement, for points that float64 alone cannot show to be optimal.

A reduced system is solved in float64, its residual is computed exactly, and the point is corrected as the sum of two
vectors. Each round gains the digits that the factorisation has, so that a few suffice where rows are parallel to 1e-10.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pear.optimality.exact import Array, Doubled, ExactSample, rounded
from pear.optimality.point import ActiveSet, Duals
from pear.optimality.verify import Verdict, verify
from pear.problem.canonical import QuadraticProgram
from pear.sensitivity.reduced import ReducedKKT

_ROUNDS = 12


def sharpen(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> Verdict:
    """Refine one point (1, n) on its working set with exact residuals, and judge it by them.

    Args:
        qp: one dense program on the CPU.
        x: (1, n) a point near the solution; duals: its multipliers; working: the constraints to hold.
    """
    # a finer rank than the rule's: what is decided wrongly here does not converge, and is not taken
    rank = torch.finfo(x.dtype).eps * (qp.n + qp.p + qp.m)
    sample, systems, p = ExactSample(qp), ReducedKKT(qp, working, rank), qp.p
    held = torch.cat([torch.ones(1, p, dtype=torch.bool), working.rows], 1)[0].numpy()
    point = Doubled(torch.where(working.lower, qp.lb, torch.where(working.upper, qp.ub, x))[0].numpy().copy())
    y = Doubled(np.where(held, torch.cat([duals.equality, duals.inequality], 1)[0].numpy(), 0.0))
    left = sample.residuals(point, y)
    smallest = np.inf
    for _ in range(_ROUNDS):
        rows = torch.where(working.rows, left.rows, 0.0)
        dx, d_equality, d_inequality, _ = systems.solve_carefully(-left.gradient, -left.equality, rows)
        change = torch.cat([dx, d_equality, d_inequality], 1)[0].numpy()
        size = _size(change, point, y)
        if not size < 0.5 * smallest:  # also where it is not a number
            break
        smallest = size
        point.add(change[: qp.n])
        y.add(change[qp.n :])
        left = sample.residuals(point, y)
    fixed = working.fixed[0].numpy()
    z, multipliers = rounded(point, y, p, np.where(fixed, -left.gradient[0].numpy(), 0.0))
    return verify(qp, z, multipliers, working, left)


def _size(change: Array, x: Doubled, y: Doubled) -> float:
    """The correction relative to what it corrects; not a number where it is none."""
    parts = np.split(np.abs(change), [len(x.high)])
    sizes = [
        part.max() / max(float(np.abs(value.high).max()), np.finfo(float).tiny)
        for part, value in zip(parts, (x, y), strict=True)
        if part.size and part.any()
    ]
    return max(sizes, default=0.0) if np.isfinite(change).all() else np.nan
