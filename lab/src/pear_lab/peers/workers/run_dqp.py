"""dQP with DAQP: an active-set solver for the decision, and a system of the active rows for the derivative."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("libdqp", "daqp", "qpsolvers", "torch", "numpy")


def layer(Q: Any) -> Callable[[Any], Any]:
    """Return dQP's layer for dense long-only portfolios with curvature Q, at dQP's own tolerances."""
    import torch

    B, n, _ = Q.shape
    fixed = Q, (-torch.eye(n, dtype=Q.dtype)).repeat(B, 1, 1), Q.new_zeros(B, n), Q.new_ones(B, 1, n), Q.new_ones(B, 1)
    alone = B == 1  # it takes a single sample without the dimension of the batch
    P, G, h, A, b = (part[0] for part in fixed) if alone else fixed
    dqp = import_module("dqp").dQP
    solve = dqp.dQP_layer(settings=dqp.build_settings(solve_type="dense", qp_solver="daqp"))
    return lambda cost: solve(P, cost[0] if alone else cost, G, h, A, b)[0].reshape(B, n)
