"""The predicted size of errors, and scenarios that follow it."""

import numpy as np
import pytest
import torch

from pear.errors import ProblemError, SolveError
from pear.scenarios import ErrorSpread, predict_spread, quantile_scenarios, residual_scenarios

DAYS, VALUES = 400, 3


def days(seed: int, count: int = DAYS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features (N, 3, 2), errors (N, 3), and the mean absolute errors (N, 3) that they are drawn with."""
    random = np.random.default_rng(seed)
    features = random.uniform(0.0, 5.0, (count, VALUES, 2))
    size = np.exp(3.0 + 0.4 * features[..., 0])
    return features, size * random.normal(size=(count, VALUES)) * np.sqrt(np.pi / 2), size


def test_the_size_of_errors_is_recovered_from_pooled_and_from_own_features():
    features, errors, size = days(0)
    pooled = predict_spread(features, errors, features[:50], penalty=1e-6)
    assert pooled.past.shape == (DAYS, VALUES)
    assert pooled.now.shape == (50, VALUES)
    np.testing.assert_allclose(pooled.past.numpy() / size, 1.0, atol=0.25)
    torch.testing.assert_close(pooled.now, pooled.past[:50])
    own = predict_spread(features[:, 0], errors, features[:50, 0], penalty=1e-6)
    np.testing.assert_allclose(own.past[:, 0].numpy() / size[:, 0], 1.0, atol=0.4)
    np.testing.assert_allclose(own.past[:, 1:].mean(0), np.abs(errors[:, 1:]).mean(0), rtol=1e-6)
    assert own.past[:, 1].std() < 0.2 * own.past[:, 0].std()  # the features of the first value say nothing on others


@pytest.mark.parametrize("pooled", [True, False])
def test_the_regression_is_the_minimum_of_its_objective(pooled):
    features, errors, _ = days(1, 60)
    features = features if pooled else features[:, 0]
    penalty = 0.05
    found = predict_spread(features, errors, features, penalty)
    values = features.reshape(-1, 2)
    design = np.column_stack([np.ones(len(values)), (values - values.mean(0)) / values.std(0)])
    sizes = np.abs(errors).reshape(-1, 1) if pooled else np.abs(errors)
    linear = np.log(found.past.numpy().reshape(sizes.shape) / sizes.mean(0))
    weights = np.linalg.lstsq(design, linear, rcond=None)[0]
    np.testing.assert_allclose(design @ weights, linear, atol=1e-8)  # log-linear
    gradient = design.T @ (np.exp(linear) - sizes / sizes.mean(0)) / len(values)
    np.testing.assert_allclose(gradient[1:], -penalty * weights[1:], atol=1e-8)
    np.testing.assert_allclose(gradient[0], 0.0, atol=1e-8)


def test_a_large_penalty_makes_sizes_equal_and_unusual_days_stay_in_the_range():
    features, errors, _ = days(2)
    flat = predict_spread(features, errors, features, penalty=1e9)
    np.testing.assert_allclose(flat.past, np.abs(errors).mean(), rtol=1e-6)
    far = predict_spread(features, errors, np.full((1, VALUES, 2), [100.0, 0.0]))
    np.testing.assert_allclose(far.now, far.past.max(), rtol=1e-12)
    same = residual_scenarios(np.zeros((2, VALUES)), errors, 7, spread=ErrorSpread(flat.past, flat.now[:2]))
    torch.testing.assert_close(same, residual_scenarios(np.zeros((2, VALUES)), errors, 7), rtol=1e-6, atol=1e-4)


def test_values_without_errors_and_features_without_spread_are_allowed():
    features, errors, _ = days(3)
    errors[:, 1], features[..., 1] = 0.0, 7.0
    spread = predict_spread(features[:, 0], errors, features[:4, 0])
    assert bool((spread.past[:, 1] == 1.0).all())
    assert bool((spread.now[:, 1] == 1.0).all())
    found = quantile_scenarios(np.ones((4, VALUES)), errors, 5, spread=spread)
    assert bool((found[..., 1] == 1.0).all())
    assert bool(found.isfinite().all())
    assert bool((predict_spread(features, 0 * errors, features).past == 1.0).all())


@pytest.mark.parametrize("draw", ["random", "even"])
def test_scenarios_are_errors_in_units_of_their_size(draw):
    _, errors, size = days(4, 30)
    now = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    centre = np.array([[5.0, 6.0, 7.0], [8.0, 9.0, 10.0]])
    found = residual_scenarios(centre, errors, 12, draw, spread=(size, now)).numpy()
    units = residual_scenarios(np.zeros((1, VALUES)), errors / size, 12, draw).numpy()
    np.testing.assert_allclose(found, centre[:, None] + now[:, None] * units)
    levels = quantile_scenarios(centre, errors, 12, spread=(size, now)).numpy()
    expected = np.quantile(errors / size, (np.arange(12) + 0.5) / 12, axis=0)
    np.testing.assert_allclose(levels, centre[:, None] + now[:, None] * expected)


ONES = np.ones((2, 1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: predict_spread(ONES, np.ones((3, 1)), ONES), ProblemError, r"got \(2, 1\), \(3, 1\) and \(2, 1\)"),
        (lambda: predict_spread(np.ones((2, 2, 1)), ONES, np.ones((2, 2, 1))), ProblemError, "must have shape"),
        (lambda: predict_spread(ONES, ONES * np.nan, ONES), ProblemError, "residuals must be finite"),
        (lambda: predict_spread(ONES, ONES, ONES * np.inf), ProblemError, "features must be finite"),
        (lambda: predict_spread(ONES, ONES, ONES, penalty=0.0), ProblemError, "penalty must be"),
        (lambda: quantile_scenarios(ONES, ONES, 2, spread=ONES), ProblemError, "spread must be a pair"),
        (lambda: quantile_scenarios(ONES, ONES, 2, spread=(ONES, ONES[:1])), ProblemError, "must hold the sizes"),
        (lambda: quantile_scenarios(ONES, ONES, 2, spread=(ONES, 0 * ONES)), ProblemError, "finite and positive"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_regression_that_does_not_converge_says_so(monkeypatch):
    monkeypatch.setattr("pear.scenarios.error_spread._STEPS", 1)
    features, errors, _ = days(5, 20)
    with pytest.raises(SolveError, match="did not converge"):
        predict_spread(features, errors, features)
