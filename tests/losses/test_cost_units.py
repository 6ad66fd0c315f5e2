"""Costs in another unit lead to the same decisions: losses and metrics do not depend on the unit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pear
from pear.losses import METHODS, LAVALoss, PFYLLoss, SPOPlusLoss, make_loss
from pear.losses.decision_loss import DecisionLoss

GRID = pear.tasks.shortest_path((3, 3)).problem
ITEMS = pear.Problem(G=[[3.0, 4.0, 2.0, 5.0]], h=[7.0], lb=0.0, ub=1.0, sense="max", integer=True)
UNITS = [1e-6, 1e-3, 1.0, 1e3, 1e6]
IN_UNITS = [row.name for row in METHODS if row.published_unit]  # those with settings that measure costs


def costs(n: int, count: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predicted, true = 1 + 2 * torch.rand(2, count, n, generator=generator, dtype=torch.float64)
    return predicted, true


def value_and_gradient(loss: nn.Module, predicted: Tensor, true: Tensor) -> tuple[float, Tensor]:
    predicted = predicted.clone().requires_grad_()
    value = loss(predicted, true)
    return float(value.detach()), torch.autograd.grad(value, predicted)[0]


def test_the_methods_with_settings_that_measure_costs() -> None:
    assert {row.name for row in METHODS} - set(IN_UNITS) == {"mse", "pear", "pear-guided"}


@pytest.mark.parametrize("name", [*IN_UNITS, "pear-guided"])
@pytest.mark.parametrize("problem", [GRID, ITEMS], ids=["paths", "items"])
@pytest.mark.parametrize("s", UNITS)
def test_the_loss_grows_with_the_unit_and_its_gradient_is_the_same(name: str, problem: pear.Problem, s: float) -> None:
    predicted, true = costs(problem.n)
    value, grad = value_and_gradient(make_loss(name, problem), predicted, true)
    other, same = value_and_gradient(make_loss(name, problem), s * predicted, s * true)
    assert bool(grad.any())
    assert other == pytest.approx(s * value, rel=1e-9)
    torch.testing.assert_close(same, grad, rtol=1e-9, atol=1e-9 * float(grad.abs().max()))


@pytest.mark.parametrize("name", IN_UNITS)
def test_settings_alone_change_with_the_unit(name: str) -> None:
    """The test above can fail: with absolute settings, the gradient changes with the unit of the costs."""
    predicted, true = costs(GRID.n)
    _, grad = value_and_gradient(make_loss(name, GRID, cost_unit=1.0), predicted, true)
    found = [value_and_gradient(make_loss(name, GRID, cost_unit=1.0), s * predicted, s * true)[1] for s in UNITS]
    assert max(float((one - grad).abs().max()) for one in found) > 0.01 * float(grad.abs().max())


@pytest.mark.parametrize("name", IN_UNITS)
@pytest.mark.parametrize("s", [1e-6, 1e6])
def test_predicted_values_with_a_cost_map(name: str, s: float) -> None:
    """The costs have known parts and five predicted values; the unit is that of the resulting costs."""
    M, (predicted, true) = np.eye(GRID.n)[:, :5], costs(5)
    known = np.linspace(1.0, 2.0, GRID.n)
    maps = [pear.Model(GRID, cost_map=pear.CostMap(M, known=scale * known)) for scale in (1.0, s)]
    value, grad = value_and_gradient(make_loss(name, maps[0]), predicted, true)
    other, same = value_and_gradient(make_loss(name, maps[1]), s * predicted, s * true)
    assert other == pytest.approx(s * value, rel=1e-9)
    torch.testing.assert_close(same, grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [*IN_UNITS, "pear-guided"])
@pytest.mark.parametrize("s", [2.0**-20, 2.0**20])
def test_a_training_ends_with_the_same_forecasts_in_the_other_unit(name: str, s: float) -> None:
    """Scaling by a power of two rounds nothing, so that the weights agree to the bit up to this factor."""
    features = torch.rand(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _, true = costs(GRID.n, count=40)
    weights = []
    for scale in (1.0, s):
        model = nn.Linear(3, GRID.n).double()
        with torch.no_grad():
            model.weight.copy_(scale * torch.linspace(-1.0, 1.0, 36, dtype=torch.float64).view(12, 3))
            model.bias.fill_(scale)
        optimizer = torch.optim.SGD(model.parameters(), 0.05 * scale)
        config = pear.FitConfig(max_epochs=3, batch_size=8)
        pear.fit(model, make_loss(name, GRID), (features, scale * true), config=config, optimizer=optimizer)
        weights.append(model.weight.detach() / scale)
    first = torch.linspace(-1.0, 1.0, 36, dtype=torch.float64).view(12, 3)
    assert not torch.equal(weights[0], first)
    if name == "pear-guided":  # whose smoothing is chosen by a search
        torch.testing.assert_close(weights[1], weights[0], rtol=1e-9, atol=1e-9)
    else:
        assert torch.equal(weights[1], weights[0])


def test_absolute_settings_are_those_of_the_paper() -> None:
    """With absolute settings, the losses equal formulas with the published numbers, for costs near 500."""
    predicted, true = (500 * part for part in costs(GRID.n))
    error = 0.01 * 0.5 * ((predicted - true) ** 2).sum(1).mean()
    for name in ("spo+", "dbb"):
        whole, bare = (make_loss(name, GRID, **more, cost_unit=1.0) for more in ({}, {"mse_weight": 0.0}))
        assert whole(predicted, true).item() == pytest.approx((bare(predicted, true) + error).item(), rel=1e-12)
    noise = torch.from_numpy(np.random.RandomState(135).normal(0, 1, (1, *true.shape)))[0]
    best, moved = pear.solve(GRID, true).x, pear.solve(GRID, predicted + noise)
    expected = ((predicted * best).sum(1) - moved.value).mean() + error
    assert make_loss("pfyl", GRID, cost_unit=1.0)(predicted, true).item() == pytest.approx(expected.item(), rel=1e-12)
    relative = make_loss("pfyl", GRID, cost_unit=500.0)(predicted, true)
    assert relative.item() != pytest.approx(expected.item(), rel=1e-3)


def test_the_unit_of_lava_is_that_of_its_threshold() -> None:
    """Two neighbours are dearer by 0.05 and by 0.15 units; only the first exceeds the threshold of −0.1."""
    corner, neighbours = torch.tensor([[1.0, 0.0, 0.0]]).double(), torch.eye(3, dtype=torch.float64)[1:]
    simplex = pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    for unit in (1.0, 40.0):
        loss = LAVALoss(simplex, lambda cost: corner.expand(len(cost), -1), lambda z: [neighbours], cost_unit=unit)
        predicted = unit * torch.tensor([[1.0, 1.05, 1.15]], dtype=torch.float64)
        assert float(loss(predicted, predicted)) == pytest.approx(-0.05 * unit / 2)


# --- how the unit is chosen -----------------------------------------------------------------------------------------


def test_the_unit_is_the_typical_deviation_of_the_training_costs() -> None:
    _, true = costs(GRID.n, count=30)
    by_hand = float(np.mean(np.abs(true.numpy() - np.sort(true.numpy(), 0)[14])))  # the lower median
    model, loss = nn.Linear(2, GRID.n).double(), SPOPlusLoss(GRID, mse_weight=0.01)
    assert loss.chosen_unit is None
    assert "cost_unit='auto'" in str(loss)
    config = pear.FitConfig(max_epochs=1, start="given")
    pear.fit(model, loss, (torch.rand(30, 2).double(), true), (torch.rand(30, 2).double(), true), config=config)
    assert loss.chosen_unit == pytest.approx(by_hand, rel=1e-12)
    assert f"cost_unit='auto' ({by_hand:g})" in str(loss)
    assert loss.calibrate(1000 * true) == loss.chosen_unit  # it stays
    fresh = SPOPlusLoss(GRID, mse_weight=0.01)
    fresh.load_state_dict(loss.state_dict())
    assert fresh.chosen_unit == loss.chosen_unit
    absolute = SPOPlusLoss(GRID, cost_unit=2.0)
    absolute.load_state_dict(loss.state_dict())
    assert absolute.chosen_unit == absolute.calibrate(true) == 2.0
    loss.problem = GRID
    assert loss.chosen_unit is None


def test_costs_that_do_not_vary_are_measured_by_their_size() -> None:
    assert DecisionLoss.typical_deviation(torch.tensor([[-2.0, 4.0]])) == 3.0
    assert DecisionLoss.typical_deviation(torch.zeros(3, 2)) == 1.0
    assert DecisionLoss.typical_deviation(torch.empty(0, 2)) == 1.0
    assert DecisionLoss.typical_deviation(torch.tensor([[1.0, 1.0], [3.0, 5.0], [math.nan, 1e9]])) == pytest.approx(1.5)


@pytest.mark.parametrize("unit", [0.0, -1.0, math.inf, math.nan, True, "cents"])
def test_a_unit_that_is_none(unit: Any) -> None:
    with pytest.raises(pear.ProblemError, match=r"cost_unit must be a finite number above 0; got "):
        PFYLLoss(GRID, cost_unit=unit)


def test_a_resumed_run_keeps_the_unit(tmp_path: Path) -> None:
    _, true = costs(GRID.n, count=30)
    features = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ended: dict[bool, Tensor] = {}
    for broken in (False, True):
        for epochs in (2, 4) if broken else (4,):
            torch.manual_seed(0)
            model, loss = nn.Linear(2, GRID.n).double(), make_loss("pfyl", GRID)
            config = pear.FitConfig(max_epochs=epochs, check_every=1, start="given")
            path = tmp_path / "run" if broken else None
            pear.fit(model, loss, (features, true), (features, true), config=config, checkpoint=path)
        assert isinstance(loss, DecisionLoss)
        assert loss.chosen_unit == DecisionLoss.typical_deviation(true)
        ended[broken] = model.weight.detach()
    assert torch.equal(ended[False], ended[True])


# --- metrics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [1e-12, 1e-8, 1.0, 1e8, 1e12])
def test_normalised_regret_has_no_unit(s: float) -> None:
    choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    predicted, true = s * torch.tensor([[2.0, 1.0]]).double(), s * torch.tensor([[1.0, 3.0]]).double()
    assert pear.normalized_regret(choose_one, predicted, true) == pytest.approx(2.0, rel=1e-12)
    task = pear.tasks.shortest_path((3, 3))
    guess, came = costs(task.problem.n)
    expected = float(task.regret(guess, came).sum() / pear.solve(task.problem, came).value.sum())
    assert task.normalized_regret(s * guess, s * came) == pytest.approx(expected, rel=1e-9)
    found = pear.diagnose(task.problem, s * guess, s * came, groups=["a"] * 6 + ["b"] * 6)
    assert found.normalized_regret == pytest.approx(expected, rel=1e-9)
    shares = pear.diagnose(task.problem, guess, came, groups=["a"] * 6 + ["b"] * 6).by_group()["normalized_regret"]
    np.testing.assert_allclose(found.by_group()["normalized_regret"], shares, rtol=1e-9)


def test_normalised_regret_of_no_samples_is_refused() -> None:
    """No rows raise an error: a regret of 0 would look like a perfect forecast."""
    problem, none = pear.Problem(lb=0.0, ub=1.0, n=2), torch.zeros(0, 2)
    with pytest.raises(pear.ProblemError, match=r"predicted and true have no rows.*pass at least one row"):
        pear.normalized_regret(problem, none, none)
    assert pear.regret(problem, none, none).shape == (0,)


def test_normalised_regret_where_the_best_is_worth_nothing() -> None:
    choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    true = torch.tensor([[0.0, 3.0]])
    assert pear.normalized_regret(choose_one, torch.tensor([[0.0, 1.0]]), true) == 0.0
    assert pear.normalized_regret(choose_one, torch.tensor([[1.0, 0.0]]), true) == math.inf


def test_fit_validates_by_the_mean_regret_where_the_best_is_worth_nothing() -> None:
    choose_one = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    features = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64)[:, None]
    true = torch.cat([features.clamp(min=0), (-features).clamp(min=0)], 1)  # one of the two is always free
    model = nn.Linear(1, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0], [1.0]]))  # the wrong one, always
    config = pear.FitConfig(learning_rate=0.3, max_epochs=10, check_every=1, start="given")
    history = pear.fit(model, pear.PEARLoss(choose_one), (features, true), (features, true), config=config)
    assert pear.regret(choose_one, model(features), true).mean() == history.best.metric  # type: ignore[union-attr]
    assert history.checks[0].metric > history.best.metric  # type: ignore[union-attr]
