"""The last refinement, for points that float64 alone cannot show to be optimal."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pear.optimality.exact import DoubleDouble, ExactSample, rounded
from pear.optimality.point import ActiveSet, Duals
from pear.optimality.verify import Verification, verify
from pear.problem.canonical import QuadraticProgram
from pear.sensitivity.null_space import NullSpace
from pear.sensitivity.refine import refine


def sharpen(qp: QuadraticProgram, x: Tensor, duals: Duals, working: ActiveSet) -> Verification:
    """Refine one point (1, n) on its working set with exact residuals, and judge it by them.

    Args:
        qp: one dense program on the CPU.
        x: (1, n) a point near the solution; duals: its multipliers; working: the constraints to hold.
    """
    sample, system = ExactSample(qp), NullSpace(qp, working)
    held = torch.cat([torch.ones(1, qp.p, dtype=torch.bool), working.rows], 1)[0].numpy()
    point = DoubleDouble(torch.where(working.lower, qp.lb, torch.where(working.upper, qp.ub, x))[0].numpy().copy())
    y = DoubleDouble(np.where(held, torch.cat([duals.equality, duals.inequality], 1)[0].numpy(), 0.0))
    left = refine(sample, system.solve, working, point, y)
    fixed = working.fixed[0].numpy()
    z, multipliers = rounded(point, y, qp.p, np.where(fixed, -left.gradient[0].numpy(), 0.0))
    return verify(qp, z, multipliers, working, left)
