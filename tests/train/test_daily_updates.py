"""``partial_fit`` after ``fit``: small steps, which are judged first and taken only if they decide better."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pear

pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")

from pear.train.estimator import daily_updates

SHORT: dict[str, Any] = {"max_epochs": 11, "check_every": 5, "patience": 3}
TASK = pear.tasks.shortest_path((3, 3))
X, C = (np.asarray(part, dtype=float) for part in TASK.samples(700, degree=4, noise=0.5, seed=3))
OLD, NEW, TEST = slice(0, 160), slice(160, 200), slice(200, 700)


def fitted(**settings: Any) -> Any:
    return pear.DecisionRegressor(TASK.problem, **{**SHORT, **settings}).fit(X[OLD], C[OLD])


def update_daily(model: Any, rows: slice, unit: float = 1.0) -> list[Any]:
    """Update the model day by day; return the forecasts that it made before each update."""
    forecasts = []
    for day in range(rows.start, rows.stop):
        forecasts.append(model.predict(X[day : day + 1]))
        model.partial_fit(X[day : day + 1], unit * C[day : day + 1])
    return forecasts


def lost(predicted: Any, rows: slice) -> Any:
    return pear.regret(TASK.problem, predicted, C[rows]).numpy()


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_days_like_those_before_do_no_harm(model: str) -> None:
    estimator = fitted(model=model)
    before = -estimator.score(X[TEST], C[TEST])
    update_daily(estimator, NEW)
    assert -estimator.score(X[TEST], C[TEST]) < 1.25 * before  # steps at the full rate: 1.46 and 2.73 times as much


def test_every_day_is_judged_before_it_is_learnt_from() -> None:
    estimator = fitted()
    of_fit = estimator.predict(X[NEW])
    forecasts = update_daily(estimator, NEW)
    updates = estimator.updates_
    np.testing.assert_allclose(updates.lost["fit"], lost(of_fit, NEW), atol=1e-9)
    assert updates.lost["slow"][0] == updates.lost["fast"][0] == updates.lost["fit"][0]
    weights = [updates.networks[name].weight for name in ("fit", "slow", "fast")]
    assert 0 < (weights[1] - weights[0]).norm() < (weights[2] - weights[0]).norm()
    slow = slice(160, 170)  # no other weights may decide before ten days are known
    np.testing.assert_allclose(updates.lost["slow"][:10], lost(np.concatenate(forecasts[:10]), slow), atol=1e-9)
    by_weights = updates.networks[updates.deciding](estimator.model_[0](torch.from_numpy(X))).detach().numpy()
    np.testing.assert_array_equal(estimator.predict(X), by_weights)


def test_the_first_steps_are_the_smallest() -> None:
    estimator = fitted()
    before = estimator.model_[1].weight.detach().clone()
    estimator.partial_fit(X[160:161], C[160:161])
    scale = np.abs(C[OLD] - C[OLD].mean(0)).mean()
    bound = 0.1 * estimator.learning_rate * scale / daily_updates.MEMORY
    moved = (estimator.model_[1].weight - before).abs().max().item()
    assert 0.9 * bound < moved <= 1.001 * bound
    full = fitted().partial_fit(X[160:300], C[160:300])
    assert len(full.updates_.memory.costs) == daily_updates.MEMORY
    np.testing.assert_array_equal(full.updates_.memory.costs, C[300 - daily_updates.MEMORY : 300])


@pytest.mark.parametrize(
    ("losses", "wins"),
    [
        ({"fit": 1.0, "slow": 1.0, "fast": 1.0}, "slow"),
        ({"fit": 1.0, "slow": 1.2, "fast": 1.3}, "fit"),
        ({"fit": 1.0, "slow": 0.9, "fast": 0.5}, "fast"),
    ],
)
def test_weights_that_lost_less_take_over(losses: dict[str, float], wins: str, caplog: Any) -> None:
    updates = fitted().partial_fit(X[NEW], C[NEW]).updates_
    noise = 0.1 * np.random.default_rng(0).normal(size=60)
    updates.deciding = "slow"
    updates.lost = {name: list(mean + noise + 0.01 * np.arange(60)) for name, mean in losses.items()}
    with caplog.at_level(logging.WARNING, "pear"):
        updates._choose()
    assert updates.deciding == wins
    assert ("the fit weights decide" in caplog.text) == (wins == "fit")
    assert f"the {wins} weights decide; lost a sample over the last 60: fit 1.3" in updates.note
    assert ("less than by the weights of fit" in updates.note) == (wins == "fast")


def test_a_difference_within_its_error_changes_nothing() -> None:
    updates = fitted().partial_fit(X[NEW], C[NEW]).updates_
    noise = np.random.default_rng(1).normal(size=60)
    updates.deciding, updates.lost = "slow", {"fit": [1.0] * 60, "slow": list(1.01 + noise), "fast": [2.0] * 60}
    updates._choose()
    assert updates.deciding == "slow"


def test_the_unit_of_the_costs_does_not_matter() -> None:
    unit = 1e4
    plain, scaled = fitted(), pear.DecisionRegressor(TASK.problem, **SHORT).fit(X[OLD], unit * C[OLD])
    update_daily(plain, slice(160, 170))
    update_daily(scaled, slice(160, 170), unit)
    np.testing.assert_allclose(scaled.predict(X) / unit, plain.predict(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("loss", ["mse", "spo+"])
def test_other_losses_are_updated_too(loss: str) -> None:
    estimator = fitted(loss=loss)
    before = estimator.predict(X)
    update_daily(estimator, slice(160, 163))
    assert not np.array_equal(estimator.predict(X), before)
    assert "there are no samples yet" not in estimator.updates_.note


def test_a_pickled_or_saved_model_goes_on_as_it_would_have(tmp_path: Path) -> None:
    estimator = fitted(model="mlp")
    update_daily(estimator, slice(160, 175))
    estimator.save(tmp_path / "a.pear")
    copies = pickle.loads(pickle.dumps(estimator)), pear.DecisionRegressor.load(tmp_path / "a.pear")
    update_daily(estimator, slice(175, 180))
    for copy in copies:
        update_daily(copy, slice(175, 180))
        np.testing.assert_array_equal(copy.predict(X), estimator.predict(X))
        assert copy.updates_.note == estimator.updates_.note
    assert estimator.fit(X[OLD], C[OLD]).n_iter_ > 0
    assert not hasattr(estimator, "updates_")
