"""Cases of the study of forecasters with polynomial costs: those of Elmachtoub & Grigas, and those of PEAR's paper."""

from __future__ import annotations

import numpy as np
import torch

from pear.tasks import random_knapsack, shortest_path
from pear.tasks.synthetic_task import SyntheticTask
from pear_lab.forecasters.study_case import StudyCase, StudySplit

SPO_SIZES, SPO_DEGREES, SPO_NOISES = (100, 1000, 5000), (1, 2, 4, 6, 8), (0.0, 0.5)
"""The numbers of training samples, the degrees and the noises of Elmachtoub & Grigas 2022."""

SPO_TEST = 1000
PAPER_CELLS = ((2, 0.0), (4, 0.5), (6, 0.0), (8, 0.5))
"""The study runs these pairs of degree and noise, which are some of those in PEAR's paper."""

PAPER_SIZES = (1000, 500, 500)
"""The paper's numbers of samples for training, for validation and for the test."""

QUICK_SIZES = (60, 20, 50)


def polynomial_spo_case(size: int, degree: int, noise: float, seed: int, quick: bool) -> StudyCase:
    """Return a case of shortest paths through a 5×5 grid.

    The number of validation samples is a quarter of the number of training samples.

    Args:
        size: the number of training samples.
        degree: the degree of the polynomial; at 1 the costs are linear in the features.
        noise: the cost of each arc is multiplied by a random factor between 1 − ``noise`` and 1 + ``noise``.
        seed: the seed of the samples.
        quick: whether to draw fewer samples.
    """
    sizes = QUICK_SIZES if quick else (size, size // 4, SPO_TEST)
    return _polynomial_case(shortest_path((5, 5)), sizes, degree, noise, seed)


def polynomial_paper_case(task: str, degree: int, noise: float, seed: int, quick: bool) -> StudyCase:
    """Return a case of PEAR's paper, with 1,000 samples for training, 500 for validation and 500 for the test.

    Args:
        task: "paths" or "knapsack".
        degree: the degree of the polynomial; at 1 the costs are linear in the features.
        noise: each cost is multiplied by a random factor between 1 − ``noise`` and 1 + ``noise``.
        seed: the seed of the samples and of the knapsack's weights.
        quick: whether to draw fewer samples, and a smaller knapsack.
    """
    sizes = QUICK_SIZES if quick else PAPER_SIZES
    if task == "paths":
        return _polynomial_case(shortest_path((5, 5)), sizes, degree, noise, seed)
    made = random_knapsack(items=20 if quick else 100, dimensions=5, capacity_ratio=0.5, seed=seed, jobs=1)
    return _polynomial_case(made, sizes, degree, noise, seed)


def _polynomial_case(
    task: SyntheticTask, sizes: tuple[int, int, int], degree: int, noise: float, seed: int
) -> StudyCase:
    """Draw the samples of a task, and return the case that splits them in the order of drawing."""
    samples = task.samples(sum(sizes), degree=degree, noise=noise, seed=seed, dtype=torch.float64)
    rows, first = np.arange(sum(sizes)), sizes[0] + sizes[1]
    splits = (StudySplit(rows[:first], rows[first:], held_out=sizes[1]),)
    return StudyCase(task.problem, samples.features.numpy(), samples.costs.numpy(), splits)
