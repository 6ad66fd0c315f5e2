"""The pipeline: which solvers it asks, in which order, and how it treats their candidates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from zoo import ZOO

import pear
from pear import Status
from pear.decisions import repair
from pear.decisions.pipeline import solve_in_pipeline
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.projection import project
from pear.solvers.backend_registry import BACKENDS, Backend, get_backend, resolve_backends
from pear.solvers.candidate import Candidate

BOX = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0, ub=1.0)
COST = torch.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [2.0, 3.0, 1.0]], dtype=torch.float64)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives the name of the solver at every call of one."""
    names: list[str] = []
    solve = Backend.solve

    def noted(self: Backend, qp: Any, *args: Any, **options: Any) -> Candidate:
        names.append(self.name)
        return solve(self, qp, *args, **options)

    monkeypatch.setattr(Backend, "solve", noted)
    return names


@pytest.mark.parametrize("solver", ["auto", "interior-point", "osqp", "daqp"])
def test_a_sample_without_a_solution_is_recognised_before_others_are_asked(solver: str, asked: list[str]) -> None:
    b = torch.tensor([[1.0], [9.0], [1.0]], dtype=torch.float64)  # the second is out of reach of the bounds
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(BOX, COST, 0.1, solver=solver, on_failure="mask", b=b)
    assert found.status.tolist() == [Status.SOLVED, Status.INFEASIBLE, Status.SOLVED]
    assert set(asked) == {"active-set" if solver == "auto" else solver}


