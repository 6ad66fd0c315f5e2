"""Scores other than the regret: ties, relaxation, forecast errors, stability of the active set."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import pear
from pear.solvers.binary import binary_plan as plan
from pear.solvers.binary import selection_search as search
from pear.tasks import knapsack, portfolio, random_knapsack, shortest_path
from pear.tasks.task import Task
from pear_lab.tasks import metrics
from pear_lab.tasks.worst_case import decide_worst, worst_case_regret, worst_case_rows


def test_mse_is_the_mean_over_all_entries() -> None:
    a, b = torch.rand(5, 4), torch.rand(5, 4)
    assert metrics.mse_metric(a, b) == pytest.approx(float(torch.nn.functional.mse_loss(a, b)), rel=1e-6)
    with pytest.raises(pear.ProblemError, match="same shape"):
        metrics.mse_metric(a, b[:2])


def test_the_regret_of_decisions_is_that_of_the_forecast_they_follow_from() -> None:
    for task in (shortest_path((4, 4)), random_knapsack(12, 2, seed=0)):
        _, true = task.samples(10, degree=4)
        predicted = true + torch.randn(true.shape, generator=torch.Generator().manual_seed(0))
        decided = task.outcome_of(task.decide(predicted), true)
        assert decided.normalized == task.normalized_regret(predicted, true) > 0
        assert torch.equal(decided.regret, task.regret(predicted, true))
        assert decided.normalized == pytest.approx(float(decided.regret.sum() / decided.best.abs().sum()), rel=1e-6)


@pytest.mark.parametrize("crossed", [False, True])
def test_path_ties_are_broken_against_us(crossed: bool) -> None:
    task = shortest_path((3, 4))
    task = task.crossed() if crossed else task
    generator = torch.Generator().manual_seed(1)
    predicted = torch.randint(1, 3, (30, 17), generator=generator).double()  # many ties
    true = torch.rand(30, 17, generator=generator, dtype=torch.float64)
    paths = _every_path(task)
    expected = []
    for c_hat, c in zip(predicted, true, strict=True):
        cost = paths @ c_hat
        expected.append(float((paths @ c)[cost <= cost.min() + 1e-9].max()))
    z = decide_worst(task, predicted, true)
    torch.testing.assert_close((true * z).sum(1), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close((predicted * z).sum(1), (predicted * task.decide(predicted)).sum(1), rtol=0, atol=1e-9)
    worst, usual = worst_case_regret(task, predicted, true), task.normalized_regret(predicted, true)
    assert worst > usual


def _every_path(task: pear.tasks.ShortestPath) -> torch.Tensor:
    z = task.decide(torch.ones(1, task.problem.n, dtype=torch.float64))
    found = {tuple(z[0].tolist())}
    todo = [z]
    while todo:
        for row in task.adjacent(todo.pop())[0]:
            if tuple(row.tolist()) not in found:
                found.add(tuple(row.tolist()))
                todo.append(row[None])
    return torch.tensor(sorted(found), dtype=torch.float64)


@pytest.mark.parametrize("by_solver", [False, True])
def test_knapsack_ties_are_broken_against_us(by_solver: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    G = random.integers(1, 5, (2, 9)).astype(float)
    h = np.floor(0.5 * G.sum(1))
    task = knapsack(G, h)
    predicted = random.integers(1, 4, (15, 9)).astype(float)
    true = random.uniform(0, 1, (15, 9))
    if by_solver:
        plan.forget_binary_plans()
        monkeypatch.setattr(search, "selection_search_nodes", lambda rows: np.zeros(1, np.int64))
    z = decide_worst(task, predicted, true).numpy()
    every = np.array(list(itertools.product([0.0, 1.0], repeat=9)))
    every = every[(every @ G.T <= h).all(1)]
    for c_hat, c, chosen in zip(predicted, true, z, strict=True):
        value = every @ c_hat
        assert chosen @ c_hat == pytest.approx(value.max(), abs=1e-9)
        assert chosen @ c == pytest.approx((every @ c)[value >= value.max() - 1e-9].min(), abs=1e-9)
    regret = metrics.published_regret_metric(task.outcome(predicted, true))
    assert worst_case_regret(task, predicted, true) >= regret


def test_without_ties_both_regrets_agree() -> None:
    for task in (shortest_path((5, 5)), random_knapsack(25, 3, seed=1)):
        _, true = task.samples(20, degree=6, dtype=torch.float64)
        noise = torch.randn(true.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        regret = metrics.published_regret_metric(task.outcome(true + noise, true))
        assert worst_case_regret(task, true + noise, true) == pytest.approx(regret, abs=1e-12)


def test_relaxation_gap_and_its_share() -> None:
    task = knapsack([[2.0, 2.0, 2.0]], capacity=3.0)
    true = torch.tensor([[3.0, 2.0, 1.0]])
    # Relaxed: 3 + half of 2; whole: 3. The forecast takes the third item and earns 1.
    gap = metrics.relaxation_gap_metric(task, torch.tensor([[1.0, 2.0, 3.0]]), true)
    assert gap.gap == pytest.approx(1 / 3, rel=1e-6)
    assert gap.share == pytest.approx((1 / 3) / (1 / 3 + 2 / 3), rel=1e-6)
    assert metrics.relaxation_gap_metric(task, true, true).share == 1.0
    path = shortest_path((3, 3))
    _, costs = path.samples(4)
    assert metrics.relaxation_gap_metric(path, costs.flip(0), costs) == (0.0, 0.0)
    full = knapsack([[1.0, 1.0]], capacity=2.0)
    assert metrics.relaxation_gap_metric(full, [[1.0, 1.0]], [[1.0, 1.0]]) == (0.0, 0.0)


def test_change_rate_counts_what_flips() -> None:
    interval = pear.Problem(lb=[0.0, 0.0], ub=[1.0, float("inf")])
    # λ = 1: z = −c within the bounds. The first variable is free; the second sits at the edge of its lower bound, so
    # that a perturbation frees it about every second time: one of three inequalities.
    predicted = torch.tensor([[-0.5, 0.0]], dtype=torch.float64)
    rate = metrics.active_change_metric(interval, predicted, smoothing=1.0, scale=1e-3, draws=400)
    assert rate == pytest.approx(1 / 3 / 2, abs=0.025)
    assert metrics.active_change_metric(interval, predicted, smoothing=1.0, scale=0.0) == 0.0
    assert metrics.active_change_metric(pear.Problem(A=[[1.0, 1.0]], b=[1.0]), predicted) == 0.0


def test_change_rate_is_repeatable_and_grows_with_the_perturbation() -> None:
    for task in (shortest_path((5, 5)), random_knapsack(30, 3, seed=0)):
        _, true = task.samples(30, degree=4)
        small, large = (metrics.active_change_metric(task.problem, true, scale=s, draws=3) for s in (1e-3, 0.3))
        assert 0 <= small < large < 0.5
        assert small == metrics.active_change_metric(task.problem, true, scale=1e-3, draws=3)
        other = torch.Generator().manual_seed(7)
        assert large != metrics.active_change_metric(task.problem, true, scale=0.3, draws=3, generator=other)
    for arguments, message in (({"draws": 0}, "draws"), ({"scale": -1.0}, "scale")):
        with pytest.raises(pear.ProblemError, match=message):
            metrics.active_change_metric(task.problem, true, **arguments)  # type: ignore[arg-type]


def test_tables_in_another_order_are_refused():
    pandas = pytest.importorskip("pandas")
    problem = pear.Problem(A=[[1.0, 2.0]], b=[2.0], lb=0.0)
    costs = pandas.DataFrame({"x0": [1.0, 3.0], "x1": [3.0, 1.0]})
    for model in (problem, pear.Model(problem)):
        assert pear.regret(model, costs, costs).tolist() == [0.0, 0.0]
        with pytest.raises(pear.ProblemError, match=r"the columns of predicted .* in another order"):
            pear.normalized_regret(model, costs[["x1", "x0"]], costs)
        with pytest.raises(pear.ProblemError, match=r"the columns of cost .* in another order"):
            pear.solve(model, costs[["x1", "x0"]])
        with pytest.raises(pear.ProblemError, match=r"the columns of costs .* in another order"):
            pear.advise(model, costs[["x1", "x0"]])
        with pytest.raises(pear.ProblemError, match="same index in different orders"):
            pear.regret(model, costs.iloc[::-1], costs)
    prices = costs.rename(columns={"x0": "a", "x1": "b"})
    with pytest.raises(pear.ProblemError, match=r"same columns in the same order.*pass predicted\[true.columns\]"):
        pear.regret(problem, prices[["b", "a"]], prices)


def test_equal_values_are_decided_and_charged_at_the_papers_size() -> None:
    task = random_knapsack(seed=0)
    _, true = task.samples(3, degree=4, dtype=torch.float64)
    constant = torch.full_like(true, 0.3)
    best = task.decide(constant)
    assert best.sum(1).unique().numel() == 1
    worst = decide_worst(task, constant, true)
    torch.testing.assert_close((constant * worst).sum(1), (constant * best).sum(1), rtol=1e-9, atol=0)
    assert bool(((true * worst).sum(1) <= (true * best).sum(1)).all())
    second = pear.Problem(
        G=torch.cat([task.weights, -torch.ones(1, 100)]),
        h=torch.cat([task.capacity, -best[0].sum()[None]]),
        lb=0.0,
        ub=1.0,
        sense="min",
        integer=True,
    )
    torch.testing.assert_close((true * worst).sum(1), pear.solve(second, true, solver="highs").value, rtol=0, atol=1e-8)


def test_only_equals_are_charged() -> None:
    task = knapsack([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]], [1.0, 3.0])
    true = torch.tensor([[3.0, 2.0, 1.0]], dtype=torch.float64)
    for gap, charged in ((1e-8, 0), (3e-10, 0), (1e-11, 2)):
        predicted = torch.tensor([[1.0, 1.0 - gap, 1.0 - gap]], dtype=torch.float64)
        assert decide_worst(task, predicted, true)[0].tolist() == np.eye(3)[charged].tolist()


def test_worst_of_no_samples() -> None:
    task = random_knapsack(5, 2, seed=0)
    nothing = torch.zeros(0, 5, dtype=torch.float64)
    assert decide_worst(task, nothing, nothing).shape == (0, 5)


def test_ties_have_room_where_the_best_value_is_zero() -> None:
    G, h, value = np.zeros((1, 2)), np.zeros(1), -np.ones(2)
    assert worst_case_rows(G, h, value, np.zeros(2), 1e-9)[1][-1] > 0.0


@pytest.mark.parametrize(("less", "worst"), [(0.0, [[0.0, 1.0]]), (2e-8, [[1.0, 0.0]])])
def test_a_decision_that_is_worth_less_is_no_tie(less: float, worst: list[list[float]]) -> None:
    problem = pear.Problem(G=[[1.0, 1.0]], h=[1.0], lb=0.0, ub=1.0, sense="max", integer=True)
    assert decide_worst(Task("two items", problem), [[1.0, 1.0 - less]], [[1.0, 0.5]]).tolist() == worst


def test_a_task_that_cannot_list_ties_says_so() -> None:
    with pytest.raises(pear.ProblemError, match="cannot list its equally good decisions"):
        decide_worst(portfolio(3), [[1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0]])
