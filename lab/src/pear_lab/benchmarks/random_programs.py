"""Parts of random programs, for benchmarks and stress tests: curvatures, rows, polytopes, grids and markets."""

from __future__ import annotations

from typing import Any

import numpy as np

from pear_lab.judge.judged_program import Array

Fields = dict[str, Any]
"""The fields of a problem, by the names of the arguments of ``Problem``."""
Rng = np.random.Generator


def random_row_values(rows: Array, x: Array) -> Array:
    """Return the values (…, r) of r rows (…, r, n) at points (…, n)."""
    return np.asarray(np.einsum("...rn,...n->...r", rows, x))


def random_curvature(rng: Rng, n: int, *lead: int) -> Array:
    """Draw symmetric matrices ``(*lead, n, n)`` whose eigenvalues are at least 0.1."""
    M = rng.normal(size=(*lead, n, n))
    return np.asarray(M @ np.swapaxes(M, -1, -2) / n + 0.1 * np.eye(n))


def random_program_entries(rng: Rng, shape: tuple[int, ...], whole: bool = False) -> Array:
    """Draw numbers of a shape: standard normal ones, or integers from −3 to 3 if ``whole``."""
    return rng.integers(-3, 4, shape).astype(float) if whole else rng.normal(size=shape)


def random_polytope(rng: Rng, x: Array, equalities: int, rows: int, room: float = 1.0, whole: bool = False) -> Fields:
    """Draw a polytope around a point, or one polytope around each of B points.

    Args:
        rng: random generator.
        x: (n,) or (B, n) points.
        equalities, rows: the numbers of rows of A and of G.
        room: the largest slack of a row of G at the point. The largest slack of a bound is 1.
        whole: whether all numbers are small integers, so that every product is exact. All slacks are then 0, 1 or 2,
            whatever ``room`` is.

    Returns:
        A, b, G, h, lb and ub, with a first dimension of B if x has one.
    """
    *lead, n = x.shape

    def slack(shape: tuple[int, ...], most: float) -> Array:
        return rng.integers(0, 3, shape).astype(float) if whole else rng.uniform(0.0, most, shape)

    A, G = (random_program_entries(rng, (*lead, count, n), whole) for count in (equalities, rows))
    b, reached = random_row_values(A, x), random_row_values(G, x)
    limits = {"h": reached + slack(reached.shape, room), "lb": x - slack(x.shape, 1.0), "ub": x + slack(x.shape, 1.0)}
    return {"A": A, "b": b, "G": G, **limits}


def append_random_rows(fields: Fields, name: str, *more: tuple[Array, Any]) -> None:
    """Append rows to a matrix of a problem, and their right-hand sides to its vector.

    Args:
        fields: the fields of the problem, which are modified.
        name: the matrix, "A" or "G".
        more: pairs of r rows (…, r, n) and right-hand sides that broadcast to (…, r).
    """
    rhs = {"A": "b", "G": "h"}[name]
    fields[name] = np.concatenate([fields[name], *(rows for rows, _ in more)], -2)
    fields[rhs] = np.concatenate([fields[rhs], *(np.broadcast_to(side, rows.shape[:-1]) for rows, side in more)], -1)


def grid_flow_balance(size: int) -> tuple[Array, Array]:
    """Return the flow balance of a path through a square grid, from the first corner to the last.

    Args:
        size: the number of nodes on a side.

    Returns:
        A (nodes, edges) and b (nodes,), such that a flow z of one unit satisfies Az = b.
    """
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


def random_markets(rng: Rng, n: int, batch: int) -> tuple[Array, Array, Array, Array]:
    """Draw markets of n assets over 84 days, with a forecast of the last 21 days.

    Returns follow five factors and noise, each with a deviation of 1 % a day. A forecast of a day is half of its
    returns plus noise. μ and Σ are the mean and the covariance of the true returns, and μ̂ and Σ̂ those of 63 true and
    21 forecast days. 1e-4 is added to the diagonals of Σ and Σ̂. A smaller batch has the first markets of a larger one
    with the same seed.

    Returns:
        −μ̂ and −μ (B, n), 2Σ̂ and 2Σ (B, n, n).
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
