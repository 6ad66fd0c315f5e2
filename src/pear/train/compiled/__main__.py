"""``python -m pear.train.compiled``: compile everything now, so that no later call has to wait for it."""

from __future__ import annotations

import logging
import time

import torch

from pear.losses import PEARLoss
from pear.problem import Problem
from pear.solvers.active_set.__main__ import compile_all
from pear.train.config import FitConfig
from pear.train.fit import fit

logger = logging.getLogger("pear")


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
    logger.info("the active-set method is compiled and cached; %.1f s", compile_all())
    logger.info("the epoch of a linear model is compiled and cached; %.1f s", compile_epoch())


if __name__ == "__main__":
    main()
