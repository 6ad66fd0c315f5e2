"""qpax: an interior-point method in JAX, batched by ``vmap`` and differentiated at a relaxed solution."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("qpax", "jax", "jaxlib", "numpy")
SHARED = {"Q": 2, "A": 2, "b": 1, "C": 2, "d": 1}


def prepare_qpax_gradient(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Return a function that computes the gradient (B, n) of the true objective with respect to the predicted costs.

    Args:
        data: the arrays that ``worker.py`` describes, and the options ``solver_tol`` and ``target_kappa`` of qpax.
        device: "cpu" or "cuda".
    """
    jax: Any = import_module("jax")
    solve_qp_primal = import_module("qpax").solve_qp_primal
    options = {name: float(data[name]) for name in ("solver_tol", "target_kappa")}
    cost, true, *fixed = (jax.device_put(data[name]) for name in ("cost", "true", *SHARED))
    own = [0 if part.ndim > dimensions else None for part, dimensions in zip(fixed, SHARED.values(), strict=True)]

    def objective(cost: Any, true: Any, Q: Any, A: Any, b: Any, C: Any, d: Any) -> Any:
        z = solve_qp_primal(Q, cost, A, b, C, d, **options)
        return 0.5 * z @ Q @ z + true @ z

    def total(cost: Any, true: Any, *fixed: Any) -> Any:
        return jax.vmap(objective, (0, 0, *own))(cost, true, *fixed).sum()

    gradient = jax.jit(jax.grad(total))
    return lambda: {"gradient": jax.device_get(gradient(cost, true, *fixed))}


PREPARE = prepare_qpax_gradient
