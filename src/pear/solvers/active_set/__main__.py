"""``python -m pear.solvers.active_set``: compile everything now, so that no later call has to wait for it."""

from __future__ import annotations

import logging
import time

import numpy as np
import torch

from pear.solvers.active_set import batch, epoch
from pear.solvers.active_set.layout import Programs

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
    samples = batch.Samples(cost, cost, rows, rows)
    batch.regret(batch.pair_of(P, P), samples, table, default, 0.0)
    memory = epoch.Memory(table, default)
    _compile_epoch(P, memory, n)
    return time.perf_counter() - began


def _compile_epoch(P: Programs, memory: epoch.Memory, n: int) -> None:
    """An epoch of one sample, for a model in single precision."""
    one, cost = np.zeros(1, np.int64), np.zeros((1, n))
    features, weight, bias, slope = (np.zeros(shape, np.float32) for shape in ((1, 1), (n, 1), (1, n), (2, n)))
    model = epoch.Model(weight, bias, weight.copy(), weight.copy(), bias.copy(), bias.copy(), weight.copy(), slope)
    samples = batch.Samples(cost, cost.copy(), one, one.copy())
    room = epoch.Room(samples, batch.new_results(1, n, 1, 0))
    adam = epoch.Adam(0.0, 0.9, 0.999, 1e-8, 0)
    work, totals = batch.work_for(n, 1), np.zeros(2)
    epoch.linear_epoch(P, features, cost, one, one, False, 0.0, memory, model, adam, room, totals, work, 0)


def main() -> None:
    """Compile, and say how long it took."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logger.info("the active-set method is compiled and cached; %.1f s", compile_all())


if __name__ == "__main__":
    main()
