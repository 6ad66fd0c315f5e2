"""0–1 programs: the solver ``binary`` against HiGHS, and false answers that are detected."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pear
from pear.compile import thread_pools
from pear.decisions.integer_checks import check_integers
from pear.optimality.rule import GAP, INTEGRAL, OPTIMAL
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.backend_registry import get_backend, resolve_backends
from pear.solvers.binary import binary_plan as plan
from pear.solvers.binary.binary_solver import supports
from pear.solvers.candidate import Candidate
from pear.tasks import random_knapsack

Random = np.random.Generator
Fields = dict[str, Any]
SOLVED, INACCURATE, INFEASIBLE = (int(s) for s in (pear.Status.SOLVED, pear.Status.INACCURATE, pear.Status.INFEASIBLE))
COUNT = 12


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    plan.forget_binary_plans()


# --- programs -------------------------------------------------------------------------------------------------------


def knapsacks(random: Random, n: int, m: int) -> Fields:
    G = random.integers(1, 30, (COUNT, m, n)).astype(float)
    return {"G": G, "h": 0.4 * G.sum(2)}


def any_sign(random: Random, n: int, m: int) -> Fields:
    G = random.uniform(-4, 9, (m, n))
    return {"G": G, "h": random.uniform(-0.2, 0.4, (COUNT, 1)) * np.abs(G).sum(1)}


def set_packing(random: Random, n: int, m: int) -> Fields:
    return {"G": (random.random((m, n)) < 0.4).astype(float), "h": np.ones(m)}


def set_covering(random: Random, n: int, m: int) -> Fields:
    return {"G": -(random.random((COUNT, m, n)) < 0.4).astype(float), "h": -np.ones(m)}


def assignment(random: Random, n: int, m: int) -> Fields:
    k = 2 + m % 4
    A = np.concatenate([np.kron(np.eye(k), np.ones(k)), np.kron(np.ones(k), np.eye(k))])
    ub = (random.random((COUNT, k * k)) < 0.8).astype(float)  # pairs that are not allowed; sometimes all of a row
    return {"A": A, "b": np.ones(2 * k), "ub": ub}


def exact_sum(random: Random, n: int, m: int) -> Fields:
    A = 2.0 * random.integers(1, 9, (1, n))
    return {"A": A, "b": random.integers(0, int(A.sum()), (COUNT, 1)).astype(float)}  # odd ones are out of reach


def real_sum(random: Random, n: int, m: int) -> Fields:
    A = random.uniform(-1, 2, (1, n))
    return {"A": A, "b": (random.random((COUNT, n)) < 0.5) @ A.T}


def shifted(random: Random, n: int, m: int) -> Fields:
    lb = random.integers(-3, 4, (COUNT, n)) - 0.25 * random.integers(0, 2, n)
    G = random.integers(-2, 9, (m, n)).astype(float)
    return {"G": G, "h": np.ceil(lb) @ G.T + 0.4 * G.clip(0).sum(1), "lb": lb, "ub": np.ceil(lb) + 1.5}


def fixed(random: Random, n: int, m: int) -> Fields:
    lb = (random.random((COUNT, n)) < 0.3).astype(float)
    ub = np.maximum(lb, random.random((COUNT, n)) < 0.6)
    G = random.uniform(0, 5, (m, n))
    return {"G": G, "h": 0.5 * G.sum(1), "lb": lb, "ub": ub}


KINDS = (knapsacks, any_sign, set_packing, set_covering, assignment, exact_sum, real_sum, shifted, fixed)


def programs(kind: Any, seed: int, sense: str) -> tuple[pear.Problem, np.ndarray]:
    random = np.random.default_rng([seed, KINDS.index(kind)])
    fields: Fields = {"lb": 0.0, "ub": 1.0} | kind(random, int(random.integers(4, 15)), int(random.integers(1, 7)))
    n = next(fields[name] for name in ("G", "A") if name in fields).shape[-1]
    cost = random.normal(0.0, 2.0, (COUNT, n))
    cost = np.round(cost) if seed % 2 else cost
    return pear.Problem(**fields, sense=sense, integer=True), cost  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("seed", "sense"), [(0, "min"), (1, "max"), (2, "max"), (3, "min")])
def test_the_engine_equals_branch_and_cut(kind: Any, seed: int, sense: str) -> None:
    """``binary`` solves 432 programs by itself, with its own proof, as HiGHS does."""
    problem, cost = programs(kind, seed, sense)
    qp = problem.canonical(torch.from_numpy(cost))
    assert supports(qp)
    ours, theirs = (check_integers(qp, get_backend(name).solve(qp, OPTIMAL)) for name in ("binary", "highs"))
    free = (qp.ub.floor() > qp.lb.ceil()).any(1).expand(COUNT)  # where nothing is left to choose, others are asked
    assert ours.status[free].tolist() == theirs.status[free].tolist()
    assert set(theirs.status.tolist()) <= {SOLVED, INFEASIBLE}
    solved = free & (ours.status == SOLVED)
    x = ours.x[solved]
    assert torch.equal(x, x.round())
    torch.testing.assert_close((x * qp.c[solved]).sum(1), (theirs.x * qp.c)[solved].sum(1), rtol=0, atol=1e-8)
    assert bool((ours.residual[solved] <= 1e-11).all())
    with thread_pools.limit_threads(3):
        plan.forget_binary_plans()
        assert torch.equal(check_integers(qp, get_backend("binary").solve(qp, OPTIMAL)).x[solved], x)


def test_some_programs_of_the_test_have_no_solution() -> None:
    made = [programs(kind, 1, "max") for kind in KINDS]
    found = [
        get_backend("binary").solve(problem.canonical(torch.from_numpy(cost)), OPTIMAL).status for problem, cost in made
    ]
    assert int((torch.cat(found) == INFEASIBLE).sum()) > 10


def test_the_engine_serves_solve_and_regret(monkeypatch: pytest.MonkeyPatch) -> None:
    task = random_knapsack(30, 3, seed=0)
    _, true = task.samples(8, degree=6, dtype=torch.float64)
    predicted = true + torch.randn(true.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = pear.Problem(G=task.weights, h=task.capacity, lb=0, ub=1, integer=True, sense="max")
    expected = pear.solve(problem, predicted, solver="highs")
    for name in ("highs", "scipy"):
        monkeypatch.setattr(importlib.import_module(f"pear.solvers.adapters.{name}"), "solve", None)
    solved = pear.solve(problem, predicted)
    assert torch.equal(solved.x, expected.x)
    assert torch.equal(solved.active.rows, expected.active.rows)
    assert float(solved.kkt_residual.max()) <= OPTIMAL
    assert pear.normalized_regret(problem, predicted, true) == task.normalized_regret(predicted, true) > 0
    cheapest = pear.solve(pear.Problem(G=-task.weights, h=-task.capacity, lb=0, ub=1, integer=True), true)
    assert bool((cheapest.x @ task.weights.T >= task.capacity).all())


def test_what_is_no_binary_program_goes_to_branch_and_cut() -> None:
    random = np.random.default_rng(0)
    G, cost = random.uniform(1, 5, (2, 6)), random.uniform(1, 5, (3, 6))
    for fields in ({"ub": 3.0, "integer": True}, {"ub": 1.0, "integer": [0, 2, 3]}, {"ub": 0.0, "integer": True}):
        problem = pear.Problem(G=G, h=0.4 * G.sum(1), lb=0.0, sense="max", **fields)
        left = get_backend("binary").solve(problem.canonical(torch.from_numpy(cost)), OPTIMAL)
        assert left.status.tolist() == [INACCURATE] * 3
        ours, theirs = (pear.solve(problem, cost, solver=name) for name in ("auto", "highs"))
        torch.testing.assert_close(ours.value, theirs.value, rtol=1e-12, atol=0)
        assert float(ours.kkt_residual.max()) <= OPTIMAL
    mixed = pear.Problem(G=G, h=0.4 * G.sum(1), lb=0.0, ub=[[1.0] * 6, [2.0] * 6, [1.0] * 6], sense="max", integer=True)
    assert get_backend("binary").solve(mixed.canonical(torch.from_numpy(cost)), OPTIMAL).status.tolist() == [0, 1, 0]
    torch.testing.assert_close(pear.solve(mixed, cost).value, pear.solve(mixed, cost, solver="highs").value)


def test_bounds_without_an_integer_between_them() -> None:
    problem = pear.Problem(lb=[0.0, 0.2], ub=[1.0, 0.8], integer=True)
    with pytest.raises(pear.SolveError, match=r"sample 0 \(INFEASIBLE\)"):
        pear.solve(problem, [[1.0, 1.0]])


def test_callers_in_several_threads_get_their_own_answers() -> None:
    task = random_knapsack(20, 3, seed=1)
    values = torch.rand(8, 40, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = [task.decide(part) for part in values]
    plan.forget_binary_plans()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert all(map(torch.equal, pool.map(task.decide, values), expected))


# --- verification ---------------------------------------------------------------------------------------------------


def solved_knapsack(solver: str = "binary") -> tuple[QuadraticProgram, Candidate]:
    task = random_knapsack(12, 2, seed=3)
    _, values = task.samples(4, degree=4, dtype=torch.float64)
    noise = torch.rand(values.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    qp = task.problem.canonical(values + noise)
    return qp, get_backend(solver).solve(qp, OPTIMAL)


def second_best(qp: QuadraticProgram, x: Tensor) -> Tensor:
    """Return decisions with one item less: feasible and integer, but not optimal."""
    worse = x.clone()
    worse[torch.arange(len(x)), x.argmax(1)] = 0.0
    return worse


@pytest.mark.parametrize("solver", ["binary", "highs", "scipy"])
def test_every_integer_solver_carries_a_bound(solver: str) -> None:
    qp, candidate = solved_knapsack(solver)
    assert candidate.bound is not None
    found = check_integers(qp, candidate)
    assert found.status.tolist() == [SOLVED] * 4
    torch.testing.assert_close(candidate.bound, (qp.c * found.x).sum(1), rtol=1e-11, atol=0)
    assert float(found.residual.max()) <= 1e-11


def tamper(how: str, qp: QuadraticProgram, candidate: Candidate) -> tuple[QuadraticProgram, Candidate, float]:
    """Return a program and a candidate with one defect, and the residual or gap that must be reported."""
    x, bound = candidate.x, candidate.bound
    assert bound is not None
    size = (qp.c * x).abs().sum(1)
    row_size = (qp.G.abs() @ torch.ones(qp.n, dtype=torch.float64))[0]
    if how == "fractional":
        return qp, replace(candidate, x=x + 0.4 * (x == 0)), 0.4
    if how == "not quite whole":
        return qp, replace(candidate, x=(x - 1e-5).clamp(min=0)), 1e-5
    if how.startswith("violated"):
        by = float(how.split()[-1])
        h = torch.einsum("imn,bn->bm", qp.G, x) - by * row_size
        return replace(qp, h=h), candidate, by
    if how.startswith("bound"):
        by = float(how.split()[-1])
        return qp, replace(candidate, bound=bound + by * size), abs(by)
    if how == "not optimal":
        worse = second_best(qp, x)
        return qp, replace(candidate, x=worse), float(((qp.c * worse).sum(1) - bound).min() / size.max())
    return qp, replace(candidate, bound=None), float("inf")


WRONG = (
    "fractional", "not quite whole", "violated by 1e-5", "violated by 1e-7", "bound off by 1e-6", "bound off by -1e-6",
    "bound off by -1e-7", "not optimal", "no bound",
)  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_wrong_candidates_are_never_called_solved(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    qp, candidate, residual = tamper(how, *solved_knapsack())
    found = check_integers(qp, candidate)
    assert found.status.tolist() == [INACCURATE] * 4
    assert float(found.residual.min()) >= 0.2 * residual
    if how.startswith(("bound", "fractional", "not quite")):
        assert float(found.residual.max()) == pytest.approx(residual, rel=1e-3)
    # the whole way: nobody else is asked, and nothing is returned
    monkeypatch.setattr("pear.solvers.binary.binary_solver.solve", lambda qp, tol: candidate)
    monkeypatch.setattr("pear.decisions.integer_programs.resolve_backends", lambda *args: resolve_backends(*args)[:1])
    problem = pear.Problem(G=qp.G[0], h=qp.h.expand(4, -1), lb=0.0, ub=1.0, integer=True)
    with pytest.warns(pear.FailedSamplesWarning, match="INACCURATE"):
        s = pear.solve(problem, qp.c, on_failure="mask")
    assert s.status.tolist() == [INACCURATE] * 4
    assert bool(s.x.isnan().all())
    assert torch.equal(s.kkt_residual, found.residual)


def test_what_is_within_tolerance_is_rounded_and_solved() -> None:
    qp, candidate = solved_knapsack()
    assert candidate.bound is not None
    size = (qp.c * candidate.x).abs().sum(1)
    near = replace(candidate, x=candidate.x - 0.5 * INTEGRAL, bound=candidate.bound - 0.5 * GAP * size)
    found = check_integers(qp, near)
    assert torch.equal(found.x, candidate.x)
    assert found.status.tolist() == [SOLVED] * 4
    assert float(found.residual.max()) == pytest.approx(0.5 * GAP, rel=1e-2)


def test_a_wrong_answer_is_put_right_by_the_next_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    qp, candidate = solved_knapsack()
    worse = replace(candidate, x=second_best(qp, candidate.x))
    monkeypatch.setattr("pear.solvers.binary.binary_solver.solve", lambda qp, tol: worse)
    problem = pear.Problem(G=qp.G[0], h=qp.h.expand(4, -1), lb=0.0, ub=1.0, integer=True)
    assert torch.equal(pear.solve(problem, qp.c).x, candidate.x)
