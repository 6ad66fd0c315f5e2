"""qpth: a batched interior-point method whose factorisation serves the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("qpth", "torch", "numpy")


def qpth_layer(Q: Any) -> Callable[[Any], Any]:
    """Return the layer of qpth for long-only portfolios with curvatures Q (B, n, n)."""
    import torch

    n = Q.shape[-1]
    rows = {"A": Q.new_ones(1, n), "b": Q.new_ones(1)}
    return qpth_program({"Q": Q, **rows, "C": -torch.eye(n, dtype=Q.dtype, device=Q.device), "d": Q.new_zeros(n)})


def qpth_program(data: dict[str, Any]) -> Callable[[Any], Any]:
    """Return the layer of qpth for any program, with the default tolerance of 1e-12 and number of iterations.

    Args:
        data: Q, A, b, C and d, as ``worker.py`` describes them.
    """
    A, b = (data[name] if data["b"].numel() else data[name].new_empty(0) for name in ("A", "b"))
    # Q is positive definite by construction, so that qpth need not check its eigenvalues.
    solve = import_module("qpth.qp").QPFunction(verbose=-1, check_Q_spd=False)
    return lambda cost: solve(data["Q"], cost, data["C"], data["d"], A, b)


LAYER, PROGRAM = qpth_layer, qpth_program
