"""Score function gradients: formulas, closed forms, users' own losses, predicted right-hand sides."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from listed_tasks import Listed, costs, gradient, items, paths
from torch import Tensor, nn

import pear
from pear.losses import SFGELoss, make_loss

PRICE, MISSING = 1.0, 4.0  # of a unit bought ahead, and of one that is missing


def shop(scale: float = 1.0) -> pear.Model:
    """Return a model that buys z for a predicted demand d; every missing unit d − z costs ``MISSING``.

    Demands are in units of ``scale``.
    """
    return pear.Model(
        pear.Problem(G=[[-1.0]], h=[0.0], lb=0.0),
        known=torch.tensor([PRICE / scale]).double(),
        constraint_map=pear.ConstraintMap(h=[[-1.0]]),
        recourse=pear.Penalty(h=MISSING / scale),
    )


def paid(z: Tensor, demand: Tensor) -> Tensor:
    return (PRICE * z + MISSING * (demand - z).clamp(min=0)).sum(1)


# --- costs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [paths(), items()], ids=["paths", "items"])
def test_sfge_follows_its_formula(task: Listed) -> None:
    predicted, true = costs(task)
    s, p, step, m = task.problem.sign, predicted.detach(), 0.5 * 0.7, 4
    loss = SFGELoss(task.problem, task.decide, samples=m, sigma=0.5, seed=3, cost_unit=0.7)
    random, best = np.random.RandomState(3), task.decide(true)
    for _ in range(2):  # the stream goes on from step to step
        value, grad = gradient(loss, predicted, true)
        noise = s * torch.from_numpy(random.normal(0, 1, (m, *p.shape)))
        lost = torch.stack([s * (true * (task.decide(p + step * part) - best)).sum(1) for part in noise])
        expected = torch.zeros_like(p)
        for k in range(m):
            others = sum(lost[i] for i in range(m) if i != k) / (m - 1)
            expected += (lost[k] - others)[:, None] * noise[k] / (step * m * len(p))
        torch.testing.assert_close(value, lost.mean())
        torch.testing.assert_close(grad, expected)
        assert bool(grad.any())


def test_a_curved_objective_has_the_regret_of_pear() -> None:
    problem = pear.Problem(Q=torch.diag(torch.tensor([2.0, 1.0, 4.0])).double(), A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0)
    predicted, true = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = SFGELoss(problem, samples=3, sigma=0.5, seed=3, cost_unit=1.0)
    noise = torch.from_numpy(np.random.RandomState(3).normal(0, 1, (3, 5, 3)))
    expected = torch.stack([pear.regret(problem, predicted + 0.5 * part, true) for part in noise]).mean()
    assert float(expected) > 0
    torch.testing.assert_close(loss(predicted, true), expected)


def test_any_loss_of_a_decision_gets_a_gradient() -> None:
    """The loss is the squared distance of a vertex of a box from a point; its expectation has a closed form."""
    box = pear.Problem(lb=-1.0, ub=1.0, n=2)
    wanted = torch.tensor([[0.5, 0.5]], dtype=torch.float64)

    def distance(z: Tensor, true: Tensor) -> Tensor:
        return ((z - wanted) ** 2).sum(1)

    count, sigma, p = 400, 0.8, [0.4, -0.3]
    loss = SFGELoss(box, task_loss=distance, samples=50, sigma=sigma, cost_unit=1.0)
    predicted = torch.tensor([p]).double().repeat(count, 1).requires_grad_()
    value, grad = gradient(loss, predicted, torch.zeros_like(predicted))
    # An entry is −1 where its cost is positive, with chance Φ(p/σ), at a loss of 1.5² instead of 0.5².
    chance = [0.5 * (1 + math.erf(x / sigma / math.sqrt(2))) for x in p]
    assert float(value) == pytest.approx(sum(0.25 + 2 * one for one in chance), abs=0.02)
    slope = torch.tensor([2 * math.exp(-0.5 * (x / sigma) ** 2) / math.sqrt(2 * math.pi) / sigma for x in p])
    each = grad * count
    error = each.std(0) / math.sqrt(count)
    assert bool((error < 0.1 * slope).all())
    assert bool(((each.mean(0) - slope).abs() < 4 * error).all())


# --- predicted right-hand sides -------------------------------------------------------------------------------------


def test_the_gradient_of_a_newsvendor_is_the_one_of_textbooks() -> None:
    """With normal noise, the gradient is d/dŷ E[z + 4 (d − z)⁺] = 1 − 4 Φ((d − ŷ) / s)."""
    count, s, forecast, demand = 300, 0.5, 6.0, 6.2
    level = (demand - forecast) / s
    chance, density = 0.5 * (1 + math.erf(level / math.sqrt(2))), math.exp(-0.5 * level**2) / math.sqrt(2 * math.pi)
    loss = SFGELoss(shop(), samples=20, sigma=s, cost_unit=1.0)
    predicted = torch.full((count, 1), forecast, dtype=torch.float64, requires_grad=True)
    value, grad = gradient(loss, predicted, torch.full_like(predicted, demand).detach())
    expected = PRICE * (forecast - demand) + MISSING * s * (level * chance + density)
    assert float(value) == pytest.approx(expected, abs=0.05)
    each = grad * count
    error = float(each.std()) / math.sqrt(count)
    assert error < 0.1
    assert abs(float(each.mean()) - (PRICE - MISSING * chance)) < 4 * error


@pytest.mark.parametrize("decides", [True, False])
def test_a_function_of_the_user_is_as_good_as_a_recourse(decides: bool) -> None:
    demand = 5 + torch.rand(6, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    predicted = (demand + 0.3).requires_grad_()
    own: dict[str, Any] = {"decide": lambda values: values} if decides else {}
    own |= {"task_loss": lambda z, true: paid(z, true) - PRICE * true[:, 0]}
    first = gradient(SFGELoss(shop(), sigma=0.5), predicted, demand)
    torch.testing.assert_close(gradient(SFGELoss(shop(), sigma=0.5, **own), predicted, demand), first)
    assert bool(first[1].any())


def test_each_predicted_value_has_its_own_unit() -> None:
    """If a right-hand side is counted in hundreds, only the gradient by it changes, by this factor."""
    plant = pear.Problem(A=[[1.0, 1.0]], b=[10.0], lb=0.0, ub=[8.0, 6.0])
    model = pear.Model.predicting(plant, cost=True, b=True, recourse=pear.Penalty(b=(50.0, 5.0)))
    generator = torch.Generator().manual_seed(0)
    predicted, true = (torch.rand(2, 7, 3, generator=generator).double() + torch.tensor([3.0, 4.0, 9.0])).unbind()
    larger = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64)  # b in hundreds
    scaled = pear.Model.predicting(
        pear.Problem(A=[[0.01, 0.01]], b=[0.1], lb=0.0, ub=[8.0, 6.0]),
        cost=True, b=True, recourse=pear.Penalty(b=(5000.0, 500.0)),
    )  # fmt: skip
    value, grad = gradient(SFGELoss(model), predicted.clone().requires_grad_(), true)
    other, same = gradient(SFGELoss(scaled), (predicted * larger).requires_grad_(), true * larger)
    assert bool(grad.any(0).all())
    torch.testing.assert_close(other, value, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(same * larger, grad, rtol=1e-6, atol=1e-9)


def test_fit_draws_an_order_to_the_quantile() -> None:
    """A missing unit costs 3 more than a unit in time, and a surplus unit 1: the best order is the 75 % quantile."""
    generator = torch.Generator().manual_seed(0)
    features = torch.ones(100, 1)
    demand = 4 + 4 * torch.rand(100, 1, generator=generator)
    net = nn.Linear(1, 1)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.fill_(float(demand.mean()))
    loss = make_loss("sfge", shop(), sigma=0.3, samples=6)
    config = pear.FitConfig(max_epochs=15, batch_size=50, start="given", learning_rate=0.05, check_every=5)
    before = pear.normalized_regret(shop(), net(features), demand)
    pear.fit(net, loss, (features, demand), (features, demand), config=config)
    assert pear.normalized_regret(shop(), net(features), demand) < 0.85 * before
    order = float(net(features[:1]).detach())
    assert float(demand.quantile(0.65)) < order < float(demand.quantile(0.85))


def test_units_of_values_are_resumed() -> None:
    demand = 5 + torch.rand(6, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss, other = SFGELoss(shop()), SFGELoss(shop())
    loss.calibrate(40 * demand)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other(demand + 0.2, demand).item() == loss(demand + 0.2, demand).item()
    assert loss(demand + 0.2, demand).item() != SFGELoss(shop())(demand + 0.2, demand).item()


def test_known_rows_of_samples_go_by_key() -> None:
    """Known prices differ between samples, and the keys select them."""
    model = pear.Model(
        pear.Problem(G=[[-1.0]], h=[0.0], lb=0.0),
        known=torch.tensor([[1.0], [2.0], [3.0]]).double(),
        constraint_map=pear.ConstraintMap(h=[[-1.0]]),
        recourse=pear.Penalty(h=MISSING),
    )
    true = torch.tensor([[5.0], [6.0]], dtype=torch.float64)
    for make in (SFGELoss, lambda model, **options: make_loss("sfge", model, **options)):
        loss = make(model, samples=4, sigma=0.3, cost_unit=1.0)
        noise = torch.from_numpy(np.random.RandomState(135).normal(0, 1, (4, 2, 1)))
        orders = true + 0.2 + 0.3 * noise
        prices = torch.tensor([[3.0], [2.0]], dtype=torch.float64)
        expected = (prices * (orders - true) + MISSING * (true - orders).clamp(min=0)).mean()
        torch.testing.assert_close(loss(true + 0.2, true, keys=[2, 1]), expected)


# --- wrong input ----------------------------------------------------------------------------------------------------


def test_wrong_settings_are_named() -> None:
    grid = pear.tasks.shortest_path((3, 3)).problem
    for options, message in (
        ({"sigma": 0.0}, "sigma must be a finite number above 0; got 0.0"),
        ({"samples": 0}, "samples must be a whole number of at least 1; got 0"),
        ({"task_loss": 3.0}, "task_loss must be a function of decisions and true values; got 3.0"),
    ):
        with pytest.raises(pear.ProblemError, match=message):
            SFGELoss(grid, **options)
    with pytest.raises(pear.ProblemError, match="mse_weight is for costs alone, and this model predicts right-hand"):
        SFGELoss(shop(), mse_weight=0.1)


def test_wrong_answers_of_functions_are_named() -> None:
    values = torch.ones(2, 1, dtype=torch.float64)
    for options, message in (
        ({"task_loss": lambda z, true: z}, r"for each decision, of shape \(20,\); got shape \(20, 1\)"),
        ({"task_loss": lambda z, true: z[:, 0] * math.nan}, "task_loss must return finite numbers; some are not"),
        ({"decide": lambda values: values[:1]}, r"for each of 20 forecasts; got shape \(1, 1\)"),
        ({"decide": lambda values: values * math.nan}, "got shape .* with numbers that are not finite"),
    ):
        with pytest.raises(pear.ProblemError, match=message):
            SFGELoss(shop(), **options)(values, values)
