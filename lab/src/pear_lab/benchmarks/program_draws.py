"""Random batches of programs for the gradient benchmark, one function for each structure.

Every field is drawn from its own random stream, so that a smaller batch has the first programs of a larger one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pear_lab.benchmarks.random_programs import Rng, grid_flow_balance, random_curvature, random_markets
from pear_lab.judge.judged_program import Array

SHARED_ROWS, OWN_ROWS, KNAPSACK_ROWS = 30, 10, 5
"""The numbers of rows that all samples share, of rows of each sample, and of capacities of a knapsack."""
SECTORS, POLYTOPE_ROWS, WORKERS, HOURS = 11, 60, 12, 24
"""The numbers of sector limits of a portfolio, of rows of a polytope, of workers and jobs, and hours of a battery."""
ORIGINS, DESTINATIONS = 10, 20
"""The numbers of origins and destinations of a transport problem."""
FACTORS = 5
"""The number of risk factors of portfolios that share a covariance."""
KNAPSACK_SMOOTHING, PATH_SMOOTHING, FLOW_SMOOTHING, POLYTOPE_SMOOTHING = 1.0, 0.1, 0.3, 0.5
"""λ of the linear programs. That of flows is for assignments, transports and batteries."""


@dataclass(frozen=True)
class ProgramDraw:
    """A random batch of B programs of n variables.

    Attributes:
        cost, true: (B, n) predicted and true costs.
        fields: Q, A, b, G, h, lb and ub by the names of the arguments of ``Problem``, shared or with a row for each
            sample. Absent fields are left out.
        smoothing: λ, which every library adds to the diagonal of Q.
        redundant: the number of rows at the end of A that are combinations of the other rows.
    """

    cost: Array
    true: Array
    fields: dict[str, Any]
    smoothing: float = 0.0
    redundant: int = 0


def draw_portfolio_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw long-only portfolios, each with its own covariance."""
    cost, true, _, Q = random_markets(rng, n, B)
    return ProgramDraw(cost, true, {"Q": Q, "A": np.ones((1, n)), "b": np.ones(1), "lb": 0.0})


def draw_box_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw QPs with bounds and no other constraints, each with its own dense curvature."""
    bounds, curvatures, costs = rng.spawn(3)
    fields = {"Q": random_curvature(curvatures, n, B), "lb": -0.5, "ub": bounds.uniform(0.0, 1.0, n)}
    return ProgramDraw(*_draw_program_costs(costs, n, B), fields)


def draw_shared_row_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw QPs that share rows and bounds, each with its own curvature."""
    rows, curvatures, costs = rng.spawn(3)
    fields = {"G": rows.normal(size=(SHARED_ROWS, n)), "h": rows.uniform(0.1, 1.1, SHARED_ROWS), "lb": -1.0, "ub": 1.0}
    return ProgramDraw(*_draw_program_costs(costs, n, B), {"Q": random_curvature(curvatures, n, B), **fields})


def draw_own_row_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw QPs, each with its own rows and its own curvature."""
    rows, limits, curvatures, costs = rng.spawn(4)
    G, h = rows.normal(size=(B, OWN_ROWS, n)), limits.uniform(0.1, 1.1, (B, OWN_ROWS))
    return ProgramDraw(
        *_draw_program_costs(costs, n, B),
        {"Q": random_curvature(curvatures, n, B), "G": G, "h": h, "lb": -1.0, "ub": 1.0},
    )


def draw_knapsack_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw relaxed knapsacks with several capacities."""
    items, values, errors = rng.spawn(3)
    weights = items.uniform(1.0, 9.0, (KNAPSACK_ROWS, n))
    true = -values.uniform(1.0, 6.0, (B, n))
    fields = {"G": weights, "h": 0.3 * weights.sum(1), "lb": 0.0, "ub": 1.0}
    return ProgramDraw(true + errors.normal(size=(B, n)), true, fields, KNAPSACK_SMOOTHING)


