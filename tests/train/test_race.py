"""The default training: a race between the squared error and trainings on the loss."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

import pear
from pear.losses import MSELoss
from pear.train import FitConfig, History, Progress, fit
from pear.train.blocked_folds import blocked_folds
from pear.train.racing.contender import contender_stages
from pear.train.racing.feature_units import FeatureUnits
from pear.train.racing.race_folds import count_race_folds
from pear.train.ridge import STRENGTHS, fit_ridge
from pear.train.samples.sample_source import read_sample_source

TASK = pear.tasks.shortest_path((3, 3))
FEATURES, COSTS = TASK.samples(660, degree=6, noise=0.25, seed=3)
X, C, TEST = FEATURES[:160], COSTS[:160], (FEATURES[160:], COSTS[160:])
CONFIG = FitConfig(max_epochs=8)


def linear(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(5, TASK.problem.n).double()


def network(last: nn.Module | None = None, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Linear(5, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, TASK.problem.n)]
    return nn.Sequential(*layers, *([] if last is None else [last])).double()


def regret(model: nn.Module, samples: Any = TEST) -> float:
    model.eval()
    with torch.no_grad():
        return pear.normalized_regret(TASK.problem, model(samples[0].double()), samples[1])


def trained(model: nn.Module, loss: Any = None, **options: Any) -> History:
    loss = pear.PEARLoss(TASK.problem) if loss is None else loss
    return fit(model, loss, (X.double(), C.double()), **{"config": CONFIG, **options})


# --- the start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(60, 7), (30, 80)], ids=["narrow", "wide"])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_is_that_of_scikit_learn_at_the_chosen_strength(shape: tuple[int, int], intercept: bool) -> None:
    models, preprocessing = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.preprocessing")
    random = np.random.default_rng(0)
    features = random.normal(size=shape) * random.uniform(0.01, 100, shape[1]) + 3.0 * intercept
    features[:, 2] = 7.0 * intercept  # a constant one
    targets = features @ random.normal(size=(shape[1], 3)) + random.normal(size=(shape[0], 3)) * [1.0, 50.0, 0.1]
    found = fit_ridge(torch.tensor(features), torch.tensor(targets), intercept)
    spread = features.std(0) if intercept else np.sqrt((features**2).mean(0))
    scaler = preprocessing.FunctionTransformer(lambda rows: rows / np.where(spread > 1e-9, spread, np.inf))
    rival = models.Ridge(alpha=found.strength, fit_intercept=intercept).fit(scaler.transform(features), targets)
    ours = features @ found.weight.numpy().T + found.bias.numpy()
    np.testing.assert_allclose(
        ours, rival.predict(scaler.transform(features)), rtol=1e-9, atol=1e-9 * abs(targets).max()
    )
    assert found.strength in STRENGTHS


def test_the_strength_of_a_ridge_grows_with_the_noise() -> None:
    torch.manual_seed(0)
    features, weights = torch.randn(100, 30, dtype=torch.float64), torch.randn(30, 2, dtype=torch.float64)
    noise = torch.randn(100, 2, dtype=torch.float64)
    clear, noisy, lost = (fit_ridge(features, features @ weights + s * noise).strength for s in (0.01, 5.0, 1000.0))
    assert clear < noisy < lost


def test_the_squared_error_alone_is_the_ridge() -> None:
    model = linear()
    history = trained(model, MSELoss(TASK.problem))
    found = fit_ridge(X, C)
    torch.testing.assert_close(model(X.double()), X.double() @ found.weight.T + found.bias)
    assert [row.contender for row in history.race] == ["start"]
    assert (
        history.start
        == f"the model was fitted to the squared error in closed form: ridge of strength {found.strength:.3g}"
    )


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_features_and_costs_do_not_matter(unit: float) -> None:
    plain, scaled = linear(), linear()
    trained(plain)
    shift = torch.tensor([0.0, 3.0, -1.0, 10.0, 0.5], dtype=torch.float64)
    features = X.double() * torch.tensor([1e-3, 1.0, 50.0, 7.0, 1e4], dtype=torch.float64) + shift
    fit(scaled, pear.PEARLoss(TASK.problem), (features, C.double() * unit), config=CONFIG)
    torch.testing.assert_close(scaled(features) / unit, plain(X.double()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("last", [None, nn.Softplus()], ids=["linear end", "Softplus"])
def test_units_of_features_do_not_matter_to_a_network_either(last: nn.Module | None) -> None:
    scale = torch.tensor([1e-3, 1.0, 50.0, 7.0, 1e4], dtype=torch.float64)
    shift = torch.tensor([0.0, 3.0, -1.0, 10.0, 0.5], dtype=torch.float64)
    forecasts = []
    for features in (X.double(), X.double() * scale + shift):
        model = network(last)
        fit(model, pear.PEARLoss(TASK.problem), (features, C.double()), config=CONFIG)
        forecasts.append(model(features).detach())
    torch.testing.assert_close(*forecasts, rtol=1e-4, atol=1e-4)


def test_a_network_that_has_learnt_forecasts_alike_in_standardised_features() -> None:
    features = X.double() * 50 + 7
    model, samples = network(), read_sample_source((features, C.double()), "train", linear(), number=True)
    units = FeatureUnits.of(model, samples)
    assert units is not None
    inside = copy.deepcopy(model)
    inside.load_state_dict(units.enter(model.state_dict()))
    torch.testing.assert_close(inside(units.standardise(samples).features), model(features))
    again = units.leave(inside.state_dict())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(again[name], value)


def test_features_of_size_one_and_frozen_layers_are_left_as_they_are() -> None:
    rows = (X.double() - X.double().mean(0)) / X.double().std(0, correction=0)
    samples = read_sample_source((rows, C.double()), "train", linear(), number=True)
    assert FeatureUnits.of(network(), samples) is None
    assert FeatureUnits.of(linear(), samples) is not None
    frozen, others = network(), read_sample_source((50 * rows, C.double()), "train", linear(), number=True)
    assert FeatureUnits.of(frozen, others) is not None
    frozen[0].requires_grad_(False)
    assert FeatureUnits.of(frozen, others) is None


@pytest.mark.parametrize("last", [nn.Softplus(), nn.Sigmoid()], ids=lambda one: type(one).__name__)
def test_untrained_weights_are_never_returned(last: nn.Module) -> None:
    """The last layer is no ``nn.Linear``, so that its weights do not show whether the model was trained."""
    model = network(last)
    first, history = regret(model), trained(model)
    assert "squared error" in history.start
    assert regret(model) < first
    again = {name: value.clone() for name, value in model.state_dict().items()}
    after = trained(model)
    assert after.start == ""
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items()) == (after.epochs == 0)


# --- the choice -----------------------------------------------------------------------------------------------------


def test_a_training_that_decides_better_wins() -> None:
    ridge, model = linear(), linear()
    trained(ridge, MSELoss(TASK.problem))
    history = trained(model, config=FitConfig(max_epochs=64))
    assert history.best is not None
    assert history.before is not None
    winner = min(history.race, key=lambda row: row.bound)
    assert winner.contender != "start"
    assert winner.bound < 0
    assert history.best.metric == winner.metric < history.before.best.metric
    assert f"won a race of {len(history.race)}" in history.choice
    assert regret(model) < regret(ridge)


def test_nothing_replaces_a_start_that_is_perfect() -> None:
    """The costs are linear in the features, so that the decisions of the ridge are optimal."""
    features, costs = TASK.samples(120, degree=1, noise=0.0, seed=3)
    model, ridge = linear(), linear()
    config = FitConfig(max_epochs=8)
    history = fit(model, pear.PEARLoss(TASK.problem), (features.double(), costs.double()), config=config)
    fit(ridge, MSELoss(TASK.problem), (features.double(), costs.double()), config=config)
    assert torch.equal(model.weight, ridge.weight)
    assert "the start won a race of" in history.choice
    assert history.epochs == 0


def test_a_model_that_is_worse_than_a_constant_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """Weights that are too large for a fresh model count as trained, and these give useless forecasts."""
    nonsense = linear()
    with torch.no_grad():
        nonsense.weight.mul_(100.0)
    with caplog.at_level(logging.INFO, logger="pear"):
        assert "Beware: a constant forecast" in trained(nonsense, MSELoss(TASK.problem)).choice
        assert "Beware" not in trained(linear(), MSELoss(TASK.problem)).choice
    said = [record.levelno for record in caplog.records if "held-out samples" in record.message]
    assert said == [logging.WARNING, logging.INFO]


def test_with_validation_samples_the_winner_is_taken_as_it_was_judged() -> None:
    model, validation = linear(), (TEST[0][:200].double(), TEST[1][:200].double())
    history = trained(model, validation=validation)
    assert history.best is not None
    assert history.best.metric == pytest.approx(regret(model, validation), rel=1e-9)


@pytest.mark.parametrize("validation", [None, 0.25])
def test_the_winner_is_trained_again_on_all_samples(validation: float | None) -> None:
    """The start wins, so that the result is the ridge regression on all rows."""
    model, parts = linear(), []
    history = trained(model, MSELoss(TASK.problem), validation=validation)
    found = fit_ridge(X, C)
    torch.testing.assert_close(model.weight, found.weight)
    trained(linear(), validation=validation, progress=lambda now: parts.append(now.part))
    assert set(parts) <= {"loss", "all"}
    assert f"on {160 if validation is None else 40} held-out samples" in history.choice


@pytest.mark.parametrize("make", [linear, network], ids=["linear", "network"])
def test_the_last_training_is_that_of_the_winner(make: Any) -> None:
    """Training with the winner's settings on all samples, with a new loss, gives the same weights."""
    model, plain = make(), make()
    history = trained(model, config=FitConfig(max_epochs=16))
    winner = min(history.race, key=lambda row: row.bound)
    assert winner.contender == "fresh model"
    total: list[Tensor] = []

    def note(now: Progress) -> None:
        if now.part == "all":
            total.append(now.loss)

    again = trained(plain, config=FitConfig(max_epochs=16), progress=note)
    assert len(total) == winner.epochs == again.epochs
    # guidance is at its full strength in the first epoch of the last training, and the loss is accordingly large
    assert total[0] > 2 * total[-1]


