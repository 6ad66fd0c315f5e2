"""cvxpylayers with its default, diffcp: a cone solver and the derivative of its optimality map."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

PACKAGES = ("cvxpylayers", "cvxpy", "diffcp", "torch", "numpy")


def layer(Q: Any) -> Callable[[Any], Any]:
    """Return its layer for long-only portfolios; as its rules demand, factors of the covariances are parameters."""
    import torch

    factors = torch.linalg.cholesky(Q).mT.contiguous()  # Q = FᵀF; where Q is forecast, gradients run through it
    solve = _program(Q.shape[-1])
    return lambda cost: solve(factors, cost)[0]


@cache
def _program(n: int) -> Any:
    """Return the program of n assets, which is stated and canonicalised once."""
    cp, layers = import_module("cvxpy"), import_module("cvxpylayers.torch")
    x, F, c = cp.Variable(n), cp.Parameter((n, n)), cp.Parameter(n)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(F @ x) + c @ x), [cp.sum(x) == 1, x >= 0])
    return layers.CvxpyLayer(problem, parameters=[F, c], variables=[x])
