"""Refinement with exact residuals, for systems whose terms cancel to less than float64 can show.

A reduced system is solved in float64, its residual is computed exactly, and the point is corrected as the sum of two
vectors. Each round gains the digits that the factorisation has, so that a few suffice where rows are parallel to 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.optimality.exact import Array, DoubleDouble, ExactSample
from pear.optimality.point import ActiveSet
from pear.optimality.residual import Residuals
from pear.problem.canonical import QuadraticProgram

Solve = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Right-hand sides (f, r_eq, r_in) of one sample in; x and the multipliers of the rows out."""

_ROUNDS = 12


def refine(sample: ExactSample, solve: Solve, active: ActiveSet, x: DoubleDouble, y: DoubleDouble) -> Residuals:
    """Correct x (n,) and the multipliers y (p + m,) in place, until a round no longer halves the correction.

    Returns:
        What is left of the optimality conditions, to the last digit.
    """
    left, n, smallest = sample.residuals(x, y), len(x.high), np.inf
    first: Array | None = None
    for _ in range(_ROUNDS):
        rows = torch.where(active.rows, left.rows, 0.0)
        change = torch.cat(solve(-left.gradient, -left.equality, rows), 1)[0].numpy()
        sizes = _sizes(change, n)
        first = np.where(sizes > 0, sizes, 1.0) if first is None else first
        size = float((sizes / first).max())  # by the first one: x may go to zero
        if not size < 0.5 * smallest:  # also where it is not a number
            break
        smallest = size
        x.add(change[:n])
        y.add(change[n:])
        left = sample.residuals(x, y)
    return left


def homogeneous(qp: QuadraticProgram, e: Tensor) -> QuadraticProgram:
    """The program whose solution on the active set of ``qp`` is the projection P e, e (B, n)."""
    zero: dict[str, Any] = {name: torch.zeros_like(getattr(qp, name)) for name in ("b", "h")}
    return replace(qp, c=-e, **zero, lb=torch.full_like(qp.lb, -torch.inf), ub=torch.full_like(qp.ub, torch.inf))


def _sizes(change: Array, n: int) -> Array:
    """The largest correction of x and of y; not a number where one is none."""
    parts = np.split(np.abs(change), [n])
    return np.array([part.max(initial=0.0) for part in parts])
