"""dQP with DAQP: an active-set solver for the decision, and a system of the active rows for the derivative."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("libdqp", "daqp", "qpsolvers", "torch", "numpy")


def prepare(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Long-only portfolios, dense, with its own tolerances."""
    import torch

    Q, cost, true = (torch.from_numpy(data[name]) for name in ("Q", "cost", "true"))
    B, n = cost.shape
    fixed = Q, (-torch.eye(n, dtype=Q.dtype)).repeat(B, 1, 1), Q.new_zeros(B, n), Q.new_ones(B, 1, n), Q.new_ones(B, 1)
    alone = B == 1  # it takes a single sample without the dimension of the batch
    P, G, h, A, b = (part[0] for part in fixed) if alone else fixed
    dqp = import_module("dqp").dQP
    layer = dqp.dQP_layer(settings=dqp.build_settings(solve_type="dense", qp_solver="daqp"))

    def step() -> dict[str, Any]:
        c = cost.clone().requires_grad_()
        z = layer(P, c[0] if alone else c, G, h, A, b)[0].reshape(B, n)
        true_objective = 0.5 * (z * (Q @ z[:, :, None])[:, :, 0]).sum() + (true * z).sum()
        true_objective.backward()
        assert c.grad is not None
        return {"gradient": c.grad.numpy()}

    return step
