"""Values and gradients of whole rollouts, compared with a plain loop over CVXPY and with finite differences."""

import cvxpy as cp
import numpy as np
import pytest
import torch

import pear
from pear.solvers.active_set import kernel_calls

T, STEPS = 6, 5
CAPACITY, EFFICIENCY, CHARGE, DISCHARGE = 1.0, 0.9, 0.5, 0.3


def battery(start="row"):
    """Return a battery in CVXPY: the parameters for prices and initial level, and the problem.

    With ``start="known"`` the initial level is a parameter; otherwise a row fixes it.
    """
    price, e0 = cp.Parameter(T, name="price"), cp.Parameter(name="e0")
    charge, discharge = cp.Variable(T, name="charge"), cp.Variable(T, name="discharge")
    level = cp.Variable(T + 1, name="level")
    cost = price @ (charge - discharge) + 0.3 * cp.sum_squares(level[1:] - 0.5 * CAPACITY)
    cost += 0.2 * cp.sum_squares(charge) + 0.2 * cp.sum_squares(discharge) - price[T - 1] * level[T]
    rows = [charge >= 0, charge <= CHARGE, discharge >= 0, discharge <= DISCHARGE, level >= 0, level <= CAPACITY]
    rows += [level[1:] == level[:-1] + EFFICIENCY * charge - discharge]
    rows += [level[0] == (e0 if start == "known" else 0.4)]
    return price, e0, cp.Problem(cp.Minimize(cost), rows)


def rolling(start="row", **options):
    price, e0, problem = battery(start)
    model = pear.from_cvxpy(problem, predicted=[price], known=[e0] if start == "known" else None)
    entry = "e0" if start == "known" else "level[0]"
    return pear.Rolling(model, state={"level": entry}, initial={"level": 0.4}, **options)


def draw(batch, seed=0, steps=STEPS):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(batch, steps + T - 1, generator=generator, dtype=torch.float64)
    truth = truth.unfold(1, T, 1)
    return truth + 0.4 * torch.randn(truth.shape, generator=generator, dtype=torch.float64), truth


def loop(forecast, truth, step=1):
    """Return the realised cost of one rollout, by a plain loop over CVXPY and Clarabel."""
    price, e0, problem = battery("known")
    by_name = {v.name(): v for v in problem.variables()}
    level, total = 0.4, 0.0
    for predicted, true in zip(forecast, truth, strict=True):
        price.value, e0.value = predicted, level
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        for t in range(step):
            c, d = by_name["charge"].value[t], by_name["discharge"].value[t]
            level = by_name["level"].value[t + 1]
            total += true[t] * (c - d) + 0.3 * (level - 0.5) ** 2 + 0.2 * (c**2 + d**2) - 0.3 * 0.25
    return total


@pytest.mark.parametrize("start", ["row", "known"])
def test_the_value_is_that_of_a_plain_loop_around_another_solver(start):
    forecast, truth = draw(2)
    loss = pear.RollingLoss(rolling(start), smoothing=0.0)
    expected = [loop(f, t) for f, t in zip(forecast.numpy(), truth.numpy(), strict=True)]
    assert float(loss(forecast, truth)) == pytest.approx(np.mean(expected), abs=1e-7)
    assert loss.cost.shape == (2, STEPS)
    assert loss.cost.sum(1).numpy() == pytest.approx(expected, abs=1e-7)


def test_several_periods_a_step_and_the_value_of_what_is_left():
    forecast, truth = draw(1, steps=9)
    forecast, truth = forecast[:, ::2], truth[:, ::2]

    def worth(state, true):
        return -true["price"][:, -1] * state["level"]

    plain = pear.RollingLoss(rolling(step=2), smoothing=0.0)(forecast, truth)
    assert float(plain) == pytest.approx(loop(forecast[0].numpy(), truth[0].numpy(), step=2), abs=1e-7)
    last = []
    loss = pear.RollingLoss(rolling(step=2), smoothing=0.0, terminal=lambda s, t: last.append(s) or worth(s, t))
    assert float(loss(forecast, truth)) == pytest.approx(
        float(plain) - float(truth[0, -1, -1]) * float(last[0]["level"][0]), abs=1e-12
    )


