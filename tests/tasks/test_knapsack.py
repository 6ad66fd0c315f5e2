"""Knapsacks: the paper's data bit for bit, and integer decisions that are proven optimal."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch

import pear
from pear.compile import thread_pools
from pear.solvers.backend_registry import resolve_backends
from pear.solvers.binary import binary_plan as plans
from pear.solvers.binary.selection_search import NOTHING, SPENT, SearchOutcomes, SelectionSearch
from pear.solvers.binary.tightened_rows import TightenedRows
from pear.solvers.bounded_cache import BoundedCache
from pear.tasks import knapsack, random_knapsack


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    plans.forget_binary_plans()


def give_up(self: SelectionSearch) -> SearchOutcomes:
    B = len(self.values)
    return SearchOutcomes(np.full(self.values.shape, np.nan), np.full(B, np.nan), np.full(B, SPENT, np.int8))


def best_by_enumeration(values: np.ndarray, G: np.ndarray, h: np.ndarray) -> float:
    every = np.array(list(itertools.product([0.0, 1.0], repeat=G.shape[1])))
    fits = every[(every @ G.T <= h + 1e-9).all(1)]
    return float((fits @ values).max())


# --- data -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("degree", "noise", "seed"), [(8, 0.0, 0), (2, 0.5, 3)])
def test_arrays_are_those_of_the_published_generator(degree: int, noise: float, seed: int) -> None:
    items, dimensions, count, p = 100, 5, 40, 5
    random = np.random.RandomState(seed)
    weights = random.choice(range(1, 11), size=(dimensions, items))
    hidden = random.binomial(1, 0.5, (items, p))
    features = random.normal(0, 1, (count, p))
    values = np.zeros((count, items))
    for i in range(count):
        score = (np.dot(hidden, features[i].reshape(p, 1)).T / np.sqrt(p) + 3) ** degree + 1
        score = score / 3.5**degree
        score = score * random.uniform(1 - noise, 1 + noise, items)
        values[i] = np.ceil(score * 5)
    task = random_knapsack(items, dimensions, capacity_ratio=0.5, seed=seed)
    X, C = task.samples(count, degree, noise, dtype=torch.float64)
    assert np.array_equal(task.weights.numpy(), weights)
    assert np.array_equal(task.capacity.numpy(), 0.5 * weights.sum(1))
    assert np.array_equal(X.numpy(), features)
    assert np.array_equal(C.numpy(), values)
    again = task.samples(count, degree, noise, seed=seed)
    assert again.costs.dtype == torch.float32
    assert np.array_equal(again.costs.numpy(), values)
    assert np.array_equal(task.with_capacity(0.3).samples(count, degree, noise).costs.numpy(), values)


def test_the_printed_formula_adds_one_outside_the_division() -> None:
    task = random_knapsack(6, 2, seed=1)
    x, _ = task.samples(3, degree=4, noise=0.0, dtype=torch.float64)
    random = np.random.RandomState(1)
    random.randint(1, 11, (2, 6))
    hidden = random.binomial(1, 0.5, (6, 5))
    expected = np.ceil(5 * ((x.numpy() @ hidden.T / np.sqrt(5) + 3) ** 4 / 3.5**4 + 1))
    printed = task.samples(3, degree=4, noise=0.0, formula="paper", dtype=torch.float64)
    assert np.array_equal(printed.costs.numpy(), expected)
    with pytest.raises(pear.ProblemError, match="formula must be 'code'"):
        task.samples(3, formula="other")  # type: ignore[arg-type]


def test_capacity_is_a_share_of_the_total() -> None:
    task = random_knapsack(20, 3, capacity_ratio=0.25, seed=2)
    assert torch.equal(task.capacity, 0.25 * task.weights.sum(1))
    wide = task.with_capacity(0.9)
    assert torch.equal(wide.capacity, 0.9 * task.weights.sum(1))
    assert torch.equal(wide.weights, task.weights)
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(pear.ProblemError, match="capacity ratio"):
            task.with_capacity(wrong)
    for arguments in ({"items": 0}, {"dimensions": 1.5}):
        with pytest.raises(pear.ProblemError, match="whole number of at least 1"):
            random_knapsack(**arguments)  # type: ignore[arg-type]


# --- decisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("whole", [False, True])
def test_small_decisions_are_best_of_all(seed: int, whole: bool) -> None:
    random = np.random.default_rng(seed)
    G = random.integers(0, 8, (int(random.integers(1, 4)), 10)).astype(float)
    h = np.floor(float(random.uniform(0.1, 0.9)) * G.sum(1))
    values = random.normal(2.0, 3.0, (12, 10))
    values = np.round(values) if whole else values
    task = knapsack(G, h)
    z = task.decide(values).numpy()
    assert set(np.unique(z)) <= {0.0, 1.0}
    assert (z @ G.T <= h + 1e-9).all()
    for row, chosen in zip(values, z, strict=True):
        assert row @ chosen == pytest.approx(best_by_enumeration(row, G, h), abs=1e-9)


@pytest.mark.parametrize("degree", [6, 8])
def test_decisions_of_the_papers_size_equal_branch_and_cut(degree: int) -> None:
    task = random_knapsack(seed=0)
    _, values = task.samples(3, degree, noise=0.0, dtype=torch.float64)
    forecast = values + 0.3 * torch.randn(values.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for costs in (values, forecast):
        solved = pear.solve(task.problem, costs, solver="highs")
        torch.testing.assert_close((costs * task.decide(costs)).sum(1), solved.value, rtol=0, atol=1e-8)


def test_the_search_does_not_depend_on_a_good_start() -> None:
    random = np.random.default_rng(3)
    G, value = random.uniform(1, 9, (2, 12)), random.uniform(1, 9, 12)
    h = 0.5 * G.sum(1)
    rows = TightenedRows.of(G, h)
    best = SelectionSearch(value[None], rows).run().z[0]
    assert value @ best == pytest.approx(best_by_enumeration(value, G, h), abs=1e-9)
    for start in (np.zeros(12), np.eye(12)[3], best, np.ones(12)):  # the last does not fit
        assert np.array_equal(SelectionSearch(value[None], rows, start[None]).run().z[0], best)


def test_the_search_gives_up_rather_than_guess() -> None:
    random = np.random.default_rng(0)
    G, value = random.uniform(1, 9, (5, 60)), random.uniform(4, 5, 60)
    found = SelectionSearch(value[None], TightenedRows.of(G, 0.5 * G.sum(1)), budget=np.array([5])).run()
    assert found.outcome.tolist() == [SPENT]
    assert np.isnan(found.z).all()
    nothing = SelectionSearch(np.ones((1, 3)), TightenedRows.of(np.ones((1, 3)), np.array([-1.0]))).run()
    assert nothing.outcome.tolist() == [NOTHING]
    assert np.isnan(nothing.z).all()


def test_what_the_search_leaves_goes_to_branch_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    task = random_knapsack(20, 2, seed=1)
    _, values = task.samples(5, degree=3)
    expected = (values * task.decide(values)).sum(1)
    monkeypatch.setattr(SelectionSearch, "run", give_up)
    plans.forget_binary_plans()
    other = random_knapsack(20, 2, seed=1)
    assert torch.equal((values * other.decide(values)).sum(1), expected)


def test_each_distinct_value_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[int] = []
    run = SelectionSearch.run
    monkeypatch.setattr(SelectionSearch, "run", lambda self: (solved.append(len(self.values)), run(self))[1])
    task = random_knapsack(12, 2, seed=0, jobs=1)
    _, values = task.samples(4, degree=2)
    repeated = torch.cat([values, values.flip(0), -0.0 * values[:1], 0.0 * values[:1]])
    first = task.decide(repeated)
    assert sum(solved) == 5
    assert torch.equal(first[:4], first[4:8].flip(0))
    assert torch.equal(task.decide(values.double()), first[:4].double())
    assert sum(solved) == 5
    assert task.decide(values[:0]).shape == (0, 12)
    task.with_capacity(0.4).decide(values)  # the same costs under other limits are other programs
    assert sum(solved) == 9


def test_memory_is_bounded_and_answers_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    task = random_knapsack(10, 2, seed=0)
    _, values = task.samples(30, degree=2, dtype=torch.float64)
    expected = task.decide(values)
    plans.forget_binary_plans()
    monkeypatch.setattr(plans, "_SHARE", 3000)
    with thread_pools.limit_threads(2):
        fresh = random_knapsack(10, 2, seed=0)  # which keeps no solutions yet
        assert torch.equal(fresh.decide(values), expected)
        (plan,) = [kept for kept, _ in plans._plans._entries.values()]
        assert 0 < plan.answers.used <= 3000
        assert 0 < len(plan.answers) < 10
        assert torch.equal(task.decide(values), expected)
    monkeypatch.setattr(plans._plans, "limit", 20_000)
    for ratio in np.linspace(0.1, 0.9, 20):
        task.with_capacity(float(ratio)).decide(values[:2])
    assert 0 < len(plans._plans) < 20
    assert plans._plans.used == sum(size for _, size in plans._plans._entries.values()) <= 20_000


def test_what_was_used_longest_ago_is_forgotten() -> None:
    memory: BoundedCache[str] = BoundedCache(10)
    for key in "abc":
        memory.put(key, key.upper(), 3)
    assert memory.find(["a", "x"]) == ["A", None]
    memory.put("d", "D", 3)
    assert memory.find(list("abcd")) == ["A", None, "C", "D"]
    memory.put("d", "new", 9)
    assert memory.find(list("acd")) == [None, None, "new"]
    assert memory.used == 9
    memory.put("e", "too large", 11)
    assert (len(memory), memory.used) == (0, 0)


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_any_number_of_threads_decides_the_same(jobs: int) -> None:
    one, several = random_knapsack(40, 3, seed=5, jobs=1), random_knapsack(40, 3, seed=5, jobs=jobs)
    X, values = one.samples(20, degree=6)
    assert torch.equal(one.decide(values), several.decide(values))
    assert torch.equal(one.decide(X @ torch.ones(5, 40)), several.decide(X @ torch.ones(5, 40)))


def test_values_that_are_none_are_refused_by_name() -> None:
    task = random_knapsack(5, 1, seed=0)
    values = torch.ones(3, 5)
    values[2, 1] = torch.nan
    with pytest.raises(pear.SolveError, match=r"1 of 3 samples .* sample 2 \(NOT_FINITE\)"):
        task.decide(values)
    with pytest.raises(pear.ProblemError, match="each of the 5 items; got 4"):
        task.decide(torch.ones(1, 4))


def test_a_failed_proof_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    task = random_knapsack(5, 1, seed=0)
    monkeypatch.setattr(SelectionSearch, "run", give_up)
    monkeypatch.setattr("pear.decisions.integer_programs.resolve_backends", lambda *args: resolve_backends(*args)[:1])
    with pytest.raises(pear.SolveError, match=r"samples 0, 1 \(INACCURATE\)"):
        task.decide(torch.ones(2, 5))


def test_relaxed_decisions_earn_at_least_as_much() -> None:
    task = random_knapsack(30, 3, seed=0)
    _, values = task.samples(20, degree=4)
    whole, relaxed = (values * task.decide(values)).sum(1), (values * task.decide_relaxed(values)).sum(1)
    assert bool((relaxed >= whole - 1e-3).all())
    assert float((relaxed - whole).max()) > 0.1
    assert task.decide_relaxed(values).dtype == torch.float32


def test_regret_is_that_of_the_integer_problem() -> None:
    task = random_knapsack(15, 2, seed=3)
    _, values = task.samples(10, degree=6)
    forecast = values + torch.randn(values.shape, generator=torch.Generator().manual_seed(0))
    expected = pear.normalized_regret(task.problem, forecast, values, solver="highs")
    assert expected > 0.001
    assert task.normalized_regret(forecast, values) == pytest.approx(expected, abs=1e-9)
    assert task.normalized_regret(values, values) == 0.0


def test_tasks_travel_to_other_processes() -> None:
    task = random_knapsack(8, 2, seed=0)
    _, values = task.samples(3, degree=2)
    chosen = task.decide(values)
    again = pickle.loads(pickle.dumps(task))
    assert torch.equal(again.decide(values), chosen)
