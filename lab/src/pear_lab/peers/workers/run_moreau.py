"""Moreau, a batched conic solver, through its own torch interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("moreau", "torch", "numpy")


def moreau_layer(Q: Any) -> Callable[[Any], Any]:
    """Return the function of Moreau from costs (B, n) to long-only portfolios (B, n) with curvatures Q (B, n, n).

    The constraints have the form ``Ax + s = b`` with slacks s, which are 0 in the first row and at least 0 in the
    others. All settings are the defaults, except the largest number of iterations. With the default of 200, the
    active-set method, which Moreau chooses for these programs, stops too early from about 450 assets on, and raises no
    error.
    """
    import torch

    moreau, interface = import_module("moreau"), import_module("moreau.torch")
    B, n, _ = Q.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Moreau warns about the method that it chooses
        solver = interface.Solver(
            n=n,
            m=n + 1,
            P_row_offsets=torch.arange(0, n * n + 1, n),
            P_col_indices=torch.arange(n).repeat(n),
            A_row_offsets=torch.cat([torch.zeros(1, dtype=torch.int64), torch.arange(n, 2 * n + 1)]),
            A_col_indices=torch.arange(n).repeat(2),
            cones=moreau.Cones(num_zero_cones=1, num_nonneg_cones=n),
            settings=moreau.Settings(device=Q.device.type, batch_size=B, max_iter=100_000),
        )
    rows = torch.cat([Q.new_ones(n), -Q.new_ones(n)]).expand(B, 2 * n).contiguous()
    limits = torch.cat([Q.new_ones(1), Q.new_zeros(n)]).expand(B, n + 1).contiguous()
    curvature = Q.reshape(B, n * n)
    return lambda cost: solver.solve(curvature, rows, cost, limits).x


LAYER = moreau_layer
