"""qpth: a batched interior-point method. The backward pass uses its factorisation again."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("qpth", "torch", "numpy")


def qpth_layer(Q: Any) -> Callable[[Any], Any]:
    """Return the function of qpth from costs (B, n) to long-only portfolios (B, n) with curvatures Q (B, n, n)."""
    import torch

    n = Q.shape[-1]
    rows = {"A": Q.new_ones(1, n), "b": Q.new_ones(1)}
    return qpth_program({"Q": Q, **rows, "C": -torch.eye(n, dtype=Q.dtype, device=Q.device), "d": Q.new_zeros(n)})


def qpth_program(data: dict[str, Any]) -> Callable[[Any], Any]:
    """Return the function of qpth from costs (B, n) to solutions (B, n) of any program.

    The tolerance, 1e-12, and the number of iterations are the defaults.

    Args:
        data: Q, A, b, C and d, as ``worker.py`` describes them.
    """
    A, b = (data[name] if data["b"].numel() else data[name].new_empty(0) for name in ("A", "b"))
    # Q is positive definite by construction, so that qpth need not check its eigenvalues.
    solve = import_module("qpth.qp").QPFunction(verbose=-1, check_Q_spd=False)
    return lambda cost: solve(data["Q"], cost, data["C"], data["d"], A, b)


LAYER, PROGRAM = qpth_layer, qpth_program
