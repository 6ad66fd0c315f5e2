"""cvxpylayers with its default, diffcp: a cone solver, and the derivative of its optimality conditions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

PACKAGES = ("cvxpylayers", "cvxpy", "diffcp", "torch", "numpy")


def cvxpylayers_layer(Q: Any) -> Callable[[Any], Any]:
    """Return the function of cvxpylayers from costs (B, n) to long-only portfolios (B, n) with curvatures Q (B, n, n).

    The parameters of the program are factors of the curvatures, as the rules of CVXPY demand.
    """
    import torch

    factors = torch.linalg.cholesky(
        Q
    ).mT.contiguous()  # Q = FᵀF; the gradient with respect to a forecast Q runs through F
    solve = _cvxpylayers_program(Q.shape[-1])
    return lambda cost: solve(factors, cost)[0]


@cache
def _cvxpylayers_program(n: int) -> Any:
    """Make the layer for n assets. Later calls return the same layer."""
    cp, layers = import_module("cvxpy"), import_module("cvxpylayers.torch")
    x, F, c = cp.Variable(n), cp.Parameter((n, n)), cp.Parameter(n)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(F @ x) + c @ x), [cp.sum(x) == 1, x >= 0])
    return layers.CvxpyLayer(problem, parameters=[F, c], variables=[x])


LAYER = cvxpylayers_layer
