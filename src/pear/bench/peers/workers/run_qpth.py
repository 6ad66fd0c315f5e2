"""qpth: a batched interior point whose factorisation serves the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("qpth", "torch", "numpy")


def prepare(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Long-only portfolios; its own tolerance (1e-12) and number of iterations."""
    import torch

    Q, cost, true = (torch.from_numpy(data[name]).to(device) for name in ("Q", "cost", "true"))
    n = cost.shape[1]
    A, b = Q.new_ones(1, n), Q.new_ones(1)
    G, h = -torch.eye(n, dtype=Q.dtype, device=device), Q.new_zeros(n)
    # The covariances are positive definite by construction, so that it need not compute their eigenvalues.
    layer = import_module("qpth.qp").QPFunction(verbose=-1, check_Q_spd=False)

    def step() -> dict[str, Any]:
        c = cost.clone().requires_grad_()
        z = layer(Q, c, G, h, A, b)
        true_objective = 0.5 * (z * (Q @ z[:, :, None])[:, :, 0]).sum() + (true * z).sum()
        true_objective.backward()
        assert c.grad is not None
        return {"gradient": c.grad.cpu().numpy()}

    return step
