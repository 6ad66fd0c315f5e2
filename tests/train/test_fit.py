"""The training loop: its calls, its stopping rules, and its results."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pear
from pear.tasks import ShortestPath, Split, shortest_path
from pear.train import EarlyStopping, FitConfig, History, Progress, TrainingError, fit, in_order

Data = tuple[Tensor, Tensor]


def data(count: int = 20, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, generator=generator), torch.randn(count, 2, generator=generator)


def linear(features: int, n: int, seed: int = 0) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(features, n)


def scripted(values: list[float]) -> Callable[[Tensor, Tensor], float]:
    """Return a metric that returns these values, one for each check."""
    waiting: Iterator[float] = iter(values)
    return lambda predicted, true: next(waiting)


# --- the loop on real tasks -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> tuple[ShortestPath, Split]:
    task = shortest_path((3, 3))
    return task, task.split(task.samples(240, degree=6, noise=0.25, seed=0))


def test_training_with_pear_lowers_the_regret(small: tuple[ShortestPath, Split]) -> None:
    task, (train, validation, test) = small
    model = linear(5, task.problem.n)

    def regret() -> float:
        with torch.no_grad():
            return task.normalized_regret(model(test.features), test.costs)

    before = regret()
    loss = pear.PEARLoss(task.problem, smoothing=0.1, injection=0.1, guidance=0.0)
    history = fit(model, loss, train, validation, task.normalized_regret, FitConfig(batch_size=16, max_epochs=20))
    assert regret() < 0.5 * before
    assert history.best is not None
    assert history.best.metric == min(check.metric for check in history.checks)
    assert loss.reused > 0  # the keys reach the loss: it has warm starts


def test_a_seed_fixes_the_run_and_touches_no_global_state(small: tuple[ShortestPath, Split]) -> None:
    task, (train, validation, _) = small

    def run(seed: int | torch.Generator) -> tuple[History, Tensor]:
        model = linear(5, task.problem.n)
        history = fit(
            model, nn.MSELoss(), train, validation, task.normalized_regret, FitConfig(max_epochs=5, seed=seed)
        )
        return history, model.weight.detach()

    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index,union-attr]
    first, weights = run(1)
    again, same = run(torch.Generator().manual_seed(1))
    assert torch.equal(weights, same)
    assert [check.metric for check in first.checks] == [check.metric for check in again.checks]
    assert [check.loss for check in first.checks] == [check.loss for check in again.checks]
    assert not torch.equal(weights, run(2)[1])
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_state, np.random.get_state()[1])  # type: ignore[index]


def test_what_is_not_said_is_the_papers_but_for_patience() -> None:
    """The defaults are the paper's, except the patience. The tests of the experiments check the protocol itself."""
    config = FitConfig()
    assert (config.learning_rate, config.batch_size, config.max_epochs) == (1e-2, 32, 10_000)
    assert (config.check_every, config.min_improvement, config.patience) == (10, 0.01, 10)


# --- when it checks and stops ---------------------------------------------------------------------------------------


def test_checks_after_the_first_epoch_then_every_few_and_at_the_end() -> None:
    seen: list[Progress] = []
    values = [5.0, 4.0, 3.0, 2.0]
    history = fit(
        linear(3, 2),
        nn.MSELoss(),
        data(),
        data(seed=1),
        scripted(values),
        FitConfig(max_epochs=9, check_every=3),
        progress=seen.append,
    )
    assert [check.epoch for check in history.checks] == [1, 4, 7, 9]
    assert [check.metric for check in history.checks] == values
    assert (history.stopped, history.epochs, history.interrupted) == ("max_epochs", 9, False)
    assert [now.epoch for now in seen] == list(range(1, 10))
    assert [now.metric for now in seen] == [5.0, 5.0, 5.0, 4.0, 4.0, 4.0, 3.0, 3.0, 2.0]
    assert seen[-1].best == 2.0
    seconds = [check.seconds for check in history.checks]
    assert seconds == sorted(seconds)
    assert 0 <= history.check_seconds <= history.seconds
    assert json.loads(json.dumps(history.as_dict()))["best"]["metric"] == 2.0


