"""Integer programs in any units, with continuous variables, time limits and interrupts, judged in exact arithmetic."""

from __future__ import annotations

import inspect
import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from scipy import sparse

import pear
from pear.compile import thread_pools
from pear.decisions.integer_checks import check_integers, complete_integers
from pear.optimality.rule import INTEGRAL
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.adapters.highs import _HighsClock
from pear.solvers.binary import binary_plan as plan
from pear.solvers.candidate import Candidate, empty_candidate
from pear.solvers.time_limit import limit_time, time_left

INACCURATE, SOLVED, TIME_LIMIT = (int(s) for s in (pear.Status.INACCURATE, pear.Status.SOLVED, pear.Status.TIME_LIMIT))
SOLVERS = ("auto", "highs", "scipy")
Array = np.ndarray


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    plan.forget_binary_plans()


def exact(values: Any) -> Any:
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values, dtype=float))


def best_value(c: Array, G: Array, h: Array, ub: Array, whole: int) -> Fraction | None:
    """Return min c·x with Gx ≤ h and 0 ≤ x ≤ ub, in exact arithmetic; None if it is infeasible.

    The first ``whole`` variables are integers; at most one continuous variable follows.
    """
    c, G, h, ub = exact(c), exact(G), exact(h), exact(ub)
    best = None
    for z in itertools.product(*(range(int(u) + 1) for u in ub[:whole])):
        room = h - G[:, :whole] @ np.array(z, object)
        value = c[:whole] @ np.array(z, object)
        if whole == len(c):
            possible = min(room) >= 0
        else:
            a = G[:, whole]
            least = max([Fraction(0), *(r / x for r, x in zip(room, a, strict=True) if x < 0)])
            most = min([ub[whole], *(r / x for r, x in zip(room, a, strict=True) if x > 0)])
            possible = least <= most and all(r >= 0 for r, x in zip(room, a, strict=True) if x == 0)
            value += min(c[whole] * least, c[whole] * most)
        if possible and (best is None or value < best):
            best = value
    return best


def check(c: Array, G: Array, h: Array, ub: Array, whole: int, solver: str = "auto") -> None:
    """Check that the point of ``pear.solve`` is integer, feasible and optimal, or that the program is infeasible."""
    problem = pear.Problem(G=G, h=h, lb=0.0, ub=ub, integer=list(range(whole)))
    best = best_value(c, G, h, ub, whole)
    if best is None:
        with pytest.raises(pear.SolveError, match="INFEASIBLE"):
            pear.solve(problem, c[None], solver=solver)
        return
    solution = pear.solve(problem, c[None], solver=solver)
    x = exact(solution.x[0].numpy())
    assert all(value.denominator == 1 for value in x[:whole])
    for a, limit in zip(exact(G), exact(h), strict=True):
        assert a @ x - limit <= Fraction(1e-12) * (abs(a) @ abs(x) + abs(limit))
    assert abs(exact(c) @ x - best) <= Fraction(1e-11) * (abs(exact(c)) @ abs(x))
    assert float(solution.gap) <= 1e-9


# --- units ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_row_with_tiny_coefficients_counts(solver: str) -> None:
    problem = pear.Problem(G=[[1.0, 9e-10]], h=[1.0], lb=0.0, ub=[1.0, 2.2222e9], integer=[0])
    solution = pear.solve(problem, [[-1.0, -9e-10]], solver=solver)
    x = exact(solution.x[0].numpy())
    assert x[0] in (0, 1)
    assert x[0] + Fraction(9e-10) * x[1] == pytest.approx(1, abs=1e-15)
    assert float(solution.value) == pytest.approx(-1, abs=1e-15)


