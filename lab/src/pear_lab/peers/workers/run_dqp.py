"""dQP with DAQP: an active-set solver for the decision, and a linear system of the active rows for the derivative."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("libdqp", "daqp", "qpsolvers", "torch", "numpy")


def dqp_layer(Q: Any) -> Callable[[Any], Any]:
    """Return the function of dQP from costs (B, n) to long-only portfolios (B, n) with curvatures Q (B, n, n).

    The programs are dense, and the tolerances are the defaults.
    """
    import torch

    B, n, _ = Q.shape
    fixed = Q, (-torch.eye(n, dtype=Q.dtype)).repeat(B, 1, 1), Q.new_zeros(B, n), Q.new_ones(B, 1, n), Q.new_ones(B, 1)
    alone = B == 1  # a single sample has no dimension of the batch
    P, G, h, A, b = (part[0] for part in fixed) if alone else fixed
    dqp = import_module("dqp").dQP
    solve = dqp.dQP_layer(settings=dqp.build_settings(solve_type="dense", qp_solver="daqp"))
    return lambda cost: solve(P, cost[0] if alone else cost, G, h, A, b)[0].reshape(B, n)


LAYER = dqp_layer
