"""cvxpylayers with its default, diffcp: a cone solver and the derivative of its optimality map."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("cvxpylayers", "cvxpy", "diffcp", "torch", "numpy")


def prepare(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Long-only portfolios; the factors of the covariances are parameters, as its rules demand."""
    import torch

    cp, layers = import_module("cvxpy"), import_module("cvxpylayers.torch")
    Q, cost, true = (torch.from_numpy(data[name]) for name in ("Q", "cost", "true"))
    n = cost.shape[1]
    factors = torch.linalg.cholesky(Q).mT.contiguous()  # Q = FᵀF, known beforehand like Q itself
    x, F, c = cp.Variable(n), cp.Parameter((n, n)), cp.Parameter(n)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(F @ x) + c @ x), [cp.sum(x) == 1, x >= 0])
    layer = layers.CvxpyLayer(problem, parameters=[F, c], variables=[x])

    def step() -> dict[str, Any]:
        moving = cost.clone().requires_grad_()
        (z,) = layer(factors, moving)
        true_objective = 0.5 * (z * (Q @ z[:, :, None])[:, :, 0]).sum() + (true * z).sum()
        true_objective.backward()
        assert moving.grad is not None
        return {"gradient": moving.grad.numpy()}

    return step
