"""Why is PEAR without injection better in the paper than here? Train it with a gradient that is a little wrong.

    python tools/inexact.py [--error 0 0.1 0.33] [--degrees 2 8]

trains PEAR with λ = 0.1 and β = 0 on the paper's paths by its protocol, with a random vector of the given share of its
length added to every gradient, and prints the mean test regret in percent beside the published one of β = 0.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn

import pear
from pear.experiments.protocols.lp import paper_model, paper_order
from pear.report.published import published

SEEDS = range(5)


class Inexact(nn.Module):
    """A linear model whose forecasts get a gradient with a random part."""

    def __init__(self, inner: nn.Linear, error: float, seed: int) -> None:
        super().__init__()
        self.inner, self.error, self.random = inner, error, torch.Generator().manual_seed(seed)

    def forward(self, features: Tensor) -> Tensor:
        """Forecasts (B, n)."""
        forecast: Tensor = self.inner(features)
        if forecast.requires_grad and self.error:
            forecast.register_hook(self._spoil)
        return forecast

    def _spoil(self, gradient: Tensor) -> Tensor:
        noise = torch.randn(gradient.shape, generator=self.random)
        return gradient + self.error * gradient.norm(dim=1, keepdim=True) * nn.functional.normalize(noise, dim=1)


def train(degree: int, error: float, seed: int) -> float:
    """Test regret in percent."""
    task = pear.tasks.shortest_path((5, 5))
    split = task.split(task.samples(2000, degree=degree, noise=0.0, seed=seed))
    inner, stream = paper_model(task.problem.n, seed)
    model, loss = Inexact(inner, error, seed), pear.PEARLoss(task.problem, 0.1, injection=0.0, guidance=0.0)

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
    parser.add_argument("--error", type=float, nargs="+", default=[0.0, 0.1, 0.33])
    parser.add_argument("--degrees", type=int, nargs="+", default=[2, 8])
    args = parser.parse_args()
    paper = {
        int(item.condition["degree"]): item.mean
        for item in published()
        if item.table == "ablation_beta" and item.task == "shortest_path" and item.condition.get("beta") == 0
    }
    print("| | " + " | ".join(f"error {error:g}" for error in args.error) + " | published |")
    print("|---|" + "---|" * (len(args.error) + 1))
    for degree in args.degrees:
        means = [np.mean([train(degree, error, seed) for seed in SEEDS]) for error in args.error]
        print(f"| degree {degree} | " + " | ".join(f"{mean:.3f}" for mean in means) + f" | {paper[degree]:.3f} |")


if __name__ == "__main__":
    main()
