"""Tasks: their problems, the data of their generators, and the scores of forecasts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import pear
from pear.tasks import Portfolio, ShortestPath, Task, knapsack, portfolio, shortest_path
from pear.tasks.synthetic_task import draw_synthetic_costs
from pear_lab.tasks import building


def random_arcs(nodes: int, seed: int) -> list[tuple[int, int]]:
    """Return the arcs of a chain and random forward arcs, in random order; the chain connects first and last node."""
    random = np.random.default_rng(seed)
    arcs = [(i, i + 1) for i in range(nodes - 1)]
    arcs += [(i, j) for i in range(nodes) for j in range(i + 1, nodes) if random.random() < 0.4]
    return [arcs[k] for k in random.permutation(len(arcs))]


# --- shortest paths -------------------------------------------------------------------------------------------------


# arcs side by side, and a node that no path from the source reaches
_TWIN_ARCS = shortest_path(arcs=[(0, 1), (0, 1), (0, 3), (1, 2), (3, 2), (2, 4), (5, 2), (0, 4)], source=0, target=4)


def test_grid_arcs_come_row_by_row_rightward_then_downward() -> None:
    arcs = shortest_path((3, 3)).graph.arcs
    assert arcs == (
        *((0, 1), (1, 2), (0, 3), (1, 4), (2, 5)),
        *((3, 4), (4, 5), (3, 6), (4, 7), (5, 8)),
        *((6, 7), (7, 8)),
    )
    assert shortest_path((2, 3)).graph.arcs == ((0, 1), (1, 2), (0, 3), (1, 4), (2, 5), (3, 4), (4, 5))


def test_path_problem_is_flow_balance_at_every_node_and_nothing_else() -> None:
    task = shortest_path((5, 5))
    p = task.problem
    assert (p.n, p.sense, p.G, p.ub, p.integer, p.Q) == (40, "min", None, None, None, None)
    assert p.A is not None
    assert p.b is not None
    assert p.lb is not None
    assert torch.equal(p.lb, torch.zeros(40, dtype=torch.float64))
    assert p.A.shape == (25, 40)
    assert torch.linalg.matrix_rank(p.A) == 24
    assert torch.equal(p.A.sum(0), torch.zeros(40, dtype=torch.float64))
    along_the_top_and_down = torch.zeros(40, dtype=torch.float64)
    for k, (tail, head) in enumerate(task.graph.arcs):
        along_the_top_and_down[k] = float((head <= 4) or (tail % 5 == 4 and head % 5 == 4))
    assert along_the_top_and_down.sum() == 8
    assert torch.equal(p.A @ along_the_top_and_down, p.b)


@pytest.mark.parametrize(("degree", "noise", "seed"), [(1, 0.0, 0), (4, 0.5, 1), (8, 0.5, 7)])
def test_samples_follow_the_formula_and_the_order_of_draws(degree: int, noise: float, seed: int) -> None:
    count, p, n = 30, 5, 40
    random = np.random.RandomState(seed)
    hidden = random.binomial(1, 0.5, (n, p))
    features = random.normal(0, 1, (count, p))
    costs = np.zeros((count, n))
    for i in range(count):
        for j in range(n):
            costs[i, j] = ((hidden[j].dot(features[i]) / p**0.5 + 3) ** degree + 1) / 3.5**degree
        costs[i] *= random.uniform(1 - noise, 1 + noise, n)
    X, C = shortest_path((5, 5)).samples(count, degree=degree, noise=noise, seed=seed, dtype=torch.float64)
    np.testing.assert_array_equal(X.numpy(), features)
    np.testing.assert_allclose(C.numpy(), costs, rtol=1e-13)


def test_samples_are_float32_unless_asked_and_repeat_for_a_seed() -> None:
    task = shortest_path((3, 3))
    before = np.random.get_state()[1].copy()  # type: ignore[index,union-attr]
    X, C = task.samples(10, seed=3)
    assert (X.dtype, C.dtype, X.shape, C.shape) == (torch.float32, torch.float32, (10, 5), (10, 12))
    again, other = task.samples(10, seed=3, dtype=torch.float64), task.samples(10, seed=4)
    assert torch.equal(again.costs.float(), C)
    assert not torch.equal(other.costs, C)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"degree": 0}, "degree must be a whole number of at least 1; got 0"),
        ({"degree": 1.5}, "degree must be a whole number"),
        ({"count": 0}, "count must be"),
        ({"noise": 1.5}, "noise must be a number from 0 to 1"),
    ],
)
def test_impossible_samples_are_refused(wrong: dict[str, float], message: str) -> None:
    arguments = {"count": 3, "n": 2, "degree": 2, "noise": 0.5} | wrong
    with pytest.raises(pear.ProblemError, match=message):
        draw_synthetic_costs(np.random.RandomState(0), **arguments)  # type: ignore[arg-type]


def test_split_keeps_the_order() -> None:
    task = shortest_path((2, 2))
    samples = task.samples(2000)
    train, validation, test = task.split(samples)
    assert [len(part.costs) for part in (train, validation, test)] == [1000, 500, 500]
    assert torch.equal(torch.cat([train.features, validation.features, test.features]), samples.features)
    assert torch.equal(torch.cat([train.costs, validation.costs, test.costs]), samples.costs)
    small = task.split(samples, sizes=(5, 3, 2))
    assert torch.equal(small.test.costs, samples.costs[8:10])
    for sizes in ((1000, 500, 501), (1, 1), (2, 0, 1)):
        with pytest.raises(pear.ProblemError, match="three counts of at least 1"):
            task.split(samples, sizes=sizes)


GRAPHS = {
    "grid": shortest_path((5, 5)),
    "long grid": shortest_path((2, 7)),
    "one row": shortest_path((1, 4)),
    "random": shortest_path(arcs=random_arcs(9, seed=0)),
    "dense": shortest_path(arcs=random_arcs(14, seed=1)),
    "parallel arcs": shortest_path(arcs=[(0, 1), (0, 1), (1, 2), (0, 2), (1, 2)]),
    "dead ends": shortest_path(arcs=[(0, 1), (2, 4), (0, 3), (1, 4), (3, 5), (4, 5)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_dynamic_programming_agrees_with_a_solver(name: str) -> None:
    task = GRAPHS[name]
    costs = torch.randn(40, task.problem.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    costs[20:] = costs[20:].abs()
    z = task.decide(costs)
    assert bool(((z == 0) | (z == 1)).all())
    solved = pear.solve(task.problem, costs, solver="highs")
    torch.testing.assert_close((costs * z).sum(1), solved.value, rtol=0, atol=1e-12)
    torch.testing.assert_close(z, solved.x, rtol=0, atol=1e-9)
    assert task.problem.A is not None
    assert task.problem.b is not None
    assert torch.equal(z @ task.problem.A.T, task.problem.b.expand(40, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_path_regret_is_the_regret_of_the_problem(dtype: torch.dtype) -> None:
    task = shortest_path((4, 4))
    _, true = task.samples(50, degree=6, seed=2, dtype=dtype)
    predicted = true + 0.5 * torch.randn(true.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    value = task.normalized_regret(predicted, true)
    assert value > 0.01
    assert value == pytest.approx(pear.normalized_regret(task.problem, predicted, true, solver="highs"), abs=1e-12)
    assert task.normalized_regret(true, true) == 0.0
    assert task.decide(predicted).dtype == dtype


def test_equally_cheap_paths_cost_the_same_whichever_is_taken() -> None:
    task = shortest_path((3, 3))
    z = task.decide(torch.ones(2, 12))
    assert z.sum(1).tolist() == [4.0, 4.0]
    assert task.normalized_regret(torch.zeros(2, 12), torch.ones(2, 12)) == 0.0


@pytest.mark.parametrize("task", [shortest_path((4, 6)), shortest_path((3, 5), direction="cross"), _TWIN_ARCS])
def test_the_compiled_paths_are_those_of_the_batched_operations_ties_included(task: ShortestPath) -> None:
    cost = torch.from_numpy(np.random.default_rng(3).integers(-2, 3, (200, task.problem.n)).astype(float))
    assert torch.equal(task.graph.cheapest(cost), task.graph._cheapest_by_depth(cost))


def test_a_curved_path_problem_goes_to_a_solver() -> None:
    task = shortest_path((2, 2))
    predicted, true = torch.tensor([[2.0, 1.0, 1.0, 1.0]]), torch.tensor([[1.0, 2.0, 1.0, 1.0]])
    Q = torch.eye(4)
    expected = pear.normalized_regret(task.problem, predicted, true, Q=Q, true_Q=Q)
    assert task.normalized_regret(predicted, true, Q=Q, true_Q=Q) == expected
    assert expected != task.normalized_regret(predicted, true)


def test_forecasts_that_are_no_costs_are_refused() -> None:
    task = shortest_path((2, 2))
    good = torch.ones(3, 4)
    bad = good.clone()
    bad[1, 2] = torch.nan
    with pytest.raises(pear.SolveError, match=r"1 of 3 samples .* sample 1 \(NOT_FINITE\)"):
        task.normalized_regret(bad, good)
    with pytest.raises(pear.ProblemError, match="one column for each of the 4 arcs; got 5"):
        task.decide(torch.ones(1, 5))
    with pytest.raises(pear.ProblemError, match=r"same shape; got \(2, 4\) and \(3, 4\)"):
        task.normalized_regret(good[:2], good)


@pytest.mark.parametrize(
    ("arcs", "message"),
    [
        ([(0, 1), (2, 1)], "no path leads from node 0 to the last node, 2"),
        ([(0, -1)], r"numbered from 0; got the arc \(0, -1\)"),
        ([(0, 0)], "must not form a cycle"),
        ([(0, 1), (1, 2), (2, 1), (2, 3)], r"cycle; the nodes \[1, 2, 3\]"),
        ([(0, 1), (2, 3)], "no path leads from node 0 to the last node, 3"),
        ([], "no path"),
    ],
)
def test_graphs_without_a_path_are_refused(arcs: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        shortest_path(arcs=arcs)


@pytest.mark.parametrize("grid", [(1, 1), (0, 5), (5,), (2.5, 2)])
def test_grids_that_are_none_are_refused(grid: tuple[int, int]) -> None:
    with pytest.raises(pear.ProblemError, match="grid"):
        shortest_path(grid)


def test_crossed_grid_goes_up_and_keeps_every_index() -> None:
    forward = shortest_path((5, 5))
    cross = forward.crossed()
    assert (cross.graph.source, cross.graph.target, cross.name) == (20, 4, "shortest_path_5x5_cross")
    for (a, b), (c, d) in zip(forward.graph.arcs, cross.graph.arcs, strict=True):
        assert (c, d) == ((a, b) if b == a + 1 else (b, a))
    assert cross.problem.b is not None
    assert cross.problem.b.nonzero()[:, 0].tolist() == [4, 20]
    back = cross.crossed()
    assert (back.graph, back.name) == (forward.graph, forward.name)
    assert torch.equal(cross.samples(3).costs, forward.samples(3).costs)
    with pytest.raises(pear.ProblemError, match="only a grid can be crossed"):
        shortest_path(arcs=[(0, 1)]).crossed()


@pytest.mark.parametrize("grid", [(5, 5), (2, 7), (1, 4), (4, 1)])
def test_cheapest_paths_across_agree_with_a_solver(grid: tuple[int, int]) -> None:
    task = shortest_path(grid, direction="cross")
    costs = torch.randn(20, task.problem.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = task.decide(costs)
    solved = pear.solve(task.problem, costs, solver="highs")
    torch.testing.assert_close((costs * z).sum(1), solved.value, rtol=0, atol=1e-12)
    assert torch.equal(task.decide_relaxed(costs), z)


def test_a_path_between_any_two_nodes_of_any_graph() -> None:
    # Node 5 leads to the source and node 0 away from the target: neither is on a path.
    task = shortest_path(arcs=[(5, 3), (3, 1), (3, 4), (4, 1), (1, 2), (2, 0), (4, 2)], source=3, target=2)
    z = task.decide([[-9.0, 1.0, 1.0, 1.0, 1.0, -9.0, 0.5], [-9.0, 1.0, 5.0, 1.0, 1.0, -9.0, 0.5]])
    assert z.tolist() == [[0, 0, 1, 0, 0, 0, 1], [0, 1, 0, 0, 1, 0, 0]]
    for arguments, message in [
        ({"grid": (2, 2), "source": 1}, "belong to arcs="),
        ({"grid": (2, 2), "direction": "up"}, "'forward' or 'cross'"),
        ({"arcs": [(0, 1)], "direction": "cross"}, "direction belongs to a grid"),
        ({"arcs": [(0, 1)], "source": 1, "target": 0}, "no path leads from node 1 to node 0"),
    ]:
        with pytest.raises(pear.ProblemError, match=message):
            shortest_path(**arguments)  # type: ignore[arg-type]


def test_printed_formula_adds_one_outside_the_division() -> None:
    task = shortest_path((2, 2))
    x, c = task.samples(5, degree=3, noise=0.0, formula="paper", dtype=torch.float64)
    _, usual = task.samples(5, degree=3, noise=0.0, dtype=torch.float64)
    assert len(x) == 5
    torch.testing.assert_close(c - usual, torch.full_like(c, 1 - 1 / 3.5**3), rtol=0, atol=1e-12)


# --- knapsack and portfolio -----------------------------------------------------------------------------------------


def test_knapsack_is_an_integer_problem_to_maximise() -> None:
    task = knapsack([[1.0, 2.0, 3.0], [3.0, 1.0, 1.0]], capacity=[4.0, 4.0])
    p = task.problem
    assert (p.sense, p.n, p.is_integer) == ("max", 3, True)
    values = torch.tensor([[4.0, 5.0, 4.5]])
    assert pear.solve(p, values).x.tolist() == [[1.0, 1.0, 0.0]]
    # Under this forecast the first and third items look best; they earn 8.5 of the 9 that could be had.
    assert task.normalized_regret([[9.0, 1.0, 9.0]], values) == pytest.approx(0.5 / 9, rel=1e-6)


def test_knapsack_takes_one_dimension_and_one_capacity_for_all() -> None:
    assert knapsack([1.0, 2.0], 2.0).problem.G is not None
    both = knapsack([[1.0, 2.0], [2.0, 1.0]], 2.0).problem
    assert both.h is not None
    assert both.h.tolist() == [2.0, 2.0]
    for weights, capacity, message in [
        ([[1.0, 2.0]], [1.0, 2.0], r"shape \(1,\)"),
        ([[-1.0, 2.0]], 1.0, "at least 0"),
        ([[1.0, 2.0]], -1.0, "at least 0"),
        ([[[1.0]]], 1.0, r"shape \(k, n\)"),
    ]:
        with pytest.raises(pear.ProblemError, match=message):
            knapsack(weights, capacity)


def test_portfolio_without_bounds_has_the_textbook_solution() -> None:
    task = portfolio(4, risk_aversion=3.0, lower=None)
    generator = torch.Generator().manual_seed(0)
    mu = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    root = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    sigma = root @ root.T + torch.eye(4)
    inverse, ones = torch.linalg.inv(3.0 * sigma), torch.ones(4, dtype=torch.float64)
    multiplier = (ones @ inverse @ mu[0] - 1) / (ones @ inverse @ ones)
    expected = inverse @ (mu[0] - multiplier * ones)
    weights = pear.solve(task.problem, task.cost(mu), Q=task.curvature(sigma)).x
    torch.testing.assert_close(weights[0], expected, rtol=1e-10, atol=1e-12)


def test_portfolio_respects_its_least_weight() -> None:
    task = portfolio(3, risk_aversion=1.0, lower=0.2)
    Q = task.curvature(0.01 * torch.eye(3, dtype=torch.float64))
    weights = pear.solve(task.problem, task.cost([[1.0, 0.0, 0.0]]), Q=Q).x
    torch.testing.assert_close(weights, torch.tensor([[0.6, 0.2, 0.2]], dtype=torch.float64))
    assert portfolio(4, lower=0.25).problem.n == 4
    for arguments, message in [
        ({"n": 3, "lower": 0.5}, "at most 1/n"),
        ({"n": 0}, "at least 1"),
        ({"n": 2, "risk_aversion": 0.0}, "positive"),
        ({"n": 2, "lower": float("nan")}, "at most 1/n"),
    ]:
        with pytest.raises(pear.ProblemError, match=message):
            portfolio(**arguments)  # type: ignore[arg-type]


def test_portfolio_forecasts_are_trained_through_cost_and_curvature() -> None:
    task = portfolio(3, risk_aversion=2.0)
    mu = torch.tensor([[0.3, 0.2, 0.1]], requires_grad=True)
    sigma = (0.2 * torch.eye(3)).requires_grad_()
    true_mu, true_sigma = torch.tensor([[0.1, 0.2, 0.3]]), 0.4 * torch.eye(3)
    loss = pear.PEARLoss(task.problem, smoothing=0.0, injection=0.0, guidance=0.0)
    loss(task.cost(mu), task.cost(true_mu), Q=task.curvature(sigma), true_Q=task.curvature(true_sigma)).backward()
    assert mu.grad is not None
    assert sigma.grad is not None
    assert mu.grad[0, 0] > 0 > mu.grad[0, 2]
    assert float(sigma.grad.abs().max()) > 0
    regret = task.normalized_regret(
        task.cost(mu), task.cost(true_mu), Q=task.curvature(sigma), true_Q=task.curvature(true_sigma)
    )
    assert regret > 0


def test_tasks_are_frozen() -> None:
    for task in (shortest_path((2, 2)), knapsack([1.0, 2.0], 2.0), portfolio(2)):
        assert isinstance(task, Task)
        assert task.name
        with pytest.raises(dataclasses.FrozenInstanceError):
            task.name = "other"  # type: ignore[misc]


# --- one protocol ----------------------------------------------------------------------------------------------------


def protocol_case(name: str) -> tuple[Task, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Return a task with predicted and true costs, and curvatures if it has any."""
    generator = torch.Generator().manual_seed(0)
    task: Task = {
        "path": lambda: shortest_path((3, 3)),
        "knapsack": lambda: knapsack([[3.0, 4.0, 2.0, 5.0]], capacity=7.0),
        "building": lambda: building([[3.0, 4.0, 2.0], [1.0, 1.0, 2.0], [2.0, 1.0, 1.0]], budget=0.7),
        "portfolio": lambda: portfolio(3, risk_aversion=2.0),
    }[name]()
    predicted, true = (torch.rand(3, task.problem.n, generator=generator, dtype=torch.float64) for _ in range(2))
    if not isinstance(task, Portfolio):
        return task, predicted, true, {}
    factors = torch.rand(2, 3, 3, 3, generator=generator, dtype=torch.float64)
    Q, true_Q = (task.curvature(F @ F.transpose(1, 2) + 0.1 * torch.eye(3)) for F in factors)
    return task, predicted, true, {"Q": Q, "true_Q": true_Q}


