"""Random batches of programs for the gradient benchmark: one function for each structure.

Every field has a random stream of its own, so that a smaller batch consists of the first programs of a larger one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pear_lab.benchmarks.random_programs import Rng, grid_flow_balance, random_curvature, random_markets
from pear_lab.judge.judged_program import Array

SHARED_ROWS, OWN_ROWS, KNAPSACK_ROWS = 30, 10, 5
SECTORS, POLYTOPE_ROWS, WORKERS, HOURS = 11, 60, 12, 24
"""Sector limits of a portfolio, rows of a polytope, workers and jobs of an assignment, and hours of a battery."""
ORIGINS, DESTINATIONS = 10, 20
"""Origins and destinations of a transport problem."""
FACTORS = 5
"""Risk factors of a portfolio whose samples share its covariance."""
KNAPSACK_SMOOTHING, PATH_SMOOTHING, FLOW_SMOOTHING, POLYTOPE_SMOOTHING = 1.0, 0.1, 0.3, 0.5
"""λ of the linear programs; that of flows is for assignments, transports and batteries."""


@dataclass(frozen=True)
class Draw:
    """A random batch of B programs of n variables.

    Attributes:
        cost, true: (B, n) predicted and true costs.
        fields: Q, A, b, G, h, lb and ub by the names ``Problem`` has for them, shared or per sample; absent ones are
            left out.
        smoothing: λ, which is added to the diagonal of Q on every side.
        redundant: number of rows at the end of A that are combinations of the others.
    """

    cost: Array
    true: Array
    fields: dict[str, Any]
    smoothing: float = 0.0
    redundant: int = 0


def draw_portfolio_programs(rng: Rng, n: int, B: int) -> Draw:
    """Long-only portfolios, each with a covariance of its own."""
    cost, true, _, Q = random_markets(rng, n, B)
    return Draw(cost, true, {"Q": Q, "A": np.ones((1, n)), "b": np.ones(1), "lb": 0.0})


def draw_box_programs(rng: Rng, n: int, B: int) -> Draw:
    """QPs with bounds alone, each with a dense curvature of its own."""
    bounds, curvatures, costs = rng.spawn(3)
    fields = {"Q": random_curvature(curvatures, n, B), "lb": -0.5, "ub": bounds.uniform(0.0, 1.0, n)}
    return Draw(*_draw_program_costs(costs, n, B), fields)


def draw_shared_row_programs(rng: Rng, n: int, B: int) -> Draw:
    """QPs with rows and bounds that all samples share; the curvatures are their own."""
    rows, curvatures, costs = rng.spawn(3)
    fields = {"G": rows.normal(size=(SHARED_ROWS, n)), "h": rows.uniform(0.1, 1.1, SHARED_ROWS), "lb": -1.0, "ub": 1.0}
    return Draw(*_draw_program_costs(costs, n, B), {"Q": random_curvature(curvatures, n, B), **fields})


def draw_own_row_programs(rng: Rng, n: int, B: int) -> Draw:
    """QPs whose rows and curvatures are their own."""
    rows, limits, curvatures, costs = rng.spawn(4)
    G, h = rows.normal(size=(B, OWN_ROWS, n)), limits.uniform(0.1, 1.1, (B, OWN_ROWS))
    return Draw(
        *_draw_program_costs(costs, n, B),
        {"Q": random_curvature(curvatures, n, B), "G": G, "h": h, "lb": -1.0, "ub": 1.0},
    )


def draw_knapsack_programs(rng: Rng, n: int, B: int) -> Draw:
    """Relaxed knapsacks with several capacities."""
    items, values, errors = rng.spawn(3)
    weights = items.uniform(1.0, 9.0, (KNAPSACK_ROWS, n))
    true = -values.uniform(1.0, 6.0, (B, n))
    fields = {"G": weights, "h": 0.3 * weights.sum(1), "lb": 0.0, "ub": 1.0}
    return Draw(true + errors.normal(size=(B, n)), true, fields, KNAPSACK_SMOOTHING)


def draw_path_programs(side: int, rng: Rng, n: int, B: int) -> Draw:
    """Paths through a grid of ``side`` × ``side`` nodes; one flow balance follows from the others."""
    costs, errors = rng.spawn(2)
    A, b = grid_flow_balance(side)
    true = costs.uniform(0.5, 1.5, (B, n))
    fields = {"A": A, "b": b, "lb": 0.0, "ub": 1.0}
    return Draw(true + 0.3 * errors.normal(size=(B, n)), true, fields, PATH_SMOOTHING, redundant=1)


def _draw_program_costs(rng: Rng, n: int, B: int) -> tuple[Array, Array]:
    """Draw predicted and true costs; the errors are half as large as the costs."""
    true, errors = rng.spawn(2)
    c = true.normal(size=(B, n))
    return c + 0.5 * errors.normal(size=(B, n)), c


def draw_sector_programs(rng: Rng, n: int, B: int) -> Draw:
    """Long-only portfolios with one covariance; no sector may hold more than a fifth."""
    curvature, costs = rng.spawn(2)
    loadings, sectors = curvature.normal(size=(n, FACTORS)), np.arange(n) % SECTORS
    Q = 0.01 * loadings @ loadings.T + np.diag(curvature.uniform(0.01, 0.05, n))
    G = (sectors == np.arange(SECTORS)[:, None]).astype(float)
    cost, true = _draw_program_costs(costs, n, B)
    fields = {"Q": Q, "A": np.ones((1, n)), "b": np.ones(1), "G": G, "h": np.full(SECTORS, 0.2), "lb": 0.0}
    return Draw(0.1 * cost, 0.1 * true, fields)


def draw_turnover_programs(rng: Rng, n: int, B: int) -> Draw:
    """Portfolios that pay for purchases and sales: n = 3 · assets variables, of which the last two thirds are trades.

    Trades have no curvature, so that Q is singular. Their price is known; returns alone are forecast.
    """
    assets = n // 3
    curvature, costs = rng.spawn(2)
    loadings, one = curvature.normal(size=(assets, FACTORS)), np.eye(assets)
    Q = np.zeros((n, n))
    Q[:assets, :assets] = 0.05 * loadings @ loadings.T + np.diag(curvature.uniform(0.01, 0.05, assets))
    A = np.zeros((1 + assets, n))
    A[0, :assets] = 1.0
    A[1:] = np.hstack([one, -one, one])
    predicted, true = (
        np.hstack([0.05 * returns, np.full((B, 2 * assets), 0.005)])
        for returns in _draw_program_costs(costs, assets, B)
    )
    return Draw(predicted, true, {"Q": Q, "A": A, "b": np.append(1.0, np.full(assets, 1 / assets)), "lb": 0.0})


def draw_dense_programs(rows: int, rng: Rng, n: int, B: int) -> Draw:
    """QPs with one dense curvature, dense rows and bounds."""
    limits, curvature, costs = rng.spawn(3)
    G, h = limits.normal(size=(rows, n)), np.abs(limits.normal(size=rows))
    fields = {"Q": random_curvature(curvature, n), "G": G, "h": h, "lb": -1.0, "ub": 1.0}
    return Draw(*_draw_program_costs(costs, n, B), fields)


def draw_polytope_programs(rng: Rng, n: int, B: int) -> Draw:
    """Smoothed LPs over dense rows, without a bound or an equality."""
    limits, costs = rng.spawn(2)
    fields = {"G": limits.normal(size=(POLYTOPE_ROWS, n)), "h": 1.0 + np.abs(limits.normal(size=POLYTOPE_ROWS))}
    return Draw(*_draw_program_costs(costs, n, B), fields, POLYTOPE_SMOOTHING)


def draw_assignment_programs(rng: Rng, n: int, B: int) -> Draw:
    """Every worker has one job and every job one worker; one row follows from the others."""
    A = np.vstack([np.kron(np.eye(WORKERS), np.ones(WORKERS)), np.kron(np.ones(WORKERS), np.eye(WORKERS))])
    fields = {"A": A, "b": np.ones(2 * WORKERS), "lb": 0.0}
    return Draw(*_draw_program_prices(rng, n, B), fields, FLOW_SMOOTHING, redundant=1)


def draw_transport_programs(rng: Rng, n: int, B: int) -> Draw:
    """Flows from origins with a capacity to destinations with a demand."""
    demands, costs = rng.spawn(2)
    A = np.kron(np.ones(ORIGINS), np.eye(DESTINATIONS))
    G = np.kron(np.eye(ORIGINS), np.ones(DESTINATIONS))
    fields = {"A": A, "b": demands.uniform(1.0, 2.0, DESTINATIONS), "G": G, "h": np.full(ORIGINS, 4.5), "lb": 0.0}
    return Draw(*_draw_program_prices(costs, n, B), fields, FLOW_SMOOTHING)


def draw_battery_programs(rng: Rng, n: int, B: int) -> Draw:
    """A day of a battery: what goes in and out every hour, and the state before and after; a tenth is lost on entry."""
    noise, errors = rng.spawn(2)
    one, none = np.eye(HOURS), np.zeros((HOURS, HOURS))
    states = np.eye(HOURS + 1)
    balance = np.hstack([-0.9 * one, one, states[1:] - states[:-1]])
    A = np.vstack([np.hstack([none[0], none[0], states[0]]), balance])
    b, ub = np.append(0.5, np.zeros(HOURS)), np.repeat([0.5, 0.2, 1.0], [HOURS, HOURS, HOURS + 1])
    day = 3.0 + np.sin(4 * np.pi * np.arange(HOURS) / HOURS)
    prices = day + 0.5 * noise.normal(size=(B, HOURS))
    forecasts = prices + 0.3 * errors.normal(size=(B, HOURS))
    cost, true = (np.hstack([p, -p, np.zeros((B, HOURS + 1))]) for p in (forecasts, prices))
    return Draw(cost, true, {"A": A, "b": b, "lb": 0.0, "ub": ub}, FLOW_SMOOTHING)


def _draw_program_prices(rng: Rng, n: int, B: int) -> tuple[Array, Array]:
    """Predicted and true costs from 0 to 1, the error a third of their spread."""
    true, errors = rng.spawn(2)
    c = true.uniform(size=(B, n))
    return c + 0.1 * errors.normal(size=(B, n)), c
