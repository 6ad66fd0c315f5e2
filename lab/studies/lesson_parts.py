"""The parts that several lessons of ``lessons.py`` use: samples, a training with its test regret, slopes, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import pear
from pear.pages.figure_style import LIGHT
from pear.tasks import Samples, ShortestPath, Task
from pear_lab.tasks import Subset, building

MSE, PEAR, ALONE, GUIDED = "MSE", "PEAR as published", "PEAR, our defaults, without MSE first", "PEAR, our defaults"
GIVEN = 'PEAR, our defaults, start="given"'
COLORS = {
    **{MSE: LIGHT["mse"], PEAR: LIGHT["pear-mid"], GUIDED: LIGHT["pear-deep"], ALONE: LIGHT["spo"]},
    GIVEN: LIGHT["pear-mid"],
}
SAME = 1e-9
"""Decisions whose entries differ by at most this much are the same."""
NEAR, DRAWS = 0.1, 200
"""Settings of ``mean_slope``: the size of a neighbourhood relative to the standard deviation of the costs, and the
number of pairs of points in it."""


def table(head: str, rows: Mapping[str, Sequence[str]], columns: Sequence[str]) -> str:
    """Return a table in Markdown, with a row for each entry of ``rows``; ``head`` is the title of the first column."""
    lines = [f"| {head} | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())])


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Return the mean ± its standard error as text."""
    return f"{np.mean(values):{form}} ± {np.std(values, ddof=1) / len(values) ** 0.5:{form}}"


def band(axes: Any, x: Sequence[float], runs: Sequence[Sequence[float]], color: str, label: str) -> None:
    """Draw the means over the seeds as a line, and their standard errors as a band.

    ``runs`` has a row for each seed.
    """
    mean, width = np.mean(runs, 0), np.std(runs, 0, ddof=1) / len(runs) ** 0.5
    axes.fill_between(x, mean - width, mean + width, color=color, alpha=0.18, lw=0)
    axes.plot(x, mean, "-o", color=color, markersize=4, lw=1.8, label=label)


class Trial(NamedTuple):
    """The samples and tasks for training, for validation and for the test of a model."""

    train: Subset[Any]
    validation: Subset[Any]
    test: Subset[Any]

    def fit(self, model: nn.Module, loss: nn.Module, config: pear.FitConfig, **options: Any) -> float:
        """Train the model in place, and return its test regret in percent."""
        metric = self.validation.task.normalized_regret
        pear.fit(model, loss, self.train.samples, self.validation.samples, metric, config, **options)
        return self.regret(model)

    def regret(self, model: nn.Module) -> float:
        """Return the regret of a model on the test samples, in percent."""
        with torch.no_grad():
            return 100 * self.test.task.normalized_regret(model(self.test.samples.features), self.test.samples.costs)


def trial(task: Task, samples: Samples) -> Trial:
    """Return a trial of one task: half of the samples for training, a quarter for validation, the rest for the test."""
    return Trial(*(Subset(task, part, ()) for part in task.split(samples)))


