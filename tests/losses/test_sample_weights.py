"""Weights of samples in every loss: repeated rows, rows left out, and the unit of the weights."""

import numpy as np
import pandas as pd
import pytest
import torch

import pear
from pear.errors import ProblemError
from pear.losses import DBBLoss, LAVALoss, MSELoss, PFYLLoss, SPOPlusLoss
from pear.losses.decision_loss import DecisionLoss

PROBLEM = pear.Problem(A=torch.ones(1, 4), b=[1.0], lb=0.0, ub=0.7)
ROWS = 5
COUNTS = torch.tensor([3, 1, 0, 2, 4])
RANDOM = torch.Generator().manual_seed(0)
PREDICTED, TRUE = (torch.rand(ROWS, 4, generator=RANDOM, dtype=torch.float64) + 1 for _ in range(2))

LOSSES = {
    "pear": lambda: pear.PEARLoss(PROBLEM, smoothing=0.3),
    "pear, exact": lambda: pear.PEARLoss(PROBLEM, smoothing=1.0, injection=0.0, guidance=0.0),
    "spo+": lambda: SPOPlusLoss(PROBLEM, mse_weight=0.5, cost_unit=1.0),
    "lava": lambda: LAVALoss(PROBLEM, cost_unit=1.0),
    "mse": MSELoss,
}


def call(loss, rows=slice(None), weight=None, **options):
    """Return the value of a loss on some rows, and its gradient by their predicted costs."""
    predicted = PREDICTED[rows].clone().requires_grad_()
    value = loss(predicted, TRUE[rows], weight=weight, **options)
    value.sum().backward()
    return value.detach(), predicted.grad


@pytest.mark.parametrize("name", LOSSES)
def test_whole_weights_are_repeated_rows(name):
    repeated = torch.arange(ROWS).repeat_interleave(COUNTS)
    value, gradient = call(LOSSES[name](), weight=COUNTS)
    again, each = call(LOSSES[name](), repeated)
    torch.testing.assert_close(value, again, rtol=0, atol=1e-12)
    added = torch.zeros_like(gradient).index_add(0, repeated, each)
    torch.testing.assert_close(gradient, added, rtol=0, atol=1e-12)
    assert float(gradient[2].abs().max()) == 0
    assert float(gradient.abs().max()) > 0


