"""How a run starts: a fresh model trains alike in every unit of cost; a trained model keeps its weights."""

from __future__ import annotations

import copy
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pear
from pear.train import FitConfig, fit
from pear.train.optimizer import make_optimizer
from pear.train.output_layer import SPREAD
from pear_lab.tasks import SharedLinear

TASK = pear.tasks.shortest_path((3, 3))
SCALES = (1e-6, 1.0, 1e6)
CONFIG = FitConfig(max_epochs=8, check_every=4, batch_size=16, start="standardised")


def pair(scale: float = 1.0, dtype: torch.dtype = torch.float64, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    features, costs = TASK.samples(96, degree=4, dtype=dtype)
    return features, scale * (costs + shift)


def fresh(kind: str = "linear", dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "linear":
            return nn.Linear(5, TASK.problem.n, dtype=dtype)
        return nn.Sequential(nn.Linear(5, 7, dtype=dtype), nn.ReLU(), nn.Linear(7, TASK.problem.n, dtype=dtype))


def last(model: nn.Module) -> nn.Linear:
    found = [part for part in model.modules() if isinstance(part, nn.Linear)]
    return found[-1]


def typical(rows: Tensor, centred: bool = True) -> float:
    """Return a robust standard deviation: 1.4826 times the median distance of all entries from their column's median.

    All medians are lower medians. If ``centred`` is False, the distances are those from zero.
    """
    middle = rows.sort(0).values[(len(rows) - 1) // 2] if centred else 0.0
    apart = (rows - middle).abs().flatten().sort().values
    return 1.4826 * float(apart[(len(apart) - 1) // 2])


def mean_error(predicted: Tensor, true: Tensor) -> float:
    return float(((predicted - true) ** 2).mean())


def learnt(kind: str, name: str, scale: float, config: FitConfig = CONFIG, **options: Any) -> Tensor:
    """Return the forecasts after training with ``config``, divided by ``scale``."""
    data, model = pair(scale, **options), fresh(kind)
    loss = nn.MSELoss() if name == "mse" else pear.PEARLoss(TASK.problem, smoothing=0.1 * scale, injection=0.1)
    fit(model, loss, data, data, mean_error, config)
    with torch.no_grad():
        forecast: Tensor = model(data[0]) / scale
    return forecast


@pytest.mark.parametrize("start", ["standardised", "mse"])
@pytest.mark.parametrize("name", ["mse", "pear"])
@pytest.mark.parametrize("kind", ["linear", "deep"])
def test_a_fresh_model_learns_alike_in_any_unit(kind: str, name: str, start: Any) -> None:
    small, one, large = (learnt(kind, name, scale, replace(CONFIG, start=start)) for scale in SCALES)
    near = {"rtol": 0.0, "atol": 1e-4 * float(one.std())}  # the constant in Adam's denominator is not quite nothing
    torch.testing.assert_close(small, one, **near)
    torch.testing.assert_close(large, one, **near)


def test_as_it_comes_it_does_not() -> None:
    """The test above can fail: with ``start="given"``, training does not reach costs of another size."""
    given = FitConfig(max_epochs=8, check_every=4, batch_size=16, start="given")
    one, large = (learnt("linear", "mse", scale, given) for scale in (1.0, 1e6))
    assert float((large - one).abs().max()) > float(one.std())


def test_costs_around_zero_are_learnt_alike_though_chance_explains_a_little_of_large_ones() -> None:
    costs = pair()[1]
    shift = -float(costs.mean())
    forecasts = [learnt("linear", "mse", scale, shift=shift) for scale in (1e-4, 1.0, 1e4)]
    for other in forecasts[::2]:
        torch.testing.assert_close(other, forecasts[1], rtol=0, atol=1e-4 * float(costs.std()))


@pytest.mark.parametrize("kind", ["linear", "deep"])
def test_the_last_layer_begins_at_the_mean_of_the_costs_on_their_scale(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    (features, costs), model = pair(1e3), fresh(kind)
    before = copy.deepcopy(model.state_dict())
    with caplog.at_level(logging.INFO, logger="pear"):
        optimizer = make_optimizer(model, features, costs, CONFIG, keep=False, typical=True)
    with torch.no_grad():
        outputs = model(features)
    deviation = typical(costs)
    torch.testing.assert_close(outputs.mean(0), costs.mean(0))
    assert typical(outputs) == pytest.approx(SPREAD * deviation)
    turned = nn.functional.cosine_similarity(
        last(model).weight.flatten(), [*before.values()][-2].flatten(), dim=0
    ).detach()
    assert float(turned) == pytest.approx(1.0)
    groups = optimizer.param_groups
    assert len(groups) == (1 if kind == "linear" else 2)
    assert groups[-1]["params"] == list(last(model).parameters())
    assert groups[-1]["lr"] == pytest.approx(CONFIG.learning_rate * deviation)
    if kind == "deep":
        assert groups[0]["lr"] == CONFIG.learning_rate
        assert torch.equal(model.state_dict()["0.weight"], before["0.weight"])
    assert [f"{deviation:.3g}" in record.message for record in caplog.records] == [True]


def test_a_model_that_all_items_share_gets_the_mean_of_all_items() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, 2, generator=generator, dtype=torch.float64)
    costs = 500 + 20 * torch.randn(30, 4, generator=generator, dtype=torch.float64)
    model = SharedLinear(2)
    optimizer = make_optimizer(model, features, costs, CONFIG, keep=False, typical=True)
    with torch.no_grad():
        assert float(model(features).mean()) == pytest.approx(float(costs.mean()))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(CONFIG.learning_rate * typical(costs.reshape(-1, 1)))


def trained() -> nn.Module:
    """Return a linear model that is fitted to the costs by least squares."""
    model, (features, costs) = fresh(), pair()
    solution = torch.linalg.lstsq(torch.cat([features, torch.ones(len(features), 1)], 1).double(), costs).solution
    with torch.no_grad():
        last(model).weight.copy_(solution[:-1].T)
        last(model).bias.copy_(solution[-1])
    return model


def trained_on_regret() -> nn.Module:
    """Return a model that forecasts worse than the mean, and whose weights are too large for a fresh layer."""
    model = trained()
    with torch.no_grad():
        last(model).weight.mul_(10)
        last(model).bias.mul_(10)
    return model


class Doubled(nn.Module):
    """A model that returns twice the output of its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = fresh()

    def forward(self, features: Tensor) -> Tensor:
        doubled: Tensor = 2 * self.inner(features)
        return doubled


@pytest.mark.parametrize("make", [trained, trained_on_regret, Doubled])
def test_what_is_not_fresh_or_ends_in_something_else_begins_as_it_comes(make: Any) -> None:
    model, (features, costs) = make(), pair()
    before = copy.deepcopy(model.state_dict())
    optimizer = make_optimizer(model, features, costs, CONFIG, keep=False, typical=True)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert optimizer.param_groups[0]["lr"] == CONFIG.learning_rate
    assert optimizer.param_groups[0]["eps"] == torch.optim.Adam(model.parameters()).defaults["eps"]


@pytest.mark.parametrize("how", ["given", "optimizer"])
def test_start_given_and_an_optimizer_of_ones_own_change_nothing_before_the_first_step(how: str) -> None:
    model, data, seen = fresh(), pair(1e3), []

    def loss(predicted: Tensor, true: Tensor) -> Tensor:
        seen.append(predicted.detach())
        return ((predicted - true) ** 2).mean()

    config = FitConfig(max_epochs=1, batch_size=96, start="given" if how == "given" else "standardised")
    options = {} if how == "given" else {"optimizer": torch.optim.Adam(model.parameters())}
    fit(model, loss, data, data, mean_error, config, order=lambda n, g: torch.arange(n), **options)
    torch.testing.assert_close(seen[0], fresh()(data[0]).detach(), rtol=1e-12, atol=1e-12)


def test_without_a_bias_the_weights_make_the_size() -> None:
    features, costs = pair(1e3)
    model = nn.Linear(5, TASK.problem.n, bias=False, dtype=torch.float64)
    make_optimizer(model, features, costs, CONFIG, keep=False, typical=True)
    with torch.no_grad():
        assert typical(model(features), centred=False) == pytest.approx(SPREAD * typical(costs, centred=False))


def test_constant_costs_and_constant_features_leave_finite_weights() -> None:
    features, costs = torch.ones(8, 5, dtype=torch.float64), torch.full((8, TASK.problem.n), 1e5, dtype=torch.float64)
    model = fresh()
    optimizer = make_optimizer(model, features, costs, CONFIG, keep=False, typical=True)
    with torch.no_grad():
        torch.testing.assert_close(model(features), costs)
    assert optimizer.param_groups[0]["lr"] == CONFIG.learning_rate


@pytest.mark.parametrize("kind", ["linear", "deep"])
def test_a_run_resumes_with_the_rates_it_had_whatever_model_comes(kind: str, tmp_path: Path) -> None:
    data = pair(1e4, torch.float32)

    def run(epochs: int, model: nn.Module, checkpoint: Path | None) -> Tensor:
        config = FitConfig(max_epochs=epochs, check_every=2, batch_size=16, patience=50)
        fit(model, nn.MSELoss(), data, data, mean_error, config, checkpoint=checkpoint)
        return last(model).weight.detach().clone()

    whole, model = run(9, fresh(kind, torch.float32), None), fresh(kind, torch.float32)
    run(5, model, tmp_path / "run.pt")
    other = copy.deepcopy(model)
    (tmp_path / "copy.pt").write_bytes((tmp_path / "run.pt").read_bytes())
    assert torch.equal(run(9, other, tmp_path / "copy.pt"), whole)
    assert torch.equal(run(9, fresh(kind, torch.float32, seed=1), tmp_path / "run.pt"), whole)


FIRST = replace(CONFIG, start="mse", max_epochs=30, patience=2)


def loss_of(problem: pear.Problem = TASK.problem) -> pear.PEARLoss:
    return pear.PEARLoss(problem, smoothing=0.1)


class Worse(nn.Module):
    """A loss whose gradient leads away from the costs."""

    problem = TASK.problem

    def forward(self, predicted: Tensor, true: Tensor) -> Tensor:
        return -nn.functional.mse_loss(predicted, true)


def scored(model: nn.Module, metric: Any = TASK.normalized_regret) -> float:
    features, costs = pair()
    with torch.no_grad():
        value: float = metric(model(features), costs)
    return value


def test_the_squared_error_comes_first_and_decisions_go_on_from_there() -> None:
    model, alone, data, longer = fresh(), fresh(), pair(), replace(FIRST, max_epochs=80, patience=20)
    history = fit(model, loss_of(), data, data, TASK.normalized_regret, longer)
    first = fit(alone, nn.MSELoss(), data, data, TASK.normalized_regret, longer)
    assert history.before is not None
    assert [c.metric for c in history.before.checks] == [c.metric for c in first.checks]
    assert history.best is not None
    assert first.best is not None
    assert history.best.metric < first.best.metric
    assert history.best.metric == scored(model)
    assert history.seconds > history.before.seconds
    assert first.before is None  # a squared error needs no other


def test_weights_of_the_squared_error_stay_where_nothing_better_follows() -> None:
    model, alone, data = fresh(), fresh(), pair()
    history = fit(model, Worse(), data, data, TASK.normalized_regret, FIRST)
    fit(alone, nn.MSELoss(), data, data, TASK.normalized_regret, FIRST)
    assert history.best is not None
    assert history.best.epoch == 0
    assert all(torch.equal(value, alone.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("make", [trained, trained_on_regret])
def test_what_has_learnt_already_is_not_trained_on_the_squared_error_and_never_ends_worse(make: Any) -> None:
    model, data = make(), pair()
    before, error = copy.deepcopy(model.state_dict()), scored(model, mean_error)
    history = fit(model, Worse(), data, data, mean_error, FIRST)
    assert history.before is not None
    assert history.before.checks == []
    assert history.best is not None
    assert (history.best.epoch, history.best.metric) == (0, error)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_where_nobody_can_tell_whether_it_has_learnt_the_given_weights_count() -> None:
    model, data = Doubled(), pair()
    with torch.no_grad():
        for mine, known in zip(model.parameters(), trained().parameters(), strict=True):
            mine.copy_(known / 2)
    given = scored(model, mean_error)
    hasty = replace(FIRST, learning_rate=10.0, max_epochs=2)
    history = fit(model, Worse(), data, data, mean_error, hasty)
    assert history.before is not None
    assert len(history.before.checks) == 2
    assert history.best is not None
    assert history.best.metric == given == scored(model, mean_error)


@pytest.mark.parametrize(("gain", "best"), [(0.05, 0), (0.2, 3)])
def test_few_samples_have_to_be_clear_before_the_first_weights_are_given_up(gain: float, best: int) -> None:
    """With 96 validation samples, the first improvement on the given weights has to be at least a tenth.

    After it any improvement counts.
    """
    model, data, config = trained(), pair(), replace(FIRST, max_epochs=3, check_every=1, patience=9)
    scores = iter([1.0, 1.0, 1.0 - gain, 1.0 - gain - 0.01])
    history = fit(model, Worse(), data, data, lambda *_: next(scores), config)
    assert history.best is not None
    assert history.best.epoch == best


@pytest.mark.parametrize("at", [3, 33])
def test_a_break_in_either_part_changes_nothing(at: int, tmp_path: Path) -> None:
    whole, broken, data = fresh(), fresh(), pair()
    config = replace(FIRST, check_every=1, patience=100)
    fit(whole, loss_of(), data, data, TASK.normalized_regret, config)
    seen: list[Any] = []

    def stop(progress: Any) -> None:
        seen.append(progress)
        if len(seen) == at:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "run.pt"
    stopped = fit(broken, loss_of(), data, data, TASK.normalized_regret, config, checkpoint=checkpoint, progress=stop)
    assert stopped.interrupted
    resumed = fresh()
    history = fit(resumed, loss_of(), data, data, TASK.normalized_regret, config, checkpoint=checkpoint)
    assert history.before is not None
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=1e-9, atol=1e-12)


def test_time_that_is_up_in_the_first_part_ends_the_run() -> None:
    model, data = fresh(), pair()
    history = fit(model, loss_of(), data, data, TASK.normalized_regret, replace(FIRST, time_cap=1e-9))
    assert history.stopped == "time_cap"
    assert history.best is not None
    assert history.best.metric == scored(model)


def test_rows_that_the_loss_masks_are_left_out_of_the_squared_error() -> None:
    model, (features, costs) = fresh(), pair()
    costs = costs.clone()
    costs[3, 1] = torch.nan
    loss = pear.PEARLoss(TASK.problem, smoothing=0.1, on_failure="mask")
    with pytest.warns(pear.FailedSamplesWarning):
        history = fit(model, loss, (features, costs), pair(), TASK.normalized_regret, FIRST)
    assert history.before is not None
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())


def test_a_few_large_costs_do_not_change_the_start_of_a_loss_of_decisions() -> None:
    (features, costs), usual = pair(), fresh()
    odd, other = costs.clone(), fresh()
    odd[:2] *= 1e3
    rates = [
        make_optimizer(m, features, c, CONFIG, keep=False, typical=True).param_groups[-1]["lr"]
        for m, c in ((usual, costs), (other, odd))
    ]
    assert rates[1] == pytest.approx(rates[0], rel=0.1)
    squared = make_optimizer(fresh(), features, odd, CONFIG, keep=False).param_groups[-1]["lr"]
    deviation = float((odd - odd.mean(0)).square().mean().sqrt())
    assert squared == pytest.approx(CONFIG.learning_rate * deviation)  # a squared error has to reach them


def test_the_history_says_what_was_done_to_the_weights() -> None:
    features, costs = torch.randn(40, 3), 5.0 + torch.randn(40, 4)
    problem = pear.Problem(A=torch.ones(1, 4), b=[1.0], lb=0.0)

    def start_of(loss: Any, model: nn.Module | None = None, **options: Any) -> str:
        config = FitConfig(max_epochs=1, **options)
        return fit(nn.Linear(3, 4) if model is None else model, loss, (features, costs), config=config).start

    standardised = "the last layer began at the mean of the training costs with a tenth of their deviation"
    first = f"{standardised}; the model was trained on the squared error first"
    assert start_of(pear.PEARLoss(problem), start="mse") == first
    assert start_of(pear.PEARLoss(problem)).startswith(
        "the model was fitted to the squared error in closed form: ridge"
    )
    assert start_of(pear.PEARLoss(problem), start="standardised") == standardised
    assert start_of(nn.MSELoss()) == standardised
    assert start_of(pear.PEARLoss(problem), start="given") == ""
    trained = nn.Linear(3, 4)
    fit(trained, nn.MSELoss(), (features, costs), config=FitConfig(max_epochs=40))
    assert start_of(pear.PEARLoss(problem), trained) == ""


@pytest.mark.parametrize("start", ["given", "mse", "race"])
def test_a_metric_that_fails_leaves_the_mode_of_the_model(start: str) -> None:
    """With a start on the squared error, the trained model is validated before the first step."""
    data, model, modes = pair(), fresh("mlp"), []
    with torch.no_grad():
        last(model).bias.fill_(3.0)  # it does not begin as a fresh model does

    def failing(predicted: Tensor, true: Tensor) -> float:
        modes.append(model.training)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(model, pear.PEARLoss(TASK.problem), data, data, failing, replace(CONFIG, start=start))
    assert len(modes) == 1
    assert model.training
