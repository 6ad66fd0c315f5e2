"""``pear.presolve``: decisions, values, duals and derivatives of redundant problems, checked on the original ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy_residual import solution_residual
from scipy import sparse

import pear
from pear.optimality.rule import OPTIMAL

INF = np.inf
SEEDS = range(12)


def redundant(seed: int, sense: str = "min", curved: bool = True) -> pear.Problem:
    """Draw a bounded program with one or two of everything that presolve removes, in random order."""
    rng = np.random.default_rng(seed)
    n, extra = 7, 4  # the last four variables: two defined by equalities, one by another defined one, one fixed
    x = rng.uniform(0.2, 0.8, n)
    defining = rng.normal(size=(3, n + extra))
    defining[:, n:] = 0.0
    defining[[0, 1, 2], [n, n + 1, n + 2]] = [1.0, -2.0, 1.5]
    defining[2, n + 1] = 0.7
    defined = np.linalg.solve(defining[:, n : n + 3], rng.normal(size=3) - defining[:, :n] @ x)
    point = np.concatenate([x, defined, [0.4]])
    own = np.zeros((1, n + extra))
    own[0, :n] = rng.normal(size=n)
    A = np.vstack([own, defining, own + 2 * defining[:1], np.zeros((1, n + extra)), 3 * defining[1:2]])
    G = rng.normal(size=(4, n + extra))
    single = np.zeros((2, n + extra))
    single[0, 1], single[1, 2] = 2.0, -3.0
    G = np.vstack([G, -0.5 * G[:1], 2 * G[1:2], single, np.zeros((1, n + extra))])
    room = rng.uniform(0.0, 0.3, len(G))
    room[4] = room[0] = 0.0  # two inequalities that are an equality together
    room[6:8] = 0.05
    order, mixed = rng.permutation(len(A)), rng.permutation(len(G))
    half = rng.normal(size=(n + extra, n + extra))
    sign = 1.0 if sense == "min" else -1.0
    lb, ub = np.r_[np.zeros(n), [-INF] * 3, 0.4], np.r_[np.ones(n), [INF] * 3, 0.4]
    Q = sign * (half @ half.T / 10) if curved else None
    return pear.Problem(
        Q=Q, A=A[order], b=(A @ point)[order], G=G[mixed], h=(G @ point + room)[mixed], lb=lb, ub=ub, sense=sense
    )


def costs(problem: pear.Problem, seed: int, samples: int = 5) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed + 100).normal(size=(samples, problem.n)))


@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_values_and_duals_are_those_of_the_original(seed: int, sense: str) -> None:
    problem = redundant(seed, sense)
    reduced, recovery = pear.presolve(problem)
    cost = costs(problem, seed)
    plain, small = pear.solve(problem, cost), pear.solve(reduced, recovery.cost(cost))
    assert (reduced.n, len(reduced.b), len(reduced.h)) == (7, 2, 3)  # an equality was written as two inequalities
    z = recovery.decision(small.x)
    torch.testing.assert_close(z, plain.x, rtol=0, atol=1e-8)
    torch.testing.assert_close(small.value + recovery.constant(cost), plain.value, rtol=1e-10, atol=1e-10)
    duals = recovery.duals(small.duals, small.x, cost)
    assert solution_residual(problem, cost, z, duals) <= OPTIMAL


@pytest.mark.parametrize("seed", SEEDS)
def test_duals_of_a_linear_program(seed: int) -> None:
    problem = redundant(seed, curved=False)._with(
        lb=torch.tensor([0.0] * 7 + [-5.0] * 3 + [0.4]).double(),
        ub=torch.tensor([1.0] * 7 + [5.0] * 3 + [0.4]).double(),
    )
    reduced, recovery = pear.presolve(problem)
    cost = costs(problem, seed)
    plain, small = pear.solve(problem, cost), pear.solve(reduced, recovery.cost(cost))
    torch.testing.assert_close(small.value + recovery.constant(cost), plain.value, rtol=1e-10, atol=1e-10)
    z, duals = recovery.decision(small.x), recovery.duals(small.duals, small.x, cost)
    assert solution_residual(problem, cost, z, duals) <= OPTIMAL


@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_are_those_of_the_original(seed: int) -> None:
    problem = redundant(seed)
    reduced, recovery = pear.presolve(problem)
    cost, weight = costs(problem, seed, 1).requires_grad_(), costs(problem, seed + 50, 1)
    z = recovery.decision(pear.DecisionLayer(reduced)(recovery.cost(cost)))
    (gradient,) = torch.autograd.grad((z * weight).sum(), cost)
    step, numbers = 1e-6, []
    for direction in torch.eye(problem.n).double():
        ends = torch.cat([cost.detach() + step * direction, cost.detach() - step * direction])
        found = (pear.solve(problem, ends).x * weight).sum(1)
        numbers.append(float(found[0] - found[1]) / (2 * step))
    torch.testing.assert_close(gradient[0], torch.tensor(numbers).double(), rtol=1e-5, atol=1e-6)


def test_the_maps_are_differentiable_and_keep_the_dtype() -> None:
    _, recovery = pear.presolve(redundant(0))
    w, c = torch.randn(3, len(recovery.columns)).double(), torch.randn(3, recovery.n).double()
    assert torch.autograd.gradcheck(recovery.decision, w.requires_grad_())
    assert torch.autograd.gradcheck(recovery.cost, c.requires_grad_())
    assert torch.autograd.gradcheck(recovery.constant, c)
    assert recovery.cost(c[0].float()).dtype == torch.float32
    assert recovery.decision(w[0]).shape == (recovery.n,)
    with pytest.raises(pear.ProblemError, match=r"costs of the original problem must have shape \(11,\)"):
        recovery.cost(w)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_regret_is_that_of_the_original(seed: int) -> None:
    problem = redundant(seed)
    reduced, recovery = pear.presolve(problem)
    true, predicted = costs(problem, seed), costs(problem, seed + 7).requires_grad_()
    loss = pear.PEARLoss(reduced, smoothing=0.0, injection=0.0, guidance=0.0, reduction="none")
    small = loss(recovery.cost(predicted), recovery.cost(true))
    plain = pear.regret(problem, predicted.detach(), true)
    torch.testing.assert_close(small.detach(), plain, rtol=1e-8, atol=1e-9)
    (by_small,) = torch.autograd.grad(small.sum(), predicted)
    expected = pear.regret_gradient(problem, predicted.detach(), true, smoothing=0.0)
    torch.testing.assert_close(by_small, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_integers(seed: int) -> None:
    """Presolve keeps integer optima: fixed integers, duplicate rows, and a continuous variable defined by integers."""
    rng = np.random.default_rng(seed)
    G = rng.integers(1, 6, (2, 6)).astype(float)
    G = np.vstack([np.c_[G, np.zeros((2, 2))], np.c_[2 * G[:1], np.zeros((1, 2))], [[0, 3, 0, 0, 0, 0, 0, 0]]])
    A = np.r_[rng.integers(-3, 4, 6), -1.0, 0.0][None]
    problem = pear.Problem(
        A=A,
        b=[0.5],
        G=G,
        h=[9.0, 11.0, 17.0, 4.0],
        lb=[0, 0, 1, 0, 0, 0, -INF, 0],
        ub=[1, 3, 1, 1, 2, 1, INF, 0.75],
        sense="max",
        integer=[0, 1, 2, 3, 4],
    )
    reduced, recovery = pear.presolve(problem)
    assert (reduced.n, reduced.A) == (6, None)
    assert reduced.h.shape[-1] == 3  # 3 z1 ≤ 4 stays a row, because a division could cut off an integer
    cost = torch.from_numpy(rng.normal(size=(4, 8)))
    plain, small = pear.solve(problem, cost), pear.solve(reduced, recovery.cost(cost))
    torch.testing.assert_close(small.value + recovery.constant(cost), plain.value, rtol=1e-9, atol=1e-9)
    z = recovery.decision(small.x)
    assert bool((z[:, :5] == z[:, :5].round()).all())
    torch.testing.assert_close(z @ problem.A.T, problem.b.expand(4, 1), rtol=0, atol=1e-12)


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "an empty row": ({"G": [[0, 0], [1, 1]], "h": [-1.0, 2.0]}, r"G\[0\] asks for ≤ -1 and has no variables"),
    "an empty equality": ({"A": [[1, 0], [0, 0]], "b": [1.0, 2.0]}, r"A\[1\] asks for = 2 and has no variables"),
    "duplicates": ({"A": [[1, 2], [2, 4]], "b": [1.0, 3.0]}, r"A\[1\] asks for = 3 and contradicts A\[0\]"),
    "opposites": ({"G": [[1, 2], [-1, -2]], "h": [1.0, -2.0]}, r"G\[1\] asks for ≤ -2 and contradicts G\[0\]"),
    "a bound": ({"G": [[2, 0]], "h": [-1.0], "lb": 0.0}, r"G\[0\] asks for ≤ -1 and contradicts the other bounds"),
    "a sum": (
        {"A": [[1, 1, 0], [0, 1, 1], [1, 2, 1]], "b": [1.0, 2.0, 4.0], "lb": 0.0, "ub": 9.0},
        r"A\[\d\] contradicts a combination of other equalities",
    ),
    "what a substitution leaves": (
        {"A": [[1, 1, 1], [1, 1, 2], [1, 1, 1.5]], "b": [1.0, 2.0, 9.0], "lb": [0, 0, -INF]},
        r"A\[\d\] (asks for|contradicts)",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_names_its_row(case: str) -> None:
    fields, message = CONTRADICTIONS[case]
    problem = pear.Problem(**fields)
    with pytest.raises(pear.ProblemError, match=message):
        pear.presolve(problem)
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(problem, torch.zeros(1, problem.n), smoothing=0.1, on_failure="mask").status
    assert found.tolist() == [pear.Status.INFEASIBLE]


def test_nothing_is_removed_where_nothing_can_be() -> None:
    problem = pear.Problem(Q=np.eye(2), A=[[1.0, 1.0]], b=[1.0], G=[[1.0, -1.0]], h=[0.5], lb=0.0)
    reduced, recovery = pear.presolve(problem)
    assert str(reduced) == str(problem)
    assert recovery.removed == {}
    assert str(recovery) == "Recovery(2 of 2 variables; Presolve removed nothing.)"
    cost = torch.tensor([[1.0, 2.0]])
    assert torch.equal(recovery.cost(cost), cost)


def test_two_sides_of_one_row_stay_two_rows() -> None:
    reduced, _ = pear.presolve(pear.Problem(G=[[1, 1], [-1, -1], [-2, -2], [1, 1]], h=[3.0, -1.0, -1.0, 2.0], lb=0.0))
    found = sorted((*row, side) for row, side in zip(reduced.G.tolist(), reduced.h.tolist(), strict=True))
    assert found == [(-1.0, -1.0, -1.0), (1.0, 1.0, 2.0)]


def test_one_variable_always_stays() -> None:
    reduced, recovery = pear.presolve(pear.Problem(A=[[1.0, 1.0], [1.0, -1.0]], b=[3.0, 1.0]))
    x = pear.solve(reduced, recovery.cost([[1.0, 1.0]])).x
    assert recovery.decision(x).tolist() == [[2.0, 1.0]]
    reduced, recovery = pear.presolve(pear.Problem(lb=[1.0, 2.0], ub=[1.0, 2.0]))
    assert recovery.decision(pear.solve(reduced, recovery.cost([[1.0, 1.0]])).x).tolist() == [[1.0, 2.0]]


def test_what_is_refused() -> None:
    with pytest.raises(pear.ProblemError, match="this one has fields of 3 samples"):
        pear.presolve(pear.Problem(lb=0.0, ub=np.ones((3, 2))))
    with pytest.raises(pear.ProblemError, match=r"presolve takes a pear\.Problem, got Model"):
        pear.presolve(pear.Model(pear.Problem(n=2)))


def test_a_small_pivot_defines_no_variable() -> None:
    _, recovery = pear.presolve(pear.Problem(A=[[1e-6, 1.0, 1.0]], b=[1.0], lb=[-INF, 0.0, 0.0]))
    assert recovery.removed == {}


def test_a_sparse_problem_stays_sparse() -> None:
    """A chain of a thousand free states and a factor model of two thousand assets stay sparse after presolve."""
    T = 1000
    chain = sparse.hstack([sparse.eye_array(T) - sparse.eye_array(T, k=-1), -sparse.eye_array(T)], format="csr")
    lb, ub = np.r_[np.full(T, -INF), np.zeros(T)], np.r_[np.full(T, INF), np.ones(T)]
    Q = sparse.diags_array(np.r_[np.ones(T), np.full(T, 0.1)])
    problem = pear.Problem(Q=Q, A=chain, b=np.full(T, -0.4), lb=lb, ub=ub)
    reduced, recovery = pear.presolve(problem)
    assert reduced.is_sparse
    assert T < reduced.n < 2 * T
    assert recovery.T.nnz + reduced.Q.nnz + reduced.A.nnz <= 3 * (2 * T + Q.nnz + chain.nnz)
    cost = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 2 * T)))
    plain, small = pear.solve(problem, cost), pear.solve(reduced, recovery.cost(cost))
    torch.testing.assert_close(recovery.decision(small.x), plain.x, rtol=0, atol=1e-8)
    rng = np.random.default_rng(1)
    n, k = 2000, 10
    A = sparse.hstack([sparse.csr_array(rng.normal(size=(k, n))), -sparse.eye_array(k)], format="csr")
    factors = pear.Problem(Q=sparse.eye_array(n + k), A=A, b=np.zeros(k), lb=np.r_[np.zeros(n), np.full(k, -INF)])
    assert pear.presolve(factors)[0].n == n + k
