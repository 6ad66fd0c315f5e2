"""Tasks whose decisions are all listed, costs for them, the value and gradient of a loss, and a check of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import pear
from pear.tasks import shortest_path

GRID = shortest_path((3, 3))
WEIGHTS = torch.tensor([[3.0, 4.0, 2.0, 5.0, 1.0, 6.0], [1.0, 2.0, 5.0, 3.0, 3.0, 2.0]], dtype=torch.float64)
CAPACITY = torch.tensor([9.0, 8.0], dtype=torch.float64)


@dataclass
class Listed:
    """A task with a list of all decisions, the best of which is found by comparing them all."""

    name: str
    problem: pear.Problem
    points: Tensor  # (k, n)
    asked: int = 0

    def decide(self, cost: Tensor) -> Tensor:
        self.asked += len(cost)
        worth = self.problem.sign * cost.double() @ self.points.T
        return self.points[worth.argmin(1)].to(cost)

    decide_relaxed = decide

    def adjacent(self, z: Tensor) -> list[Tensor]:
        return [torch.stack([v for v in self.points if one_cycle(row.double(), v)]) for row in z]


def one_cycle(z: Tensor, v: Tensor) -> bool:
    """Return whether two paths through the 3×3 grid differ in one cycle: they part once, and meet again once."""
    apart = [arc for arc, here, there in zip(GRID.graph.arcs, z, v, strict=True) if here != there]
    tails = [tail for tail, _ in apart]
    return len(apart) > 0 and sum(tails.count(t) == 2 for t in set(tails)) == 1


def paths() -> Listed:
    z = torch.tensor(list(itertools.product((0.0, 1.0), repeat=12)), dtype=torch.float64)
    assert GRID.problem.A is not None
    assert GRID.problem.b is not None
    balanced = (z @ GRID.problem.A.T == GRID.problem.b).all(1)
    assert int(balanced.sum()) == 6
    return Listed("shortest_path_3x3", GRID.problem, z[balanced])


def items(sense: str = "max") -> Listed:
    z = torch.tensor(list(itertools.product((0.0, 1.0), repeat=6)), dtype=torch.float64)
    problem = pear.Problem(G=WEIGHTS, h=CAPACITY, lb=0.0, ub=1.0, sense=sense, integer=True)  # type: ignore[arg-type]
    return Listed("knapsack_6_items", problem, z[(z @ WEIGHTS.T <= CAPACITY).all(1)])


def costs(task: Listed, batch: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predicted, true = 1 + 2 * torch.rand(2, batch, task.problem.n, generator=generator, dtype=dtype)
    return predicted.requires_grad_(), true


def gradient(loss: nn.Module, predicted: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
    value = loss(predicted, true)
    return value.detach(), torch.autograd.grad(value, predicted)[0]


def check_gradient(loss: nn.Module, predicted: Tensor, true: Tensor, atol: float) -> None:
    """Compare the gradient of a loss with a central difference in one random direction for all samples."""
    (found,) = torch.autograd.grad(loss(predicted, true), predicted)
    direction = torch.randn(predicted.shape, generator=torch.Generator().manual_seed(2)).double()
    step = 1e-5 * direction
    with torch.no_grad():
        difference = (loss(predicted + step, true) - loss(predicted - step, true)) / 2e-5
    assert bool(found.any())
    torch.testing.assert_close((found * direction).sum(), difference, rtol=1e-6, atol=atol)
