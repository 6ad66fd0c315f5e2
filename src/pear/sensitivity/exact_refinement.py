"""Refinement with exact residuals, for systems whose terms cancel beyond the accuracy of float64.

Each round computes the residual of a reduced system exactly, solves the system for a correction in float64, and adds
the correction to a point that is stored as the sum of two vectors. Each round gains as many digits as the factorisation
has, so that a few rounds are enough even where rows are parallel to 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.exact_residuals import Array, DoubleDouble, ExactSample, round_to_float64
from pear.optimality.kkt_residual import Residuals
from pear.optimality.verify import Verification, verify
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.null_space import NullSpace

Solve = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""A function from the right-hand sides (f, r_eq, r_in) of one sample to x and the multipliers of its rows."""

_ROUNDS = 12


def refine(sample: ExactSample, solve: Solve, active: ActiveSet, x: DoubleDouble, y: DoubleDouble) -> Residuals:
    """Correct a point and its multipliers in place, until a round no longer halves the correction.

    Args:
        sample: the program.
        solve: solves the reduced system.
        active: the constraints to hold.
        x: (n,) the point.
        y: (p + m,) the multipliers of the rows.

    Returns:
        The residuals of the optimality conditions at the corrected point, accurate to the last digit.
    """
    left, n, smallest = sample.residuals(x, y), len(x.high), np.inf
    first: Array | None = None
    for _ in range(_ROUNDS):
        rows = torch.where(active.rows, left.rows, 0.0)
        change = torch.cat(solve(-left.gradient, -left.equality, rows), 1)[0].numpy()
        sizes = _sizes(change, n)
        first = np.where(sizes > 0, sizes, 1.0) if first is None else first
        size = float((sizes / first).max())  # relative to the first correction, because x may go to zero
        if not size < 0.5 * smallest:  # also true where size is NaN
            break
        smallest = size
        x.add(change[:n])
        y.add(change[n:])
        left = sample.residuals(x, y)
    return left


def refine_solution(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> Verification:
    """Refine one point (1, n) on its working set, and verify it by its exact residuals.

    Args:
        qp: a batch of one dense program on the CPU.
        x: (1, n) a point near the solution.
        duals: the multipliers of the point.
        working: the constraints to hold.
    """
    sample, system = ExactSample(qp), NullSpace(qp, working)
    held = torch.cat([torch.ones(1, qp.p, dtype=torch.bool), working.rows], 1)[0].numpy()
    point = DoubleDouble(torch.where(working.lower, qp.lb, torch.where(working.upper, qp.ub, x))[0].numpy().copy())
    y = DoubleDouble(np.where(held, torch.cat([duals.equality, duals.inequality], 1)[0].numpy(), 0.0))
    left = refine(sample, system.solve, working, point, y)
    fixed = working.fixed[0].numpy()
    z, multipliers = round_to_float64(point, y, qp.p, np.where(fixed, -left.gradient[0].numpy(), 0.0))
    return verify(qp, z, multipliers, working, left)


def projection_program(qp: QuadraticProgram, e: Tensor) -> QuadraticProgram:
    """The programs whose solutions on the active sets of ``qp`` are the projections P e, for e (B, n)."""
    zero: dict[str, Any] = {name: torch.zeros_like(getattr(qp, name)) for name in ("b", "h")}
    return replace(qp, c=-e, **zero, lb=torch.full_like(qp.lb, -torch.inf), ub=torch.full_like(qp.ub, torch.inf))


def _sizes(change: Array, n: int) -> Array:
    """The largest absolute entry of the first n corrections (of x) and of the others (of y). Shape (2,)."""
    parts = np.split(np.abs(change), [n])
    return np.array([part.max(initial=0.0) for part in parts])
