"""Guidance, the loss R + α F: its gradient, its schedule, and equal results in compiled and plain code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from zoo import ZOO

import pear
from pear.losses.defaults import DECAY
from pear.train import FitConfig, fit

CURVED = sorted(name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None)


def gap(problem: pear.Problem, predicted: Tensor, true: Tensor, smoothing: float) -> Tensor:
    """Return F by its definition: how much worse the true decision is than z*(ĉ) under the forecast, with smoothing."""
    relaxed = problem.relaxed()
    z, best = (pear.solve(relaxed, cost, smoothing).x for cost in (predicted, true))

    def value(x: Tensor) -> Tensor:
        return relaxed.sign * relaxed.objective(x, predicted) + 0.5 * smoothing * (x * x).sum(1)

    return value(best) - value(z)


@pytest.mark.parametrize("name", CURVED)
def test_value_is_regret_plus_the_gap_under_the_forecast(name: str) -> None:
    case = ZOO[name]
    loss = pear.PEARLoss(case.problem, case.smoothing, 0.0, 0.7, reduction="none")
    value = loss(case.cost, case.true)
    assert loss.last is not None
    expected = loss.last.regret + 0.7 * gap(case.problem, case.cost, case.true, case.smoothing)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    assert bool((value >= loss.last.regret).all())


@pytest.mark.parametrize("sense", ["min", "max"])
def test_gradient_agrees_with_finite_differences(sense: str) -> None:
    """The gradients by costs and by a predicted curvature agree with finite differences, at a fixed α."""
    rng = np.random.default_rng(0)
    n, B = 4, 3
    sign = 1.0 if sense == "min" else -1.0
    problem = pear.Problem(Q=sign * np.eye(n), A=np.ones((1, n)), b=[1.0], lb=0.0, sense=sense)  # type: ignore[arg-type]
    predicted, true = (torch.from_numpy(rng.normal(size=(B, n))) for _ in range(2))
    L = torch.from_numpy(rng.normal(size=(B, n, n)))
    Q, true_Q = (sign * (M @ M.mT + torch.eye(n).double()) for M in (L, L.flip(0)))
    loss = pear.PEARLoss(problem, 0.3, 0.0, 0.8)

    def at(cost: Tensor, curvature: Tensor) -> Tensor:
        return loss(cost, true, Q=0.5 * (curvature + curvature.mT), true_Q=true_Q)

    predicted.requires_grad_(), Q.requires_grad_()
    assert torch.autograd.gradcheck(at, (predicted, Q), eps=1e-6, atol=1e-7, rtol=1e-6)


def test_a_vertex_has_no_regret_gradient_and_a_pull() -> None:
    """The forecast is so wrong that its decision is a vertex: the regret has no gradient, but guidance has one."""
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    true = torch.tensor([[0.0, 1.0]])
    for guidance, expected in ((0.0, [0.0, 0.0]), (2.0, [2.0, -2.0])):
        predicted = torch.tensor([[5.0, 0.0]], requires_grad=True)
        pear.PEARLoss(problem, 0.1, guidance=guidance)(predicted, true).backward()
        assert predicted.grad is not None
        assert predicted.grad.tolist() == [expected]


def test_the_schedule_is_state() -> None:
    problem = pear.Problem(lb=0.0, ub=1.0, n=2)
    loss, true = pear.PEARLoss(problem, 0.1, guidance=2.0), torch.zeros(1, 2)
    predicted = torch.ones(1, 2, requires_grad=True)
    assert loss(predicted, true) == loss(predicted, true)  # a call changes nothing
    assert loss.current_guidance == 2.0
    for _ in range(3):
        loss.step()
    assert loss.current_guidance == pytest.approx(2.0 * DECAY**3, rel=1e-15)
    other = pear.PEARLoss(problem, 0.1, guidance=2.0)
    other.load_state_dict(loss.state_dict())
    assert other.current_guidance == loss.current_guidance
    published = pear.PEARLoss(problem, 0.1, guidance=0.0)
    published.load_state_dict(loss.state_dict())
    assert published.current_guidance == 0.0
    loss.guidance = 1.0
    assert loss.current_guidance == 1.0


@pytest.mark.parametrize("name", CURVED)
def test_gradcheck_holds_as_the_loss_comes(name: str) -> None:
    """The test uses the default guidance but no injection, which is not the gradient of any loss."""
    case = ZOO[name]
    loss, true = pear.PEARLoss(case.problem, case.smoothing, injection=0.0, reduction="sum"), case.true.double()
    predicted = case.cost.double().detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(predicted, true), predicted)
    eps, atol = 1e-6 * float(predicted.detach().abs().max()), 1e-5 * float(gradient.abs().max())
    assert torch.autograd.gradcheck(lambda cost: loss(cost, true), (predicted,), eps=eps, atol=atol, rtol=1e-4)


class Wrapper(nn.Module):
    """A user's loss that adds the squared error to ours."""

    def __init__(self, loss: pear.PEARLoss) -> None:
        super().__init__()
        self.inner = loss

    def forward(self, predicted: Tensor, true: Tensor) -> Tensor:
        return self.inner(predicted, true) + 0.1 * (predicted - true).square().mean()