ODD_UNITS: dict[str, tuple[list[float], list[list[float]], list[float], list[float], int]] = {
    "tiny costs": ([-1e-12, -1.1e-12], [[1.0, 1.3]], [2.0], [1.0, 2.0], 1),
    "tiny rows": ([-1.0, -1.0], [[1e-11, 1e-11]], [1.5e-11], [1.0, 1.0], 2),
    "a small range": ([-1.0, -1.0], [[1.0, 1.0]], [1e-8], [1.0, 1e-8], 1),
    "one huge item": ([-1.0, -1.0, -1.5], [[1e9, 1.0, 1.0]], [1.5], [1.0, 1.0, 1.0], 3),
    "one huge cost": ([3e9, -1.0, -1.1], [[1.0, 1.0, 1.0]], [1.0], [1.0, 1.0, 1.0], 2),
    "a switch of 1e9": ([10.0, -1.0], [[-1e9, 1.0]], [0.0], [1.0, 0.9], 1),
    "rows from 1e-4 to 1e8": (
        [-0.08022689635602417, -0.18608939198451746, -0.3118153092108872],
        [
            [-5.7594827699514954e-04, -8.3899650245529544e-05, -2.3669755430862707e-03],
            [5.7098718183042211e03, -3.8101461182723287e03, 1.2833001904998307e03],
            [4.2432106705984187e08, 4.8150013174960487e07, 5.6950036204066122e08],
        ],
        [2.5258637835110028e-03, 4.3514461993694367e03, 7.0983103139268470e08],
        [3.0, 3.0, 3.0],
        3,
    ),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ODD_UNITS)
def test_odd_units(name: str, solver: str) -> None:
    *fields, whole = ODD_UNITS[name]
    check(*(np.array(field) for field in fields), whole, solver)


@pytest.mark.parametrize("seed", range(40))
def test_any_units_against_enumeration(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, m, whole_rows, kind = int(random.integers(2, 5)), int(random.integers(1, 4)), seed % 2 == 0, seed % 5
    G = random.integers(-4, 9, (m, n)).astype(float) if whole_rows else random.normal(1, 3, (m, n))
    G *= 10.0 ** random.uniform(-10, 10, (m, 1)) if kind == 1 else 1.0
    G *= 10.0 ** random.uniform(-6, 6, (m, n)) if kind == 2 else 1.0
    whole = n - (seed % 3 > 0)
    ub = np.full(n, float(random.integers(1, 4)))
    ub[whole:] = 10.0 ** random.uniform(-3, 10)
    h = random.uniform(-0.1, 0.7) * (np.abs(G) @ np.minimum(ub, 10.0))
    if kind == 3 and whole < n:
        G[0], h[0] = 0.0, 0.0
        G[0, 0], G[0, -1] = -(10.0 ** random.integers(3, 10)), 1.0
    c = random.normal(0, 2, n) * 10.0 ** (random.uniform(-8, 8) if kind == 4 else random.uniform(0, 1, n))
    check(c, G, h, ub, whole)


# --- verification ---------------------------------------------------------------------------------------------------


def switched(M: float) -> QuadraticProgram:
    """Return min 10 y − x with x ≤ M y, 0 ≤ x ≤ 0.9 and y in {0, 1}; the optimum is y = 0."""
    problem = pear.Problem(G=[[1.0, -M]], h=[0.0], lb=0.0, ub=[0.9, 1.0], integer=[1])
    return problem.canonical(torch.tensor([[-1.0, 10.0]], dtype=torch.float64))


def claimed(qp: QuadraticProgram, x: list[float], bound: float) -> Candidate:
    empty = empty_candidate(1, qp.n, qp.p, qp.m, qp.c)
    point, status = torch.tensor([x], dtype=torch.float64), torch.zeros(1, dtype=torch.int8)
    return replace(empty, x=point, status=status, bound=torch.tensor([bound], dtype=torch.float64))


def test_a_term_that_is_zero_hides_no_violation() -> None:
    qp = switched(1e9)
    wrong = check_integers(qp, claimed(qp, [0.9, 0.0], -0.9))
    assert wrong.status.tolist() == [INACCURATE]
    assert not bool(wrong.feasible)
    assert float(wrong.residual) > 0.1


def test_a_large_cost_that_is_not_paid_hides_no_gap() -> None:
    qp = pear.Problem(lb=0.0, ub=1.0, n=2, integer=True).canonical(torch.tensor([[1e9, -1.0]], dtype=torch.float64))
    assert check_integers(qp, claimed(qp, [0.0, 1.0], -1.5)).status.tolist() == [INACCURATE]
    assert float(check_integers(qp, claimed(qp, [0.0, 1.0], -1.5)).gap) == pytest.approx(0.5)
    assert check_integers(qp, claimed(qp, [0.0, 1.0], -1.0)).status.tolist() == [SOLVED]


def test_rounding_is_followed_by_the_best_continuous_variables() -> None:
    """If M is 1e7, y = 1e-7 allows x = 0.9. When y is rounded to 0, x has to become 0."""
    qp = switched(1e7)
    loose = claimed(qp, [0.9, 0.9e-7], -0.9)
    assert check_integers(qp, loose).status.tolist() == [INACCURATE]
    whole = complete_integers(qp, loose)
    assert whole.x.round(decimals=6).tolist() == [[0.0, 0.0]]
    assert check_integers(qp, whole).status.tolist() == [INACCURATE]  # its bound was that of the loose point
    assert bool(check_integers(qp, whole).feasible)
    inexact = complete_integers(qp, claimed(qp, [0.9 - 1e-7, 1.0], 9.1))
    assert inexact.x.tolist() == [[0.9, 1.0]]


def test_without_a_completion_there_is_no_solution() -> None:
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.5], lb=0.0, ub=[1.0, 0.4], integer=[0])
    qp = problem.canonical(torch.ones(1, 2, dtype=torch.float64))
    assert check_integers(qp, complete_integers(qp, claimed(qp, [1.0, 0.4], 1.4))).status.tolist() == [INACCURATE]


