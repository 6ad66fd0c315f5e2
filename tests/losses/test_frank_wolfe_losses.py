"""RFWO and RFYL: decisions with an added quadratic term over the convex hull of all decisions, by Frank-Wolfe."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from listed_tasks import check_gradient
from scipy.optimize import nnls
from torch import Tensor

import pear
from pear.losses import RFWOLoss, RFYLLoss
from pear.losses.frank_wolfe import FrankWolfeLoss, find_frank_wolfe_points
from pear.tasks import knapsack, shortest_path

WEIGHTS = torch.randint(1, 9, (2, 8), generator=torch.Generator().manual_seed(0)).double()
PATHS, ITEMS = shortest_path((3, 3)).problem, knapsack(WEIGHTS, [14.0, 16.0]).problem
ROOM = torch.tensor([14.0, 16.0], dtype=torch.float64)
PACKINGS = torch.tensor(list(product((0.0, 1.0), repeat=8)), dtype=torch.float64)
PACKINGS = PACKINGS[(PACKINGS @ WEIGHTS.T <= ROOM).all(1)]  # all decisions of ITEMS
LOSSES = pytest.mark.parametrize("kind", [RFWOLoss, RFYLLoss])
STRENGTH = pytest.mark.parametrize("strength", [0.3, 1.0, 5.0])


def costs(problem: pear.Problem, count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    predicted, true = (1 + 3 * torch.rand(2, count, problem.n, generator=generator)).double()
    return predicted.requires_grad_(), true


def regularised(loss: FrankWolfeLoss, predicted: Tensor, true: Tensor) -> Tensor:
    loss(predicted, true)
    assert loss.last is not None
    return loss.last.z


@STRENGTH
def test_paths_with_a_square_are_those_of_a_quadratic_program(strength: float) -> None:
    """The convex hull of paths is the feasible set of their linear program, on which our QP solver gives the same."""
    predicted, true = costs(PATHS)
    found = regularised(RFWOLoss(PATHS, strength=strength, cost_unit=1.0), predicted, true)
    program = pear.Problem(Q=strength * torch.eye(12).double(), A=PATHS.A, b=PATHS.b, lb=PATHS.lb)
    torch.testing.assert_close(found, pear.solve(program, predicted.detach()).x, rtol=0, atol=1e-9)


@STRENGTH
def test_items_with_a_square_are_optimal_in_the_hull_of_all_packings(strength: float) -> None:
    predicted, true = costs(ITEMS)
    loss = RFYLLoss(ITEMS, strength=strength, cost_unit=1.0)
    for cost, z in zip(predicted.detach(), regularised(loss, predicted, true), strict=True):
        slope = strength * z - cost  # of the objective to minimise
        assert float(((PACKINGS - z) @ slope).min()) >= -1e-9  # no packing is better to first order
        rows = np.vstack([PACKINGS.T.numpy(), np.ones(len(PACKINGS))])
        assert nnls(rows, np.append(z.numpy(), 1.0))[1] <= 1e-9  # a combination of packings
    assert loss.last is not None
    assert float(loss.last.gap.max()) <= 1e-9


@LOSSES
@STRENGTH
@pytest.mark.parametrize("problem", [PATHS, ITEMS], ids=["paths", "items"])
def test_the_gradient_is_that_of_the_loss(kind: type[FrankWolfeLoss], strength: float, problem: pear.Problem) -> None:
    predicted, true = costs(problem, 3)
    check_gradient(kind(problem, strength=strength, cost_unit=1.0), predicted, true, 1e-8)


def test_values_by_hand() -> None:
    """On a segment the regularised decision is z₁ = ½ + (ĉ₂ − ĉ₁) / 2λ, clipped to [0, 1]."""
    segment, lam = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), 2.0
    predicted = torch.tensor([[1.5, 1.0], [1.0, 9.0]], dtype=torch.float64)
    true = torch.tensor([[1.0, 3.0], [1.0, 3.0]], dtype=torch.float64)
    first = torch.tensor([0.5 - 0.5 / 4, 1.0], dtype=torch.float64)
    loss = RFWOLoss(segment, strength=lam, cost_unit=1.0)
    torch.testing.assert_close(loss.values(predicted, true, None), 2 * (1 - first))
    square = 0.5 * lam * (first**2 + (1 - first) ** 2)
    least = predicted[:, 0] * first + predicted[:, 1] * (1 - first) + square
    by_hand = predicted[:, 0] + 0.5 * lam - least
    found = RFYLLoss(segment, strength=lam, cost_unit=1.0).values(predicted, true, None)
    torch.testing.assert_close(found, by_hand)
    assert float(found[1]) == 0.0


@LOSSES
@pytest.mark.parametrize("problem", [PATHS, ITEMS], ids=["paths", "items"])
def test_losses_are_those_of_pyepo(kind: type[FrankWolfeLoss], problem: pear.Problem) -> None:
    func = pytest.importorskip("pyepo.func", reason="PyEPO is not installed; pip install 'pear-dfl[baselines]'")
    from pear.losses.pyepo import PyEPOLoss

    predicted, true = costs(problem, 3)
    theirs = PyEPOLoss(problem, func.RFWO if kind is RFWOLoss else func.RFY, lambd=1.0, tol=1e-7, max_iter=200)
    values = [one(predicted, true) for one in (kind(problem, strength=1.0, cost_unit=1.0), theirs)]
    gradients = [torch.autograd.grad(value, predicted)[0] for value in values]
    torch.testing.assert_close(*values, rtol=0, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)


def test_a_sample_is_asked_no_more_once_it_is_decided() -> None:
    asked: list[list[int]] = []
    corners = torch.eye(3, dtype=torch.float64)

    def decide(cost: Tensor, rows: Tensor) -> Tensor:
        asked.append(rows.tolist())
        return corners[cost.argmin(1)]

    cost = torch.tensor([[0.0, 9.0, 9.0], [0.0, 0.1, 0.2]], dtype=torch.float64)
    found = find_frank_wolfe_points(decide, cost, 1.0, 100)
    assert asked == [[0, 1], [0, 1], [1], [1]]
    assert found.calls == 4
    torch.testing.assert_close(found.z[1], torch.tensor([1.3, 1.0, 0.7]).double() / 3)
    assert found.directions.shape == (2, 2, 3)
    assert not bool(found.directions[0].any())


def test_few_decisions_leave_a_gap_that_is_told() -> None:
    predicted, true = costs(PATHS)
    loss, exact = (RFYLLoss(PATHS, strength=5.0, max_iter=some, cost_unit=1.0) for some in (3, 1000))
    z, best = (regularised(one, predicted, true) for one in (loss, exact))
    assert loss.last is not None
    assert loss.last.calls == 3
    value = [(predicted.detach() * one).sum(1) + 2.5 * one.square().sum(1) for one in (z, best)]
    missing = value[0] - value[1]
    assert float(missing.max()) > 1e-3
    # the gap is that of the point before the last decision, which is no better than the last
    assert bool((missing <= loss.last.gap + 1e-12).all())


def test_decisions_of_equal_value_and_multiples_of_points_are_no_trouble() -> None:
    """Frank-Wolfe finds points within a face of the cube, despite ties and more vertices than dimensions."""
    cube = pear.Problem(lb=0.0, ub=1.0, n=4, integer=True)
    cost = torch.tensor([[-0.5, -0.5, -0.5, 3.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    found = regularised(RFWOLoss(cube, strength=1.0, cost_unit=1.0), cost, cost)
    torch.testing.assert_close(found, (-cost).clamp(0.0, 1.0))


@LOSSES
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 0.0}, "strength must be a finite number above 0; got 0.0"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
    ],
)
def test_wrong_settings_are_named(kind: type[FrankWolfeLoss], options: dict[str, Any], message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        kind(PATHS, **options)
