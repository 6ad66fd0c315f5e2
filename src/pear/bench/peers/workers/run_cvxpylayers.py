"""cvxpylayers with its default, diffcp: a cone solver and the derivative of its optimality map."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("cvxpylayers", "cvxpy", "diffcp", "torch", "numpy")


def layer(Q: Any) -> Callable[[Any], Any]:
    """The factors of the covariances are parameters, as its rules demand."""
    import torch

    cp, layers = import_module("cvxpy"), import_module("cvxpylayers.torch")
    n = Q.shape[-1]
    factors = torch.linalg.cholesky(Q).mT.contiguous()  # Q = FᵀF, known beforehand like Q itself
    x, F, c = cp.Variable(n), cp.Parameter((n, n)), cp.Parameter(n)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(F @ x) + c @ x), [cp.sum(x) == 1, x >= 0])
    solve = layers.CvxpyLayer(problem, parameters=[F, c], variables=[x])
    return lambda cost: solve(factors, cost)[0]
