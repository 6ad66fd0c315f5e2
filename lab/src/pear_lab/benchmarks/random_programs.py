"""Parts of random programs that the benchmarks and the stress tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.problem import Problem
from pear_lab.judge.judged_program import Array

Fields = dict[str, Any]
"""Arrays by the names that ``Problem`` has for them."""
Rng = np.random.Generator


def rows_times_points(rows: Array, x: Array) -> Array:
    """Multiply rows (…, r, n) by points (…, n)."""
    return np.asarray(np.einsum("...rn,...n->...r", rows, x))


def random_curvature(rng: Rng, n: int, *lead: int) -> Array:
    """Draw symmetric matrices (…, n, n) with eigenvalues of at least 0.1."""
    M = rng.normal(size=(*lead, n, n))
    return np.asarray(M @ np.swapaxes(M, -1, -2) / n + 0.1 * np.eye(n))


def random_entries(rng: Rng, shape: tuple[int, ...], whole: bool = False) -> Array:
    """Normal numbers, or integers from −3 to 3."""
    return rng.integers(-3, 4, shape).astype(float) if whole else rng.normal(size=shape)


def random_polytope(rng: Rng, x: Array, equalities: int, rows: int, room: float = 1.0, whole: bool = False) -> Fields:
    """Draw rows and bounds that the point x, (n,) or (B, n), satisfies: one set for every point.

    Args:
        rng: draws them.
        x: the point.
        equalities, rows: numbers of rows of A and G.
        room: largest slack of a row of G at the point; that of a bound is 1.
        whole: all numbers are small integers, so that every product is exact.
    """
    *lead, n = x.shape

    def slack(shape: tuple[int, ...], most: float) -> Array:
        return rng.integers(0, 3, shape).astype(float) if whole else rng.uniform(0.0, most, shape)

    A, G = (random_entries(rng, (*lead, count, n), whole) for count in (equalities, rows))
    b, reached = rows_times_points(A, x), rows_times_points(G, x)
    limits = {"h": reached + slack(reached.shape, room), "lb": x - slack(x.shape, 1.0), "ub": x + slack(x.shape, 1.0)}
    return {"A": A, "b": b, "G": G, **limits}


def add_rows(fields: Fields, name: str, *more: tuple[Array, Any]) -> None:
    """Append rows (…, r, n) with right-hand sides (…, r) to A ("A") or G ("G")."""
    rhs = {"A": "b", "G": "h"}[name]
    fields[name] = np.concatenate([fields[name], *(rows for rows, _ in more)], -2)
    fields[rhs] = np.concatenate([fields[rhs], *(np.broadcast_to(side, rows.shape[:-1]) for rows, side in more)], -1)


def flow_balance(size: int) -> tuple[Array, Array]:
    """Return the flow balance of a square grid, first to last corner: matrix (nodes, edges) and limits (nodes,)."""
    node = np.arange(size * size).reshape(size, size)
    right = np.column_stack([node[:, :-1].ravel(), node[:, 1:].ravel()])
    down = np.column_stack([node[:-1].ravel(), node[1:].ravel()])
    edges = np.vstack([right, down])
    A = np.zeros((size * size, len(edges)))
    A[edges[:, 0], np.arange(len(edges))] = 1.0
    A[edges[:, 1], np.arange(len(edges))] = -1.0
    b = np.zeros(size * size)
    b[0], b[-1] = 1.0, -1.0
    return A, b


def long_only_problem(Q: Any) -> Problem:
    """Make the problem of long-only portfolios, Σᵢ wᵢ = 1 and w ≥ 0, with a known curvature Q (B, n, n)."""
    ones = torch.ones(1, Q.shape[-1], dtype=torch.float64, device=Q.device if isinstance(Q, Tensor) else "cpu")
    return Problem(Q=Q, A=ones, b=ones[:, 0], lb=0.0)


def random_markets(rng: Rng, n: int, batch: int) -> tuple[Array, Array, Array, Array]:
    """Draw markets one after the other. Return −μ̂ and −μ (B, n), and 2Σ̂ and 2Σ (B, n, n).

    A smaller batch is the start of a larger one. Each market has n assets over 84 days: five factors and noise of 1 % a
    day each, and 1e-4 I on top of Σ. The last 21 days are a forecast: half of what will happen, and noise.
    """
    days, ahead = 84, 21
    predicted, true, Q_hat, Q = np.empty((batch, n)), np.empty((batch, n)), *np.empty((2, batch, n, n))
    for i in range(batch):
        factors, loadings = rng.normal(0.0, 0.01, (days, 5)), rng.normal(0.0, 1.0, (5, n))
        returns = 0.0005 + factors @ loadings + rng.normal(0.0, 0.01, (days, n))
        forecast = 0.5 * returns[-ahead:] + rng.normal(0.0, 0.01, (ahead, n))
        seen = np.vstack([returns[:-ahead], forecast])
        predicted[i], true[i] = -seen.mean(0), -returns.mean(0)
        Q_hat[i], Q[i] = (2.0 * (np.cov(r, rowvar=False) + 1e-4 * np.eye(n)) for r in (seen, returns))
    return predicted, true, Q_hat, Q