def test_fit_steps_a_loss_inside_another() -> None:
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    loss, X, C = pear.PEARLoss(problem, 0.1, guidance=1.0), torch.randn(40, 3), torch.rand(40, 2)
    fit(nn.Linear(3, 2), Wrapper(loss), (X, C), (X, C), lambda predicted, true: 1.0, FitConfig(max_epochs=2))
    assert loss.current_guidance == pytest.approx(DECAY**4, rel=1e-12)


def test_a_loop_without_steps_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pear.losses.pear_loss._MANY_CALLS", 3)
    loss, true = pear.PEARLoss(pear.Problem(lb=0.0, ub=1.0, n=2), 0.1), torch.zeros(1, 2)
    for _ in range(4):
        loss(torch.ones(1, 2, requires_grad=True), true)
        loss.step()
    assert not caplog.records
    for _ in range(4):
        loss(torch.ones(1, 2, requires_grad=True), true)
    assert [record.getMessage().partition(":")[2][:17] for record in caplog.records] == [" call loss.step()"]


def test_compiled_epochs_take_the_same_steps() -> None:
    """Compiled epochs of a linear model take the same steps as the plain loop, which a wrapped model uses."""
    task = pear.tasks.shortest_path((4, 4))
    train, validation, _ = task.split(task.samples(120, degree=6))
    weights = []
    falling = iter(range(0, -100, -1))  # so that the last weights are the best
    for plain in (False, True):
        torch.manual_seed(0)
        linear = nn.Linear(5, task.problem.n).double()
        loss = pear.PEARLoss(task.problem, 0.1, 0.1, 1.0)
        model: nn.Module = nn.Sequential(linear) if plain else linear
        config = FitConfig(max_epochs=4, check_every=1, patience=100, start="mse")
        history = fit(model, loss, train, validation, lambda predicted, true: next(falling), config)
        assert history.epochs == 4
        assert loss.current_guidance == pytest.approx(DECAY ** (4 * math.ceil(len(train[0]) / 32)), rel=1e-12)
        weights.append((linear.weight.detach().clone(), [check.loss for check in history.checks]))
    torch.testing.assert_close(weights[0][0], weights[1][0], rtol=1e-9, atol=1e-11)
    assert weights[0][1] == pytest.approx(weights[1][1], rel=1e-9)


def test_masked_samples_have_no_pull() -> None:
    problem = pear.Problem(lb=0.0, ub=1.0, n=2)
    predicted = torch.tensor([[1.0, math.nan], [1.0, -1.0]], requires_grad=True)
    loss = pear.PEARLoss(problem, 0.1, guidance=1.0, on_failure="mask", reduction="none")
    with pytest.warns(pear.FailedSamplesWarning):
        value = loss(predicted, torch.zeros(2, 2))
    value.sum().backward()
    assert value[0] == 0
    assert predicted.grad is not None
    assert predicted.grad[0].tolist() == [0.0, 0.0]
    assert predicted.grad[1].abs().sum() > 0


def test_what_guidance_refuses() -> None:
    problem = pear.Problem(lb=0.0, ub=1.0, n=2)
    for wrong in (-1.0, math.nan, "much", True):
        with pytest.raises(pear.ProblemError, match="guidance must be a finite number of at least 0; got"):
            pear.PEARLoss(problem, guidance=wrong)  # type: ignore[arg-type]
    with pytest.raises(pear.ProblemError, match="guidance has no derivative with respect to the true costs"):
        pear.PEARLoss(problem, 0.1)(*(torch.zeros(1, 2, requires_grad=True) for _ in range(2)))
