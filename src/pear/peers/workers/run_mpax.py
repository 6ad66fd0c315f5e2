"""MPAX: a first-order method for linear and quadratic programs in JAX. The batch is solved, nothing is differentiated.

Its documentation differentiates by unrolling its iterations, or, for SPO+, not through the solver at all; there is no
derivative of the regret to ask it for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

PACKAGES = ("mpax", "jax", "jaxlib", "numpy")


def prepare(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """The smoothed programs by ``vmap``, constraints shared, dense, in float64, at its own tolerance (1e-4)."""
    if os.environ.get("OMP_NUM_THREADS") == "1":
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # another process has data on the same GPU
    os.environ["JAX_TRACEBACK_FILTERING"] = "off"  # so that the last line of an error is the error
    jax: Any = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", device)
    mpax: Any = import_module("mpax")
    Q, cost, A, b, G, h, lb, ub = (jax.device_put(data[name]) for name in ("Q", "cost", "A", "b", "G", "h", "lb", "ub"))
    # its rows are Gz ≥ h; what a program is made from may not be traced by jit, so that it is made before
    program = mpax.create_qp(Q, cost[0], A, b, -G, -h, lb, ub, use_sparse_matrix=False)

    def decide(cost: Any) -> Any:
        return mpax.raPDHG(verbose=False).optimize(replace(program, objective_vector=cost)).primal_solution

    decisions = jax.jit(jax.vmap(decide))
    return lambda: {"decision": jax.device_get(decisions(cost))}