@pytest.mark.parametrize("sense", ["min", "max"])
def test_sparse_programs_with_continuous_variables(sense: str) -> None:
    random = np.random.default_rng(3)
    n, m = 520, 12
    G = sparse.random(m, n, 0.03, random_state=3, data_rvs=lambda k: random.uniform(1, 9, k)).tocsr()
    G = sparse.csr_array(sparse.diags_array(10.0 ** random.uniform(-8, 8, m)) @ G)
    h, whole = 0.3 * np.asarray(G.sum(1)).ravel(), np.arange(n) % 4 == 0
    sign = 1.0 if sense == "min" else -1.0
    cost = -sign * random.uniform(1, 2, (2, n))
    problem = pear.Problem(G=G, h=h, lb=0.0, ub=1.0, integer=whole, sense=sense)
    assert problem.is_sparse
    solution = pear.solve(problem, cost)
    scale = sparse.diags_array(1 / h)
    for c, x, value in zip(cost, solution.x.numpy(), solution.value.tolist(), strict=True):
        limit = scipy.optimize.LinearConstraint(scale @ G, -np.inf, np.ones(m))
        theirs = scipy.optimize.milp(
            sign * c,
            integrality=whole,
            bounds=scipy.optimize.Bounds(0, 1),
            constraints=limit,
            options={"mip_rel_gap": 0},
        )
        assert np.array_equal(x[whole], np.round(x[whole]))
        assert (G @ x <= h * (1 + 1e-12)).all()
        assert value == pytest.approx(sign * theirs.fun, rel=1e-6)
        assert sign * value <= theirs.fun + 1e-9 * abs(theirs.fun)


# --- time -----------------------------------------------------------------------------------------------------------


def hard(n: int = 60, m: int = 10) -> tuple[pear.Problem, Array]:
    """Return a knapsack whose values nearly follow from its weights, which takes branch and bound minutes."""
    random = np.random.default_rng(0)
    G = random.integers(1, 100, (m, n)).astype(float)
    values = G.sum(0) / m + random.uniform(0, 10, (3, n))
    return pear.Problem(G=G, h=np.floor(0.5 * G.sum(1)), lb=0.0, ub=1.0, integer=True, sense="max"), values


