"""Times of whole trainings of a linear model, with and without compiled epochs. Both take turns in one process.

Run: OMP_NUM_THREADS=1 python lab/studies/linear_epochs_study.py
"""

from __future__ import annotations

import time

import torch

import pear
from pear.train.compiled import LinearEpochs

RUNS = 4
WEIGHTS = torch.randint(1, 11, (1, 100), generator=torch.Generator().manual_seed(0)).double()
TASKS = {
    "5x5 paths": (pear.tasks.shortest_path((5, 5)), 41),
    "knapsack of 100 items": (pear.tasks.knapsack(WEIGHTS, WEIGHTS.sum(1) / 2), 21),
}
SUPPORTS = LinearEpochs.supports


def seconds(task: pear.tasks.Task, epochs: int, compiled: bool) -> float:
    """Return the time of one call of ``fit`` on 1,000 samples.

    The time includes the start on the squared error and the checks on the validation samples.
    """
    X, C = task.samples(1500, degree=4, seed=0)
    LinearEpochs.supports = staticmethod(SUPPORTS if compiled else lambda *_: False)  # type: ignore[method-assign]
    torch.manual_seed(0)
    model, config = torch.nn.Linear(X.shape[1], C.shape[1]), pear.FitConfig(max_epochs=epochs, patience=1000)
    began = time.perf_counter()
    pear.fit(model, pear.PEARLoss(task.problem), (X[:1000], C[:1000]), (X[1000:], C[1000:]), config=config)
    return time.perf_counter() - began


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, (task, epochs) in TASKS.items():
        times = [(seconds(task, epochs, True), seconds(task, epochs, False)) for _ in range(RUNS)]
        fast, plain = (min(column) for column in zip(*times, strict=True))
        print(f"{name}: compiled {fast:.2f} s, plain {plain:.2f} s, {plain / fast:.1f} times")
