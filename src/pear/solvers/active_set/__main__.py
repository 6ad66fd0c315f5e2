"""``python -m pear.solvers.active_set``: compile everything now, so that no later call has to wait for it."""

from __future__ import annotations

import logging
import time

import numpy as np
import torch

from pear.solvers.active_set import batch

logger = logging.getLogger("pear")


def compile_all() -> float:
    """Call every entry point once, on a tiny problem; returns the seconds that it took."""
    began = time.perf_counter()
    n, rows = 2, np.arange(1)
    fields = {"A": torch.ones(1, n), "b": torch.ones(1), "lb": torch.zeros(n)}
    P = batch.programs({name: value.double() for name, value in fields.items()}, n, smoothing=1.0)
    default, cost = batch.default_start(P), np.zeros((1, n))
    states = [batch.new_states(1, n, 1) for _ in range(2)]
    batch.solve(P, cost, rows, states[0], rows, default)
    batch.project(P, cost, rows, states[0], rows)
    table = batch.Table(states[0], states[1], batch.new_outcome(1, n, 1, 0), np.full((1, n), np.nan))
    batch.regret(batch.pair_of(P, P), batch.Samples(cost, cost, rows, rows), table, default, 0.0)
    return time.perf_counter() - began


def main() -> None:
    """Compile, and say how long it took."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logger.info("the active-set method is compiled and cached; %.1f s", compile_all())


if __name__ == "__main__":
    main()
