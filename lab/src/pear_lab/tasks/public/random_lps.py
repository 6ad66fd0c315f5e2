"""Random linear programs with polynomial values, which have no structure that a method could use."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from pear.problem import Problem
from pear.tasks import Samples, Task
from pear.tasks.synthetic_task import polynomial_costs
from pear_lab.tasks.public.public_task import Drawing, PublicTask

VARIABLES, CONSTRAINTS = 50, 25
CAPACITY_SHARE = 0.25
SIZES = (200, 100, 1000)


def draw_random_lp(seed: int, degree: int, noise: float, sizes: tuple[int, int, int] = SIZES) -> Drawing:
    """Draw max cᵀz with Gz ≤ h, 0 ≤ z ≤ 1, and its polynomial values c, in float32.

    G is uniform in [0, 1], and each entry of h is a quarter of its row's sum. Nearly every vertex has as many active
    constraints as variables, so that none is degenerate.

    Args:
        seed: the seed of G, the features, the matrix behind the values, and the noise.
        degree: the degree of the polynomial.
        noise: half-width of the factor around 1.
        sizes: samples to train on, to choose by and to test on.
    """
    random = np.random.RandomState(seed)
    G = random.uniform(0, 1, (CONSTRAINTS, VARIABLES))
    problem = Problem(G=G, h=CAPACITY_SHARE * G.sum(1), lb=0.0, ub=1.0, sense="max")
    x, c = polynomial_costs(random, sum(sizes), VARIABLES, degree, noise)
    samples = Samples(torch.from_numpy(x).float(), torch.from_numpy(c).float())
    return Drawing(problem, Task("random_program", problem).split(samples, sizes))


RANDOM_LP_ROW = PublicTask(
    name="random-lps",
    title="Random linear programs",
    origin="Berden et al. 2025, Solver-Free Decision-Focused Learning (LAVA), https://arxiv.org/abs/2505.22224",
    protocol=(
        "50 variables from 0 to 1, 25 constraints of uniform entries that allow a quarter of their sum, 5 features, "
        "degree 6, noise 0.5: 200 samples train, 100 validate, 1,000 test. Sizes and right-hand sides are ours, "
        "so that published numbers do not compare."
    ),
    draw=partial(draw_random_lp, degree=6, noise=0.5),
)
