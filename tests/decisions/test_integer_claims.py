"""False claims of integer solvers are found: wrong objective bounds, infeasibility and unboundedness."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.decisions import integer_programs, relaxation_search
from pear.decisions.relaxation_search import round_relaxation, search_relaxations
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers import backend_registry
from pear.solvers.candidate import Candidate, empty_candidate

LIAR = backend_registry.Backend("liar", "tests_liar", kinds=("milp",))
INFEASIBLE, UNBOUNDED, SOLVED = (int(s) for s in (pear.Status.INFEASIBLE, pear.Status.UNBOUNDED, pear.Status.SOLVED))
# max 1.2 x + z with 5 x + 4 z ≤ 6.96, x ≤ 1 whole and z ≤ 3: the best is 1.74 at x = 0
PROBLEM = pear.Problem(G=[[5.0, 4.0]], h=[6.96], lb=0.0, ub=[1.0, 3.0], integer=[0], sense="max")
COST, BEST = [[1.2, 1.0]], 1.74
# an even number is odd, which the relaxation does not see
ODD = pear.Problem(A=[[2.0, 2.0, 0.0]], b=[3.0], lb=0.0, ub=[9.0, 9.0, np.inf], integer=[0, 1])


class Liar:
    """A solver that answers every program with ``answer``: status, entries of the point, and objective bound."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, others: bool = True) -> None:
        self.answer: tuple[int, float, float] = (SOLVED, 0.0, 0.0)
        module = ModuleType("tests_liar")
        module.solve = self.solve  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tests_liar", module)
        rows = (
            backend_registry.BACKENDS
            if others
            else tuple(row for row in backend_registry.BACKENDS if "milp" not in row.kinds)
        )
        lps = tuple(replace(row, kinds=("lp",)) for row in backend_registry.BACKENDS if row.kinds == ("lp", "milp"))
        monkeypatch.setattr(backend_registry, "BACKENDS", (LIAR, *rows, *(() if others else lps)))

    def solve(self, qp: QuadraticProgram, tol: float) -> Candidate:
        status, entry, bound = self.answer
        empty = empty_candidate(qp.batch, qp.n, qp.p, qp.m, qp.c)
        return replace(
            empty,
            x=torch.full_like(qp.c, entry if status == SOLVED else torch.nan),
            status=torch.full_like(empty.status, status),
            bound=torch.full_like(qp.c[:, 0], bound if status == SOLVED else torch.nan),
        )


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Liar:
    """Put the liar before all other solvers."""
    return Liar(monkeypatch)


@pytest.fixture
def lonely_liar(monkeypatch: pytest.MonkeyPatch) -> Liar:
    """Make the liar the only solver of integer programs."""
    return Liar(monkeypatch, others=False)


def test_a_false_bound_is_found(liar: Liar) -> None:
    found = pear.solve(PROBLEM, COST, solver="liar")
    assert float(found.value) == pytest.approx(BEST, rel=1e-12)
    assert found.x[0].tolist() == pytest.approx([0.0, 1.74])
    assert found.unchecked.tolist() == [False]


def test_a_false_bound_is_found_without_another_solver(lonely_liar: Liar) -> None:
    assert float(pear.solve(PROBLEM, COST, solver="liar").value) == pytest.approx(BEST, rel=1e-12)


