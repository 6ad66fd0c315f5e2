"""``python -m pear.train.compiled``: compile everything now, so that no later call has to wait for it."""

from __future__ import annotations

import logging
import time

import numpy as np
import torch

from pear.losses import PEARLoss
from pear.problem import Problem
from pear.solvers.active_set import batch, layout
from pear.train.config import FitConfig
from pear.train.fit import fit

logger = logging.getLogger("pear")


def compile_active_set() -> float:
    """Call every entry point once, on a tiny problem; returns the seconds that it took."""
    began = time.perf_counter()
    n, rows = 2, np.arange(1)
    fields = {"A": torch.ones(1, n), "b": torch.ones(1), "lb": torch.zeros(n)}
    P = batch.programs({name: value.double() for name, value in fields.items()}, n, smoothing=1.0)
    default, cost = batch.default_start(P), np.zeros((1, n))
    states = [layout.new_states(1, n, 1) for _ in range(2)]
    batch.solve(P, cost, rows, states[0], rows, default)
    batch.project(P, cost, rows, states[0], rows)
    table = layout.Table(states[0], states[1], layout.new_outcome(1, n, 1, 0), np.full((1, n), np.nan))
    batch.regret(batch.pair_of(P, P), layout.Samples(cost, cost, rows, rows), table, default, 0.0)
    return time.perf_counter() - began


def compile_epoch() -> float:
    """Train a tiny model in single precision for one epoch; returns the seconds that it took."""
    began = time.perf_counter()
    loss = PEARLoss(Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0))
    data = torch.zeros(1, 1), torch.zeros(1, 2)
    fit(torch.nn.Linear(1, 2), loss, data, data, lambda predicted, true: 0.0, FitConfig(max_epochs=1))
    return time.perf_counter() - began


def main() -> None:
    """Compile, and say how long it took."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logger.info("the active-set method is compiled and cached; %.1f s", compile_active_set())
    logger.info("the epoch of a linear model is compiled and cached; %.1f s", compile_epoch())


if __name__ == "__main__":
    main()
