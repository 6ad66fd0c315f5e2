"""qpth: a batched interior point whose factorisation serves the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("qpth", "torch", "numpy")


def layer(Q: Any) -> Callable[[Any], Any]:
    """Return qpth's layer for long-only portfolios with curvature Q."""
    import torch

    n = Q.shape[-1]
    rows = {"A": Q.new_ones(1, n), "b": Q.new_ones(1)}
    return program({"Q": Q, **rows, "C": -torch.eye(n, dtype=Q.dtype, device=Q.device), "d": Q.new_zeros(n)})


def program(data: dict[str, Any]) -> Callable[[Any], Any]:
    """Return qpth's layer for any program, at its own tolerance (1e-12) and number of iterations."""
    A, b = (data[name] if data["b"].numel() else data[name].new_empty(0) for name in ("A", "b"))
    # Q is positive definite by construction, so that it need not compute its eigenvalues.
    solve = import_module("qpth.qp").QPFunction(verbose=-1, check_Q_spd=False)
    return lambda cost: solve(data["Q"], cost, data["C"], data["d"], A, b)
