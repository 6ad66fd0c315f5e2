"""Rows whose variables are all zero up to rounding, as those of an empty battery, pass the compiled checks."""

import numpy as np
import pytest
import torch

import pear
from pear.solvers.active_set.compiled_pass import CompiledPass
from pear.solvers.warm_starts import WarmStarts

EXACT = 1e-9
HOURS = 8
CHARGE, DISCHARGE = 0.5, 0.2  # what one hour can move; variables are measured in these units


def battery(limits):
    """Return a battery whose level is limited by bounds or by rows.

    While it stays empty, all terms of its balances are zero.
    """
    hour = np.arange(HOURS)
    A = np.zeros((HOURS, 3 * HOURS))
    A[hour, hour], A[hour, HOURS + hour], A[hour, 2 * HOURS + hour] = -0.9 * CHARGE, DISCHARGE, 1.0
    A[hour[1:], 2 * HOURS + hour[:-1]] = -1.0
    fields = {"A": A, "b": 0.5 * (hour == 0)}
    if limits == "bounds":
        return pear.Problem(**fields, lb=0.0, ub=1.0)
    free = np.repeat([0.0, 0.0, np.inf], HOURS)
    level = np.eye(3 * HOURS)[2 * HOURS :]
    h = np.repeat([1.0, 0.0], HOURS)
    return pear.Problem(**fields, G=np.vstack([level, -level]), h=h, lb=-free, ub=1.0 + free)


def draw_costs(count):
    prices = 30 + 10 * np.random.default_rng(0).normal(size=(count, HOURS)).cumsum(1)
    return torch.from_numpy(np.concatenate([CHARGE * prices, -DISCHARGE * prices, 0 * prices], 1))


@pytest.mark.parametrize("limits", ["bounds", "rows"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 2.0])
def test_no_sample_is_left_to_the_pipeline(limits, smoothing):
    problem, cost = battery(limits), draw_costs(256)
    found = CompiledPass(problem, WarmStarts()).decide(cost, smoothing, None, {})
    assert found.left is None
    other = pear.solve(problem, cost, smoothing=smoothing, solver="highs" if smoothing == 0 else "daqp")
    assert (found.x - other.x).abs().max() < EXACT


def test_warm_samples_stay_in_the_pass():
    """Warm samples stay in the compiled pass, and their decisions equal those of a cold start up to rounding."""
    problem, cost = battery("rows"), draw_costs(256)
    compiled, keys = CompiledPass(problem, WarmStarts()), list(range(256))
    compiled.decide(cost.flip(0), 0.2, keys, {})
    warm, cold = compiled.decide(cost, 0.2, keys, {}), compiled.decide(cost, 0.2, None, {})
    assert warm.left is None
    assert (warm.x - cold.x).abs().max() < EXACT


def test_gradients_are_those_of_the_pipeline():
    """The gradient of the compiled pass equals that of another solver, which comes from the reduced systems."""
    problem, cost = battery("rows"), draw_costs(64)
    gradients = []
    for solver in ("auto", "daqp"):
        predicted = cost.flip(0).requires_grad_()
        loss = pear.PEARLoss(problem, smoothing=0.2, guidance=0.0, solver=solver)
        loss(predicted, cost).backward()
        gradients.append(predicted.grad)
    assert (gradients[0] - gradients[1]).abs().max() < EXACT * gradients[1].abs().max()