def fresh(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return a new model whose first weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def flat_share(problem: pear.Problem, predicted: Tensor, true: Tensor, lam: float) -> float:
    """Return the percentage of samples whose gradient is exactly zero, among those with a wrong smoothed decision.

    ``lam`` is λ, the strength of the smoothing. A decision is wrong if it differs from that under the true costs.
    """
    relaxed, costs = problem.relaxed(), (predicted.double(), true.double())
    chosen, best = (pear.solve(relaxed, cost, smoothing=lam).x for cost in costs)
    wrong = (chosen - best).abs().amax(1) > SAME
    zero = (pear.regret_gradient(relaxed, *costs, smoothing=lam) == 0).all(1)
    return 100 * float((zero & wrong).sum()) / max(int(wrong.sum()), 1)


def least_squares(x: Tensor, c: Tensor) -> Tensor:
    """Fit a linear model to features x (N, p) and costs c (N, n) by least squares, and return its forecasts (N, n)."""
    rows = torch.cat([x, torch.ones(len(x), 1)], 1).double()
    return rows @ torch.linalg.lstsq(rows, c.double()).solution


def path_samples(degree: int, seed: int) -> tuple[pear.Problem, Samples]:
    """Draw shortest paths through the 5×5 grid of PEAR's paper."""
    task = pear.tasks.shortest_path((5, 5))
    return task.problem, task.samples(1000, degree=degree, noise=0.0, seed=seed)


def knapsack_samples(degree: int, seed: int) -> tuple[pear.Problem, Samples]:
    """Draw knapsacks like those of PEAR's paper, with 40 items and two capacities."""
    task = pear.tasks.random_knapsack(items=40, dimensions=2, seed=seed)
    return task.problem, task.samples(1000, degree=degree, noise=0.0)


def assignment_samples(seed: int, size: int = 6) -> tuple[pear.Problem, Samples]:
    """Draw assignments whose costs have both signs and are quadratic in the features."""
    random = np.random.RandomState(seed)
    rows = np.vstack([np.kron(np.eye(size), np.ones(size)), np.kron(np.ones(size), np.eye(size))])
    x = random.normal(size=(1000, 5))
    score = x @ random.normal(size=(5, size * size)) / np.sqrt(5)
    costs = 2 * score + score**2 * random.choice([-1, 1], size * size)
    problem = pear.Problem(A=rows, b=np.ones(2 * size), lb=0.0)
    return problem, Samples(torch.tensor(x).float(), torch.tensor(costs).float())


def instances(count: int, degree: int, seed: int, features: int = 20, size: int = 10) -> Trial:
    """Draw instances of choosing items within a budget.

    Args:
        count: the number of instances for training. A third as many are for validation, and 300 for the test.
        degree: the degree of the polynomial that makes an item's value from a linear function of its features.
        seed: the seed of all random numbers.
        features: the number of features of an item.
        size: the number of items of an instance.
    """
    random = np.random.RandomState(seed)
    score, sizes = random.normal(size=features), (count, max(count // 3, 2), 300)

    def part(number: int) -> Subset[Any]:
        x = random.normal(size=(number, size, features))
        value = ((x @ score / np.linalg.norm(score) + 3) / 3.5) ** degree * random.uniform(0.5, 1.5, (number, size))
        weights = random.randint(1, 11, (number, size)).astype(float)
        return Subset(building(weights), Samples(torch.tensor(x), torch.tensor(value)), ())

    return Trial(*map(part, sizes))


def mean_slope(task: ShortestPath, predicted: Tensor, true: Tensor, seed: int) -> Tensor:
    """Return two independent estimates (2, B, n) of ∇ E[R(ĉ + σε)], the mean slope of the regret R around ĉ.

    R is the regret without smoothing, ε is standard normal, and σ is a tenth of the costs' standard deviation.
    """
    generator, sigma = torch.Generator().manual_seed(seed), NEAR * float(true.std())
    halves = torch.zeros(2, *predicted.shape, dtype=torch.float64)
    for half in halves:
        for _ in range(DRAWS):
            step = torch.randn(predicted.shape, generator=generator, dtype=torch.float64)
            change = task.decide(predicted + sigma * step) - task.decide(predicted - sigma * step)
            half += (change * true).sum(1, keepdim=True) * step / (2 * sigma * DRAWS)
    return halves


def cosine(way: Tensor, halves: Tensor) -> float:
    """Return the cosine between the directions ``way`` (B, n) and the slope of the regret, over all samples together.

    ``halves`` (2, B, n) has two independent estimates of the slope. Their inner product estimates the squared length of
    the slope without bias.
    """
    square = (halves[0] * halves[1]).sum().clamp(min=0)
    return float((way * halves.mean(0)).sum() / (way.square().sum() * square).sqrt())
