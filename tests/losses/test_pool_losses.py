"""Losses with a pool of solutions: formulas, PyEPO on the same pool, constraints per sample, oracles, resumed runs."""

from __future__ import annotations

import copy
import io
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pear
from pear.losses import (
    CMAPLoss,
    ListwiseLTRLoss,
    NCELoss,
    PairwiseLTRLoss,
    PointwiseLTRLoss,
    PoolLoss,
    make_loss,
)
from pear.losses.pyepo import PyEPOLoss, pyepo_model
from pear.tasks import knapsack, shortest_path

WEIGHTS = torch.tensor([[3.0, 4.0, 2.0, 5.0, 1.0, 6.0], [1.0, 2.0, 5.0, 3.0, 3.0, 2.0]], dtype=torch.float64)
ITEMS = knapsack(WEIGHTS, [9.0, 8.0]).problem
PATHS = shortest_path((3, 3)).problem
PROBLEM = pytest.mark.parametrize("problem", [PATHS, ITEMS], ids=["paths", "items"])
STRENGTHS: dict[type[PoolLoss], dict[str, float]] = {
    NCELoss: {},
    CMAPLoss: {},
    PointwiseLTRLoss: {},
    PairwiseLTRLoss: {"margin": 0.7},
    ListwiseLTRLoss: {"temperature": 0.8},
}
LOSS = pytest.mark.parametrize("kind", STRENGTHS, ids=lambda kind: kind.__name__)
METHODS = ("nce", "cmap", "ltr-pointwise", "ltr-pairwise", "ltr-listwise")


