"""Integer decisions are proven optimal: compared with enumeration and HiGHS, for all warm starts and thread counts."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pear
from pear.compile import thread_pools
from pear.decisions.integer_checks import CheckedIntegers, check_integers
from pear.optimality.duals_and_active_sets import Duals
from pear.solvers.adapters.batch_arrays import ProgramArrays
from pear.solvers.binary import binary_plan as plans
from pear.solvers.binary import tightened_rows as presolve
from pear.solvers.binary.binary_plan import BinaryPlan
from pear.solvers.binary.branch_and_bound import branch_and_bound_all
from pear.solvers.binary.selection_search import PROVEN, SelectionSearch
from pear.solvers.binary.tightened_rows import TightenedRows
from pear.solvers.candidate import Candidate
from pear.tasks import knapsack, random_knapsack
from pear_lab.benchmarks import integers_benchmark
from pear_lab.benchmarks.benchmark import Callbacks


def search(value: np.ndarray, G: np.ndarray, h: np.ndarray, start: np.ndarray | None = None) -> np.ndarray | None:
    """Return the best selections in the shape of ``value``; None if no optimum was proven."""
    found = SelectionSearch(
        np.atleast_2d(value), TightenedRows.of(G, h), None if start is None else np.atleast_2d(start)
    ).run()
    proven = found.outcome == PROVEN
    assert np.array_equal(proven, ~np.isnan(found.z).any(1))
    values = np.atleast_2d(value)[proven]
    size = np.abs(values).sum(1)
    gap = (values * found.z[proven]).sum(1) - found.most[proven]
    assert (np.abs(gap) <= 1e-12 * np.where(size > 0, size, 1)).all()
    return found.z.reshape(value.shape) if proven.any() else None


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    plans.forget_binary_plans()


def fitting(G: np.ndarray, h: np.ndarray) -> np.ndarray:
    every = np.array(list(itertools.product([0.0, 1.0], repeat=G.shape[1])))
    return every[(every @ G.T <= h + 1e-9).all(1)]


def check(value: np.ndarray, G: np.ndarray, h: np.ndarray) -> None:
    """Check that the search finds the best of all selections, or that there is none."""
    z, fits = search(value, G, h), fitting(G, h)
    if not len(fits):
        assert z is None
        return
    assert z is not None
    assert set(np.unique(z)) <= {0.0, 1.0}
    assert (G @ z <= h + 2e-9 * np.maximum(1, np.abs(h))).all()
    assert value @ z == pytest.approx((fits @ value).max(), abs=1e-11)


def plan_of(problem: pear.Problem) -> BinaryPlan:
    return BinaryPlan.of(ProgramArrays.of(problem.canonical(torch.zeros(1, problem.n))), 0)


@pytest.fixture
def no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off the table of all selections, so that branch and bound solves every program."""
    monkeypatch.setattr(presolve, "_TABLE", -1)


# --- against enumeration --------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 10), m=st.integers(1, 5), kind=st.integers(0, 5))
def test_every_kind_of_rows_and_values(seed: int, n: int, m: int, kind: int) -> None:
    random = np.random.default_rng(seed)
    least = -3 if kind % 2 else 0
    G = random.integers(least, 9, (m, n)).astype(float) if kind < 4 else random.uniform(least, 9, (m, n))
    h = random.uniform(-0.1 if kind % 2 else 0.0, 1.0) * np.abs(G).sum(1)
    value = random.normal(1.0, 3.0, n)
    for v in (value, np.round(value), 0.1 * np.round(value), np.full(n, 0.3), np.zeros(n), -np.abs(value)):
        check(v, G, h)


@pytest.mark.parametrize("seed", range(8))
def test_one_row_by_table_and_by_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    G = random.integers(0, 7, (1, 11)).astype(float)
    h = np.array([float(random.integers(0, 30)) + 0.5])
    values = np.concatenate([random.normal(1, 2, (5, 11)), random.integers(-2, 4, (5, 11))])
    assert TightenedRows.of(G, h).weights is not None or G.sum() <= h[0]
    table = search(values, G, h)
    monkeypatch.setattr(presolve, "_TABLE", -1)
    searched = search(values, G, h)
    assert table is not None
    assert searched is not None
    best = (fitting(G, h) @ values.T).max(0)
    for z in (table, searched):
        assert (z @ G[0] <= h[0]).all()
        np.testing.assert_allclose((values * z).sum(1), best, rtol=0, atol=1e-12)


