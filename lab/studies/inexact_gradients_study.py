"""Why is PEAR without injection better in the paper than here? Train it with a gradient that is a little wrong.

    python lab/studies/inexact_gradients_study.py [--error 0 0.1 0.33] [--active 1e-6 1e-4 1e-2] [--degrees 2 8]

The command trains PEAR with the smoothing λ = 0.1 and the injection β = 0 on the paths of the paper, by the paper's
protocol. It prints the mean test regret in percent beside the published regret for β = 0. ``--error`` adds a random
vector to every gradient, whose length is the given share of the gradient's length. ``--active`` projects the error at
decisions of OSQP, computed with a tolerance of 1e-4. The bound of an edge then counts as active, and the edge as
unused, if its flow is at most the given number. The balance of flows is always active.
"""

from __future__ import annotations

import argparse

import numpy as np
import osqp
import torch
from scipy import sparse
from torch import Tensor, nn

import pear
from pear_lab.experiments.protocols.lp_protocol import paper_model, paper_order
from pear_lab.report.published_numbers import published

SEEDS = range(5)


class Inexact(nn.Module):
    """A linear model that adds a random vector to the gradient of its forecasts.

    Args:
        inner: the linear model.
        error: the length of the random vector as a share of the gradient's length.
        seed: the seed of the random vectors.
    """

    def __init__(self, inner: nn.Linear, error: float, seed: int) -> None:
        super().__init__()
        self.inner, self.error, self.random = inner, error, torch.Generator().manual_seed(seed)

    def forward(self, features: Tensor) -> Tensor:
        """Return forecasts (B, n)."""
        forecast: Tensor = self.inner(features)
        if forecast.requires_grad and self.error:
            forecast.register_hook(self._spoil)
        return forecast

    def _spoil(self, gradient: Tensor) -> Tensor:
        noise = torch.randn(gradient.shape, generator=self.random)
        return gradient + self.error * gradient.norm(dim=1, keepdim=True) * nn.functional.normalize(noise, dim=1)


class Rough(nn.Module):
    """A loss whose gradient is the projected error at decisions of OSQP, where a threshold decides what is active.

    Args:
        problem: shortest paths, with ``Az = b`` and ``z ≥ 0``.
        unused: the largest flow of an edge whose bound ``z ≥ 0`` counts as active.
    """

    TOLERANCE, RIDGE, SMOOTHING = 1e-4, 1e-8, 0.1

    def __init__(self, problem: pear.Problem, unused: float) -> None:
        super().__init__()
        self.A, self.unused = problem.A.double(), unused
        rows = sparse.csc_matrix(np.vstack([self.A.numpy(), np.eye(problem.n)]))
        low = np.r_[problem.b.numpy(), np.zeros(problem.n)]
        high = np.r_[problem.b.numpy(), np.full(problem.n, np.inf)]
        self.solver = osqp.OSQP()
        curvature = sparse.csc_matrix(self.SMOOTHING * np.eye(problem.n))
        accuracy = {"eps_abs": self.TOLERANCE, "eps_rel": self.TOLERANCE}
        self.solver.setup(curvature, np.zeros(problem.n), rows, low, high, verbose=False, polishing=False, **accuracy)

    def forward(self, predicted: Tensor, true: Tensor, keys: object = None) -> Tensor:
        """Return a value whose derivative is the projected error over λ, divided by the number of samples."""
        flows = torch.from_numpy(np.stack([self._decide(cost) for cost in predicted.detach().double().numpy()]))
        used = (flows > self.unused).double()
        error = used * (predicted.detach().double() - true.double())
        rows = self.A * used[:, None]
        system = rows @ rows.mT + self.RIDGE * torch.eye(len(self.A), dtype=torch.float64)
        balance = torch.linalg.solve(system, rows @ error[..., None])
        g = (error - (rows.mT @ balance)[..., 0]) / self.SMOOTHING
        return (g.to(predicted) * predicted).sum() / len(predicted)

    def _decide(self, cost: np.ndarray) -> np.ndarray:
        self.solver.update(q=cost)
        return np.array(self.solver.solve().x)


def train(degree: int, seed: int, error: float = 0.0, unused: float | None = None) -> float:
    """Train once on shortest paths, and return the test regret in percent.

    Args:
        degree: the degree of the polynomial that makes costs from features.
        seed: the seed of the samples, the first weights, the batches and the random vectors.
        error: the length of the random vector that is added to a gradient, as a share of the gradient's length.
        unused: the largest flow at which an edge counts as unused, for the loss ``Rough``; None for ``PEARLoss``.
    """
    task = pear.tasks.shortest_path((5, 5))
    split = task.split(task.samples(2000, degree=degree, noise=0.0, seed=seed))
    inner, stream = paper_model(task.problem.n, seed)
    model, loss = Inexact(inner, error, seed), pear.PEARLoss(task.problem, 0.1, injection=0.0, guidance=0.0)
    if unused is not None:
        loss = Rough(task.problem, unused)

    def metric(predicted: Tensor, true: Tensor) -> float:
        torch.empty((), dtype=torch.int64).random_(generator=stream)  # as the protocol does
        return task.normalized_regret(predicted, true)

    config = pear.FitConfig(patience=3, time_cap=600.0, seed=stream, start="given")
    pear.fit(model, loss, split.train, split.validation, metric, config, order=paper_order)
    with torch.no_grad():
        return 100 * task.normalized_regret(model(split.test.features), split.test.costs)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--error", type=float, nargs="*", default=[0.0, 0.1, 0.33])
    parser.add_argument("--active", type=float, nargs="*", default=[1e-6, 1e-4, 1e-2])
    parser.add_argument("--degrees", type=int, nargs="+", default=[2, 8])
    args = parser.parse_args()
    paper = {
        int(item.condition["degree"]): item.mean
        for item in published()
        if item.table == "ablation_beta" and item.task == "shortest_path" and item.condition.get("beta") == 0
    }
    ways = {f"error {error:g}": {"error": error} for error in args.error}
    ways |= {f"unused up to {unused:g}": {"unused": unused} for unused in args.active}
    print("| | " + " | ".join(ways) + " | published |")
    print("|---|" + "---|" * (len(ways) + 1))
    for degree in args.degrees:
        means = [np.mean([train(degree, seed, **how) for seed in SEEDS]) for how in ways.values()]
        print(f"| degree {degree} | " + " | ".join(f"{mean:.3f}" for mean in means) + f" | {paper[degree]:.3f} |")


if __name__ == "__main__":
    main()
