"""Compiled exchanges of sparse programs, compared with dense algebra and with the dense solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

import pear
from pear.compile.thread_pools import limit_threads
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.repair import repair_sparse
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.sparse_reduced_systems import sparse_system_plan
from pear.sensitivity.uniqueness import only_zero_is_left
from pear.solvers.candidate import Start
from pear.solvers.exchanges.exchange_calls import call_exchange_systems

pytestmark = pytest.mark.usefixtures("keep_small_ones_sparse")

N, P, M, BATCH = 60, 8, 25, 12


def fields(seed: int, curved: int = N) -> dict[str, Any]:
    """Return a feasible program in mixed units, with an absent row and a fixed variable.

    The first ``curved`` variables have curvature.
    """
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(P + M, N)) * (rng.random((P + M, N)) < 0.12)
    rows[:, :curved] += 0.1 * (rng.random((P + M, curved)) < 0.05)
    rows *= 10.0 ** rng.integers(-2, 3, (P + M, 1))
    inside, lb, ub = rng.uniform(0.2, 0.8, N), np.zeros(N), np.ones(N)
    lb[3] = ub[3] = inside[3]
    h = rows[P:] @ inside + 0.1 * np.abs(rows[P:]).sum(1)
    h[2] = np.inf
    Q = sparse.diags_array(np.where(np.arange(N) < curved, rng.uniform(0.5, 2.0, N), 0.0)).tocsr()
    return {"Q": Q, "A": rows[:P], "b": rows[:P] @ inside, "G": rows[P:], "h": h, "lb": lb, "ub": ub}


def problems(seed: int) -> tuple[pear.Problem, pear.Problem]:
    """Return the same problem in sparse and in dense form."""
    given = fields(seed)
    thin = {name: sparse.csr_array(value) if name in "QAG" else value for name, value in given.items()}
    return pear.Problem(**thin), pear.Problem(**{**given, "Q": given["Q"].toarray()})


def costs(seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng([seed, 1]).normal(size=(BATCH, N)))


def program(problem: pear.Problem, cost: Tensor) -> QuadraticProgram:
    qp = problem.canonical(cost)
    assert qp.is_sparse
    return qp


@pytest.mark.parametrize("seed", range(4))
def test_the_solution_of_other_costs_is_reached(seed: int) -> None:
    thin, dense = problems(seed)
    before, cost = solve_continuous_programs(thin, costs(seed), 0.0, "auto"), costs(seed) + 0.5 * costs(seed + 10)
    found = repair_sparse(program(thin, cost), before.as_start(), 20)
    expected = pear.solve(dense, cost)
    assert found is not None
    assert int(found.solved.sum()) >= BATCH - 2  # the search is allowed to give up, not to be wrong
    assert bool((found.exchanges > 0).any())
    close = found.x[found.solved] - expected.x[found.solved]
    assert float(close.abs().max()) < 1e-10


def test_a_start_that_holds_costs_no_exchange() -> None:
    thin, _ = problems(0)
    before = solve_continuous_programs(thin, costs(0), 0.0, "auto")
    found = repair_sparse(program(thin, costs(0)), before.as_start(), 20)
    assert found is not None
    assert bool(found.solved.all())
    assert int(found.exchanges.max()) == 0


def test_absent_and_pinned_constraints_are_not_left_to_the_start() -> None:
    thin, dense = problems(1)
    cost, everything = costs(1), torch.ones(BATCH, N, dtype=torch.bool)
    start = Start(
        torch.full((BATCH, N), torch.nan, dtype=torch.float64),
        Duals(*(torch.zeros(BATCH, k, dtype=torch.float64) for k in (P, M, N))),
        ActiveSet(torch.ones(BATCH, M, dtype=torch.bool), ~everything, everything),
        everything[:, 0],
    )
    found = repair_sparse(program(thin, cost), start, 100)
    assert found is not None
    assert not bool(found.working.rows[:, 2].any())
    assert bool(found.working.lower[:, 3].all())
    off = torch.where(found.solved[:, None], found.x - pear.solve(dense, cost).x, 0.0)
    assert float(off.abs().max()) < 1e-10


@pytest.mark.parametrize("curved", [N, N - 6])
def test_reduced_systems_are_those_of_dense_algebra(curved: int) -> None:
    given = fields(2, curved)
    thin = {name: sparse.csr_array(value) if name in "QAG" else value for name, value in given.items()}
    qp = program(pear.Problem(**thin), costs(2))
    rng = np.random.default_rng(5)
    held = rng.random((BATCH, N)) < 0.4
    held[:, curved:] = True
    active = ActiveSet(
        torch.from_numpy(rng.random((BATCH, M)) < 0.2), torch.from_numpy(held), torch.zeros(BATCH, N) > 0
    )
    f, r = (torch.from_numpy(rng.standard_normal((2, BATCH, size))) for size in (N, P + M))
    plan = sparse_system_plan(qp)
    assert plan is not None
    x, _, good = call_exchange_systems(plan, active, f, r)
    J = np.concatenate([given["A"], given["G"]])
    for i in range(BATCH):
        free, inside = ~held[i], np.concatenate([np.ones(P, bool), active.rows[i].numpy()])
        inside &= np.abs(J[:, free]).sum(1) > 0
        H, part = given["Q"].toarray()[free][:, free], J[inside][:, free]
        K = np.block([[H, part.T], [part, np.zeros((len(part), len(part)))]])
        for k in range(2):
            rhs = np.concatenate([f[k, i].numpy()[free], r[k, i].numpy()[inside]])
            expected = np.linalg.lstsq(K, rhs)[0]
            solvable = float(np.abs(K @ expected - rhs).max()) < 1e-9 * max(1.0, np.abs(expected).max())
            assert bool(good[k, i]) == solvable
            if solvable:
                np.testing.assert_allclose(x[k, i].numpy()[free], expected[: free.sum()], rtol=1e-7, atol=1e-9)
        assert not bool(x[:, i, held[i]].any())


def test_threads_do_not_change_a_digit() -> None:
    thin, _ = problems(3)
    before, cost = solve_continuous_programs(thin, costs(3), 0.0, "auto"), costs(3) + 0.3 * costs(11)
    results = []
    for threads in (1, 3):
        with limit_threads(threads):
            found = repair_sparse(program(thin, cost), before.as_start(), 20)
            assert found is not None
            results.append(found.x)
    assert bool((results[0] == results[1]).all())


def test_slacks_of_held_rows_stand_still_without_a_linear_program() -> None:
    """The two slacks of a row move together; if the multiplier of one is positive, the other cannot move either."""
    A = sparse.csr_array(np.array([[1.0, 1.0, 1.0, -1.0]]))
    curved = sparse.diags_array([1.0, 1.0, 0.0, 0.0]).tocsr()
    qp = pear.Problem(Q=curved, A=A, b=[1.0], lb=0.0).canonical(torch.zeros(1, 4))
    for weak_second, still in ((False, True), (True, False)):
        lower = torch.tensor([[False, False, True, True]])
        none = torch.zeros(1, 0, dtype=torch.bool)
        active = ActiveSet(none, lower, torch.zeros_like(lower))
        weak = ActiveSet(none, torch.tensor([[False, False, True, weak_second]]), torch.zeros_like(lower))
        assert bool(only_zero_is_left(qp, active, weak)) == still


def test_a_failed_sample_of_a_singular_curvature_has_no_normal_component() -> None:
    """A failed sample has no active constraints, so that its system is singular here. Its gradient is zero."""
    Q, A = sparse.diags_array([1.0, 0.0, 0.0]).tocsr(), sparse.csr_array([[1.0, 1.0, 1.0]])
    problem = pear.Problem(Q=Q, A=A, b=[[1.0], [5.0]], lb=0.0, ub=1.0)
    assert problem.is_sparse
    loss = pear.PEARLoss(problem, smoothing=0.0, injection=0.1, guidance=0.0, on_failure="mask")
    predicted = torch.tensor([[0.5, 1.0, 2.0]] * 2, dtype=torch.float64, requires_grad=True)
    true = torch.tensor([[3.0, 1.0, 2.0]] * 2, dtype=torch.float64)
    with pytest.warns(pear.FailedSamplesWarning, match="sample 1"):
        loss(predicted, true, keys=[0, 1]).backward()
    alone = pear.regret_gradient(pear.Problem(Q=Q, A=A, b=[1.0], lb=0.0, ub=1.0), predicted[:1], true[:1], 0.0, 0.1)
    assert predicted.grad is not None
    assert torch.equal(predicted.grad, torch.cat([alone, torch.zeros_like(alone)]))
