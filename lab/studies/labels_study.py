"""The effect of training on costs that are mixed with those of nearest neighbours: test regret with few, noisy samples.

    python lab/studies/labels_study.py [--seeds 10] [--samples 100] [--methods spo+ pfyl pear-guided] [--epochs 20]

The command draws paths through a 5×5 grid by PyEPO's generator (degree 4, noise 0.5). It trains a linear forecaster on
the costs as they are, on costs mixed half and half with the mean costs of the 10 nearest neighbours
(``label_neighbours=10``), and on costs of equal norms (``normalise_costs``). It prints the mean regret on 1,000 other
samples with its standard error. In the column "each neighbour" (``label_mixing="each"``), ten samples replace each
sample: its costs are mixed with those of one neighbour at a time, and not with their mean. A sample is then trained on
ten best decisions instead of one. The protocol ``fixed`` trains for all epochs from the weights that torch draws, and
takes the last weights, as notebooks do; with "each neighbour" it takes a tenth of the epochs. The protocol ``race`` is
``pear.fit`` with its defaults.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import count, product
from typing import Any

import numpy as np
import torch

import pear
from pear.compile.thread_pools import one_thread
from pear.losses import make_loss

NEIGHBOURS = 10
EACH = "each neighbour"
LABELS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "mean of neighbours": {"label_neighbours": NEIGHBOURS},
    EACH: {"label_neighbours": NEIGHBOURS, "label_mixing": "each"},
    "equal norms": {"normalise_costs": True},
}
OPTIONS = {name: {"mse_weight": 0.0, "cost_unit": 1.0} for name in ("spo+", "pfyl")}  # as PyEPO has them
TEST = 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--methods", nargs="+", default=["mse", "spo+", "pfyl", "pear-guided"])
    parser.add_argument("--protocols", nargs="+", default=["fixed", "race"], choices=["fixed", "race"])
    parser.add_argument("--epochs", type=int, default=20)
    said = parser.parse_args(arguments)
    print(f"test regret, %; mean of {said.seeds} seeds ± standard error; {said.samples} samples")
    print(f"| | {' | '.join(LABELS)} | {EACH} − as they are |\n|---|{'---|' * (len(LABELS) + 1)}")
    with one_thread():
        for protocol, method in product(said.protocols, said.methods):
            rows = [[_regret(protocol, method, name, seed, said) for name in LABELS] for seed in range(said.seeds)]
            found = 100 * np.array(rows)
            columns = [*found.T, found[:, 2] - found[:, 0]]
            print(f"| {protocol}, {method} | " + " | ".join(map(_describe, columns)) + " |", flush=True)


def _regret(protocol: str, method: str, labels: str, seed: int, said: argparse.Namespace) -> float:
    """Train one forecaster, and return its normalised regret on the test samples.

    Args:
        protocol: "fixed" or "race".
        method: the name of a method in ``pear.losses.METHODS``.
        labels: how costs are changed: a key of ``LABELS``.
        seed: the seed of the samples, the first weights and the batches.
        said: the command line.
    """
    task = pear.tasks.shortest_path((5, 5))
    features, costs = task.samples(said.samples + TEST, degree=4, noise=0.5, seed=seed)
    train = features[: said.samples], costs[: said.samples]
    epochs = said.epochs // NEIGHBOURS if labels == EACH else said.epochs  # which are longer
    torch.manual_seed(seed)
    model, loss = torch.nn.Linear(5, task.problem.n), make_loss(method, task, **OPTIONS.get(method, {}))
    if protocol == "race":
        pear.fit(model, loss, train, config=pear.FitConfig(seed=seed, **LABELS[labels]))
    else:
        config = pear.FitConfig(max_epochs=epochs, start="given", seed=seed, **LABELS[labels])
        later = count()
        pear.fit(model, loss, train, train, lambda predicted, true: -float(next(later)), config)  # the last is best
    return float(task.normalized_regret(model(features[said.samples :]), costs[said.samples :]))


def _describe(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
