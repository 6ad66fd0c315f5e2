"""Public tasks: a seed always draws the same data, and decisions are optimal by another solver."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from real_data import real_data
from scipy.optimize import Bounds, LinearConstraint, milp

import pear
from pear.errors import ProblemError
from pear.losses.methods import METHODS
from pear.problem import Problem
from pear.problem.model import model_with_predicted_rows, problem_of_model, split_cost_model
from pear_lab.tasks.public import PUBLIC_TASKS, Drawing, PublicTask, task_table_row
from pear_lab.tasks.public.pjm_battery import BEST
from pear_lab.tasks.public.planted_paths import RISKY, SAFE, planted_costs, planted_grid
from pear_lab.tasks.public.spo_portfolio import VARIANCE_RATIO

CHECKED = 3
"""Samples of a task that another solver decides again."""

every_row = pytest.mark.parametrize("row", PUBLIC_TASKS, ids=[row.name for row in PUBLIC_TASKS])


def draw(row: PublicTask, seed: int = 0) -> Drawing:
    if row.needs_data is not None:
        real_data(row.needs_data)
    return row.draw(seed)


def highs_value(problem: Problem, cost: np.ndarray) -> float:
    """Return the optimal value of a linear or integer program, by HiGHS through SciPy."""
    parts = []
    if problem.G is not None:
        parts.append(LinearConstraint(problem.G.numpy(), -np.inf, problem.h.numpy()))
    if problem.A is not None:
        parts.append(LinearConstraint(problem.A.to_dense().numpy(), problem.b.numpy(), problem.b.numpy()))
    sign = -1.0 if problem.sense == "max" else 1.0
    bounds = [
        np.full(problem.n, default) if given is None else np.broadcast_to(given.numpy(), (problem.n,))
        for given, default in ((problem.lb, -np.inf), (problem.ub, np.inf))
    ]
    whole = None if problem.integer is None else np.broadcast_to(problem.integer.numpy(), (problem.n,)).astype(int)
    found = milp(sign * cost, constraints=parts, bounds=Bounds(*bounds), integrality=whole, options={"mip_rel_gap": 0})
    return sign * float(found.fun)


def test_names_are_unique_and_an_unknown_one_is_refused() -> None:
    names = [row.name for row in PUBLIC_TASKS]
    assert len(set(names)) == len(names)
    assert task_table_row(names[0]) is PUBLIC_TASKS[0]
    with pytest.raises(ProblemError, match=f"no public task 'tsp-99'; there is {names[0]}"):
        task_table_row("tsp-99")


@every_row
def test_a_row_says_where_it_comes_from(row: PublicTask) -> None:
    assert row.title
    assert "20" in row.origin
    assert len(row.protocol) > 50
    assert {*row.unsuited} <= {method.name for method in METHODS}
    assert all(number.where and np.isfinite(number.value) for number in row.published)


@every_row
def test_equal_seeds_give_equal_data(row: PublicTask) -> None:
    first, second = draw(row), draw(row)
    for one, other in zip(first.split, second.split, strict=True):
        assert len(one.features) == len(one.costs) > 0
        for name in ("features", "costs"):
            assert torch.equal(getattr(one, name), getattr(other, name))
            assert bool(getattr(one, name).isfinite().all())
    train = first.split.train
    predicted = row.forecaster(train.features.shape[-1], train.costs.shape[1])(train.features[:2])
    assert predicted.shape == train.costs[:2].shape
    if row.name != "pjm-battery":  # its days are in the order of time for every seed
        assert not torch.equal(draw(row, 1).split.train.costs, train.costs)


@every_row
def test_linear_programs_are_decided_as_highs_decides_them(row: PublicTask) -> None:
    drawing = draw(row)
    plain = problem_of_model(drawing.problem)
    if not plain.has_program or plain.is_curved or model_with_predicted_rows(drawing.problem) is not None:
        pytest.skip("no linear program; a test of its own checks its decisions")
    problem, cost_map = split_cost_model(drawing.problem)
    values = drawing.split.test.costs[:CHECKED].double()
    costs = values if cost_map is None else cost_map(values)
    solution = pear.solve(problem, costs)
    expected = [highs_value(problem, cost) for cost in costs.numpy()]
    np.testing.assert_allclose((solution.x * costs).sum(1).numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize(("name", "order"), [("pjm-battery", "time"), ("pjm-battery-shuffled", "shuffled")])
def test_the_best_battery_plans_are_worth_what_is_published(name: str, order: str) -> None:
    drawing = draw(task_table_row(name))
    problem, cost_map = split_cost_model(drawing.problem)
    assert cost_map is not None
    values = pear.solve(problem, cost_map(drawing.split.test.costs.double())).value + drawing.problem.offset
    assert round(float(values.mean()), 3) == BEST[order]


def test_bounds_of_the_portfolio_keep_its_variance_within_the_limit() -> None:
    drawing = task_table_row("spo-portfolio").draw(0)
    problem = problem_of_model(drawing.problem)
    w = pear.solve(problem, drawing.split.test.costs[:50].double()).x
    loadings = problem.G[1:5].T
    equal = torch.full((1, problem.n), 1 / problem.n, dtype=torch.float64)
    for share in (0.0, 1.0, 100.0):  # any size of the noise of an asset's own beside the factors
        variance, reference = (((z @ loadings) ** 2).sum(1) + share * (z**2).sum(1) for z in (w, equal))
        assert bool((variance <= VARIANCE_RATIO * reference * (1 + 1e-9)).all())


def test_planted_arcs_are_paths_and_the_best_cost_is_that_of_one_of_them() -> None:
    task = planted_grid()
    for arcs in (SAFE, RISKY):
        nodes = [task.graph.arcs[arc] for arc in arcs]
        assert nodes[0][0] == 0
        assert nodes[-1][1] == 24
        assert all(one[1] == other[0] for one, other in pairwise(nodes))
    u = np.linspace(0, 2, 41)
    costs = torch.from_numpy(planted_costs(np.random.default_rng(0).normal(size=(41, 5)), u))
    values = (task.decide(costs) * costs).sum(1).numpy()
    np.testing.assert_allclose(values, np.minimum(16.0, 32 * u), rtol=1e-9)


def test_a_line_through_the_cubic_chooses_badly() -> None:
    """By the moments of x, the least-squares line has the slope 10 (0.6 − 0.65) < 0, and ranks values in reverse."""
    drawing = task_table_row("cubic-top-k").draw(0)
    x, values = drawing.split.test.features[..., 0], drawing.split.test.costs
    falling, rising = (pear.normalized_regret(drawing.problem, sign * x, values) for sign in (-1, 1))
    assert falling > 1.5
    assert rising < 0.2