@pytest.mark.parametrize("validation", [None, (TEST[0][:50].double(), TEST[1][:50].double())], ids=["folds", "given"])
def test_a_metric_of_ones_own_judges_whole_folds(validation: Any) -> None:
    seen: list[int] = []

    def largest_error(predicted: Tensor, true: Tensor) -> float:
        seen.append(len(predicted))
        return float((predicted - true).abs().max())

    model = linear()
    history = trained(model, metric=largest_error, validation=validation)
    assert set(seen) == {32 if validation is None else 50}
    assert history.best is not None
    assert history.best.metric == min(history.race, key=lambda row: row.bound).metric
    if validation is not None:
        assert history.best.metric == pytest.approx(largest_error(model(validation[0]), validation[1]))


def test_a_gap_keeps_neighbours_out_of_the_training() -> None:
    for kept, held_out in blocked_folds(20, 4, gap=2):
        distance = (kept[:, None] - held_out[None, :]).abs().min()
        assert int(distance) == 3
    assert [len(held_out) for _, held_out in blocked_folds(3, 5)] == [1, 1, 1]
    assert list(blocked_folds(1, 5)) == []


def test_stages_double_and_end_at_the_largest_number() -> None:
    assert list(contender_stages(8)) == [8]
    assert list(contender_stages(3)) == [3]
    assert list(contender_stages(20)) == [8, 16, 20]


