"""The structured hinge loss, and the angle between costs."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

import pear
from pear.losses import CosineLoss, SSVMLoss
from pear.tasks import knapsack, shortest_path

WEIGHTS = torch.randint(1, 9, (2, 8), generator=torch.Generator().manual_seed(0)).double()
ROOM = torch.tensor([14.0, 16.0], dtype=torch.float64)
GRID = shortest_path((3, 3))
ITEMS = knapsack(WEIGHTS, ROOM).problem
PACKINGS = torch.tensor(list(product((0.0, 1.0), repeat=8)), dtype=torch.float64)
PACKINGS = PACKINGS[(PACKINGS @ WEIGHTS.T <= ROOM).all(1)]
ROUTES = torch.cat([GRID.decide(torch.rand(500, 12, generator=torch.Generator().manual_seed(0)).double())]).unique(
    dim=0
)
PROBLEM = pytest.mark.parametrize(
    ("problem", "decisions"), [(GRID.problem, ROUTES), (ITEMS, PACKINGS)], ids=["paths", "items"]
)


def costs(problem: pear.Problem, count: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    predicted, true = (1 + 3 * torch.rand(2, count, problem.n, generator=generator)).double()
    return predicted.requires_grad_(), true


@PROBLEM
@pytest.mark.parametrize("margin", [0.3, 2.0])
def test_the_hinge_is_the_largest_over_all_decisions(problem: pear.Problem, decisions: Tensor, margin: float) -> None:
    assert len(ROUTES) == 6  # all routes
    predicted, true = costs(problem)
    loss = SSVMLoss(problem, margin=margin, cost_unit=1.0)
    value = loss(predicted, true)
    (gradient,) = torch.autograd.grad(value, predicted)
    best = pear.solve(problem, true).x
    hamming = (decisions[None] != best[:, None]).sum(2)
    cheaper = problem.sign * ((best[:, None] - decisions[None]) * predicted.detach()[:, None]).sum(2)
    hinge, worst = (cheaper + margin * hamming).max(1)
    torch.testing.assert_close(value, hinge.mean())
    torch.testing.assert_close(gradient, problem.sign * (best - decisions[worst]) / len(true))
    assert bool(gradient.any())


def test_bounds_other_than_zero_and_one() -> None:
    """Every variable has its own bounds; the margin is proportional to the distance from the best decision."""
    low, high = torch.tensor([2.0, -1.0, 0.0]).double(), torch.tensor([5.0, 1.0, 4.0]).double()
    box = pear.Problem(lb=low, ub=high)
    predicted, true = torch.tensor([[0.1, -0.2, 0.3]]).double(), torch.tensor([[1.0, 1.0, -1.0]]).double()
    corners = torch.tensor(list(product(*zip(low.tolist(), high.tolist(), strict=True)))).double()
    best = torch.tensor([2.0, -1.0, 4.0]).double()
    hinge = (best - corners) @ predicted[0] + 0.5 * (corners - best).abs().sum(1)
    found = SSVMLoss(box, margin=0.5, cost_unit=1.0)(predicted, true)
    torch.testing.assert_close(found, hinge.max())


def test_free_variables_and_an_oracle() -> None:
    problem = pear.Problem(G=[[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], h=[1.0, 0.0, 0.0], sense="max")  # no bounds
    predicted, true = torch.tensor([[1.0, 0.9]]).double(), torch.tensor([[1.0, 0.5]]).double()
    oracle = pear.Oracle(lambda cost: cost == cost.max(), n=2, sense="max")
    # the best is (1, 0); without a bound, distance counts as 1 − z₁ − z₂, and with a bound of 0 as 1 − z₁ + z₂
    found = [float(SSVMLoss(one, cost_unit=1.0)(predicted, true)) for one in (problem, oracle)]
    assert found == pytest.approx([0.0, 1.9])


def test_the_cosine_is_that_of_torch_in_every_unit() -> None:
    predicted, true = costs(GRID.problem)
    loss = CosineLoss(GRID.problem, cost_unit=2.0)
    by_torch = 2.0 * (1 - torch.cosine_similarity(predicted, true)).mean()
    torch.testing.assert_close(loss(predicted, true), by_torch)
    torch.testing.assert_close(*(torch.autograd.grad(one, predicted) for one in (loss(predicted, true), by_torch)))
    tiny = predicted.detach() * 1e-200
    torch.testing.assert_close(loss(tiny, true), by_torch.detach())
    assert loss.seconds["solve"] == 0.0


def test_a_forecast_of_zeros_has_a_finite_gradient() -> None:
    predicted = torch.zeros(1, 12, dtype=torch.float64, requires_grad=True)
    value = CosineLoss(GRID.problem, cost_unit=1.0)(predicted, torch.ones(1, 12).double())
    value.backward()
    assert value.item() == 1.0
    assert predicted.grad is not None
    assert bool(predicted.grad.isfinite().all())


def test_a_margin_of_zero_is_refused() -> None:
    with pytest.raises(pear.ProblemError, match="margin must be a finite number above 0; got 0"):
        SSVMLoss(ITEMS, margin=0.0)
