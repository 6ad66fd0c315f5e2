"""Choosing the best of 50 items by a linear forecast of values that are cubic in one feature (Shah et al. 2022)."""

from __future__ import annotations

import numpy as np
import torch

from pear.problem import Problem
from pear.tasks import Samples, Task
from pear_lab.tasks.public.public_task import Drawing, PublicTask, shared_task_forecaster

ITEMS, CHOSEN = 50, 1
SIZES = (200, 100, 400)


def draw_top_k(seed: int, sizes: tuple[int, int, int] = SIZES) -> Drawing:
    """Draw a feature x of every item, uniform in [−1, 1], and compute the item's value 10 (x³ − 0.65 x).

    The value is largest at x = 1. The line of least squares, however, decreases with x. If a linear forecaster is
    trained on the squared error, its decision is therefore the item with the smallest x, whose value is one of the
    lowest.

    Args:
        seed: the seed of the features.
        sizes: the numbers of samples, of 50 items each, for training, for validation and for the test.

    Returns:
        The program that chooses one item, and the samples in float32.
    """
    x = np.random.RandomState(seed).uniform(-1, 1, (sum(sizes), ITEMS, 1))
    values = 10 * (x[..., 0] ** 3 - 0.65 * x[..., 0])
    problem = Problem(A=np.ones((1, ITEMS)), b=[float(CHOSEN)], lb=0.0, ub=1.0, sense="max")
    samples = Samples(torch.from_numpy(x).float(), torch.from_numpy(values).float())
    return Drawing(problem, Task("top_k", problem).split(samples, sizes))


TOP_K_ROW = PublicTask(
    name="cubic-top-k",
    title="Cubic top-k",
    origin="Shah et al. 2022, Learning Locally Optimized Decision Losses, https://arxiv.org/abs/2203.16067",
    protocol=(
        "One of 50 items, one feature x uniform in [−1, 1] for each, value 10 (x³ − 0.65 x), one line for all items: "
        "200 samples train, 100 validate, 400 test. The origin measures decisions from 0 (random) to 1 (best)."
    ),
    draw=draw_top_k,
    forecaster=shared_task_forecaster,
)
