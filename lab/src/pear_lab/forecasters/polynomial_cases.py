"""Tasks whose costs are a polynomial of the features: the paths of Elmachtoub & Grigas, and the paper's cells."""

from __future__ import annotations

import numpy as np
import torch

from pear.tasks import random_knapsack, shortest_path
from pear.tasks.synthetic_task import SyntheticTask
from pear_lab.forecasters.study_case import Split, StudyCase

SPO_SIZES, SPO_DEGREES, SPO_NOISES = (100, 1000, 5000), (1, 2, 4, 6, 8), (0.0, 0.5)
"""Training samples, degrees and noises of Elmachtoub & Grigas 2022."""

SPO_TEST = 1000
PAPER_CELLS = ((2, 0.0), (4, 0.5), (6, 0.0), (8, 0.5))
"""Degrees and noises of the paper's cells that are run."""

PAPER_SIZES = (1000, 500, 500)
"""Samples that the paper trains on, validates by and tests on."""

QUICK_SIZES = (60, 20, 50)


def spo_paths(size: int, degree: int, noise: float, seed: int, quick: bool) -> StudyCase:
    """Paths through a 5×5 grid, with a fourth as many samples for validation as for training.

    Args:
        size: samples to train on.
        degree: the degree of the polynomial; a linear model is right at 1.
        noise: half-width of the factor around 1.
        seed: the seed of the samples.
        quick: draw fewer samples.
    """
    sizes = QUICK_SIZES if quick else (size, size // 4, SPO_TEST)
    return _polynomial_case(shortest_path((5, 5)), sizes, degree, noise, seed)


def paper_cell(task: str, degree: int, noise: float, seed: int, quick: bool) -> StudyCase:
    """A cell of the paper's tables: 1,000 samples train, 500 validate, 500 test.

    Args:
        task: "paths" or "knapsack".
        degree: the degree of the polynomial; a linear model is right at 1.
        noise: half-width of the factor around 1.
        seed: the seed of the samples, and of the knapsack's weights.
        quick: draw fewer samples, for a smaller knapsack.
    """
    sizes = QUICK_SIZES if quick else PAPER_SIZES
    if task == "paths":
        return _polynomial_case(shortest_path((5, 5)), sizes, degree, noise, seed)
    made = random_knapsack(items=20 if quick else 100, dimensions=5, capacity_ratio=0.5, seed=seed, jobs=1)
    return _polynomial_case(made, sizes, degree, noise, seed)


def _polynomial_case(
    task: SyntheticTask, sizes: tuple[int, int, int], degree: int, noise: float, seed: int
) -> StudyCase:
    """Draw the samples of a task and split them in the order in which they are drawn."""
    samples = task.samples(sum(sizes), degree=degree, noise=noise, seed=seed, dtype=torch.float64)
    rows, first = np.arange(sum(sizes)), sizes[0] + sizes[1]
    splits = (Split(rows[:first], rows[first:], held_out=sizes[1]),)
    return StudyCase(task.problem, samples.features.numpy(), samples.costs.numpy(), splits)