@pytest.mark.parametrize("capacity", [60.0, 120.0, 180.0])
def test_small_whole_weights_of_48_items(capacity: float, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(int(capacity))
    task = knapsack(random.choice([3.0, 5.0, 7.0], (1, 48)), capacity)
    values = random.uniform(-0.2, 1, (20, 48))
    table = task.decide(values).numpy()
    monkeypatch.setattr(presolve, "_TABLE", -1)
    plans.forget_binary_plans()
    searched = knapsack(task.weights, capacity).decide(values).numpy()
    assert (table @ task.weights.numpy().T <= capacity).all()
    np.testing.assert_allclose((values * table).sum(1), (values * searched).sum(1), rtol=0, atol=1e-12)
    exact = pear.solve(task.problem, values[:4], solver="highs").value.numpy()
    np.testing.assert_allclose((values * table).sum(1)[:4], exact, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("no_table")
def test_what_always_or_never_fits() -> None:
    value = np.array([3.0, -1.0, 0.5, 0.0])
    G = np.array([[1.0, 2.0, 3.0, 4.0]])
    everything = search(value, G, np.array([10.0]))
    assert everything is not None
    assert everything[:3].tolist() == [1.0, 0.0, 1.0]
    nothing = search(np.abs(value), G, np.array([0.5]))
    assert nothing is not None
    assert not nothing.any()
    assert search(value, G, np.array([-0.5])) is None
    weightless = search(np.abs(value), np.zeros((1, 4)), np.zeros(1))
    assert weightless is not None
    assert weightless[:3].all()
    assert search(value, np.zeros((1, 4)), -np.ones(1)) is None
    assert search(value, G, np.array([-np.inf])) is None
    unlimited = search(value, G, np.array([np.inf]))
    assert unlimited is not None
    assert np.array_equal(unlimited, everything)
    check(value, np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 4.0]]), np.array([1.0, 3.0]))


def test_sizes_of_rows_and_values_do_not_matter() -> None:
    random = np.random.default_rng(5)
    G, value = random.uniform(1, 9, (3, 12)), random.uniform(1, 9, 12)
    h = 0.5 * G.sum(1)
    expected = search(value, G, h)
    assert expected is not None
    for rows, values in ((np.array([1e-6, 1.0, 1e6]), 1.0), (np.ones(3), 1e-300), (np.ones(3), 1e306)):
        z = search(values * value, rows[:, None] * G, rows * h)
        assert z is not None
        assert value @ z == pytest.approx(value @ expected, rel=1e-9)


def test_whole_rows_are_as_tight_as_they_can_be() -> None:
    rows = TightenedRows.of(np.array([[4.0, 6.0, 2.0], [0.5, 1.0, 1.0], [1.0, 1.0, 1.0]]), np.array([7.5, 1.75, 3.0]))
    assert rows.A.shape == (3, 3)  # the last row always holds; the count takes its place
    assert rows.b.tolist() == pytest.approx([6 / 8, 1.75, 0.0], abs=1e-8)
    table = TightenedRows.of(np.array([[4.0, 6.0, 2.0]]), np.array([7.5]))
    assert table.weights is not None
    assert (table.weights.tolist(), table.capacity) == ([2, 3, 1], 3)
    large = np.array([[2e9, 2e9 + 2]])
    assert search(np.ones(2), large, np.array([4e9])).sum() == 1  # type: ignore[union-attr]
    assert TightenedRows.of(np.array([[-4.0, 6.0, 2.0]]), np.array([7.5])).weights is None
    assert TightenedRows.of(np.array([[4.0, 6.0, 2e9]]), np.array([1e9])).weights is None


# --- against branch and cut -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(100, 1), (60, 2), (40, 8), (20, 20)])
@pytest.mark.parametrize("whole", [False, True])
def test_larger_programs_equal_branch_and_cut(n: int, m: int, whole: bool) -> None:
    random = np.random.default_rng(n + m)
    G = random.uniform(0, 9, (m, n))
    values = random.uniform(-1, 9, (3, n))
    values = np.round(values) if whole else values
    problem = pear.Problem(G=G, h=0.4 * G.sum(1), lb=0.0, ub=1.0, sense="max", integer=True)
    z = search(values, G, 0.4 * G.sum(1))
    assert z is not None
    np.testing.assert_allclose(
        (values * z).sum(1), pear.solve(problem, values, solver="highs").value.numpy(), rtol=0, atol=1e-8
    )


