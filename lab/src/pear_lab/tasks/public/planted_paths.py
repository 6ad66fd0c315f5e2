"""Two planted paths through a 5×5 grid, whose costs no linear forecast matches (Huang & Gupta 2024)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from pear.tasks import Samples, ShortestPath, Split, shortest_path
from pear_lab.tasks.public.public_task import Drawing, PublicTask, Published

Array = NDArray[np.float64]

SIDE, FEATURES, DEGREE = 5, 5, 6
SAFE, SAFE_COST = [1, 4, 9, 16, 24, 31, 36, 39], 2.0
RISKY, RISKY_SLOPE, RISKY_COST = [0, 3, 8, 15, 23, 30, 35, 38], 4.0, 2.2
"""The arcs of the two paths, and the cost of an arc: 2 on the safe path, and min(4u, 2.2) on the risky one, with the
sixth feature u."""

NOISE = 0.3
MATRIX_SEED = 1
VALIDATION_SAMPLES, TEST_SAMPLES = 200, 10_000

_REGRETS = {
    200: {"mse": 0.237, "spo+": 0.041, "pfyl": 0.036, "pg": 0.024},
    400: {"mse": 0.143, "spo+": 0.034, "pfyl": 0.024, "pg": 0.018},
}
"""Normalised regrets by number of training samples and method, read off Huang & Gupta's figure for uniform noise."""


def planted_grid() -> ShortestPath:
    """Make the shortest path through a 5×5 grid with the order of arcs of Huang & Gupta.

    Arcs are ordered by the anti-diagonal of their tail, from the start to the end of the paths. Within an
    anti-diagonal, tails are ordered from the top right to the bottom left. At each node, the arc to the right comes
    before the arc downward.
    """
    arcs = []
    for total in range(2 * SIDE - 1):
        for row in range(max(0, total - SIDE + 1), min(total, SIDE - 1) + 1):
            node, column = row * SIDE + total - row, total - row
            arcs += [(node, node + 1)] if column + 1 < SIDE else []
            arcs += [(node, node + SIDE)] if row + 1 < SIDE else []
    return shortest_path(arcs=arcs)


def planted_costs(features: Array, u: Array) -> Array:
    """Return the costs (N, 40) of all arcs, without noise, for five features (N, 5) and the sixth feature u (N,)."""
    B = np.random.RandomState(MATRIX_SEED).binomial(1, 0.5, (2 * SIDE * (SIDE - 1), FEATURES))
    costs: Array = ((features @ B.T / np.sqrt(FEATURES) + 3) ** DEGREE + 1) / 3.5**DEGREE + RISKY_COST
    costs[:, SAFE] = SAFE_COST
    costs[:, RISKY] = np.minimum(RISKY_SLOPE * u, RISKY_COST)[:, None]
    return costs


def draw_planted(seed: int, size: int, test_samples: int = TEST_SAMPLES) -> Drawing:
    """Draw features and costs in float32: five standard normal features, and a sixth, u, uniform in [0, 2].

    Training and validation costs are multiplied by numbers from 0.7 to 1.3. Test costs have no noise.

    Args:
        seed: the seed of the features and the noise; the matrix behind the costs is always the same.
        size: the number of training samples; the number of validation samples is 200.
        test_samples: the number of test samples.
    """
    random = np.random.RandomState(seed)
    sizes = (size, VALIDATION_SAMPLES, test_samples)
    x = random.normal(0, 1, (sum(sizes), FEATURES))
    u = random.uniform(0, 2, len(x))
    costs = planted_costs(x, u)
    noisy = size + VALIDATION_SAMPLES
    costs[:noisy] *= random.uniform(1 - NOISE, 1 + NOISE, (noisy, costs.shape[1]))
    samples = Samples(torch.from_numpy(np.column_stack([x, u])).float(), torch.from_numpy(costs).float())
    task = planted_grid()
    split: Split = task.split(samples, sizes)
    return Drawing(task.problem, split)


def _planted_paths_row(size: int) -> PublicTask:
    """Make the public task with ``size`` training samples."""
    return PublicTask(
        name=f"planted-paths-{size}",
        title=f"Planted paths, n = {size}",
        origin="Huang & Gupta 2024, Decision-Focused Learning with Directional Gradients, https://arxiv.org/abs/2402.03256",
        protocol=(
            "5×5 grid, six features, a path of cost 16, and one whose cost rises with the sixth feature to 17.6: "
            f"{size} samples train, 200 validate, both with costs times U(0.7, 1.3); 10,000 without noise test. The "
            "published numbers are shares of the best cost, and of trainings of 100 epochs: with Adam at 1e-3, the "
            "squared error is far from its minimum, whose regret is 0.05 for every n."
        ),
        draw=partial(draw_planted, size=size),
        published=tuple(Published(name, value, f"n = {size}, figure") for name, value in _REGRETS[size].items()),
    )


PLANTED_ROWS = tuple(_planted_paths_row(size) for size in _REGRETS)
