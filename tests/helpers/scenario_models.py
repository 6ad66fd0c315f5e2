"""Models for tests of two-stage decisions, and their extensive forms written out by hand for SciPy."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp

import pear


def factory(hours: int = 3, integer: bool = False) -> pear.Model:
    """Return a model in which machines are switched on first, and then make what each hour demands, or it is bought.

    The price of buying in every hour is predicted, which is a second-stage cost, and so is the demand, whose shortage
    costs 20 and whose surplus costs 1. The variables are on, make and buy; on is the first stage.
    """
    n, eye = 3 * hours, np.eye(hours)
    on, make, buy = (slice(i * hours, (i + 1) * hours) for i in range(3))
    A, G, M, B = np.zeros((hours, n)), np.zeros((hours, n)), np.zeros((n, 2 * hours)), np.zeros((hours, 2 * hours))
    A[:, make], A[:, buy] = eye, eye
    G[:, make], G[:, on] = eye, -4.0 * eye
    M[buy, :hours], B[:, hours:] = eye, eye
    known = np.concatenate([np.linspace(3.0, 5.0, hours), np.full(hours, 1.0), np.zeros(hours)])
    names = [f"{kind}[{t}]" for kind in ("on", "make", "buy") for t in range(hours)]
    whole = list(range(hours)) if integer else None
    ub = np.concatenate([np.ones(hours), np.full(hours, np.inf), np.full(hours, 2.0)])
    problem = pear.Problem(A=A, b=np.zeros(hours), G=G, h=np.zeros(hours), lb=0.0, ub=ub, integer=whole)
    layout = {kind: torch.arange(i * hours, (i + 1) * hours) for i, kind in enumerate(("on", "make", "buy"))}
    return pear.Model(
        problem,
        cost_map=pear.CostMap(M, known),
        constraint_map=pear.ConstraintMap(b=B),
        recourse=pear.Penalty(b=(20.0, 1.0)),
        variables=tuple(names),
        layout=layout,
    )


def factory_values(seed: int, *shape: int, hours: int = 3) -> torch.Tensor:
    """Draw prices of buying and demands, (*shape, 2 · hours)."""
    random = np.random.default_rng(seed)
    prices, demands = random.uniform(1.0, 6.0, (*shape, hours)), random.gamma(4.0, 1.0, (*shape, hours))
    return torch.from_numpy(np.concatenate([prices, demands], -1))


def factory_by_scipy(
    values: np.ndarray, weights: np.ndarray, risk: float = 0.0, tail: float = 1.0, integer: bool = False
) -> tuple[float, np.ndarray]:
    """Return the least ``(1 − risk) · mean + risk · CVaR`` and the decision ``on``, by SciPy.

    Every scenario has a copy of every variable, and non-anticipativity is a set of rows between the copies. CVaR is
    formulated as by Rockafellar and Uryasev, over all costs.
    """
    S, k = values.shape
    hours = k // 2
    one = 5 * hours  # on, make, buy, short, surplus
    n = S * one + 1 + S
    rows, low, high = [], [], []

    def row(entries: dict[int, float], least: float, most: float) -> None:
        line = np.zeros(n)
        for j, entry in entries.items():
            line[j] = entry
        rows.append(line)
        low.append(least)
        high.append(most)

    costs = np.zeros((S, n))
    upper, whole = np.full(n, np.inf), np.zeros(n)
    for s in range(S):
        at = s * one + np.arange(one).reshape(5, hours)
        costs[s, at.ravel()] = np.concatenate(
            [np.linspace(3.0, 5.0, hours), np.ones(hours), values[s, :hours], np.full(hours, 20.0), np.ones(hours)]
        )
        upper[at[0]], upper[at[2]], whole[at[0]] = 1.0, 2.0, float(integer)
        for t in range(hours):
            demand = values[s, hours + t]
            row({at[1, t]: 1.0, at[2, t]: 1.0, at[3, t]: 1.0, at[4, t]: -1.0}, demand, demand)
            row({at[1, t]: 1.0, at[0, t]: -4.0}, -np.inf, 0.0)
            row({at[0, t]: 1.0, t: -1.0} if s else {0: 0.0}, 0.0, 0.0)
        excess = {int(j): costs[s, j] for j in at.ravel()}
        row(excess | {S * one: -1.0, S * one + 1 + s: -1.0}, -np.inf, 0.0)
    cost = (1 - risk) * weights @ costs
    cost[S * one], cost[S * one + 1 :] = risk, risk * weights / tail
    lower = np.zeros(n)
    lower[S * one] = -np.inf if risk else 0.0
    found = milp(cost, constraints=LinearConstraint(rows, low, high), bounds=Bounds(lower, upper), integrality=whole)
    assert found.status == 0
    return float(found.fun), found.x[:hours]