def test_patience_counts_checks_that_hardly_improve() -> None:
    # 99.5 and 99.2 are within 1 % of 100; 98.9 is not; then three in a row are not good enough.
    values = [100.0, 99.5, 99.2, 98.9, 98.5, 99.9, 98.2, 0.0]
    history = fit(
        linear(3, 2),
        nn.MSELoss(),
        data(),
        data(),
        scripted(values),
        FitConfig(check_every=1, patience=3, min_improvement=0.01),
    )
    assert history.stopped == "patience"
    assert history.epochs == 7
    assert history.best is not None
    assert (history.best.epoch, history.best.metric) == (7, 98.2)


@pytest.mark.parametrize(
    ("values", "stops_at"),
    [
        ([1.0, 1.0, 1.0, 1.0], 3),
        ([1.0, 0.985, 0.98, 0.979, 0.978], 4),
        ([1.0, 0.995, 0.985, 0.99, 0.99, 0.99], 5),
        ([-1.0, -1.005, -1.02, -1.02, -1.02, -1.02], 5),
        ([0.0, 0.0, 0.0, 0.0], 3),
        ([1.0, 0.9, 0.8, 0.7], None),
    ],
)
def test_the_reference_moves_only_with_a_real_improvement(values: list[float], stops_at: int | None) -> None:
    stopping = EarlyStopping(patience=3, min_improvement=0.01)
    stops = [stopping.update(value) for value in values]
    assert (stops.index(True) if True in stops else None) == stops_at


