"""Public tasks with predicted demand, weights and capacities: costs of decisions, computed in a second way."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import pear
from pear.errors import DataError, ProblemError
from pear.losses import make_loss
from pear_lab.tasks.public import task_table_row
from pear_lab.tasks.public.budget_allocation import budget_reach, load_budgets
from pear_lab.tasks.public.drawn_samples import Array
from pear_lab.tasks.public.energy_knapsack import energy_knapsack_model
from pear_lab.tasks.public.newsvendor_inventory import inventory, newsvendor
from pear_lab.tasks.public.predicted_weights_and_capacities import predicted_capacity_model, predicted_weight_values

DAYS = 4


def cost_of_orders(orders: Array, demand: Array, cost: Array, owed: Array, held: Array) -> float:
    """Return the cost of orders, by following the stock of an inventory from period to period."""
    stock, total = 0.0, 0.0
    for order, asked, price, short, kept in zip(orders, demand, cost, owed, held, strict=True):
        stock += order - asked
        total += price * order + kept * max(stock, 0.0) + short * max(-stock, 0.0)
    return total


def test_the_regret_of_an_inventory_is_what_its_stock_costs() -> None:
    model, _, demand = inventory(DAYS, seed=3)
    T = demand.shape[1]
    forecast = demand[::-1].copy()
    cost, most = model.known.numpy(), float(model.problem.ub.max())
    owed, held = np.append(np.full(T - 1, 2.0), 10.0), np.full(T, 0.2)
    orders = pear.solve(model, forecast).x.numpy()
    until = np.tril(np.ones((T, T)))
    for i, regret in enumerate(pear.regret(model, forecast, demand).tolist()):
        best = linprog(
            np.concatenate([cost, owed, held]), A_eq=np.hstack([until, np.eye(T), -np.eye(T)]), b_eq=until @ demand[i],
            bounds=[(0, most)] * T + [(0, None)] * (2 * T),
        )  # fmt: skip
        found = cost_of_orders(orders[i], demand[i], cost, owed, held) - best.fun
        assert regret == pytest.approx(found, rel=1e-8, abs=1e-8)


def test_the_regret_of_a_newsvendor_is_what_is_missing_and_left_over() -> None:
    model, _, demand = newsvendor(DAYS, seed=1)
    k = demand.shape[1]
    cost, shelf = model.known.numpy(), float(model.problem.h[0])
    short, over = (np.broadcast_to(np.asarray(price), (k,)) for price in model.recourse.b)
    orders = pear.solve(model, demand[::-1].copy()).x.numpy()
    assert bool((orders.sum(1) <= shelf * (1 + 1e-9)).all())
    for i, regret in enumerate(pear.regret(model, demand[::-1].copy(), demand).tolist()):
        best = linprog(
            np.concatenate([cost, short, over]), A_ub=np.append(np.ones(k), np.zeros(2 * k))[None], b_ub=[shelf],
            A_eq=np.hstack([np.eye(k), np.eye(k), -np.eye(k)]), b_eq=demand[i],
        )  # fmt: skip
        missing = demand[i] - orders[i]
        total = cost @ orders[i] + short @ missing.clip(0) + over @ (-missing).clip(0)
        assert regret == pytest.approx(total - best.fun, rel=1e-8, abs=1e-8)


def test_the_regret_of_predicted_capacities_has_the_price_of_overload() -> None:
    random = np.random.RandomState(2)
    model = predicted_capacity_model(random)
    use, value = model.problem.G.numpy(), model.known.numpy()
    price = 1.2 * value.sum() / use.sum(1)
    true = use.sum(1) * random.uniform(0.3, 0.7, (DAYS, len(use)))
    forecast = true * random.uniform(0.7, 1.3, true.shape)
    plans = pear.solve(model, forecast).x.numpy()
    bounds = [(0, 1)] * len(value) + [(0, None)] * len(use)
    for i, regret in enumerate(pear.regret(model, forecast, true).tolist()):
        best = linprog(np.append(-value, price), A_ub=np.hstack([use, -np.eye(len(use))]), b_ub=true[i], bounds=bounds)
        worth = value @ plans[i] - price @ (use @ plans[i] - true[i]).clip(0)
        assert regret == pytest.approx(-best.fun - worth, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", ["newsvendor", "inventory", "predicted-capacities"])
def test_methods_for_predicted_costs_say_why_they_do_not_apply(name: str) -> None:
    row = task_table_row(name)
    assert "do not apply: they need a linear objective" in row.protocol
    with pytest.raises(ProblemError, match="predicts right-hand sides"):
        make_loss("spo+", row.draw(0).problem)


def test_users_are_reached_by_any_website_of_a_set() -> None:
    rates = torch.from_numpy(np.random.default_rng(0).random((2, 5, 10)))
    found = budget_reach(rates)
    for row, sample in zip(found, rates.numpy(), strict=True):
        expected = [
            sum(1 - (1 - sample[first, user]) * (1 - sample[second, user]) for user in range(10))
            for first, second in combinations(range(5), 2)
        ]
        np.testing.assert_allclose(row.numpy(), expected, rtol=1e-12)


def test_a_set_of_items_pays_for_its_overload() -> None:
    weights = np.random.default_rng(1).uniform(1, 7, (2, 12))
    found = predicted_weight_values(torch.from_numpy(weights)).numpy()
    sets = [some for size in range(7) for some in combinations(range(6), size)]
    for i, first in enumerate(weights.reshape(2, 2, 6)):
        for j, some in enumerate(sets):
            loads = [sum(row[item] for item in some) for row in first]
            worth = sum(5.0 + item for item in some) - sum(2.0 * max(load - 10.0, 0.0) for load in loads)
            assert found[i, j] == pytest.approx(worth, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", ["budget-allocation", "predicted-weights"])
def test_an_untrained_forecast_has_a_slope(name: str) -> None:
    row = task_table_row(name)
    drawing = row.draw(0)
    torch.manual_seed(0)
    train = drawing.split.train
    model = row.forecaster(train.features.shape[-1], train.costs.shape[-1])
    loss = pear.PEARLoss(drawing.problem)
    loss.calibrate(train.costs)
    loss(model(train.features), train.costs).backward()
    assert all(float(one.grad.abs().max()) > 0 for one in model.parameters())


def test_half_hours_are_sold_by_weight() -> None:
    weights = np.array([3.0, 5.0, 7.0])
    sold = pear.solve(energy_knapsack_model(weights, capacity=8.0), [[2.0, 1.0, 1.5]]).x
    assert sold.tolist() == [[1.0, 1.0, 0.0]]  # 3 · 2 + 5 · 1 = 11, against 7 · 1.5 = 10.5


def test_click_rates_of_the_user_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rates.npz"
    rates = np.random.default_rng(0).random((30, 10))
    np.savez(file, rates=rates)
    first, again = load_budgets(file, seed=1), load_budgets(file, seed=1)
    assert [len(part.costs) for part in first.split] == [80, 40, 500]
    assert torch.equal(first.split.test.costs, again.split.test.costs)
    for wrong, message in ((rates[:4], "at least 5, 10"), (2 * rates, "from 0 to 1")):
        np.savez(file, rates=wrong)
        with pytest.raises(DataError, match=message):
            load_budgets(file)
    np.savez(file, clicks=rates)
    with pytest.raises(DataError, match="an array 'rates'"):
        load_budgets(file)
