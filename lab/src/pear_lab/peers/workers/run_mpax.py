"""MPAX: a first-order method for linear and quadratic programs in JAX. The batch is solved, nothing is differentiated.

Its documentation differentiates by unrolling its iterations, or, for SPO+, not through the solver at all; there is no
derivative of the regret to ask it for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

PACKAGES = ("mpax", "jax", "jaxlib", "numpy")


def prepare(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """The smoothed programs by ``vmap``, constraints shared, dense, in float64, at its own tolerance (1e-4)."""
    jax: Any = import_module("jax")
    mpax: Any = import_module("mpax")
    Q, cost, A, b, G, h, lb, ub = (jax.device_put(data[name]) for name in ("Q", "cost", "A", "b", "G", "h", "lb", "ub"))
    # its rows are Gz ≥ h; what a program is made from may not be traced by jit, so that it is made before
    program = mpax.create_qp(Q, cost[0], A, b, -G, -h, lb, ub, use_sparse_matrix=False)

    def decide(cost: Any) -> Any:
        return mpax.raPDHG(verbose=False).optimize(replace(program, objective_vector=cost)).primal_solution

    decisions = jax.jit(jax.vmap(decide))
    return lambda: {"decision": jax.device_get(decisions(cost))}