@pytest.mark.parametrize("solver", ["osqp", "piqp", "clarabel"])
def test_a_solver_that_says_infeasible_is_not_asked_again(solver: str, asked: list[str]) -> None:
    """The pipeline looks for a certificate at once, and finds it before the second, more accurate round."""
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(BOX, COST, 0.1, solver=solver, on_failure="mask", b=[9.0])
    assert found.status.tolist() == [Status.INFEASIBLE] * 3
    assert asked == [solver]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives an entry for every linear program that looks for a certificate."""
    from pear.decisions import failure_proofs

    asked: list[int] = []
    solve = failure_proofs.solve_with_linprog

    def noted(*args: Any, **options: Any) -> Any:
        asked.append(len(args[0]))
        return solve(*args, **options)

    monkeypatch.setattr(failure_proofs, "solve_with_linprog", noted)
    return asked


def test_one_linear_program_answers_for_constraints_that_all_share(asked: list[str], programs: list[int]) -> None:
    """If all samples share the constraints, one linear program is enough for all costs and all later calls."""
    problem = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[9.0], lb=0.0, ub=1.0)
    for again in range(3):
        with pytest.warns(pear.FailedSamplesWarning):
            found = pear.solve(problem, COST + again, 0.1 * again, on_failure="mask")
        assert found.status.tolist() == [Status.INFEASIBLE] * 3
        assert (len(programs), asked) == (1, ["active-set"])


def test_samples_that_agree_are_asked_once(programs: list[int]) -> None:
    b = torch.tensor([[9.0], [9.0], [8.0]], dtype=torch.float64)
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(BOX, COST, 0.1, on_failure="mask", b=b)
    assert found.status.tolist() == [Status.INFEASIBLE] * 3
    assert len(programs) == 2


def test_a_sparse_contradiction_takes_no_linear_program(programs: list[int]) -> None:
    """More flow leaves the grid than enters it: the equalities alone are contradictory, without a linear program."""
    problem = pear.tasks.shortest_path((20, 20)).problem
    assert problem.is_sparse
    b = problem.b.clone()
    b[0] += 1.0
    cost = torch.ones(1, problem.n, dtype=torch.float64)
    with pytest.warns(pear.FailedSamplesWarning):
        assert pear.solve(problem, cost, 0.1, on_failure="mask", b=b).status.tolist() == [Status.INFEASIBLE]
    assert not programs
    with pytest.warns(pear.FailedSamplesWarning):  # backwards through a grid of one-way streets: by rows and bounds
        assert pear.solve(problem, cost, 0.1, on_failure="mask", b=-problem.b).status.tolist() == [Status.INFEASIBLE]
    assert bool(pear.solve(problem, cost, 0.1).solved.all())  # what is kept of other right-hand sides is not its own


@pytest.mark.parametrize("name", ["osqp", "daqp", "piqp", "clarabel", "proxqp", "highs", "scipy"])
def test_every_solver_of_another_package_has_a_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the time per sample is cut to almost nothing, no solver claims to have finished, and none raises an error."""
    from pear.solvers import time_limit

    monkeypatch.setattr(time_limit, "_SECONDS", 1e-9)
    monkeypatch.setattr(time_limit, "_PER_UNKNOWN", 0.0)
    seen: dict[str, float] = {}
    for limit in (time_limit.time_per_sample, time_limit.iteration_limit_per_sample):

        def noted(n: int, rows: int, limit: Any = limit) -> float:
            seen[limit.__name__] = limit(n, rows)
            return limit(n, rows)

        monkeypatch.setattr(time_limit, limit.__name__, noted)
    row = next(row for row in BACKENDS if row.name == name)
    problem = pear.tasks.shortest_path((12, 12)).problem
    cost = torch.rand(1, problem.n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    candidate = row.solve(problem.canonical(cost, 0.1 if "qp" in row.kinds else 0.0), 1e-9)
    assert seen
    assert int(candidate.status) in (Status.INACCURATE, Status.TIME_LIMIT, Status.SOLVED)


def test_a_solver_that_cannot_take_the_problem_says_so() -> None:
    """An error is raised; no other solver answers in its place."""
    n = 2000
    wide = pear.Problem(A=torch.rand(1500, n, dtype=torch.float64), b=torch.ones(1500), lb=0.0)
    with pytest.raises(
        pear.UnknownSolverError, match=r"solver 'active-set' does not take 2000 variables with 1500 rows"
    ):
        pear.solve(wide, torch.ones(1, n), 0.1, solver="active-set")


def test_an_unbounded_sample_is_recognised_at_once(asked: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(pear.Problem(lb=0.0, n=2), [[1.0, 1.0], [1.0, -1.0]], on_failure="mask")
    assert found.status.tolist() == [Status.SOLVED, Status.UNBOUNDED]
    assert asked == ["active-set"]
    assert not caplog.records


def test_a_sparse_sample_without_a_solution_is_recognised_at_once(asked: list[str]) -> None:
    n = 600
    problem = pear.Problem(A=sparse.eye_array(n - 1, n, format="csr"), b=np.full(n - 1, 2.0), lb=0.0, ub=1.0)
    assert isinstance(problem.canonical(torch.ones(1, n)), QuadraticProgram)
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(problem, torch.ones(2, n), 0.1, on_failure="mask")
    assert found.status.tolist() == [Status.INFEASIBLE] * 2
    assert set(asked) == {"interior-point"}


def test_what_the_first_leaves_goes_to_the_next_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def gives_up(qp: Any, tol: float, plan: Any) -> Candidate:
        found = solve(qp, tol, plan)
        found.status[1] = int(Status.INACCURATE)
        found.x[1] = torch.nan
        return found

    from pear.solvers.active_set import active_set_solver as module

    solve = module.solve
    expected = pear.solve(BOX, COST, 0.1)
    asked.clear()
    monkeypatch.setattr(module, "solve", gives_up)
    with caplog.at_level("DEBUG", logger="pear"):
        found = pear.solve(BOX, COST, 0.1, ub=BOX.ub)  # a field of its own goes through the pipeline
    assert asked[:2] == ["active-set", "interior-point"]
    assert "active-set left 1 of 3 samples unverified; asking interior-point" in caplog.text
    torch.testing.assert_close(found.x, expected.x, rtol=0, atol=1e-14)


def test_no_solver_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that falsely claims to be solved is repaired, or another solver is asked."""

    def liar(qp: Any, tol: float, plan: Any) -> Candidate:
        B, n, p, m = qp.batch, qp.n, qp.p, qp.m
        x = torch.full((B, n), 1.0 / n, dtype=torch.float64)
        duals = Duals(*(torch.zeros(B, k, dtype=torch.float64) for k in (p, m, n)))
        status = torch.zeros(B, dtype=torch.int8)
        return Candidate(x, duals, status, working=ActiveSet.none(B, n, m, x.device))

    expected = pear.solve(BOX, COST, 0.1)
    monkeypatch.setattr("pear.solvers.active_set.active_set_solver.solve", liar)
    found = pear.solve(BOX, COST, 0.1)
    assert bool(found.solved.all())
    torch.testing.assert_close(found.x, expected.x, rtol=0, atol=1e-14)
    assert float(found.kkt_residual.max()) <= 1e-14


def test_working_sets_of_a_part_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver gives working sets but no verdict and no projector, and one sample is not given to it."""
    exact = pear.solve(BOX, COST[1:], 0.1)

    def knows(qp: Any, tol: float, plan: Any) -> Candidate:
        assert torch.equal(qp.c, COST[1:])
        return Candidate(exact.x, exact.duals, exact.status, working=exact.active)  # type: ignore[arg-type]

    cost = torch.cat([COST[:1] * torch.nan, COST[1:]])
    expected = pear.regret_gradient(BOX, COST[1:], COST[:2], smoothing=0.1)
    monkeypatch.setattr("pear.solvers.active_set.active_set_solver.solve", knows)
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(BOX, cost, 0.1, on_failure="mask")
    assert found.status.tolist() == [Status.NOT_FINITE, Status.SOLVED, Status.SOLVED]
    assert found.active[1:].same(exact.active).tolist() == [True, True]
    assert torch.equal(found.x[1:], exact.x)
    with pytest.warns(pear.FailedSamplesWarning):
        g = pear.regret_gradient(BOX, cost, COST[[0, 0, 1]], smoothing=0.1, on_failure="mask")
    torch.testing.assert_close(g, torch.cat([torch.zeros(1, 3), expected]).double(), rtol=0, atol=1e-12)


def test_only_what_is_left_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round gets the samples that the first left; another solver begins with its most accurate round."""
    calls: list[tuple[str, float, list[float]]] = []
    solve = Backend.solve

    def gives_up(self: Backend, qp: Any, tol: float, start: Any = None) -> Candidate:
        calls.append((self.name, tol, qp.c[:, 0].tolist()))
        found = solve(self, qp, tol, start)
        if tol > 1e-8 or (self.name == "osqp" and never):
            found.x[qp.c[:, 0] == 3.0] = torch.nan
        return found

    monkeypatch.setattr(Backend, "solve", gives_up)
    expected = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    for never in (False, True):
        calls.clear()
        found = solve_in_pipeline(BOX.canonical(COST, 0.1), [get_backend("osqp"), get_backend("daqp")])
        assert bool(found.solved.all())
        torch.testing.assert_close(found.x, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
        last = [("daqp", 1e-10, [3.0])] if never else []
        assert calls == [("osqp", 1e-6, [1.0, 3.0, 2.0]), ("osqp", 1e-10, [3.0]), *last]


@pytest.fixture
def repaired(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make the repair fail for the second sample of ``COST``; return a list of the exchanges that it was allowed."""
    allowed: list[int] = []

    def fails(qp: Any, x: torch.Tensor, duals: Duals, working: ActiveSet, exchanges: int) -> repair.RepairResult:
        hard, found = qp.c[:, 0] == 3.0, mend(qp, x, duals, working, exchanges)
        allowed.extend([exchanges] * int(hard.sum()))
        return replace(found, solved=found.solved & ~hard)

    mend = repair.repair
    monkeypatch.setattr("pear.decisions.pipeline.repair", fails)
    return allowed


def test_a_guess_is_not_repaired_for_a_second_solver(asked: list[str], repaired: list[int]) -> None:
    """If a second solver leads to an active set whose repair has failed before, no further solver is asked."""
    solvers = [get_backend(name) for name in ("daqp", "piqp", "clarabel", "osqp")]
    found = solve_in_pipeline(BOX.canonical(COST, 0.1), solvers)
    assert found.status.tolist() == [Status.SOLVED, Status.INACCURATE, Status.SOLVED]
    assert repaired == [8, 60]  # a more accurate candidate of the same solver is worth another repair
    assert asked == ["daqp", "daqp", "piqp", "clarabel"]


def test_a_guess_that_is_new_is_repaired(
    asked: list[str], repaired: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    solve, solvers = Backend.solve, [get_backend(name) for name in ("daqp", "piqp", "clarabel", "osqp")]

    def other(self: Backend, qp: Any, tol: float, start: Any = None) -> Candidate:
        found = solve(self, qp, tol, start)
        nothing = ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device)
        return replace(found, guess=nothing) if self.name == "piqp" else found

    monkeypatch.setattr(Backend, "solve", other)
    found = solve_in_pipeline(BOX.canonical(COST, 0.1), solvers)
    assert found.status.tolist() == [Status.SOLVED, Status.INACCURATE, Status.SOLVED]
    assert repaired == [8, 60, 3]
    assert asked == ["daqp", "daqp", "piqp", "clarabel", "osqp"]


@pytest.mark.parametrize("side", ["lb", "ub", "row"])
def test_systems_are_kept_only_for_the_tight_constraints_of_every_sample(side: str) -> None:
    """A constraint that is tight to rounding counts as active, though the point was computed without it."""
    fields = {"lb": {"lb": [-1.0, -np.inf]}, "ub": {"ub": [1.0, np.inf]}, "row": {"G": [[1.0, 0.0]], "h": [1.0]}}
    problem = pear.Problem(Q=np.eye(2), **fields[side])  # type: ignore[arg-type]
    inward = 5e-11 if side != "lb" else -5e-11
    predicted = torch.tensor([[0.5, 0.3], [(1.0 if side == "lb" else -1.0) + inward, 0.3]], dtype=torch.float64)
    g = pear.regret_gradient(problem, predicted, torch.zeros(2, 2), smoothing=0.0, solver="osqp")
    torch.testing.assert_close(g, torch.tensor([[0.5, 0.3], [0.0, 0.3]], dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(name for name, case in ZOO.items() if case.smoothing > 0))
def test_a_projection_that_does_not_converge_is_decided_by_rank(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled projection fails for every other sample, whose rank then shows that the decision is unique."""
    case = ZOO[name]
    from pear.solvers.active_set import kernel_calls as batch

    expected = pear.regret_gradient(case.problem, case.cost, case.true, case.smoothing)
    compiled = batch.call_kernel_to_project

    def stalls(*args: Any) -> Any:
        g, converged = compiled(*args)
        g[::2], converged[::2] = np.nan, False
        return g, converged

    monkeypatch.setattr(batch, "call_kernel_to_project", stalls)
    found = pear.regret_gradient(case.problem, case.cost, case.true, case.smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_a_plan_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from pear.solvers.active_set import kernel_calls as batch

    starts: list[int] = []
    prepare = batch.call_kernel_for_start
    monkeypatch.setattr(batch, "call_kernel_for_start", lambda P: starts.append(1) or prepare(P))
    problem = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0, ub=1.0)
    for smoothing in (0.1, 0.2):
        pear.solve(problem, COST, smoothing)
    assert len(starts) == 1
    pear.solve(problem, COST, 0.0)  # linear programs have a plan of their own
    assert len(starts) == 2
    pear.solve(problem, COST, 0.1, b=[1.5])  # and so have right-hand sides that come with a call
    assert len(starts) == 3
    for smoothing in (0.1, 0.0):
        pear.solve(problem, COST, smoothing)
    assert len(starts) == 3


def test_every_solver_leads_to_the_same_projection() -> None:
    """A solver solves the programs of its ``kinds``, with the projection that the default solvers give."""
    qp = BOX.canonical(COST, 0.1)
    for row in BACKENDS:
        if row.installed and "qp" in row.kinds:
            verified, best = (solve_in_pipeline(qp, rows) for rows in ([row], resolve_backends("auto", "qp")))
            assert bool(verified.solved.all()), row.name
            torch.testing.assert_close(project(verified, COST), project(best, COST))
