"""The planted paths of Huang & Gupta 2024: methods trained for 100 epochs as in that paper, and least squares.

    python lab/studies/planted_paths_study.py [--sizes 200,400] [--seeds 10] [--methods mse,spo+,pfyl,pg]

The command trains a linear forecast with Adam at 1e-3 from PyTorch's first weights for 100 epochs, in batches of 32. It
prints the mean test regret with its standard error, beside the numbers read off the paper's figure. A last row has the
forecast with the least squared error. Regret is a share of the best cost, on samples without noise.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pear.losses.methods import make_loss, method
from pear.problem import Model, Problem
from pear.tasks import Samples
from pear_lab.field.prepared_task import PreparedTaskJudge, forecast_task_samples
from pear_lab.tasks.public import Drawing, PublicTask, task_table_row

EPOCHS, RATE, BATCH = 100, 1e-3, 32


def train(loss: nn.Module, samples: Samples, seed: int) -> nn.Module:
    """Train a linear forecast with Adam for all epochs, without validation."""
    torch.manual_seed(seed)
    model = nn.Linear(samples.features.shape[1], samples.costs.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(samples.features)).split(BATCH):
            optimizer.zero_grad()
            loss(model(samples.features[rows]), samples.costs[rows]).backward()
            optimizer.step()
    return model


def least_squares(samples: Samples) -> nn.Module:
    """Return the linear forecast with the least squared error."""
    features = torch.column_stack([samples.features, torch.ones(len(samples.features))]).double()
    weights = torch.linalg.lstsq(features, samples.costs.double()).solution.float()
    model = nn.Linear(features.shape[1] - 1, samples.costs.shape[1])
    model.load_state_dict({"weight": weights[:-1].T, "bias": weights[-1]})
    return model


def make(name: str, problem: Problem | Model, samples: Samples) -> nn.Module:
    """Return the loss of a method, or the squared error for "mse".

    A loss whose settings depend on the unit of the costs is calibrated on the samples.
    """
    loss = nn.MSELoss() if name == "mse" else make_loss(name, problem)
    if hasattr(loss, "calibrate"):
        loss.calibrate(samples.costs)
    return loss


def regrets(task: PublicTask, names: list[str], seed: int) -> list[float]:
    """Return the test regrets of the methods on the samples of a seed, followed by that of least squares."""
    drawing: Drawing = task.draw(seed)
    samples, test = drawing.split.train, drawing.split.test
    judge = PreparedTaskJudge(drawing.problem, test.costs, None, task.measure)
    models = [train(make(name, drawing.problem, samples), samples, seed) for name in names]
    return [judge(forecast_task_samples(model, test)) for model in (*models, least_squares(samples))]


def mean_and_error(values: NDArray[np.float64]) -> str:
    """Return a mean with its standard error; the mean alone for one number."""
    error = f" ± {values.std(ddof=1) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{error}"


def table(sizes: list[int], names: list[str], seeds: int) -> str:
    """Return the table in Markdown."""
    lines = ["| n | method | published | here |", "|---:|---|---:|---:|"]
    for size in sizes:
        task = task_table_row(f"planted-paths-{size}")
        published = {one.method: f"{one.value:.3f}" for one in task.published}
        found = np.array([regrets(task, names, seed) for seed in range(seeds)]).T
        titles = [method(name).title for name in names] + ["least squares at its minimum"]
        for name, title, values in zip([*names, ""], titles, found, strict=True):
            lines.append(f"| {size} | {title} | {published.get(name, '–')} | {mean_and_error(values)} |")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> None:
    """Train, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="200,400", help="training samples")
    parser.add_argument("--seeds", type=int, default=10, help="draws of the samples")
    parser.add_argument("--methods", default="mse,spo+,pfyl,pg", help="names in pear.losses.METHODS")
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    print(table([int(size) for size in given.sizes.split(",")], given.methods.split(","), given.seeds))


if __name__ == "__main__":
    main()
