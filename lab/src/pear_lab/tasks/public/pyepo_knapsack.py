"""The knapsack of PyEPO's benchmark, with 32 items and two capacities."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from pear.tasks import Samples, knapsack
from pear.tasks.synthetic_task import draw_synthetic_costs
from pear_lab.tasks.public.public_task import Drawing, PublicTask

ITEMS, DIMENSIONS, CAPACITY = 32, 2, 20.0
LEAST_WEIGHT, MOST_WEIGHT = 3.0, 8.0
VALUE_SCALE = 5.0
SIZES = (100, 50, 500)


def draw_pyepo_knapsack(seed: int, degree: int, noise: float, sizes: tuple[int, int, int] = SIZES) -> Drawing:
    """Draw weights between 3 and 8 with two decimals, and values ``⌈5 c⌉`` of polynomial costs c, in float32.

    Args:
        seed: the seed of the weights, the features, the matrix behind the values, and the noise.
        degree: the degree of the polynomial.
        noise: the half-width of the interval of noise factors around 1.
        sizes: the numbers of samples for training, for validation and for the test.
    """
    random = np.random.RandomState(seed)
    weights = random.randint(int(100 * LEAST_WEIGHT), int(100 * MOST_WEIGHT), (DIMENSIONS, ITEMS)) / 100
    task = knapsack(weights, CAPACITY)
    x, c = draw_synthetic_costs(random, sum(sizes), ITEMS, degree, noise)
    samples = Samples(torch.from_numpy(x).float(), torch.from_numpy(np.ceil(VALUE_SCALE * c)).float())
    return Drawing(task.problem, task.split(samples, sizes))


KNAPSACK_ROW = PublicTask(
    name="pyepo-knapsack",
    title="Knapsack of PyEPO",
    origin="Tang & Khalil 2024, PyEPO, https://arxiv.org/abs/2206.14234",
    protocol=(
        "32 items of weights 3 to 8 in two dimensions, capacity 20 in each, values ⌈5 c⌉ of polynomial costs, 5 "
        "features, degree 4, noise 0.5: 100 samples train, 50 validate, 500 test, by the integer program. The paper "
        "shows box plots of ten runs for 100, 1,000 and 5,000 samples, and prints no numbers."
    ),
    draw=partial(draw_pyepo_knapsack, degree=4, noise=0.5),
)