@pytest.mark.parametrize("name", LOSSES)
def test_a_weight_of_zero_leaves_the_sample_out(name):
    kept = [0, 1, 3]
    value, gradient = call(LOSSES[name](), weight=[1.0, 2.0, 0.0, 0.5, 0.0])
    without, own = call(LOSSES[name](), kept, weight=[1.0, 2.0, 0.5])
    torch.testing.assert_close(value, without, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient[kept], own, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_the_unit_of_weights_does_not_matter(name):
    weight = np.array([1.0, 2.0, 0.0, 0.5, 3.0])
    for one, other in zip(call(LOSSES[name](), weight=weight), call(LOSSES[name](), weight=1e6 * weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-15)
    for one, other in zip(call(LOSSES[name]()), call(LOSSES[name](), weight=[7] * ROWS), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-15)


def test_sums_and_single_values_are_weighted():
    weight = torch.tensor([1.0, 2.0, 0.0, 0.5, 3.0], dtype=torch.float64)
    each, gradients = call(pear.PEARLoss(PROBLEM, smoothing=0.3, reduction="none"))
    for reduction, expected in ("none", weight * each), ("sum", (weight * each).sum()):
        value, gradient = call(pear.PEARLoss(PROBLEM, smoothing=0.3, reduction=reduction), weight=weight)
        torch.testing.assert_close(value, expected, rtol=1e-14, atol=0)
        torch.testing.assert_close(gradient, weight[:, None] * gradients, rtol=1e-14, atol=0)


def test_masked_samples_do_not_count_in_the_weighted_mean():
    true = TRUE.clone()
    true[1, 0] = torch.nan
    loss = pear.PEARLoss(PROBLEM, smoothing=0.3, on_failure="mask")
    with pytest.warns(pear.FailedSamplesWarning):
        value = loss(PREDICTED, true, weight=[1.0, 5.0, 1.0, 1.0, 2.0])
    kept = [0, 2, 3, 4]
    alone = loss(PREDICTED[kept], true[kept], weight=[1.0, 1.0, 1.0, 2.0])
    torch.testing.assert_close(value, alone, rtol=1e-14, atol=0)


def test_perturbed_losses_weigh_the_losses_of_their_draws():
    weight = torch.tensor([1.0, 2.0, 0.5, 0.5, 3.0], dtype=torch.float64)
    each = PFYLLoss(PROBLEM, samples=3, cost_unit=1.0).values(PREDICTED, TRUE, None)
    value = PFYLLoss(PROBLEM, samples=3, cost_unit=1.0)(PREDICTED, TRUE, weight=weight)
    torch.testing.assert_close(value, (weight * each).sum() / weight.sum(), rtol=1e-14, atol=0)


def test_the_step_of_dbb_is_the_derivative_of_the_weighted_mean():
    weight = torch.tensor([1.0, 2.0, 0.0, 0.5, 3.0], dtype=torch.float64)
    loss = DBBLoss(PROBLEM, interpolation=4.0, cost_unit=1.0)
    _, gradient = call(loss, weight=weight)
    chosen, best = pear.solve(PROBLEM, PREDICTED).x, pear.solve(PROBLEM, TRUE).x
    sign = ((TRUE * (chosen - best)).sum(1)).sign()
    slope = (sign * weight / weight.sum())[:, None] * TRUE
    expected = (pear.solve(PROBLEM, PREDICTED + 4.0 * slope).x - chosen) / 4.0
    torch.testing.assert_close(gradient, torch.where(weight[:, None] > 0, expected, 0.0), rtol=1e-12, atol=1e-12)


def test_rows_of_a_problem_with_fields_of_its_own_stay_with_their_samples():
    own = pear.Problem(A=torch.ones(1, 4), b=torch.arange(1.0, 6.0)[:, None] / 4, lb=0.0, ub=1.5)
    kept = [0, 1, 3]
    value = SPOPlusLoss(own, cost_unit=1.0)(PREDICTED, TRUE, weight=[1, 1, 0, 1, 0])
    alone = SPOPlusLoss(own[kept], cost_unit=1.0)(PREDICTED[kept], TRUE[kept])
    torch.testing.assert_close(value, alone, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 2.0], r"one number for each of the 5 samples; got shape \(2,\)"),
        ([1.0, -2.0, 1.0, 1.0, 1.0], "finite and not negative; that of sample 1 is -2"),
        ([1.0, 1.0, float("nan"), float("inf"), 1.0], "that of sample 2 is nan, and 1 others are wrong"),
        ([0.0] * 5, "all 5 numbers of weight are zero"),
        (["a"] * 5, "weight must hold real numbers"),
    ],
)
@pytest.mark.parametrize("name", LOSSES)
def test_wrong_weights_are_refused(name, weight, message):
    with pytest.raises(ProblemError, match=message):
        LOSSES[name]()(PREDICTED, TRUE, weight=weight)


def test_a_series_is_taken_and_a_loss_with_a_mean_alone_says_what_it_lacks():
    class MeanAlone(DecisionLoss):
        def value(self, predicted, true, ids):
            return predicted.mean()

    assert MeanAlone(PROBLEM)(PREDICTED, TRUE) == PREDICTED.mean()
    with pytest.raises(ProblemError, match=r"MeanAlone takes no weights.*write a method values"):
        MeanAlone(PROBLEM)(PREDICTED, TRUE, weight=[1.0] * 5)
    assert MSELoss()(PREDICTED, TRUE, weight=pd.Series([1.0] * 5)) == MSELoss()(PREDICTED, TRUE)