@pytest.mark.parametrize("options", [{}, {"step": 2}, {"fixed": 2}, {"fixed": {"charge": 1}}])
@pytest.mark.parametrize("start", ["row", "known"])
def test_gradients_by_finite_differences_through_the_rollout(start, options):
    forecast, truth = draw(2, seed=3)
    loss = pear.RollingLoss(
        rolling(start, **options), smoothing=0.0, terminal=lambda s, t: -t["price"][:, 0] * s["level"]
    )
    check_gradient(loss, forecast, truth)


def check_gradient(loss, forecast, truth, entries=25, h=1e-6, **options):
    """Compare gradients with central differences, except for entries whose two one-sided differences disagree."""
    forecast = forecast.clone().contiguous().requires_grad_()
    loss(forecast, truth, **options).backward()
    chosen = torch.randperm(forecast.numel(), generator=torch.Generator().manual_seed(1))[:entries].tolist()
    compared = 0
    with torch.no_grad():
        middle = float(loss(forecast, truth, **options))
        for i in chosen:
            sides = []
            for sign in (1, -1):
                moved = forecast.detach().clone().contiguous()
                moved.view(-1)[i] += sign * h
                sides.append(sign * (float(loss(moved, truth, **options)) - middle) / h)
            if abs(sides[0] - sides[1]) > 1e-4:  # an active set changes in between
                continue
            compared += 1
            assert float(forecast.grad.flatten()[i]) == pytest.approx(sum(sides) / 2, abs=2e-6)
    assert compared >= 0.9 * entries
    assert float(forecast.grad.abs().max()) > 1e-3


def test_the_state_carries_the_gradient_of_the_first_forecast_to_the_last_cost():
    forecast, truth = (0.2 * part for part in draw(3, seed=5))  # small prices leave the plan between its bounds
    loss = pear.RollingLoss(rolling(cost=lambda s, done, t: s["level"]), smoothing=0.0)
    forecast.requires_grad_()
    loss(forecast, truth).backward()
    assert float(forecast.grad[:, 0].abs().max()) > 1e-3
    check_gradient(loss, forecast.detach(), truth)


def test_a_batch_is_a_loop_over_single_rollouts():
    forecast, truth = draw(4, seed=7)
    forecast.requires_grad_()
    loss = pear.RollingLoss(rolling(fixed=1), smoothing=0.0)
    loss(forecast, truth, keys=range(4)).backward()
    whole, value = forecast.grad.clone(), loss.cost.clone()
    forecast.grad = None
    for i in range(4):
        loss(forecast[i : i + 1], truth[i : i + 1]).backward()
        assert loss.cost[0].numpy() == pytest.approx(value[i].numpy(), abs=1e-12)
    assert (forecast.grad / 4).numpy() == pytest.approx(whole.numpy(), abs=1e-10)


def test_the_compiled_pass_makes_and_differentiates_all_plans_without_a_memory_of_others(monkeypatch):
    forecast, truth = draw(3, seed=13)
    forecast.requires_grad_()
    loss, calls, solve = pear.RollingLoss(rolling(), smoothing=0.0), [], kernel_calls.call_kernel_to_solve
    monkeypatch.setattr(
        kernel_calls, "call_kernel_to_solve", lambda *args, **named: calls.append(1) or solve(*args, **named)
    )
    gradients = []
    for keys in (["a", "b", "c"], ["c", "b", "a"]):
        forecast.grad = None
        loss(forecast, truth, keys=keys).backward()
        gradients.append(forecast.grad.clone())
    assert len(calls) == 2 * STEPS  # no sample is left to the pipeline, which would call the kernel again
    assert torch.equal(*gradients)
    assert not len(loss.planner.layer.decider.starts)


def test_a_world_that_does_not_follow_the_plan():
    forecast, truth = draw(2, seed=11)

    def leak(state, done, true):
        return {"level": 0.95 * state["level"] + 0.9 * done["charge"][:, 0] - done["discharge"][:, 0]}

    loss = pear.RollingLoss(rolling(transition=leak), smoothing=0.0)
    check_gradient(loss, forecast, truth)
    with torch.no_grad():
        plain = pear.RollingLoss(rolling(), smoothing=0.0)
        loss(forecast, truth), plain(forecast, truth)
    assert loss.cost[:, 0].numpy() == pytest.approx(plain.cost[:, 0].numpy(), abs=1e-12)
    assert float((loss.cost[:, 1:] - plain.cost[:, 1:]).abs().max()) > 1e-3