@pytest.mark.parametrize("solver", SOLVERS)
def test_when_time_is_up_there_is_the_best_point_with_its_gap(solver: str) -> None:
    problem, values = hard()
    values[1] = -1.0  # solved at once, whatever happens to the others
    assert problem.G is not None
    assert problem.h is not None
    begin = time.monotonic()
    with pytest.warns(pear.FailedSamplesWarning, match=r"samples 0, 2 \(TIME_LIMIT, gaps up to \d.\de-\d\d\): time"):
        s = pear.solve(problem, values, solver=solver, time_limit=1.5, on_failure="mask")
    assert time.monotonic() - begin < 10
    assert s.status.tolist() == [TIME_LIMIT, SOLVED, TIME_LIMIT]
    assert torch.equal(s.x, s.x.round())
    assert bool((s.x @ problem.G.T <= problem.h).all())
    torch.testing.assert_close(s.value, (s.x * torch.from_numpy(values)).sum(1))
    relaxed = pear.solve(problem.relaxed(), values).value
    assert float(s.gap[1]) == 0
    for i in (0, 2):
        assert 0 < float(s.gap[i]) <= float(relaxed[i] / s.value[i]) - 1 + 1e-9
    assert s.solved.tolist() == [False, True, False]


def test_nothing_is_scored_by_an_unproven_decision() -> None:
    problem, values = hard()
    with pytest.raises(pear.SolveError, match=r"sample 0 \(TIME_LIMIT, .*raise time_limit") as caught:
        pear.normalized_regret(problem, values[:1], values[1:2], time_limit=0.4)
    assert caught.value.statuses == [pear.Status.TIME_LIMIT]


def test_without_a_point_there_is_nan() -> None:
    problem, values = hard()
    with pytest.warns(pear.FailedSamplesWarning, match=r"TIME_LIMIT, no point"):
        s = pear.solve(problem, values, time_limit=1e-9, on_failure="mask")
    assert s.status.tolist() == [TIME_LIMIT] * 3
    assert bool(s.x.isnan().all() & s.value.isnan().all() & s.gap.isnan().all())
    assert not bool(s.active.upper.any())


def test_a_search_that_was_stopped_is_begun_again() -> None:
    problem, values = hard(28, 3)
    with pytest.warns(pear.FailedSamplesWarning):
        pear.solve(problem, values, time_limit=1e-9, on_failure="mask")
    assert pear.solve(problem, values, solver="binary").solved.all()


def test_limits_of_time() -> None:
    assert time_left() == float("inf")
    with limit_time(100.0), limit_time(None), limit_time(200.0):
        assert 90 < time_left() <= 100
    for wrong in (0, -1.0, float("nan"), True, "1"):
        with pytest.raises(pear.ProblemError, match="time_limit must be a positive number of seconds"):
            pear.solve(pear.Problem(lb=0.0, ub=1.0, n=1), [[1.0]], time_limit=wrong)  # type: ignore[arg-type]
    assert pear.solve(pear.Problem(lb=0.0, ub=1.0, n=1), [[1.0]], time_limit=9.0).gap.tolist() == [0.0]


# --- threads and Ctrl-C ---------------------------------------------------------------------------------------------

_INTERRUPTED = f"""
from __future__ import annotations
import os, signal, threading, time
import numpy as np, pear
{inspect.getsource(hard)}
problem, values = hard()
signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started in the background ignores Ctrl-C
for solver in ("binary", "highs"):
    pear.solve(problem, np.full((1, 60), -1.0), solver=solver)  # everything is imported and compiled
    shot = []
    def shoot():
        shot.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.7, shoot).start()
    try:
        pear.solve(problem, values, solver=solver)
    except KeyboardInterrupt:
        print(time.monotonic() - shot[0])
    begin = time.monotonic()
    assert pear.solve(problem, np.full((1, 60), -2.0), solver=solver).solved.all()  # nobody works for the old call
    print(time.monotonic() - begin)
"""