@pytest.mark.parametrize("name", ["path", "knapsack", "building", "portfolio"])
def test_every_task_decides_and_is_scored_in_the_same_way(name: str) -> None:
    task, predicted, true, curvature = protocol_case(name)
    decision = task.decide(predicted, curvature.get("Q"))
    best = task.decide(true, curvature.get("true_Q"))
    assert decision.shape == best.shape == predicted.shape
    lost = [task.problem.objective(z, true, Q=curvature.get("true_Q")) for z in (decision, best)]
    regret = task.regret(predicted, true, **curvature)
    torch.testing.assert_close(regret, task.problem.sign * (lost[0] - lost[1]))
    assert (regret >= -1e-12).all()
    assert regret.max() > 1e-3
    score = task.normalized_regret(predicted, true, **curvature)
    assert score == pytest.approx(pear.normalized_regret(task.problem, predicted, true, **curvature), rel=1e-9)
    assert task.normalized_regret(true, true, *[curvature[k] for k in ("true_Q", "true_Q") if curvature]) == 0.0


def test_a_portfolio_without_its_risk_is_refused() -> None:
    task = portfolio(3, risk_aversion=2.0)
    for call in (task.decide, task.decide_relaxed, lambda cost: task.normalized_regret(cost, cost)):
        with pytest.raises(pear.ProblemError, match=r"returns and risk, and Q is missing; pass Q=task.curvature"):
            call(torch.zeros(2, 3))
    covariance = torch.diag(torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64))
    weights = task.weights(torch.zeros(1, 3, dtype=torch.float64), covariance)
    assert torch.equal(task.decide(torch.zeros(1, 3, dtype=torch.float64), Q=task.curvature(covariance)), weights)
    torch.testing.assert_close(weights, torch.tensor([[4.0, 2.0, 1.0]], dtype=torch.float64) / 7)