def test_a_better_point_refutes_a_bound_that_cannot_be_checked(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node proves nothing, but its rounded point is better than the solver's alleged optimum."""
    monkeypatch.setattr(integer_programs, "NODES", 1)
    monkeypatch.setattr(relaxation_search, "NODES", 1)
    found = pear.solve(PROBLEM, COST, solver="liar")
    assert float(found.value) == pytest.approx(BEST, rel=1e-9)


def knapsack(n: int = 30) -> tuple[pear.Problem, np.ndarray]:
    """Return a knapsack with three capacities, and a continuous variable to exclude the solver of 0–1 programs."""
    random = np.random.default_rng(0)
    G = np.hstack([random.integers(5, 40, (3, n)), np.ones((3, 1))]).astype(float)
    problem = pear.Problem(G=G, h=0.4 * G.sum(1), lb=0.0, ub=1.0, integer=list(range(n)), sense="max")
    return problem, random.integers(5, 40, (1, n + 1)).astype(float)


def test_what_few_nodes_cannot_check_is_marked() -> None:
    problem, cost = knapsack()
    found = pear.solve(problem, cost, solver="highs")
    assert found.status.tolist() == [SOLVED]
    assert found.unchecked.tolist() == [True]
    assert "unchecked 1 (the solver's word)" in repr(found)


def test_false_infeasibility_is_found(liar: Liar) -> None:
    liar.answer = INFEASIBLE, 0.0, 0.0
    found = pear.solve(PROBLEM, COST, solver="liar")
    assert (found.status.tolist(), found.unchecked.tolist()) == ([SOLVED], [False])
    problem, cost = knapsack()
    assert pear.solve(problem, cost, solver="liar").status.tolist() == [SOLVED]


def test_true_infeasibility_is_proven_by_relaxations(lonely_liar: Liar) -> None:
    lonely_liar.answer = INFEASIBLE, 0.0, 0.0
    with pytest.warns(pear.FailedSamplesWarning, match=r"sample 0 \(INFEASIBLE\)"):
        found = pear.solve(ODD, [[1.0, 1.0, 1.0]], solver="liar", on_failure="mask")
    assert (found.status.tolist(), found.unchecked.tolist()) == ([INFEASIBLE], [False])


def split_market() -> tuple[pear.Problem, np.ndarray]:
    """Return an infeasible program: two sums of 0–1 variables miss their targets, which no small tree proves."""
    random = np.random.default_rng(1)
    A = np.hstack([2 * random.integers(1, 50, (2, 16)), np.zeros((2, 1))]).astype(float)
    problem = pear.Problem(A=A, b=A.sum(1) // 4 * 2 + 1, lb=0.0, ub=1.0, integer=list(range(16)))
    return problem, np.ones((1, 17))


def test_infeasibility_on_the_word_of_one_solver(lonely_liar: Liar) -> None:
    lonely_liar.answer = INFEASIBLE, 0.0, 0.0
    problem, cost = split_market()
    with pytest.raises(pear.SolveError, match=r"\(INFEASIBLE, on the word of one solver\)"):
        pear.solve(problem, cost, solver="liar")
    with pytest.warns(pear.FailedSamplesWarning, match="on the word of one solver"):
        found = pear.solve(problem, cost, solver="liar", on_failure="mask")
    assert found.unchecked.tolist() == [True]


def test_infeasibility_that_a_second_solver_confirms(liar: Liar) -> None:
    liar.answer = INFEASIBLE, 0.0, 0.0
    problem, cost = split_market()
    with pytest.warns(pear.FailedSamplesWarning, match=r"\(INFEASIBLE\)"):
        found = pear.solve(problem, cost, solver="liar", on_failure="mask")
    assert found.unchecked.tolist() == [False]


def test_false_unboundedness_is_found(liar: Liar) -> None:
    liar.answer = UNBOUNDED, 0.0, 0.0
    assert float(pear.solve(PROBLEM, COST, solver="liar").value) == pytest.approx(BEST)


@pytest.mark.parametrize("answer", [(UNBOUNDED, 0.0, 0.0), (SOLVED, 0.0, 0.0)])
def test_true_unboundedness_is_proven(liar: Liar, answer: tuple[int, float, float]) -> None:
    """A direction and a feasible point prove it, even if the solver claims an optimum."""
    liar.answer = answer
    free = pear.Problem(G=[[3.0, -1.0]], h=[2.0], lb=0.0, ub=[5.0, np.inf], integer=[0])
    with pytest.warns(pear.FailedSamplesWarning, match=r"\(UNBOUNDED\)"):
        found = pear.solve(free, [[1.0, -1.0]], solver="liar", on_failure="mask")
    assert (found.status.tolist(), found.unchecked.tolist()) == ([UNBOUNDED], [False])


def test_a_direction_without_a_point_is_infeasible(liar: Liar) -> None:
    liar.answer = UNBOUNDED, 0.0, 0.0
    with pytest.warns(pear.FailedSamplesWarning, match="INFEASIBLE"):
        found = pear.solve(ODD, [[1.0, 1.0, -1.0]], solver="liar", on_failure="mask")
    assert found.status.tolist() == [INFEASIBLE]


# --- the search -----------------------------------------------------------------------------------------------------


def draw(seed: int, n: int = 7, m: int = 3) -> tuple[QuadraticProgram, float]:
    """Draw an integer program with small integer data; return it with its optimal value by enumeration.

    The value is infinite if the program is infeasible.
    """
    random = np.random.default_rng(seed)
    G, c = random.integers(-4, 7, (m, n)).astype(float), random.integers(-6, 5, n).astype(float)
    h = np.floor(random.uniform(-2.0, 0.5) * np.abs(G).sum(1))
    problem = pear.Problem(G=G, h=h, lb=0.0, ub=2.0, integer=list(range(n)))
    points = np.stack(np.meshgrid(*[np.arange(3.0)] * n)).reshape(n, -1)
    values = np.where((G @ points <= h[:, None]).all(0), c @ points, np.inf)
    return problem.canonical(torch.from_numpy(c)[None]), float(values.min())


@pytest.mark.parametrize("seed", range(12))
def test_the_search_equals_enumeration(seed: int) -> None:
    qp, best = draw(seed)
    nothing = torch.full((1,), torch.inf, dtype=torch.float64)
    found = search_relaxations(qp, nothing, 400)
    assert found.complete.tolist() == [True]
    assert float(found.bound) == pytest.approx(best)
    if np.isfinite(best):
        assert float((qp.c * found.x).sum()) == pytest.approx(best)
        again = search_relaxations(qp, torch.tensor([best], dtype=torch.float64), 400)
        assert again.complete.tolist() == [True]
        assert bool(again.x.isnan().all())  # nothing is better
        assert float(again.bound) == pytest.approx(best)


def test_a_search_that_is_cut_off_says_nothing() -> None:
    qp, _ = next((qp, best) for qp, best in map(draw, range(50)) if np.isfinite(best) and needs_more_than_a_root(qp))
    found = search_relaxations(qp, torch.full((1,), torch.inf, dtype=torch.float64), 1)
    assert (found.complete.tolist(), found.bound.tolist()) == ([False], [-np.inf])


def needs_more_than_a_root(qp: QuadraticProgram) -> bool:
    return not bool(search_relaxations(qp, torch.full((1,), torch.inf, dtype=torch.float64), 1).complete)


def test_a_batch_is_searched_as_its_samples_are() -> None:
    qp, _ = draw(3)
    costs = qp.c * torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)[:, None]
    batch = replace(qp, c=costs)
    value = torch.full((9,), torch.inf, dtype=torch.float64)
    together = search_relaxations(batch, value, 400)
    alone = [search_relaxations(replace(qp, c=costs[i : i + 1]), value[:1], 400) for i in range(9)]
    assert together.bound.tolist() == pytest.approx([float(one.bound) for one in alone])


def rounded(x: list[float], c: list[float], **fields: Any) -> tuple[list[float], bool]:
    problem = pear.Problem(lb=0.0, ub=9.0, n=len(x), integer=True, **fields)
    point = torch.tensor([x], dtype=torch.float64)
    found, fits = round_relaxation(problem.canonical(torch.tensor([c]).double()), point, point != point.round())
    return found[0].tolist(), bool(fits)


def test_integers_are_rounded_to_where_the_rows_leave_room() -> None:
    G = [[1.0, -1.0], [1.0, 1.0]]
    assert rounded([1.0, 1.4], [0.0, 1.0], G=G, h=[0.0, 9.0]) == ([1.0, 1.0], True)
    assert rounded([1.0, 1.4], [0.0, -1.0], G=G, h=[0.0, 9.0]) == ([1.0, 2.0], True)
    assert rounded([1.2, 1.4], [0.0, 1.0], G=G, h=[0.0, 9.0])[1]
    assert rounded([1.0, 1.4], [0.0, 1.0], A=[[1.0, 1.0]], b=[2.4])[1] is False
    assert rounded([2.0, 1.5], [0.0, 1.0], G=[[0.0, 2.0], [0.0, -2.0]], h=[3.0, -3.0])[1] is False