def test_a_thousand_items() -> None:
    task = random_knapsack(1000, 2, seed=0)
    values = np.random.default_rng(0).uniform(0, 10, (2, 1000))
    z = task.decide(values)
    assert bool((z @ task.weights.T <= task.capacity).all())
    exact = pear.solve(task.problem, values, solver="highs").value.numpy()
    np.testing.assert_allclose((values * z.numpy()).sum(1), exact, rtol=1e-9)


# --- what came before -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.integers(0, 3))
def test_a_start_never_changes_the_result(seed: int, kind: int) -> None:
    random = np.random.default_rng(seed)
    G = random.integers(1, 9, (3, 9)).astype(float)
    h = np.floor(0.5 * G.sum(1))
    value = random.uniform(0, 5, 9)
    if kind:  # many equals, whole or not
        value = np.array([1.0, 0.1, 1 / 3])[kind - 1] * random.integers(1, 3, 9)
    expected = search(value, G, h)
    assert expected is not None
    fits = fitting(G, h)
    for start in (fits[0], fits[-1], fits[(fits @ value).argmax()], expected):
        z = search(value, G, h, start)
        assert z is not None
        assert np.array_equal(z, expected)


@pytest.mark.parametrize("ties", [False, True])
def test_remembered_decisions_never_change_the_result(ties: bool) -> None:
    task = random_knapsack(25, 3, seed=4)
    random = np.random.default_rng(0)
    values = random.uniform(1, 5, (30, 25))
    values = 0.1 * np.round(values) if ties else values
    fresh = task.decide(values)
    plans.forget_binary_plans()
    for scale in (0.5, 0.1, 0.01):
        noise = scale * random.standard_normal(values.shape)
        task.decide(np.round(values + noise, 1) if ties else values + noise)
    assert len(plan_of(task.problem).recent) > 10
    assert torch.equal(task.decide(values), fresh)
    plans.forget_binary_plans()
    with thread_pools.limit_threads(1):
        assert torch.equal(torch.cat([task.decide(row[None]) for row in values]), fresh)


