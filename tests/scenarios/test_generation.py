"""Scenarios from past errors, and their reduction by k-means."""

import numpy as np
import pytest
import torch
from scenario_models import factory, factory_values

import pear
from pear.errors import ProblemError
from pear.scenarios import ResidualScenarios, quantile_scenarios, reduce, residual_scenarios


def test_residual_scenarios_are_whole_days_drawn_once():
    random = np.random.default_rng(0)
    forecasts, errors = random.normal(size=(3, 4)), random.normal(size=(9, 4))
    found = residual_scenarios(forecasts, errors, 9, seed=4).numpy() - forecasts[:, None]
    for sample in found:
        np.testing.assert_allclose(np.sort(sample, 0), np.sort(errors, 0), atol=1e-12)
        np.testing.assert_allclose(sample, found[0], atol=1e-12)
        assert all(np.isclose(errors, row, atol=1e-12).all(1).any() for row in sample)  # whole rows
    assert not torch.equal(residual_scenarios(forecasts, errors, 5), residual_scenarios(forecasts, errors, 5, seed=1))
    assert residual_scenarios(forecasts, errors, 20).shape == (3, 20, 4)


def test_even_scenarios_are_whole_days_from_low_to_high():
    random = np.random.default_rng(5)
    errors = (random.normal(size=(100, 1)) + 0.1 * random.normal(size=(100, 3))) * [1.0, 100.0, 0.01]
    found = residual_scenarios(np.zeros((1, 3)), errors, 10, draw="even")[0].numpy()
    assert all((errors == row).all(1).any() for row in found)
    levels = (errors / errors.std(0)).mean(1)
    expected = np.sort(levels)[np.arange(5, 100, 10)]
    np.testing.assert_allclose((found / errors.std(0)).mean(1), expected)


def test_quantile_scenarios_have_the_quantiles_of_the_errors():
    errors = np.random.default_rng(1).normal(size=(50, 2))
    found = quantile_scenarios([[1.0, 2.0]], errors, 4)[0].numpy()
    for i, level in enumerate((0.125, 0.375, 0.625, 0.875)):
        np.testing.assert_allclose(found[i], np.array([1.0, 2.0]) + np.quantile(errors, level, axis=0))


def test_a_generator_begins_as_the_residual_scenarios_and_trains_all_its_parts():
    torch.manual_seed(0)
    errors = torch.from_numpy(np.random.default_rng(2).normal(size=(5, 6)))
    net = ResidualScenarios(torch.nn.Linear(3, 6), errors, features=3)
    x = torch.randn(4, 3)
    expected = net.forecaster(x).double()[:, None] + errors
    torch.testing.assert_close(net(x).double().reshape(4, 5, 6), expected, rtol=1e-5, atol=1e-5)
    plan = pear.Stochastic(factory(), ["on"], 5)
    pear.ScenarioLoss(plan, smoothing=5.0)(net(x), factory_values(40, 4)).backward()
    assert all(bool(parameter.grad.any()) for parameter in net.parameters())


def test_reduced_scenarios_keep_the_mean_and_the_clusters():
    random = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 1.0]])  # units differ by a hundred
    which = random.integers(3, size=200)
    values = centres[which] + random.normal(size=(200, 2)) * [1.0, 0.01]
    weights = random.uniform(0.5, 1.5, 200)
    scenarios, shares = reduce(values, 3, weights)
    p = weights / weights.sum()
    np.testing.assert_allclose((shares[:, None] * scenarios).sum(0), p @ values, atol=1e-9)
    order = [int(np.abs((scenarios.numpy() - centre) / [100.0, 1.0]).sum(1).argmin()) for centre in centres]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(shares[order], [p[which == i].sum() for i in range(3)])


def test_one_scenario_of_each_cluster_is_kept_with_the_weight_of_all():
    random = np.random.default_rng(4)
    which = np.repeat([0, 1, 2], [50, 30, 20])
    values = 100.0 * which[:, None] + random.normal(size=(100, 2))
    drawn = torch.stack([reduce(values, 3, keep="one", seed=seed)[0].sort(0).values for seed in range(40)])
    scenarios, shares = reduce(values, 3, keep="one")
    assert all(any(np.array_equal(row, one) for one in values) for row in scenarios.numpy())
    assert sorted(shares.tolist()) == pytest.approx([0.2, 0.3, 0.5])
    torch.testing.assert_close(drawn.std(0).mean(), torch.tensor(1.0).double(), rtol=0.25, atol=0)  # not the mean


def test_reducing_to_all_scenarios_changes_no_decision():
    values = factory_values(41, 2, 4)
    plan = pear.Stochastic(factory(), ["on"], 6)
    reduced, weights = reduce(values, 6)
    assert reduced.shape == (2, 6, 6)
    found = plan.solve(reduced, weights=weights)
    torch.testing.assert_close(found.value, pear.Stochastic(factory(), ["on"], 4).solve(values).value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: residual_scenarios([[1.0]], [[1.0, 2.0]], 3), "with the same k"),
        (lambda: residual_scenarios([[1.0]], [[float("nan")]], 3), "must be finite"),
        (lambda: residual_scenarios([[1.0]], [[1.0]], 3, draw="all"), "'random' or 'even'"),
        (lambda: quantile_scenarios([[1.0]], [[1.0]], 0), "whole number"),
        (lambda: reduce([1.0], 2), "must have shape"),
        (lambda: reduce([[1.0]], 2, [-1.0]), "not negative"),
        (lambda: reduce([[1.0]], 2, keep="two"), "'mean' or 'one'"),
        (lambda: ResidualScenarios(torch.nn.Linear(1, 1), [1.0], 1), r"shape \(S, k\)"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ProblemError, match=message):
        call()