def test_ctrl_c_is_heard() -> None:
    command = [sys.executable, "-c", _INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    seconds = [float(line) for line in done.stdout.split()]
    assert len(seconds) == 4
    assert max(seconds) < 3  # less than one, on a machine that has nothing else to do


def test_branch_and_cut_in_threads_gives_the_same() -> None:
    random = np.random.default_rng(1)
    G, cost = random.uniform(1, 5, (3, 8)), random.uniform(1, 5, (9, 8))
    problem = pear.Problem(G=G, h=0.4 * G.sum(1), lb=0.0, ub=3.0, sense="max", integer=[0, 1, 2, 3, 4])
    with thread_pools.limit_threads(1):
        one = pear.solve(problem, cost, solver="highs")
    with thread_pools.limit_threads(3):
        assert torch.equal(pear.solve(problem, cost, solver="highs").x, one.x)
    assert torch.equal(torch.cat([pear.solve(problem, row[None], solver="highs").x for row in cost]), one.x)


def _square(x: int) -> int:
    return x * x


def test_an_error_in_one_thread_stops_the_others() -> None:
    stopped: list[bool] = []

    def work(item: int) -> int:
        if item == 0:
            raise ValueError("the first")
        while not stopped:
            time.sleep(0.01)
        return item

    with thread_pools.limit_threads(2), pytest.raises(ValueError, match="the first"):
        thread_pools.run_in_threads(work, [0, 1], lambda: stopped.append(True))
    with thread_pools.limit_threads(2):
        assert thread_pools.run_in_threads(_square, range(5), lambda: None) == [0, 1, 4, 9, 16]


def _in_child(results: Any) -> None:
    results.put(thread_pools.run_in_threads(_square, range(3), lambda: None))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    with thread_pools.limit_threads(1):
        thread_pools.run_in_threads(_square, range(3), lambda: None)
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    child = context.Process(target=_in_child, args=(results,), daemon=True)
    child.start()
    assert results.get(timeout=20) == [0, 1, 4]
    child.join(timeout=20)


def test_every_sample_has_a_matrix_of_its_own() -> None:
    """The program is max y with y ≤ a x and x in {0, 1}; a differs by sample, and the best y is a."""
    G = np.array([[[-2.0, 1.0]], [[-3.0, 1.0]]])
    problem = pear.Problem(G=G, h=[0.0], lb=0.0, ub=[1.0, 9.0], integer=[True, False], sense="max")
    found = pear.solve(problem, [[0.0, 1.0], [0.0, 1.0]])
    assert found.x.tolist() == [[1.0, 2.0], [1.0, 3.0]]


@pytest.mark.usefixtures("keep_small_ones_sparse")
def test_sparse_rows_are_checked_like_dense_ones() -> None:
    """The violation of a row is relative to its terms, its limit and its smallest coefficient."""
    G = np.array([[0.0, 2.0, 4.0]])
    for rows in (G, sparse.csr_array(G)):
        problem = pear.Problem(G=rows, h=[3.0], lb=0.0, ub=5.0, integer=[False, False, True])
        assert problem.is_sparse == (rows is not G)
        qp = problem.canonical(torch.ones(1, 3))
        assert float(check_integers(qp, claimed(qp, [0.0, 0.0, 2.0], 2.0)).residual) == pytest.approx(5 / 13)


def test_a_bound_that_is_off_by_rounding() -> None:
    qp = pear.Problem(lb=[1e-10], ub=[1.0], integer=[True]).canonical(torch.ones(1, 1))
    assert check_integers(qp, claimed(qp, [0.0], 0.0)).feasible.tolist() == [True]


def test_a_gap_that_is_rounding_of_the_largest_cost() -> None:
    qp = pear.Problem(lb=0.0, ub=1.0, integer=[True, True]).canonical(torch.tensor([[1e12, 1.0]]))
    assert check_integers(qp, claimed(qp, [0.0, 0.0], -1e-2)).gap.tolist() == [0.0]


def test_the_largest_distance_that_is_rounded_away_is_no_residual() -> None:
    qp = pear.Problem(lb=0.0, ub=1.0, n=1, integer=True).canonical(torch.ones(1, 1, dtype=torch.float64))
    assert check_integers(qp, claimed(qp, [INTEGRAL], 0.0)).residual.tolist() == [0.0]


def test_threads_count_the_waiting_samples_together() -> None:
    """A decrement is a read and a write, between which other threads run."""

    class SlowCount(int):
        def __sub__(self, other: int) -> SlowCount:
            time.sleep(0.01)
            return SlowCount(int(self) - other)

    clock = _HighsClock(seconds=60.0, waiting=SlowCount(8), at_a_time=2)
    threads = [threading.Thread(target=clock.next_share) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert clock.waiting == 0