# --- interruptions --------------------------------------------------------------------------------------------------


def stop_after(count: int) -> Any:
    seen: list[Progress] = []

    def stop(now: Progress) -> bool:
        seen.append(now)
        return len(seen) >= count

    return stop


@pytest.mark.parametrize("count", [20, 90])
@pytest.mark.parametrize("make", [linear, lambda: network(dropout=0.2)], ids=["linear", "network with dropout"])
def test_a_race_that_was_stopped_goes_on_to_the_same_end(make: Any, count: int, tmp_path: Path) -> None:
    whole, broken = make(), make()
    torch.manual_seed(7)
    expected = trained(whole)
    torch.manual_seed(7)
    path = tmp_path / "run.pear"
    trained(broken, checkpoint=path, progress=stop_after(count))
    again = make()
    torch.manual_seed(7 if not path.exists() else 99)
    history = trained(again, checkpoint=path)
    assert history.race == expected.race
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_a_callback_ends_the_race_with_the_best_so_far() -> None:
    model = linear()
    history = trained(model, progress=stop_after(60))
    assert history.stopped == "callback"
    assert history.best is not None
    assert regret(model) < regret(linear())


def test_a_race_within_its_time() -> None:
    config = FitConfig(time_cap=2.0)
    trained(linear())  # compiles
    history = trained(linear(), config=config)
    assert history.seconds < 2.2
    assert history.best is not None


def test_networks_and_large_problems_with_integers_are_judged_in_few_folds() -> None:
    rows = sparse.csr_array(sparse.diags_array(np.ones(500)))
    large = pear.Problem(G=rows, h=np.ones(500), lb=0, ub=1, integer=True)
    small = pear.Problem(lb=0, ub=1, n=3, integer=True)
    assert [count_race_folds(1, one) for one in (None, small, large.relaxed(), large)] == [5, 5, 5, 3]
    assert count_race_folds(2, small) == 3