def test_starts_are_the_best_of_the_last_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_RECENT", 6)
    task = random_knapsack(20, 2, seed=0)
    values = torch.rand(10, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert plan_of(task.problem).starts(values.numpy()) is None
    chosen = task.decide(values)
    plan = plan_of(task.problem)
    assert len(plan.recent) == 6
    starts = plan.starts(values[-6:].numpy())
    assert starts is not None
    assert torch.equal(torch.from_numpy(starts), chosen[-6:])


@pytest.mark.parametrize("jobs", [2, 3])
def test_threads_and_ties_give_the_same_answer(jobs: int) -> None:
    values = torch.randint(1, 4, (60, 30), generator=torch.Generator().manual_seed(0)).double()
    one = random_knapsack(30, 4, seed=1, jobs=1)
    several = random_knapsack(30, 4, seed=1, jobs=jobs)
    assert torch.equal(one.decide(values), several.decide(values))
    assert torch.equal(one.decide(0.3 * values), several.decide(0.3 * values))


# --- the benchmark --------------------------------------------------------------------------------------------------


def test_the_benchmark_compares_equals() -> None:
    lines: list[str] = []
    rows: list[integers_benchmark.IntegerRow] = []
    integers_benchmark.IntegersBenchmark(
        integers_benchmark.IntegerSettings(count=2), Callbacks(rows.append, say=lines.append)
    ).run()
    assert [row.kind for row in rows] == ["forecast", "true", "mixed"] == list(integers_benchmark.KINDS)
    assert len(lines) == 3
    for row in rows:
        assert row.programs == 2
        assert row.difference <= integers_benchmark.GOALS["difference"]
        assert row.ratio == pytest.approx(row.highs_seconds / row.seconds)
        assert row.ratio > 1
    assert rows[0].again_seconds > 0
    slow, wrong = replace(rows[0], ratio=1.0), replace(rows[0], difference=float("nan"))
    assert not slow.meets_goals
    assert not wrong.meets_goals


def test_the_benchmark_needs_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pear.solvers.backend_registry.importlib.util.find_spec", lambda name: None)
    with pytest.raises(pear.MissingExtraError, match=r"compares with HiGHS; run pip install 'pear-dfl\[highs\]'"):
        integers_benchmark.IntegersBenchmark(integers_benchmark.IntegerSettings(), Callbacks(print)).run()


# --- compilation ----------------------------------------------------------------------------------------------------

_COUNT = """
import os, sys
from pathlib import Path
import numpy as np

def count():  # with modules that are loaded anew, and so are their compiled functions
    for name in [name for name in sys.modules if name.startswith(("pear.solvers.", "pear.compile.jit"))]:
        del sys.modules[name]
    from pear.solvers.binary.dynamic_programming import run_dynamic_programming as compiled
    from pear.solvers.binary.tightened_rows import TightenedRows
    from pear.solvers.binary.selection_search import SelectionSearch
    SelectionSearch(np.ones((1, 3)), TightenedRows.of(np.ones((1, 3)), np.array([2.0]))).run()
    print(sum(compiled.stats.cache_hits.values()), sum(compiled.stats.cache_misses.values()))

count()
count()
# Of all files of the engine: a change in one empties the cache.
(digest,) = Path(os.environ["NUMBA_CACHE_DIR"]).glob("binary_*/sources.sha256")
digest.write_text("of other sources")
count()
"""


def test_what_is_compiled_is_kept(tmp_path: Path) -> None:
    environment = dict(os.environ, NUMBA_CACHE_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", _COUNT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 1", "1 0", "0 1"]
    check(np.array([1.0, 2.0, 3.0]), np.array([[1.0, 2.0, 2.0], [2.0, 1.0, 2.0]]), np.array([3.0, 3.0]))
    assert list(Path(branch_and_bound_all.stats.cache_path).glob("branch_and_bound.branch_and_bound_all-*.nbi"))


# --- the verdict on a candidate -------------------------------------------------------------------------------------


def judged(x: list[float], **fields: object) -> CheckedIntegers:
    """Return the verdict on a point that its solver calls optimal, with an objective bound equal to its value."""
    n = len(x)
    qp = pear.Problem(n=n, **({"integer": True} | fields)).canonical(torch.ones(1, n))  # type: ignore[arg-type]
    point = torch.tensor([x], dtype=torch.float64)
    zeros = (torch.zeros(1, k, dtype=torch.float64) for k in (qp.p, qp.m, n))
    return check_integers(qp, Candidate(point, Duals(*zeros), torch.zeros(1, dtype=torch.int8), point.sum(1)))


@pytest.mark.parametrize(
    ("x", "violated"),
    [([2.0, 1.0], 0.0), ([2.0, 2.0], 1 / 8), ([1.0, 1.0], 1 / 6), ([3.0, 0.0], 1 / 5), ([-1.0, 4.0], 1.0)],
)
def test_each_constraint_is_looked_at(x: list[float], violated: float) -> None:
    """Points violate the equality in both directions, row and upper bound, or the lower bound.

    A violation is relative to the terms of its constraint.
    """
    fields = {"A": [[1.0, 1.0]], "b": [3.0], "G": [[1.0, 0.0]], "h": [2.0], "lb": 0.0, "ub": [2.0, 3.0]}
    found = judged(x, **fields)
    assert (int(found.status) == pear.Status.SOLVED) == (violated == 0)
    assert float(found.residual) == pytest.approx(violated, abs=1e-12)
    assert found.active.rows.tolist() == [[x[0] >= 2]]
    assert found.active.lower.tolist() == [[x[0] <= 0, x[1] <= 0]]
    assert found.active.upper.tolist() == [[x[0] >= 2, x[1] >= 3]]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("side", ["lb", "ub"])
def test_a_violation_is_measured_in_units_of_its_bound(unit: float, side: str) -> None:
    for by, solved in ((1e-10, True), (1e-7, False)):
        x = unit * (1 + by if side == "ub" else 1 - by)
        found = judged([x, 0.0], integer=[1], **{side: [unit, 0.0]})
        assert (int(found.status) == pear.Status.SOLVED) == solved


def test_a_whole_number_counts_as_one_at_least() -> None:
    """A violation is relative to at least 1 in an integer variable: 1e-10 is rounding, even if the variable is zero."""
    assert int(judged([0.0, 0.0], G=[[1.0, 1.0]], h=[-1e-10], lb=0.0).status) == pear.Status.SOLVED
    assert int(judged([0.0, 0.0], G=[[1.0, 1.0]], h=[-1e-7], lb=0.0).status) == pear.Status.INACCURATE


def test_one_variable() -> None:
    assert pear.solve(pear.Problem(lb=0.0, ub=3.5, integer=True, n=1), [[-1.0], [1.0]]).x.tolist() == [[3.0], [0.0]]
