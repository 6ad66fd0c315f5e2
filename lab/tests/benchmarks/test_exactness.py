"""The exactness benchmark: it meets its goals, its reference is right, and it detects errors of both."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from numpy_residual import kkt_residual

import pear
from pear.errors import MissingExtraError, PearError
from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.kkt_residual import kkt_residual as own_residual
from pear_lab.benchmarks import exactness_benchmark
from pear_lab.benchmarks.exactness_benchmark import GOALS, ExactnessRow, measure_exactness
from pear_lab.benchmarks.exactness_families import EXACTNESS_FAMILIES
from pear_lab.judge.judged_program import JudgedProgram, judged_fields, judged_programs
from pear_lab.judge.reference_solution import attempt_reference, reference_solvers, solve_reference

pytest.importorskip("qpsolvers")

pytestmark = pytest.mark.slow  # the rows: made once, by the first test that asks

INF = float("inf")
SOLVERS = ["active-set", "interior-point", "osqp", "daqp"]


def program(c: list[float], **fields: object) -> JudgedProgram:
    """Return a minimisation, with H = I by default."""
    problem = pear.Problem(n=len(c), **{"Q": np.eye(len(c)), **fields})
    return judged_programs(judged_fields(problem), np.array([c]))[0]


def moved_by(noise: float, solution: pear.Solution, rng: np.random.Generator) -> pear.Solution:
    """Return the solution with noise added to its point and its multipliers."""

    def near(value: torch.Tensor) -> torch.Tensor:
        return value + noise * torch.from_numpy(rng.normal(size=value.shape))

    assert solution.duals is not None
    duals = Duals(*(near(v) for v in (solution.duals.equality, solution.duals.inequality, solution.duals.bound)))
    return dataclasses.replace(solution, x=near(solution.x), duals=duals)


# -- the goals ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> list[ExactnessRow]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactness_benchmark, "DIRECTIONS", 1)  # every difference is four solves
        patch.setattr(exactness_benchmark, "QUICK", 0.05)  # `pear bench exactness` draws all of them
        return measure_exactness(SOLVERS, quick=True, seed=0)


def test_there_is_a_row_for_every_back_end_and_family(rows: list[ExactnessRow]) -> None:
    assert [(row.solver, row.family) for row in rows] == [(s, f) for s in SOLVERS for f in EXACTNESS_FAMILIES]
    assert all(row.problems > 0 for row in rows)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("goal", GOALS)
def test_goals_are_met(rows: list[ExactnessRow], solver: str, goal: str) -> None:
    reached = {row.family: getattr(row, goal) for row in rows if row.solver == solver}
    assert not {family: value for family, value in reached.items() if not value <= GOALS[goal]}


def test_goals_stay_where_they_are() -> None:
    assert GOALS == {"kkt_residual": 1e-9, "reference_error": 1e-8, "fd_error": 1e-5}


def test_hardly_any_problem_is_left_out(rows: list[ExactnessRow]) -> None:
    assert all(row.degenerate_share <= 0.02 for row in rows)


def test_portfolio_of_the_anchor() -> None:
    (batch,) = exactness_benchmark._draw_exactness_batches("anchor portfolio", 0, 1.0)
    errors = batch.answers("auto")[0].errors(batch.gradient("auto"))
    assert len(batch.programs) == 64
    assert errors.compared >= 40
    assert errors.median <= errors.largest <= 1e-8


def test_families_are_reproducible_and_independent_of_each_other() -> None:
    first, again, other = (
        exactness_benchmark._draw_exactness_batches("knapsacks", seed, 0.1)[0].case.predicted for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# -- the reference -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["piqp", "clarabel", "daqp"])
def test_reference_on_a_problem_solved_by_hand(solver: str) -> None:
    """Min ½‖z‖² + cᵀz on z₁+z₂+z₃ = 1, z ≥ 0, c = (0, 0.5, 9): z = (0.75, 0.25, 0), equality −0.75, bound −8.25."""
    p = program([0.0, 0.5, 9.0], A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    found = attempt_reference(p, solver)
    assert found is not None
    np.testing.assert_allclose(found.x.astype(float), [0.75, 0.25, 0.0], atol=1e-14)
    np.testing.assert_allclose(found.multipliers.equality.astype(float), [-0.75], atol=1e-13)
    np.testing.assert_allclose(found.multipliers.bound.astype(float), [0.0, 0.0, -8.25], atol=1e-13)
    assert found.space is not None
    assert found.space.tight.tolist() == [False, False, True, False, False, False]
    assert not found.on_edge
    # tangent space: (1, −1, 0)/√2; the projected error (3, 1, 7) is (1, −1, 0)
    np.testing.assert_allclose(found.project(np.array([3.0, 1.0, 7.0])), [1.0, -1.0, 0.0], atol=1e-14)
    assert kkt_residual(p, np.array([0.75, 0.25, 0.0]), np.array([-0.75]), np.zeros(0), np.array([0, 0, -8.25])) == 0.0
    # along (0, 1, 0): z = (0.75 + t/2, 0.25 − t/2, 0), so that z₂ is gone at t = 0.5
    assert found.longest_step(np.array([0.0, 1.0, 0.0])) == pytest.approx(0.5)
    # along (0, 0, 1) only the bound's multiplier moves
    assert found.longest_step(np.array([0.0, 0.0, 1.0])) == pytest.approx(8.25)


def test_reference_weighs_the_curvature() -> None:
    """H = diag(1, 3) on z₁ + z₂ = 1: the tangent direction (1, −1) has curvature 4."""
    found = solve_reference(program([0.0, 0.0], Q=np.diag([1.0, 3.0]), A=[[1.0, 1.0]], b=[1.0]), "interior-point")
    np.testing.assert_allclose(found.x.astype(float), [0.75, 0.25], atol=1e-14)
    np.testing.assert_allclose(found.project(np.array([2.0, 0.0])), [0.5, -0.5], atol=1e-14)


def test_reference_minimises_what_is_to_be_maximised() -> None:
    problem = pear.Problem(Q=-2 * np.eye(2), G=[[1.0, 2.0]], h=[1.0], ub=INF, sense="max")
    (p,) = judged_programs(judged_fields(problem), np.array([[3.0, 4.0]]), 0.5, "max")
    assert p.H.tolist() == [[2.5, 0.0], [0.0, 2.5]]
    assert p.c.tolist() == [-3.0, -4.0]
    fields = judged_fields(problem, Q=np.array([[[-1.0, 0.0], [0.0, -3.0]]]))
    (q,) = judged_programs(fields, np.array([[3.0, 4.0]]), 0.5, "max")
    assert q.H.tolist() == [[1.5, 0.0], [0.0, 3.5]]


def test_weak_activity_is_an_edge() -> None:
    """At z = −c = 0 the bound is tight with multiplier zero, which makes the active set ambiguous ("on edge")."""
    assert solve_reference(program([0.0, -1.0], lb=[0.0, -INF]), "interior-point").on_edge
    assert solve_reference(program([1e-9, -1.0], lb=[0.0, -INF]), "interior-point").on_edge
    assert solve_reference(program([-1e-9, -1.0], lb=[0.0, -INF]), "interior-point").on_edge
    assert not solve_reference(program([1e-3, -1.0], lb=[0.0, -INF]), "interior-point").on_edge
    assert not solve_reference(program([-1e-3, -1.0], lb=[0.0, -INF]), "interior-point").on_edge


def test_multipliers_that_are_not_unique_make_no_edge() -> None:
    """A duplicate bound may have its multiplier in either copy; it is ambiguous only if both multipliers are zero."""
    doubled = {"G": [[-1.0, 0.0], [-1.0, 0.0]], "h": [0.0, 0.0]}
    for solver in ("piqp", "daqp"):  # an interior point and a vertex of the set of multipliers
        leaning, touching = (attempt_reference(program([c, -1.0], **doubled), solver) for c in (1.0, 0.0))
        assert leaning is not None
        assert touching is not None
        assert leaning.multipliers.inequality.sum() == pytest.approx(1.0)
        assert not leaning.on_edge
        assert touching.on_edge


def test_a_degenerate_vertex_with_one_idle_constraint_is_an_edge() -> None:
    """Three rows meet at the origin. The third is the sum of the others, or is tight with multiplier zero."""
    corner = {"G": [[-1.0, 0.0], [0.0, -1.0], [-1.0, -1.0]], "h": [0.0, 0.0, 0.0]}
    assert not solve_reference(program([1.0, 1.0], **corner), "interior-point").on_edge
    assert solve_reference(program([1.0, 0.0], **corner), "interior-point").on_edge


def test_a_pinned_variable_is_an_equality() -> None:
    found = solve_reference(program([0.0, 0.5], lb=[0.3, -1.0], ub=[0.3, 1.0]), "interior-point")
    np.testing.assert_allclose(found.x.astype(float), [0.3, -0.5], atol=1e-14)
    np.testing.assert_allclose(found.project(np.array([1.0, 1.0])), [0.0, 1.0], atol=1e-14)
    assert not found.on_edge


def test_the_tested_solver_is_never_its_own_reference() -> None:
    for solver in ("piqp", "clarabel", "daqp"):
        assert solver not in reference_solvers(solver)
    assert reference_solvers("interior-point")[0] == "piqp"


def test_without_a_reference_solver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qpsolvers.available_solvers", ["osqp"])
    with pytest.raises(MissingExtraError, match=r"pear-dfl\[qpsolvers\]"):
        measure_exactness(["interior-point"], quick=True)


def test_a_program_that_no_reference_solves_is_not_passed_over() -> None:
    infeasible = program([0.0], G=[[1.0], [-1.0]], h=[-1.0, -1.0])
    with pytest.raises(PearError, match="no reference"):
        solve_reference(infeasible, "interior-point")


@pytest.mark.parametrize("family", EXACTNESS_FAMILIES)
def test_both_residuals_agree_wherever_they_are_measured(family: str) -> None:
    """Two independent formulas for the residual agree: at solutions both are rounding, elsewhere they are equal."""

    def residuals(batch: exactness_benchmark._ExactnessBatch, solution: pear.Solution) -> np.ndarray:
        assert solution.duals is not None
        parts = (solution.x, solution.duals.equality, solution.duals.inequality, solution.duals.bound)
        points = zip(batch.programs, *(part.numpy() for part in parts), strict=True)
        return np.array([kkt_residual(*point) for point in points])

    rng = np.random.default_rng(0)
    for batch in exactness_benchmark._draw_exactness_batches(family, 0, 0.02):
        solution = batch.solve("daqp")
        np.testing.assert_allclose(solution.kkt_residual.numpy(), residuals(batch, solution), atol=1e-12)
        case = batch.case
        qp = case.problem.canonical(case.predicted, case.smoothing, Q=case.Q)
        for noise in (1e-6, 1e-2, 1.0):
            moved = moved_by(noise, solution, rng)
            expected = own_residual(qp, moved.x, moved.duals).numpy()
            np.testing.assert_allclose(residuals(batch, moved), expected, rtol=1e-9)


# -- would it notice? --------------------------------------------------------------------------------------------------


@pytest.fixture
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        exactness_benchmark,
        "EXACTNESS_FAMILIES",
        {name: EXACTNESS_FAMILIES[name] for name in ("knapsacks", "portfolios")},
    )


@pytest.mark.usefixtures("two_families")
def test_an_error_in_the_gradient_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = exactness_benchmark.regret_gradient
    for relative, noticed in ((1e-6, {"reference_error"}), (1e-3, {"reference_error", "fd_error"})):
        off = lambda *a, r=relative, **k: exact(*a, **k) * (1 + r)  # noqa: E731
        monkeypatch.setattr(exactness_benchmark, "regret_gradient", off)
        for row in measure_exactness(["active-set"], quick=True):
            assert not row.meets_goals
            assert {name for name, goal in GOALS.items() if getattr(row, name) > goal} == noticed


@pytest.mark.usefixtures("two_families")
def test_an_error_in_one_sample_is_noticed_even_where_the_gradient_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = exactness_benchmark.regret_gradient

    def disturbed(*args: object, **kwargs: object) -> torch.Tensor:
        g = exact(*args, **kwargs)
        vertices = (g == 0).all(1)
        g[vertices] += 1e-6 * (args[1] - args[2])[vertices] / (args[3] or 1e-3)  # type: ignore[index,operator]
        return g

    monkeypatch.setattr(exactness_benchmark, "regret_gradient", disturbed)
    assert all(row.reference_error > GOALS["reference_error"] for row in measure_exactness(["active-set"], quick=True))


@pytest.mark.usefixtures("two_families")
def test_an_error_in_the_regret_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tilted(pear.PEARLoss):
        def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
            return super().forward(*args, **kwargs) * (1 + 1e-3)

    monkeypatch.setattr(exactness_benchmark, "PEARLoss", Tilted)
    assert all(row.fd_error > GOALS["fd_error"] for row in measure_exactness(["active-set"], quick=True))


@pytest.mark.usefixtures("two_families")
def test_an_error_in_the_decision_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = exactness_benchmark.solve

    def shifted(*args: object, **kwargs: object) -> pear.Solution:
        solution = exact(*args, **kwargs)  # type: ignore[arg-type]
        return dataclasses.replace(solution, x=solution.x + 1e-8)

    monkeypatch.setattr(exactness_benchmark, "solve", shifted)
    assert all(row.kkt_residual > GOALS["kkt_residual"] for row in measure_exactness(["active-set"], quick=True))


@pytest.mark.usefixtures("two_families")
def test_a_sample_that_fails_or_is_not_a_number_misses_every_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, gradient = exactness_benchmark.solve, exactness_benchmark.regret_gradient

    def failing(*args: object, **kwargs: object) -> pear.Solution:
        solution = exact(*args, **kwargs)  # type: ignore[arg-type]
        status, x = solution.status.clone(), solution.x.clone()
        status[0], x[0] = pear.Status.INACCURATE, torch.nan
        return dataclasses.replace(solution, status=status, x=x)

    with monkeypatch.context() as patch:
        patch.setattr(exactness_benchmark, "solve", failing)
        for row in measure_exactness(["active-set"], quick=True):
            assert (row.kkt_residual, row.reference_error, row.fd_error) == (INF, INF, INF)
    monkeypatch.setattr(exactness_benchmark, "regret_gradient", lambda *a, **k: gradient(*a, **k) * torch.nan)
    assert all(
        (row.reference_error, row.fd_error) == (INF, INF) for row in measure_exactness(["active-set"], quick=True)
    )


def test_a_row_with_nothing_to_judge_meets_no_goal() -> None:
    row = ExactnessRow("interior-point", "none", 1, 0.0, float("nan"), 0.0, 0.0, 1.0)
    assert not row.meets_goals
    assert dataclasses.replace(row, reference_error=0.0).meets_goals


def test_progress_is_told(two_families: None) -> None:
    lines: list[str] = []
    measure_exactness(["active-set"], quick=True, progress=lines.append)
    assert [line.split(":")[0] for line in lines] == ["1/2 active-set, knapsacks", "2/2 active-set, portfolios"]