def test_time_cap_stops_within_an_epoch_and_still_checks() -> None:
    calls = 0

    def slow(predicted: Tensor, true: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            time.sleep(0.3)
        return ((predicted - true) ** 2).mean()

    history = fit(linear(3, 2), slow, data(), data(), scripted([1.0]), FitConfig(batch_size=4, time_cap=0.25))
    assert history.stopped == "time_cap"
    assert (calls, history.epochs, len(history.checks)) == (3, 0, 1)


# --- what it leaves behind ------------------------------------------------------------------------------------------


def test_the_best_weights_are_kept() -> None:
    weights: list[Tensor] = []
    values = iter([3.0, 1.0, 2.0, 1.0])
    model = linear(3, 2)

    def metric(predicted: Tensor, true: Tensor) -> float:
        weights.append(model.weight.detach().clone())
        assert not model.training
        return next(values)

    fit(model, nn.MSELoss(), data(), data(seed=1), metric, FitConfig(check_every=1, max_epochs=4))
    assert torch.equal(model.weight, weights[1])  # the earliest of equals
    assert not torch.equal(weights[1], weights[3])
    assert model.training


@pytest.mark.parametrize("where", ["loss", "metric", "progress"])
def test_interruption_keeps_the_best_weights(where: str) -> None:
    model, best = linear(3, 2), {}
    calls = dict.fromkeys(("loss", "metric", "progress"), 0)

    def count(what: str) -> None:
        calls[what] += 1
        if what == where and calls[what] == 3:
            raise KeyboardInterrupt

    def loss(predicted: Tensor, true: Tensor) -> Tensor:
        count("loss")
        return ((predicted - true) ** 2).mean()

    def metric(predicted: Tensor, true: Tensor) -> float:
        count("metric")
        if calls["metric"] == 1:
            best.update(copy.deepcopy(model.state_dict()))
        return float(calls["metric"])  # worse at every check: the first weights are the best

    history = fit(
        model,
        loss,
        data(),
        data(),
        metric,
        FitConfig(batch_size=20, check_every=1),
        progress=lambda now: count("progress"),
    )
    assert history.interrupted
    assert history.stopped == "interrupted"
    assert torch.equal(model.weight, best["weight"])
    assert history.seconds > 0


def test_interruption_before_any_check_leaves_the_weights_as_they_are() -> None:
    def loss(predicted: Tensor, true: Tensor) -> Tensor:
        raise KeyboardInterrupt

    model = linear(3, 2)
    history = fit(model, loss, data(), data(), scripted([]))
    assert history.interrupted
    assert history.best is None
    assert torch.equal(model.weight, linear(3, 2).weight)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_and_names_the_epoch(bad: float) -> None:
    model, calls = linear(3, 2), 0

    def loss(predicted: Tensor, true: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return ((predicted - true) ** 2).mean() * (bad if calls > 2 else 1.0)

    with pytest.raises(TrainingError, match=rf"the loss is {bad} in epoch 3; lower the learning rate") as caught:
        fit(model, loss, data(), data(), scripted([1.0, 0.5]), FitConfig(batch_size=20, check_every=1))
    assert isinstance(caught.value, pear.PearError)
    assert bool(model.weight.isfinite().all())


def test_a_loss_that_is_no_number_in_the_first_epoch_leaves_the_weights() -> None:
    model = linear(3, 2)

    def loss(predicted: Tensor, true: Tensor) -> Tensor:
        return (predicted - true).mean() * math.nan

    with pytest.raises(TrainingError, match=r"nan in epoch 1; .* The model has the weights that it came with$"):
        fit(model, loss, data(), data(), scripted([]), FitConfig(batch_size=20))
    assert torch.equal(model.weight, linear(3, 2).weight)


def spoiled(rows: list[int]) -> tuple[Tensor, Tensor]:
    features, costs = data()
    features = features.clone()
    features[rows, 1] = math.nan
    return features, costs


@pytest.mark.parametrize("deep", [False, True])
def test_a_feature_that_is_nan_is_left_out_or_refused(deep: bool) -> None:
    """The sample is masked, but its zero gradient times NaN would still be NaN in the model, compiled or not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) if deep else linear(3, 2)
    box = pear.Problem(lb=0.0, ub=1.0, n=2)
    config = FitConfig(batch_size=5, max_epochs=3, start="standardised")
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(pear.ProblemError, match=r"2 of 20 rows of the training features .*: rows 3, 7\. .*on_failure"):
        fit(
            model,
            pear.PEARLoss(box, 0.1, guidance=0.0, injection=0.1),
            spoiled([3, 7]),
            data(),
            scripted([1.0, 0.5]),
            config,
        )
    loss = pear.PEARLoss(box, 0.1, on_failure="mask", guidance=0.0, injection=0.1)
    with pytest.warns(pear.FailedSamplesWarning, match="rows 3, 7. They are left out") as caught:
        fit(model, loss, spoiled([3, 7]), data(), scripted([1.0, 0.5]), config)
    assert len(caught) == 1
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert not all(torch.equal(p, q) for p, q in zip(before, model.parameters(), strict=True))
    assert loss.samples == 3 * 18
    with pytest.raises(pear.ProblemError, match="No sample is left"):
        fit(model, loss, spoiled(list(range(20))), data(), scripted([]), config)


def test_a_model_that_takes_nan_gets_it() -> None:
    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.nan_to_num())

    loss = pear.PEARLoss(pear.Problem(lb=0.0, ub=1.0, n=2), 0.1, guidance=0.0, injection=0.1)
    fit(Filled(), loss, spoiled([3]), data(), scripted([1.0]), FitConfig(max_epochs=1, start="given"))
    fit(Filled(), loss, spoiled([3]), data(), scripted([1.0, 0.5, 0.2]), FitConfig(max_epochs=1, start="mse"))
    assert loss.samples == 40


def test_a_metric_that_is_no_number_stops_and_names_the_epoch() -> None:
    with pytest.raises(TrainingError, match="the validation metric is nan in epoch 2"):
        fit(linear(3, 2), nn.MSELoss(), data(), data(), scripted([1.0, math.nan]), FitConfig(check_every=1))


# --- what it calls --------------------------------------------------------------------------------------------------


def test_keys_are_the_row_numbers_of_the_batch() -> None:
    features, costs = data(10)
    seen: list[list[int]] = []

    def loss(predicted: Tensor, true: Tensor, keys: Tensor) -> Tensor:
        assert torch.equal(true, costs[keys])
        seen.append(keys.tolist())
        return ((predicted - true) ** 2).mean()

    fit(linear(3, 2), loss, (features, costs), data(), scripted([1.0, 1.0]), FitConfig(batch_size=4, max_epochs=2))
    assert [len(keys) for keys in seen] == [4, 4, 2] * 2
    first, second = list(chain(*seen[:3])), list(chain(*seen[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second != list(range(10))
    seen.clear()
    fit(
        linear(3, 2),
        loss,
        (features, costs),
        data(),
        scripted([1.0]),
        FitConfig(batch_size=4, max_epochs=1),
        order=in_order,
    )
    assert list(chain(*seen)) == list(range(10))


def test_the_training_loss_is_the_mean_over_samples() -> None:
    features, costs = data(10)

    def loss(predicted: Tensor, true: Tensor, keys: Tensor) -> Tensor:
        return predicted.sum() * 0 + keys.double().mean()

    history = fit(linear(3, 2), loss, (features, costs), data(), scripted([1.0]), FitConfig(batch_size=4, max_epochs=1))
    assert history.checks[0].loss == pytest.approx(4.5)


def test_a_given_optimizer_is_used() -> None:
    model = linear(3, 2)
    before = model.weight.detach().clone()
    fit(
        model,
        nn.MSELoss(),
        data(),
        data(),
        scripted([1.0]),
        FitConfig(max_epochs=1),
        optimizer=torch.optim.SGD([model.bias], lr=0.1),
    )
    assert torch.equal(model.weight, before)
    assert not torch.equal(model.bias, linear(3, 2).bias)


def test_arrays_are_converted_to_the_type_of_the_model() -> None:
    features, costs = (part.double().numpy() for part in data())
    history = fit(
        linear(3, 2), nn.MSELoss(), (features, costs), (features, costs), scripted([1.0]), FitConfig(max_epochs=1)
    )
    assert history.epochs == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clip_norm": 0.0}, "clip_norm must be a positive number"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"max_epochs": 0}, "max_epochs must be a whole number of at least 1"),
        ({"check_every": 0}, "check_every must be a whole number of at least 1"),
        ({"max_epochs": 2.5}, "max_epochs must be a whole number of at least 1"),
        ({"batch_size": "8"}, "batch_size must be a whole number of at least 1"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number of at least 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number of at least 0"),
        ({"time_cap": "60"}, "time_cap must be a positive number"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"min_improvement": 1.0}, "min_improvement must be a share"),
        ({"time_cap": 0.0}, "time_cap must be a positive number"),
        ({"start": "warm"}, "start must be one of 'race', 'mse', 'standardised', 'given'"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(pear.ProblemError, match=rf"{message}.*; got {next(iter(wrong.values()))!r}"):
        FitConfig(**wrong)  # type: ignore[arg-type]


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        FitConfig().batch_size = 0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"train": (torch.ones(2, 3), torch.ones(3, 2))}, "train must be .* got 2 rows of features and 3 of costs"),
        ({"validation": (torch.ones(0, 3), torch.ones(0, 2))}, "validation must be"),
        ({"model": nn.Identity()}, "no parameter to train"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "model": linear(3, 2),
        "loss": nn.MSELoss(),
        "train": data(),
        "validation": data(),
        "metric": scripted([1.0]),
    }
    with pytest.raises(pear.ProblemError, match=message):
        fit(**(arguments | wrong))  # type: ignore[arg-type]


def test_a_run_goes_on_from_its_checkpoint_as_if_nothing_had_happened(tmp_path: Path) -> None:
    task = pear.tasks.shortest_path((3, 3))
    train, validation, _ = task.split(task.samples(120, degree=4))

    def run(max_epochs: int, checkpoint: Path | None) -> tuple[torch.nn.Linear, History]:
        torch.manual_seed(0)
        model = torch.nn.Linear(5, task.problem.n)
        loss = pear.PEARLoss(task.problem, guidance=0.0, smoothing=0.1, injection=0.1)
        config = FitConfig(max_epochs=max_epochs, check_every=2, patience=50, start="standardised")
        return model, fit(model, loss, train, validation, task.normalized_regret, config, checkpoint=checkpoint)

    whole, straight = run(9, None)
    run(5, tmp_path / "run.pt")
    resumed, history = run(9, tmp_path / "run.pt")
    assert [c.metric for c in history.checks if c.epoch % 2] == [c.metric for c in straight.checks]
    assert torch.equal(resumed.weight, whole.weight)
    assert set(history.split) == {"solve", "gradient", "validation", "rest"}
    assert min(history.split.values()) >= 0
    assert history.split["solve"] > 0


class Scaled(nn.Module):
    """A loss that calibrates its scale on the training set."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.0
        self.calibrated: list[Tensor] = []

    def calibrate(self, true_costs: Tensor) -> None:
        self.calibrated.append(true_costs)
        self.scale = float(true_costs.abs().mean())

    def forward(self, predicted: Tensor, true: Tensor) -> Tensor:
        return ((predicted - true) ** 2).mean() / self.scale

    def get_extra_state(self) -> float:
        return self.scale

    def set_extra_state(self, state: float) -> None:
        self.scale = state


def test_a_loss_is_calibrated_on_all_training_costs_once_and_resumes_as_it_was(tmp_path: Path) -> None:
    train, other = data(20), data(20, seed=1)
    config = FitConfig(max_epochs=2, batch_size=4)
    first, resumed = Scaled(), Scaled()
    fit(linear(3, 2), first, train, other, scripted([1.0, 0.5]), config, checkpoint=tmp_path / "run.pt")
    assert len(first.calibrated) == 1
    assert torch.equal(first.calibrated[0], train[1])
    longer = replace(config, max_epochs=3)
    fit(linear(3, 2), resumed, train, other, scripted([0.4]), longer, checkpoint=tmp_path / "run.pt")
    assert resumed.calibrated == []
    assert resumed.scale == first.scale


@pytest.mark.parametrize("depth", ["linear", "deep"])  # in compiled code, and batch by batch
def test_automatic_smoothing_is_the_same_after_a_break(depth: str, tmp_path: Path) -> None:
    task = shortest_path((3, 3))
    train, validation, _ = task.split(task.samples(120, degree=4))

    def run(max_epochs: int, checkpoint: Path | None) -> tuple[Tensor, object]:
        model = linear(5, task.problem.n)
        loss = pear.PEARLoss(task.problem, smoothing="auto", guidance=0.0, injection=0.1)
        config = FitConfig(max_epochs=max_epochs, check_every=2, patience=50, start="standardised")
        whole = nn.Sequential(model) if depth == "deep" else model
        fit(whole, loss, train, validation, task.normalized_regret, config, checkpoint=checkpoint)
        return model.weight.detach(), loss.state_dict()["_extra_state"]

    undisturbed, chosen = run(9, None)
    run(5, tmp_path / "run.pt")
    resumed, restored = run(9, tmp_path / "run.pt")
    assert restored == chosen
    assert torch.equal(resumed, undisturbed)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    task = pear.tasks.shortest_path((2, 2))
    pair = task.samples(8)
    model = torch.nn.Linear(5, 4)
    fit(
        model,
        torch.nn.MSELoss(),
        pair,
        pair,
        task.normalized_regret,
        FitConfig(max_epochs=1),
        checkpoint=tmp_path / "run.pt",
    )
    other = torch.nn.Sequential(torch.nn.Linear(5, 4))
    with pytest.raises(TrainingError, match="does not belong to this model"):
        fit(other, torch.nn.MSELoss(), pair, pair, task.normalized_regret, checkpoint=tmp_path / "run.pt")


@pytest.mark.parametrize("solver", ["osqp", "daqp", "piqp", "clarabel"])
def test_the_solver_does_not_change_what_is_learnt(solver: str) -> None:
    """Solvers propose different candidates, but the verified solutions and therefore the weights are equal."""
    pytest.importorskip(solver)
    task = pear.tasks.shortest_path((3, 3))
    train, validation, _ = task.split(task.samples(120, degree=6))
    weights = []
    for name in ("interior-point", solver):
        torch.manual_seed(0)
        model = torch.nn.Linear(5, task.problem.n)
        loss = pear.PEARLoss(task.problem, solver=name, guidance=0.0, smoothing=0.1, injection=0.1)
        fit(model, loss, train, validation, task.normalized_regret, FitConfig(max_epochs=6))
        weights.append(model.weight.detach())
    torch.testing.assert_close(*weights, rtol=0, atol=1e-6)
