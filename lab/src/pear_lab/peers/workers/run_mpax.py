"""MPAX: a first-order method for linear and quadratic programs in JAX. Only the forward pass is measured.

The documentation of MPAX shows two gradients: one by unrolled iterations, and that of SPO+, which needs no derivative
of the solver. Neither of them is the derivative of the regret.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

PACKAGES = ("mpax", "jax", "jaxlib", "numpy")


def prepare_mpax_decisions(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Return a function that computes decisions (B, n) of programs that differ only in their costs.

    The tolerance is the default, 1e-4.

    Args:
        data: the arrays that ``worker.py`` describes.
        device: "cpu" or "cuda".
    """
    jax: Any = import_module("jax")
    mpax: Any = import_module("mpax")
    Q, cost, A, b, G, h, lb, ub = (jax.device_put(data[name]) for name in ("Q", "cost", "A", "b", "G", "h", "lb", "ub"))
    # rows of MPAX are Gz ≥ h; jit may not trace the arrays of a program, so that the program is made before
    program = mpax.create_qp(Q, cost[0], A, b, -G, -h, lb, ub, use_sparse_matrix=False)

    def decide(cost: Any) -> Any:
        return mpax.raPDHG(verbose=False).optimize(replace(program, objective_vector=cost)).primal_solution

    decisions = jax.jit(jax.vmap(decide))
    return lambda: {"decision": jax.device_get(decisions(cost))}


PREPARE = prepare_mpax_decisions