def costs(n: int, batch: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predicted, true = 0.2 + 4 * torch.rand(2, batch, n, generator=generator, dtype=torch.float64)
    return predicted.requires_grad_(), true


def make(kind: type[PoolLoss], problem: pear.Problem, **options: Any) -> PoolLoss:
    return kind(problem, **{"solve_ratio": 0.0, "cost_unit": 2.0, **STRENGTHS[kind], **options})


def gradient(loss: nn.Module, predicted: Tensor, true: Tensor, **named: Any) -> tuple[Tensor, Tensor]:
    value = loss(predicted, true, **named)
    return value.detach(), torch.autograd.grad(value, predicted)[0]


def distinct(rows: Tensor) -> list[Tensor]:
    """Return the distinct rows, rounded to integers."""
    return [torch.tensor(row, dtype=torch.float64) for row in dict.fromkeys(map(tuple, rows.round().tolist()))]


# --- values by hand -------------------------------------------------------------------------------------------------


def by_hand(kind: type[PoolLoss], predicted: Tensor, true: Tensor, pool: list[Tensor], unit: float) -> float:
    """Return the loss of one sample of a minimisation, computed solution by solution."""
    costs, true_costs = ([float(c @ v) for v in pool] for c in (predicted, true))
    best = true_costs.index(min(true_costs))
    others = [i for i in range(len(pool)) if i != best]
    strength = STRENGTHS[kind]
    if kind is NCELoss:
        return sum(costs[best] - one for one in costs) / len(pool)
    if kind is CMAPLoss:
        return costs[best] - min(costs)
    if kind is PointwiseLTRLoss:
        return sum((a - b) ** 2 for a, b in zip(costs, true_costs, strict=True)) / len(pool) / unit
    if kind is PairwiseLTRLoss:
        margin = strength["margin"] * unit
        return sum(max(0.0, margin + costs[best] - costs[i]) for i in others) / len(others)
    weights, wanted = ([math.exp(-one / (strength["temperature"] * unit)) for one in c] for c in (costs, true_costs))
    return -unit * sum(w / sum(wanted) * math.log(p / sum(weights)) for w, p in zip(wanted, weights, strict=True))


@LOSS
@PROBLEM
def test_a_loss_follows_its_formula(problem: pear.Problem, kind: type[PoolLoss]) -> None:
    """The pool holds the best decisions of the training samples and of the batch."""
    (_, earlier), (predicted, true) = costs(problem.n, seed=1), costs(problem.n)
    loss = make(kind, problem)
    loss.calibrate(earlier)
    value = loss(predicted, true)
    pool = distinct(torch.cat([pear.solve(problem, c).x for c in (earlier, true)]))
    assert len(loss.pools) == len(pool) > 3
    s = problem.sign
    rows = zip(s * predicted.detach(), s * true, strict=True)
    expected = sum(by_hand(kind, p, c, pool, 2.0) for p, c in rows) / len(true)
    assert value.item() == pytest.approx(expected, rel=1e-12)
    assert expected != 0


@LOSS
@PROBLEM
def test_gradients_agree_with_finite_differences(problem: pear.Problem, kind: type[PoolLoss]) -> None:
    predicted, true = costs(problem.n, batch=3)
    loss = make(kind, problem)
    loss.calibrate(costs(problem.n, seed=1)[1])
    assert bool(gradient(loss, predicted, true)[1].any())
    assert torch.autograd.gradcheck(lambda p: loss(p, true), predicted, eps=1e-7)


@LOSS
def test_maximising_is_minimising_with_every_sign_turned(kind: type[PoolLoss]) -> None:
    predicted, true = costs(ITEMS.n)
    turned = pear.Problem(G=WEIGHTS, h=ITEMS.h, lb=0.0, ub=1.0, integer=True)
    value, grad = gradient(make(kind, ITEMS), predicted, true)
    other, other_grad = gradient(make(kind, turned), (-predicted).detach().requires_grad_(), -true)
    torch.testing.assert_close(value, other)
    torch.testing.assert_close(grad, -other_grad)
    assert bool(grad.any())


@LOSS
def test_the_pool_is_of_double_precision_where_costs_are_not(kind: type[PoolLoss]) -> None:
    thirds = pear.Problem(A=[[3.0, 1.0, 0.0], [0.0, 1.0, 7.0]], b=[1.0, 1.0], lb=0.0)
    predicted, true = costs(3)
    loss = make(kind, thirds)
    loss.calibrate(true.float())
    value, grad = gradient(loss, predicted.detach().float().requires_grad_(), true.float())
    assert value.dtype == grad.dtype == torch.float32
    rows = loss.pools.of([None]).rows
    assert rows.dtype == torch.float64
    torch.testing.assert_close(rows @ thirds.A.T, torch.ones(len(rows), 2).double(), rtol=0, atol=1e-15)  # type: ignore[union-attr]


# --- PyEPO ----------------------------------------------------------------------------------------------------------

PYEPO = {
    NCELoss: ("NCE", {}),
    CMAPLoss: ("CMAP", {}),
    PointwiseLTRLoss: ("ptLTR", {}),
    PairwiseLTRLoss: ("prLTR", {"margin": 0.0}),
    ListwiseLTRLoss: ("lsLTR", {"temperature": 1.0}),
}


@pytest.mark.parametrize("solve_ratio", [0.0, 1.0])
@LOSS
@PROBLEM
def test_a_loss_is_that_of_pyepo_on_the_same_pool(
    problem: pear.Problem, kind: type[PoolLoss], solve_ratio: float
) -> None:
    """With a ratio of 1, both also add the decisions for the forecasts; two calls show that the pools grow alike.

    Our pool also gets the best decisions of the batch. PyEPO therefore gets the same samples at the start.
    """
    func = pytest.importorskip("pyepo.func", reason="PyEPO is not installed; pip install 'pear-dfl[baselines]'")
    from pyepo.data.dataset import optDataset

    name, strength = PYEPO[kind]
    (predicted, true), (_, earlier) = costs(problem.n), costs(problem.n, seed=1)
    known = torch.cat([true, earlier])

    def theirs(model: Any) -> Any:
        data = optDataset(pyepo_model(problem), np.zeros((len(known), 1)), known.numpy())
        return getattr(func, name)(model, solve_ratio=solve_ratio, dataset=data)

    peer = PyEPOLoss(problem, theirs)
    loss = make(kind, problem, cost_unit=1.0, solve_ratio=solve_ratio, **strength)
    loss.calibrate(known)
    for moved in (predicted, (predicted.flip(1) * 1.3).detach().requires_grad_()):
        value, grad = gradient(loss, moved, true)
        their_value, their_grad = gradient(peer, moved, true)
        assert bool(grad.any())
        assert len(loss.pools) == len(peer.loss.solpool)
        torch.testing.assert_close(value, their_value, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(grad, their_grad, rtol=1e-6, atol=1e-6)


# --- how a pool grows -----------------------------------------------------------------------------------------------


class CountingOracle:
    """An oracle that chooses the cheapest of n options, and counts the samples that it has decided."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, cost: Tensor) -> Tensor:
        self.asked += len(cost)
        return torch.eye(cost.shape[1], dtype=cost.dtype)[cost.argmin(1)]


SIMPLEX = pear.Problem(A=torch.ones(1, 8), b=[1.0], lb=0.0)


def test_forecasts_are_decided_in_the_share_of_steps_that_was_asked_for() -> None:
    predicted, true = costs(8)
    counts = []
    for ratio in (0.0, 0.25, 1.0):
        decide = CountingOracle()
        loss = CMAPLoss(SIMPLEX, decide, solve_ratio=ratio)
        for _ in range(200):
            loss(predicted, true, keys=range(6))
        counts.append((decide.asked - 6) / (6 * 200))  # the best decisions are computed once
    assert (counts[0], counts[2]) == (0.0, 1.0)
    assert counts[1] == pytest.approx(0.25, abs=0.1)


def test_evaluation_adds_no_forecast() -> None:
    predicted, true = costs(8)
    loss = CMAPLoss(SIMPLEX, CountingOracle(), solve_ratio=1.0).eval()
    loss(predicted, true)
    assert len(loss.pools) == len(distinct(CountingOracle()(true)))
    loss.train()(predicted, true)
    assert len(loss.pools) == len(distinct(CountingOracle()(torch.cat([true, predicted.detach()]))))


def test_the_first_pool_is_of_evenly_spaced_samples_where_there_are_many() -> None:
    true = torch.ones(11, 11) - torch.eye(11)  # the best option of sample i is i
    true[3] = torch.nan
    problem = pear.Problem(A=torch.ones(1, 11), b=[1.0], lb=0.0)
    for size, chosen in ((5, [0, 2, 5, 7, 9]), (4, [0, 2, 6, 8]), (10, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10])):
        decide = CountingOracle()
        loss = NCELoss(problem, decide, pool_size=size)
        loss.calibrate(true)
        assert loss.pools.of([None]).rows.argmax(1).tolist() == chosen
        assert decide.asked == len(chosen)


def test_the_first_pool_is_decided_under_the_costs_that_values_make() -> None:
    """The first pool is computed from costs: two predicted values and known parts that make option i the cheapest."""
    M, known = torch.cat([torch.eye(2), torch.zeros(2, 2)]), 9.0 - 9.0 * torch.eye(4)
    cost_map = pear.CostMap(M.double().numpy(), known=known.double().numpy())
    loss = NCELoss(pear.Model(pear.Problem(A=torch.ones(1, 4), b=[1.0], lb=0.0), cost_map=cost_map), solve_ratio=0.0)
    loss.calibrate(torch.rand(4, 2, generator=torch.Generator().manual_seed(0)).double())
    assert loss.pools.of([None]).rows.argmax(1).tolist() == [0, 1, 2, 3]


def test_another_problem_begins_with_an_empty_pool() -> None:
    loss = NCELoss(SIMPLEX)
    loss.calibrate(costs(8)[1])
    assert len(loss.pools) > 0
    loss.problem = pear.Problem(A=torch.ones(1, 3), b=[1.0], lb=0.0)
    assert len(loss.pools) == 0
    loss(*costs(3))
    assert loss.pools.of([None]).rows.shape[1] == 3


# --- samples with constraints of their own, and oracles -------------------------------------------------------------


def own_capacities(sense: str = "max") -> tuple[pear.Problem, list[pear.Problem]]:
    """Return six samples with three different capacities: as one problem, and as one problem for each capacity.

    The problems are knapsacks, or covering problems if the sense is "min".
    """
    s = 1.0 if sense == "max" else -1.0
    capacities = torch.tensor([[9.0, 8.0], [5.0, 4.0], [14.0, 12.0]], dtype=torch.float64)[[0, 1, 0, 2, 1, 1]]
    fields: dict[str, Any] = {"G": s * WEIGHTS, "lb": 0.0, "ub": 1.0, "sense": sense, "integer": True}
    parts = [s * capacities[rows][0] for rows in ([0, 2], [1, 4, 5], [3])]
    return pear.Problem(h=s * capacities, **fields), [pear.Problem(h=part, **fields) for part in parts]


@pytest.mark.parametrize("sense", ["min", "max"])
@LOSS
def test_samples_of_the_same_constraints_share_a_pool(kind: type[PoolLoss], sense: str) -> None:
    """The loss of a batch is the mean of the losses of three problems; samples of the same problem share a pool."""
    together, apart = own_capacities(sense)
    predicted, true = costs(6)
    loss = make(kind, together, solve_ratio=1.0)
    value, grad = gradient(loss, predicted, true, keys=range(6))
    expected, expected_grad = torch.zeros(()).double(), torch.zeros_like(grad)
    for problem, rows in zip(apart, ([0, 2], [1, 4, 5], [3]), strict=True):
        part = make(kind, problem, solve_ratio=1.0)
        one, one_grad = gradient(part, predicted[rows].detach().requires_grad_(), true[rows])
        expected += one * len(rows) / 6
        expected_grad[rows] = one_grad * len(rows) / 6
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(grad, expected_grad)
    assert bool(grad.any())


def test_no_sample_is_compared_with_a_solution_that_it_cannot_have() -> None:
    problem, _ = own_capacities()
    assert problem.h is not None
    loss = NCELoss(problem, solve_ratio=1.0)
    loss.calibrate(costs(6)[1])
    for seed, order in enumerate(itertools.islice(itertools.permutations(range(6)), 0, 720, 97)):
        predicted, true = costs(6, batch=4, seed=seed)
        loss(predicted, true, keys=order[:4])
    for i in range(6):
        rows = loss.pools.of(loss._name_constraint_sets([i], 1)).rows
        assert len(rows) > 1
        assert bool((rows @ WEIGHTS.T <= problem.h[i]).all())


def test_bounds_of_their_own_show_the_unit_of_each_sample() -> None:
    """The second variable is large in sample 0 and small in sample 1, as its bounds show.

    A difference of 0.5 in it is rounding in sample 0, and makes another solution in sample 1.
    """
    fine = torch.tensor([[1e10, 1e10], [1e10, 1.0]], dtype=torch.float64)
    loss = NCELoss(pear.Problem(lb=0.0, ub=fine, sense="max"), lambda cost: cost)
    for key, count in ((0, 1), (1, 2)):
        for amount in (0.25, 0.75):
            decision = torch.tensor([[1e9, amount]], dtype=torch.float64)
            loss(decision, decision, keys=[key])
        assert len(loss.pools.of(loss._name_constraint_sets([key], 1)).rows) == count


def test_an_oracle_with_a_relaxation_of_each_sample_has_a_pool_for_each() -> None:
    relaxation, _ = own_capacities()
    loss = NCELoss(pear.Oracle(lambda cost: (cost == cost.max()).astype(float), sense="max", relaxation=relaxation))
    _, true = costs(6)
    loss(true.clone().requires_grad_(), true)
    assert [len(loss.pools.of([key]).rows) for key in range(6)] == [1] * 6


def test_an_oracle_that_takes_ids_has_a_pool_for_each() -> None:
    """An oracle that takes sample ids has a pool for each id: sample k chooses k + 1 of 4 items."""

    def largest(cost: Any, key: int) -> Any:
        return (np.argsort(np.argsort(-cost)) <= key).astype(float)

    loss = CMAPLoss(pear.Oracle(largest, n=4, sense="max"), solve_ratio=1.0)
    predicted, true = costs(4, batch=3)
    for _ in range(2):
        loss(predicted, true, keys=range(3))
    for key in range(3):
        rows = loss.pools.of([key]).rows
        assert len(rows) > 0
        assert rows.sum(1).tolist() == [key + 1.0] * len(rows)


def test_a_function_of_ids_has_a_pool_for_each() -> None:
    def decide(cost: Tensor, keys: list[int] | None) -> Tensor:
        assert keys is not None
        return torch.eye(8, dtype=cost.dtype)[torch.tensor(keys)]

    loss = NCELoss(SIMPLEX, decide)
    loss(*costs(8), keys=range(6))
    assert [len(loss.pools.of([key]).rows) for key in range(6)] == [1] * 6
    assert len(make_loss("nce", SIMPLEX).pools) == 0  # whose own function of ids decides the shared problem
    shared = make_loss("nce", SIMPLEX)
    shared(*costs(8), keys=range(6))
    assert len(shared.pools.of([None]).rows) > 1


@pytest.mark.parametrize("name", METHODS)
def test_training_with_an_oracle_lowers_the_regret(name: str) -> None:
    rng = np.random.default_rng(0)
    X = torch.as_tensor(rng.normal(size=(80, 4)), dtype=torch.float32)
    true = (X @ torch.as_tensor(rng.normal(size=(4, 9)), dtype=torch.float32)).exp()
    oracle = pear.Oracle(lambda cost: (np.argsort(np.argsort(cost)) < 3).astype(float), n=9)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(4, 9)

    def regret() -> float:
        with torch.no_grad():
            return pear.normalized_regret(oracle, model(X[40:]), true[40:])

    before = regret()
    config = pear.FitConfig(batch_size=8, max_epochs=20, check_every=21, start="standardised", learning_rate=0.05)
    pear.fit(model, make_loss(name, oracle), (X[:40], true[:40]), config=config)
    assert regret() < 0.5 * before


# --- saved and resumed ----------------------------------------------------------------------------------------------


@LOSS
def test_a_resumed_loss_goes_on_to_the_bit(kind: type[PoolLoss]) -> None:
    loss = make(kind, ITEMS, solve_ratio=0.5, pool_size=8)
    for seed in range(5):
        loss(*costs(6, seed=seed))
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other = make(kind, ITEMS, solve_ratio=0.5, pool_size=8, seed=1)
    other.load_state_dict(torch.load(file, weights_only=True))
    twin = copy.deepcopy(loss)
    for seed in range(5, 12):
        first = gradient(loss, *costs(6, seed=seed))
        for again in (other, twin):
            assert all(map(torch.equal, gradient(again, *costs(6, seed=seed)), first))


def test_a_state_of_another_problem_is_refused() -> None:
    loss = NCELoss(SIMPLEX)
    loss.calibrate(costs(8)[1])
    with pytest.raises(pear.DataError, match="expected 6 variables, got 8"):
        NCELoss(ITEMS).load_state_dict(loss.state_dict())


# --- wrong input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: NCELoss(ITEMS, solve_ratio=1.5), "solve_ratio must be a number from 0 to 1; got 1.5"),
        (lambda: NCELoss(ITEMS, solve_ratio=-0.1), "solve_ratio must be a number from 0 to 1; got -0.1"),
        (lambda: NCELoss(ITEMS, pool_size=1), "pool_size must be a whole number of at least 2; got 1"),
        (lambda: PairwiseLTRLoss(ITEMS, margin=-1.0), "margin must be a finite number of at least 0; got -1.0"),
        (lambda: ListwiseLTRLoss(ITEMS, temperature=0.0), "temperature must be a finite number above 0; got 0.0"),
        (lambda: CMAPLoss(pear.Problem(Q=torch.eye(2))), "CMAPLoss is made for linear objectives"),
    ],
)
def test_wrong_settings_are_named(make_it: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        make_it()


def test_a_subclass_must_say_what_it_compares() -> None:
    class Bare(PoolLoss):
        pass

    with pytest.raises(NotImplementedError, match="Bare must define compare"):
        Bare(SIMPLEX)(*costs(8))