def draw_path_programs(side: int, rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw paths through a grid of ``side`` × ``side`` nodes. One flow balance follows from the others."""
    costs, errors = rng.spawn(2)
    A, b = grid_flow_balance(side)
    true = costs.uniform(0.5, 1.5, (B, n))
    fields = {"A": A, "b": b, "lb": 0.0, "ub": 1.0}
    return ProgramDraw(true + 0.3 * errors.normal(size=(B, n)), true, fields, PATH_SMOOTHING, redundant=1)


def _draw_program_costs(rng: Rng, n: int, B: int) -> tuple[Array, Array]:
    """Draw predicted and true costs (B, n). Prediction errors are half as large as costs."""
    true, errors = rng.spawn(2)
    c = true.normal(size=(B, n))
    return c + 0.5 * errors.normal(size=(B, n)), c


def draw_sector_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw long-only portfolios that share a covariance. No sector may hold more than a fifth of the weight."""
    curvature, costs = rng.spawn(2)
    loadings, sectors = curvature.normal(size=(n, FACTORS)), np.arange(n) % SECTORS
    Q = 0.01 * loadings @ loadings.T + np.diag(curvature.uniform(0.01, 0.05, n))
    G = (sectors == np.arange(SECTORS)[:, None]).astype(float)
    cost, true = _draw_program_costs(costs, n, B)
    fields = {"Q": Q, "A": np.ones((1, n)), "b": np.ones(1), "G": G, "h": np.full(SECTORS, 0.2), "lb": 0.0}
    return ProgramDraw(0.1 * cost, 0.1 * true, fields)


def draw_turnover_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw portfolios that pay for purchases and sales.

    The n variables are weights, purchases and sales, a third of each. Purchases and sales have no curvature, so that Q
    is singular. Their costs are known, and only returns are forecast.
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
    return ProgramDraw(predicted, true, {"Q": Q, "A": A, "b": np.append(1.0, np.full(assets, 1 / assets)), "lb": 0.0})


def draw_dense_programs(rows: int, rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw QPs that share a dense curvature, dense rows and bounds."""
    limits, curvature, costs = rng.spawn(3)
    G, h = limits.normal(size=(rows, n)), np.abs(limits.normal(size=rows))
    fields = {"Q": random_curvature(curvature, n), "G": G, "h": h, "lb": -1.0, "ub": 1.0}
    return ProgramDraw(*_draw_program_costs(costs, n, B), fields)


def draw_polytope_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw smoothed LPs that share dense inequalities, without bounds and equalities."""
    limits, costs = rng.spawn(2)
    fields = {"G": limits.normal(size=(POLYTOPE_ROWS, n)), "h": 1.0 + np.abs(limits.normal(size=POLYTOPE_ROWS))}
    return ProgramDraw(*_draw_program_costs(costs, n, B), fields, POLYTOPE_SMOOTHING)


def draw_assignment_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw assignments in which each worker has one job and each job one worker. One row follows from the others."""
    A = np.vstack([np.kron(np.eye(WORKERS), np.ones(WORKERS)), np.kron(np.ones(WORKERS), np.eye(WORKERS))])
    fields = {"A": A, "b": np.ones(2 * WORKERS), "lb": 0.0}
    return ProgramDraw(*_draw_program_prices(rng, n, B), fields, FLOW_SMOOTHING, redundant=1)


def draw_transport_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw transports from origins with a capacity to destinations with a demand."""
    demands, costs = rng.spawn(2)
    A = np.kron(np.ones(ORIGINS), np.eye(DESTINATIONS))
    G = np.kron(np.eye(ORIGINS), np.ones(DESTINATIONS))
    fields = {"A": A, "b": demands.uniform(1.0, 2.0, DESTINATIONS), "G": G, "h": np.full(ORIGINS, 4.5), "lb": 0.0}
    return ProgramDraw(*_draw_program_prices(costs, n, B), fields, FLOW_SMOOTHING)


def draw_battery_programs(rng: Rng, n: int, B: int) -> ProgramDraw:
    """Draw days of a battery.

    The variables are the inflow and the outflow of each hour, and the states of charge before and after every hour. A
    tenth of the inflow is lost.
    """
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
    return ProgramDraw(cost, true, {"A": A, "b": b, "lb": 0.0, "ub": ub}, FLOW_SMOOTHING)


def _draw_program_prices(rng: Rng, n: int, B: int) -> tuple[Array, Array]:
    """Draw predicted and true costs (B, n). True costs lie between 0 and 1, and prediction errors are near 0.1."""
    true, errors = rng.spawn(2)
    c = true.uniform(size=(B, n))
    return c + 0.1 * errors.normal(size=(B, n)), c
