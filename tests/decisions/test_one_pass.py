"""The compiled pass leaves to the pipeline what it cannot solve: flat curvature, and projections that fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.decisions.decider import Decider
from pear.solvers.active_set.compiled_pass import CompiledPass, FusedPassDecisions

BOX = pear.Problem(lb=0.0, ub=1.0, n=2)
COSTS = torch.tensor([[1.0, -1.0], [2.0, 3.0]], dtype=torch.float64)
EYE = torch.eye(2, dtype=torch.float64)
FLAT, SADDLE = torch.ones(2, 2, dtype=torch.float64), torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("injection", [0.0, 0.1, 1.0])
def test_injection_into_a_linear_program_adds_nothing(injection: float) -> None:
    """The decisions of a linear program are unique, and the gradient is zero; injection adds nothing to it."""
    loss, predicted = pear.PEARLoss(BOX, smoothing=0.0, injection=injection, guidance=0.0), COSTS.clone()
    value = loss(predicted.requires_grad_(), -COSTS)
    assert value.item() == pytest.approx((1 + 1 + 2 + 3) / 2)
    value.backward()
    assert predicted.grad is not None
    assert not predicted.grad.any()


def test_samples_with_a_curvature_of_their_own_are_injected_with_that() -> None:
    """Keys may name the rows in any order; injection uses the factors of the curvatures of these rows."""
    generator = torch.Generator().manual_seed(0)
    M = torch.randn(6, 5, 5, dtype=torch.float64, generator=generator)
    problem = pear.Problem(Q=M @ M.mT + 0.1 * torch.eye(5), A=[[1.0] * 5], b=[1.0], lb=0.0)
    predicted, true = torch.randn(2, 4, 5, dtype=torch.float64, generator=generator)
    grads = []
    for without_pass in (False, True):
        loss, leaf = pear.PEARLoss(problem, 0.0, injection=0.3, guidance=0.0), predicted.clone().requires_grad_()
        if without_pass:
            loss.decider.fused = None
        loss(leaf, true, keys=[4, 1, 5, 0]).backward()
        grads.append(leaf.grad)
    assert grads[0].any(1).sum() > 1
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-14)


def test_a_flat_curvature_is_not_taken_for_the_last_one() -> None:
    """The compiled pass does not assume that a curvature is definite because the curvature of the last call was."""
    loss = pear.PEARLoss(pear.Problem(Q=EYE, lb=0.0, ub=1.0), smoothing=0.0, injection=0.1, guidance=0.0)
    for Q in (None, EYE):
        loss(COSTS.clone().requires_grad_(), -COSTS, Q=Q, true_Q=None if Q is None else EYE)
    with pytest.raises(pear.NotUniqueError, match="variables 0, 1 can move at no cost"):
        loss((0 * COSTS - 0.5).requires_grad_(), -COSTS, Q=FLAT, true_Q=EYE)


def decide(Q: torch.Tensor) -> Any:
    return pear.DecisionLayer(pear.Problem(Q=EYE, lb=0.0, ub=1.0))(COSTS, Q=Q)


def lose(Q: torch.Tensor) -> Any:
    return pear.PEARLoss(pear.Problem(Q=EYE, lb=0.0, ub=1.0), smoothing=0.0, guidance=0.0, injection=0.1)(
        COSTS, -COSTS, Q=Q
    )


def lose_truly(Q: torch.Tensor) -> Any:
    loss = pear.PEARLoss(pear.Problem(Q=EYE, lb=0.0, ub=1.0), smoothing=0.0, guidance=0.0, injection=0.1)
    return loss(COSTS, -COSTS, Q=EYE.expand(2, 2, 2), true_Q=Q)


@pytest.mark.parametrize("call", [decide, lose, lose_truly])
@pytest.mark.parametrize("which", [0, 1])
def test_one_indefinite_sample_is_named(call: Any, which: int) -> None:
    curvature = [EYE, EYE]
    curvature[which] = SADDLE
    with pytest.raises(pear.SolveError, match="NOT_CONVEX") as error:
        call(torch.stack(curvature))
    assert error.value.samples == [which]
    call(torch.stack([EYE, EYE]))


@pytest.mark.parametrize("keys", [None, [0, 1]])
def test_a_true_curvature_of_any_type(keys: Any) -> None:
    loss = pear.PEARLoss(pear.Problem(Q=EYE, lb=-5.0, ub=5.0), smoothing=0.0, guidance=0.0, injection=0.1)
    Q = torch.stack([2 * EYE, 3 * EYE])
    values = [loss(COSTS, -COSTS, keys, Q, (Q / 2).to(kind)).item() for kind in (torch.float64, torch.float32) * 2]
    assert values == pytest.approx([values[0]] * 4, rel=1e-12)
    z, best = -COSTS / torch.tensor([[2.0], [3.0]]), COSTS / torch.tensor([[1.0], [1.5]])
    worth = [(0.5 * torch.tensor([1.0, 1.5]) * (x * x).sum(1) - (COSTS * x).sum(1)) for x in (z, best)]
    assert values[0] == pytest.approx(float((worth[0] - worth[1]).mean()), rel=1e-12)


class Halfway:
    """A projector whose second sample does not converge."""

    def project(self, e: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return e, torch.tensor([True, False])


def test_a_projection_counts_only_where_every_sample_converged() -> None:
    assert FusedPassDecisions(None, Halfway(), doubtful=False).project(COSTS) is None  # type: ignore[arg-type]
    assert FusedPassDecisions(None, Halfway(), doubtful=True).project(COSTS) is None  # type: ignore[arg-type]


def test_many_samples_are_not_many_rows() -> None:
    many = pear.Problem(A=np.ones((1, 3)), b=np.ones((5000, 1)), lb=0.0)
    assert CompiledPass.supports(many)
    assert not CompiledPass.supports(pear.Problem(A=np.ones((5000, 3)), b=np.ones(5000), lb=0.0))


def test_samples_with_keys_are_decided_under_the_lock() -> None:
    decider = Decider(BOX, "auto")
    assert decider.locked([0]) is decider.starts.lock
    assert decider.locked(None) is not decider.starts.lock


def test_one_flat_sample_among_curved_ones_is_noticed() -> None:
    loss = pear.PEARLoss(pear.Problem(Q=EYE, lb=0.0, ub=1.0), smoothing=0.0, injection=0.1, guidance=0.0)
    with pytest.raises(pear.NotUniqueError) as error:
        loss((0 * COSTS - 0.5).requires_grad_(), -COSTS, Q=torch.stack([EYE, FLAT]))
    assert (error.value.samples, error.value.variables) == ([1], [0, 1])


def test_a_decision_that_could_leave_a_constraint_for_nothing_has_no_derivative() -> None:
    """The first variable costs nothing, so that every value of it is optimal."""
    problem = pear.Problem(G=[[1.0, 1.0]], h=[9.0], lb=0.0, ub=1.0)
    free = torch.tensor([[0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    with pytest.raises(pear.NotUniqueError):
        pear.PEARLoss(problem, smoothing=0.0, injection=0.0, guidance=0.0)(free, -COSTS[:1])
    with pytest.raises(pear.NotUniqueError):
        pear.DecisionLayer(problem)(free).sum().backward()


@pytest.mark.parametrize("solver", ["auto", "osqp"])
@pytest.mark.parametrize("shared", [True, False])
def test_injection_beside_a_predicted_curvature_and_smoothing(solver: str, shared: bool) -> None:
    """The gradient is g + β (‖g‖/‖n‖) n with n = H⁻¹e − g and H = Q + λI, on a plane."""
    generator = torch.Generator().manual_seed(2)
    L = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64)
    Q, true_Q = L @ L.mT + torch.eye(3), 2 * torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    Q = Q[:1].expand(2, 3, 3) if shared else Q
    predicted, true = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64)
    lam, beta = 0.5, 0.3
    loss = pear.PEARLoss(
        pear.Problem(A=np.ones((1, 3)), b=[1.0], n=3), lam, beta, solver=solver, reduction="sum", guidance=0.0
    )
    leaf = predicted.clone().requires_grad_()
    loss(leaf, true, Q=Q[0] if shared else Q, true_Q=true_Q).backward()
    assert leaf.grad is not None
    a = np.ones(3)
    for i in range(2):
        H = Q[i].numpy() + lam * np.eye(3)
        inverse = np.linalg.inv(H)
        P = inverse - np.outer(inverse @ a, a @ inverse) / (a @ inverse @ a)
        c = predicted[i].numpy()
        z = -P @ c + inverse @ a / (a @ inverse @ a)
        e = c - true[i].numpy() + (Q[i] - true_Q[i]).numpy() @ z
        g, n = P @ e, inverse @ e - P @ e
        expected = g + beta * np.linalg.norm(g) / np.linalg.norm(n) * n
        np.testing.assert_allclose(leaf.grad[i], expected, rtol=1e-9, atol=1e-11)


def test_a_true_curvature_that_differs_in_one_entry_is_another_one() -> None:
    loss = pear.PEARLoss(pear.Problem(Q=EYE, lb=-5.0, ub=5.0), smoothing=0.0, guidance=0.0, injection=0.1)
    curvatures = [torch.diag(torch.tensor([1.0, last], dtype=torch.float64)).expand(2, 2, 2) for last in (1.0, 4.0)]
    for true_Q in (*curvatures, curvatures[0]):
        fresh = pear.PEARLoss(loss.problem, smoothing=0.0, guidance=0.0, injection=0.1)(
            COSTS, -COSTS, Q=EYE, true_Q=true_Q
        )
        assert loss(COSTS, -COSTS, [0, 1], EYE, true_Q.clone()).item() == pytest.approx(fresh.item(), rel=1e-12)


def test_the_answer_to_the_true_problem_is_kept_for_one_smoothing() -> None:
    loss = pear.PEARLoss(BOX, smoothing=0.5, guidance=0.0, injection=0.1)
    one_pass = loss.decider.fused
    assert one_pass is not None

    def kept() -> list[bool]:
        table, slots = one_pass.store.table([0, 1], 2)
        return [bool(known) for known in one_pass.store.is_unchanged(table, slots, np.inf, 0.5)]

    assert kept() == [False, False]
    loss(COSTS[:1], -COSTS[:1], keys=[1])
    assert kept() == [False, True]
    loss(COSTS, -COSTS, keys=[0, 1])
    assert kept() == [True, True]
    assert (
        loss(COSTS, -COSTS, keys=[0, 1]).item()
        == pear.PEARLoss(BOX, smoothing=0.5, guidance=0.0, injection=0.1)(COSTS, -COSTS).item()
    )
    loss.smoothing = 0.25
    assert (
        loss(COSTS, -COSTS, keys=[0, 1]).item()
        == pear.PEARLoss(BOX, smoothing=0.25, guidance=0.0, injection=0.1)(COSTS, -COSTS).item()
    )


FLAT_ON_TOP = pear.Problem(Q=FLAT, lb=0.0, ub=1.0)
ALONE: dict[str, tuple[pear.Problem, float, float]] = {
    "linear, smoothed": (BOX, 0.1, 0.1),
    "linear": (BOX, 0.0, 0.0),
    "curved": (pear.Problem(Q=EYE, lb=0.0, ub=1.0), 0.0, 0.1),
    "flat, smoothed": (FLAT_ON_TOP, 0.1, 0.1),
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("own", [True, False])
def test_the_pass_answers_alone_wherever_it_can(name: str, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the loss nor the layer's derivatives by cost and Q call the pipeline."""
    problem, smoothing, injection = ALONE[name]
    monkeypatch.setattr(Decider, "solve", lambda *args, **fields: pytest.fail("the pipeline was asked"))
    given = {} if own or problem.Q is None else {"Q": problem.Q.clone().requires_grad_()}
    loss = pear.PEARLoss(problem, smoothing, injection, guidance=0.0)
    layer = pear.DecisionLayer(problem, smoothing)
    for _ in range(2):
        loss(COSTS.clone().requires_grad_(), -COSTS, **given).backward()
        layer(COSTS.clone().requires_grad_(), **given).sum().backward()
    layer(COSTS)
    ties = torch.tensor([[-0.1, -0.1]], dtype=torch.float64)  # at the upper bounds with no force
    if smoothing > 0:
        loss(ties.clone().requires_grad_(), COSTS[:1], **given).backward()


def test_room_for_the_rows_that_there_are() -> None:
    both = pear.Problem(A=np.ones((2, 3)), b=np.ones(2), G=np.ones((4, 3)), h=np.ones(4))
    for problem, equalities, rows in ((both, 2, 6), (pear.Problem(A=np.ones((2, 3)), b=np.ones(2)), 2, 2), (BOX, 0, 0)):
        one_pass = Decider(problem, "auto").fused
        assert one_pass is not None
        assert (one_pass.programs.equalities, one_pass.programs.rows) == (equalities, rows)
        table = one_pass.store._new_rows(5)
        assert table.fingerprints.shape == (5, 2 * problem.n + 1)
        assert table.best.equality.shape == (5, equalities)
        assert table.best.inequality.shape == (5, rows - equalities)
    found = Decider(BOX, "auto").fused
    assert found is not None
    assert found.all_samples(3, 0.1) is not None
