"""Regret and its gradient: values by the objective, derivatives by finite differences, on planted problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_geometry import small_programs
from torch import Tensor
from zoo import ZOO, Planted, arrays, curvature

import pear

CURVED = [name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None]
UNIT = [name for name in CURVED if ZOO[name].force == 1.0]
CHECK: dict[str, Any] = {"eps": 1e-6, "atol": 1e-7, "rtol": 1e-6}
ENTRYWISE = ("one variable", "absent rows", "repeated equalities")
"""Cases whose whole Jacobian is compared; the others compare a random projection of it."""


def leaf(value: Any) -> Tensor:
    return torch.as_tensor(value).clone().requires_grad_()


def paid(case: Planted, z: Tensor, i: int) -> np.ndarray:
    """Return the smoothed objective of decisions z (k, n) at the true cost of sample i, in the minimised form."""
    a = arrays(case.problem, case.true, case.smoothing, i)
    x = z.numpy()
    return 0.5 * np.einsum("ki,ij,kj->k", x, a.H, x) + x @ a.c


# --------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", ZOO)
def test_gradient_is_that_of_the_regret(name: str) -> None:
    """While the active set stays, regret is quadratic in ĉ, so that central differences have no truncation error."""
    case = ZOO[name]
    g = pear.regret_gradient(case.problem, case.cost, case.true, case.smoothing)
    steps = 1e-4 * case.force * torch.cat([torch.eye(case.n), -torch.eye(case.n)]).double()
    for i in range(case.B):
        moved = case.cost[i] + steps
        z = pear.solve(case.problem[[i] * len(moved)], moved, smoothing=case.smoothing).x
        ahead, behind = np.split(paid(case, z, i), 2)
        difference = (ahead - behind) / (2e-4 * case.force)
        np.testing.assert_allclose(g[i], difference, rtol=1e-8, atol=1e-8 * case.size)


@pytest.mark.parametrize("name", UNIT)
def test_gradcheck_by_both_costs(name: str) -> None:
    case = ZOO[name]
    loss = pear.PEARLoss(case.problem, smoothing=case.smoothing, injection=0.0, reduction="none", guidance=0.0)
    assert torch.autograd.gradcheck(loss, (leaf(case.cost), leaf(case.true)), **CHECK, fast_mode=name not in ENTRYWISE)


CURVATURES = ["portfolio", "polyhedron", "own everything", "own everything, max", "equalities", "redundant rows"]


@pytest.mark.parametrize("name", CURVATURES)
@pytest.mark.parametrize("true_per_sample", [False, True])
def test_gradcheck_by_both_curvatures(name: str, true_per_sample: bool) -> None:
    """Q̂ is the curvature for which the solution is planted; the true Q is another."""
    case = ZOO[name]
    rng = np.random.default_rng(0)
    shape = (case.B, case.n) if true_per_sample else (case.n,)
    bill = case.problem.sign * curvature(rng, *shape)
    loss = pear.PEARLoss(case.problem, smoothing=0.0, injection=0.0, reduction="sum", guidance=0.0)

    def regret(predicted: Tensor, Q: Tensor, true_Q: Tensor) -> Tensor:
        Q, true_Q = (0.5 * (M + M.mT) for M in (Q, true_Q))
        return loss(predicted, case.true, Q=Q, true_Q=true_Q)

    inputs = (leaf(case.cost), leaf(case.problem.Q), leaf(bill))
    assert torch.autograd.gradcheck(regret, inputs, **CHECK, fast_mode=name != "redundant rows" or true_per_sample)


@pytest.mark.parametrize("sense", ["min", "max"])
def test_gradcheck_by_curvature_on_top_of_smoothing(sense: str) -> None:
    """Derivatives by L in Q = ±(LLᵀ + I) are checked; no constraint is active, so that every point is smooth."""
    rng, sign = np.random.default_rng(0), 1 if sense == "min" else -1
    L, c = leaf(rng.normal(size=(2, 3, 3))), leaf(rng.normal(size=(2, 3)))
    problem = pear.Problem(n=3, sense=sense)
    loss = pear.PEARLoss(problem, smoothing=0.3, injection=0.0, reduction="none", guidance=0.0)
    true, true_Q = torch.from_numpy(rng.normal(size=(2, 3))), sign * torch.from_numpy(curvature(rng, 2, 3))

    def regret(predicted: Tensor, factor: Tensor) -> Tensor:
        Q = sign * (factor @ factor.mT + torch.eye(3))
        return loss(predicted, true, Q=Q, true_Q=true_Q)

    assert torch.autograd.gradcheck(regret, (c, L), **CHECK)


def test_curvature_defaults_to_the_problems_own() -> None:
    case = ZOO["portfolio"]
    Q = leaf(case.problem.Q - 0.1 * torch.eye(case.n))
    loss = pear.PEARLoss(case.problem, smoothing=0.0, injection=0.0, guidance=0.0)
    short, long = loss(case.cost, case.true, Q=Q), loss(case.cost, case.true, Q=Q, true_Q=case.problem.Q)
    assert short.item() == long.item() > 0
    left_out = pear.regret_gradient(case.problem, case.cost, case.true, 0.0, Q=Q)
    spelt_out = pear.regret_gradient(case.problem, case.cost, case.true, 0.0, Q=Q, true_Q=case.problem.Q)
    assert torch.equal(left_out, spelt_out)


@pytest.mark.parametrize(("name", "beta"), [(name, beta) for name in CURVED for beta in (0.0, 0.3)])
def test_loss_hands_on_the_closed_form(name: str, beta: float) -> None:
    """The gradient of ``PEARLoss`` is ``regret_gradient`` times the upstream gradient."""
    case = ZOO[name]
    predicted, up = leaf(case.cost), torch.arange(1.0, case.B + 1).double()
    loss = pear.PEARLoss(case.problem, smoothing=case.smoothing, injection=beta, reduction="none", guidance=0.0)
    (loss(predicted, case.true) * up).sum().backward()
    g = pear.regret_gradient(case.problem, case.cost, case.true, case.smoothing, injection=beta)
    torch.testing.assert_close(predicted.grad, up[:, None] * g, rtol=1e-12, atol=1e-13 * float(g.abs().max()))


def test_injection_leaves_the_curvatures_gradient_exact() -> None:
    case = ZOO["portfolio"]
    bill = -torch.from_numpy(curvature(np.random.default_rng(0), case.n))
    grads = []
    for beta in (0.0, 0.5):
        Q = leaf(case.problem.Q)
        pear.PEARLoss(case.problem, smoothing=0.0, injection=beta, guidance=0.0)(
            case.cost, case.true, Q=Q, true_Q=bill
        ).backward()
        grads.append(Q.grad)
    assert float(grads[0].abs().max()) > 0
    torch.testing.assert_close(*grads, rtol=1e-13, atol=1e-15)


def test_a_step_against_the_gradient_lowers_the_regret() -> None:
    for name in CURVED:
        case = ZOO[name]
        loss = pear.PEARLoss(case.problem, smoothing=case.smoothing, injection=0.0, reduction="none", guidance=0.0)
        predicted = leaf(case.cost)
        before = loss(predicted, case.true)
        before.sum().backward()
        assert predicted.grad is not None
        step = 1e-3 * case.force * torch.nn.functional.normalize(predicted.grad)
        after = loss(case.cost - step, case.true)
        moving = predicted.grad.abs().amax(1) > 0
        assert bool((after < before)[moving].all()), name
        torch.testing.assert_close(after[~moving], before[~moving], rtol=1e-12, atol=0.0)


# ------------------------------------------------------------------------------------------------------------ values


def by_objectives(problem: pear.Problem, predicted: Tensor, true: Tensor, smoothing: float) -> Tensor:
    """Return the regret by its definition: the difference of two objectives at the true cost."""
    chosen, best = (pear.solve(problem, cost, smoothing=smoothing).x for cost in (predicted, true))
    paid, ideal = (problem.objective(z, true, smoothing=smoothing) for z in (chosen, best))
    return paid - ideal if problem.sense == "min" else ideal - paid


@pytest.mark.parametrize("name", ZOO)
def test_value_is_a_difference_of_objectives(name: str) -> None:
    case = ZOO[name]
    loss = pear.PEARLoss(case.problem, smoothing=case.smoothing, injection=0.0, reduction="none", guidance=0.0)
    value = loss(case.cost, case.true)
    expected = by_objectives(case.problem, case.cost, case.true, case.smoothing)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-11 * case.size * case.force)
    assert bool((value >= 0).all())
    perfect = loss(case.true, case.true)
    assert bool((perfect >= 0).all())
    torch.testing.assert_close(perfect, torch.zeros(case.B).double(), rtol=0, atol=1e-13 * case.size * case.force)


def test_value_with_a_predicted_curvature() -> None:
    case = ZOO["portfolio"]
    bill = -torch.from_numpy(curvature(np.random.default_rng(0), case.n))
    value = pear.PEARLoss(case.problem, smoothing=0.0, reduction="none", guidance=0.0, injection=0.1)(
        case.cost, case.true, Q=case.problem.Q, true_Q=bill
    )
    best = pear.solve(case.problem, case.true, Q=bill).x
    ideal, paid = (case.problem.objective(z, case.true, Q=bill) for z in (best, case.x))
    torch.testing.assert_close(value, ideal - paid, rtol=1e-10, atol=1e-12)
    assert bool((value > 0).all())


@settings(max_examples=50)
@given(small_programs(), st.sampled_from([0.1, 1.0]), st.sampled_from(["min", "max"]))
def test_regret_is_never_negative(drawn: Any, smoothing: float, sense: str) -> None:
    fields, predicted, true = drawn
    problem = pear.Problem(**fields, sense=sense)
    loss = pear.PEARLoss(problem, smoothing=smoothing, injection=0.0, reduction="none", guidance=0.0)
    value = loss(predicted, true)
    assert bool((value >= 0).all())
    expected = by_objectives(problem, predicted, true, smoothing)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    perfect = loss(true, true)
    assert bool((perfect >= 0).all())
    torch.testing.assert_close(perfect, torch.zeros(2).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("solver", ["auto", "osqp"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sense", ["min", "max"])
def test_gradient_with_a_predicted_curvature_is_that_of_the_true_objective(
    solver: str, shared: bool, sense: str
) -> None:
    """Closed form and loss, in one pass and in the pipeline, agree with differences of the true objective."""
    generator = torch.Generator().manual_seed(0)
    L = torch.randn(2, 2, 3, 3, generator=generator, dtype=torch.float64)
    Q, true_Q = (L @ L.mT + torch.eye(3)) * (1 if sense == "min" else -1)
    Q, true_Q = (Q[0], true_Q[0]) if shared else (Q, true_Q)
    predicted, true = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64)
    problem = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=-5.0, sense=sense)  # type: ignore[arg-type]
    sign, lam = (1 if sense == "min" else -1), 0.1

    def worth(cost: torch.Tensor) -> torch.Tensor:
        z = pear.solve(problem, cost, smoothing=lam, Q=Q).x
        curved = torch.einsum("bi,bij,bj->b", z, true_Q.expand(2, 3, 3), z)
        return sign * (0.5 * curved + (true * z).sum(1)) + 0.5 * lam * (z * z).sum(1)

    step = 1e-5
    moves = step * torch.eye(3, dtype=torch.float64)
    expected = torch.stack([(worth(predicted + d) - worth(predicted - d)) / (2 * step) for d in moves], 1)
    g = pear.regret_gradient(problem, predicted, true, lam, solver=solver, Q=Q, true_Q=true_Q)
    torch.testing.assert_close(g, expected, rtol=1e-6, atol=1e-7)
    loss = pear.PEARLoss(problem, lam, injection=0.0, solver=solver, reduction="sum", guidance=0.0)
    leaf = predicted.clone().requires_grad_()
    loss(leaf, true, Q=Q, true_Q=true_Q).backward()
    torch.testing.assert_close(leaf.grad, expected, rtol=1e-6, atol=1e-7)
