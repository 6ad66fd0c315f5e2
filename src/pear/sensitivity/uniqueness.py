"""The test whether a decision is the only optimal one, by a linear program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.rule import DESCENT
from pear.problem.matrix import sample_of
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.adapters.batch_arrays import stack

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Array = NDArray[Any]


def is_unique(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet) -> Tensor:
    """Whether each solution is the only optimal point, for programs whose H may be singular. Shape (B,), bool.

    Another optimal point exists if some d ≠ 0 has Hd = 0, Jd = 0 for the constraints with a multiplier, and Jd ≤ 0 for
    the weakly active ones. No direction within all tight constraints is flat here, so that it is enough to check
    whether d can leave a weakly active constraint.

    Args:
        qp: the programs.
        active: the tight constraints of the solutions.
        weak: those of them whose multiplier is zero.
    """
    return torch.tensor(
        [_cannot_leave(qp, active, weak, i) for i in range(qp.batch)], dtype=torch.bool, device=qp.c.device
    )


def _cannot_leave(qp: QuadraticProgram, active: ActiveSet, weak: ActiveSet, i: int) -> bool:
    """Whether no direction without curvature leaves a weakly active constraint of sample i."""
    H, A, G = (sample_of(v, i) for v in (qp.H, qp.A, qp.G))
    rows, lower, upper = (v[i].cpu().numpy() for v in (active.rows, active.lower, active.upper))
    weak_rows, weak_lower, weak_upper = (v[i].cpu().numpy() for v in (weak.rows, weak.lower, weak.upper))
    pinned = (lower & ~weak_lower) | (upper & ~weak_upper)
    held, loose = stack(H, A, G[rows & ~weak_rows]), G[weak_rows]
    # a variable at a weakly active bound may only move inward, and one whose bound has a multiplier not at all
    low, high = np.where(pinned | weak_lower, 0.0, -1.0), np.where(pinned | weak_upper, 0.0, 1.0)
    gain = np.asarray(loose.sum(0)).reshape(-1) - weak_lower.astype(float) + weak_upper.astype(float)
    leave = solve_linear_program(gain, held, np.zeros(held.shape[0]), loose, np.zeros(loose.shape[0]), low, high)
    return bool(leave.status == 0 and leave.fun > -DESCENT)


def solve_linear_program(
    c: Array, A: Any, b: Array, G: Any, h: Array, lb: Array, ub: Array, **options: Any
) -> OptimizeResult:
    """Solve ``min cᵀx, Ax = b, Gx ≤ h, lb ≤ x ≤ ub`` by SciPy's HiGHS.

    Args:
        c: (n,) costs.
        A: (p, n), dense or sparse.
        b: (p,).
        G: (m, n), dense or sparse.
        h: (m,).
        lb: (n,).
        ub: (n,).
        **options: options of HiGHS.
    """
    from scipy.optimize import linprog  # takes long to import, and few programs need it

    return linprog(
        c,
        A_ub=G if G.shape[0] else None,
        b_ub=h if G.shape[0] else None,
        A_eq=A if A.shape[0] else None,
        b_eq=b if A.shape[0] else None,
        bounds=np.column_stack([lb, ub]),
        method="highs",
        options=options,
    )
