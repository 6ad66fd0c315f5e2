"""Random linear programs without structure, with polynomial values."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from pear.problem import Problem
from pear.tasks import Samples, Task
from pear.tasks.synthetic_task import draw_synthetic_costs
from pear_lab.tasks.public.public_task import Drawing, PublicTask

VARIABLES, CONSTRAINTS = 50, 25
CAPACITY_SHARE = 0.25
SIZES = (200, 100, 1000)


def draw_random_lp(seed: int, degree: int, noise: float, sizes: tuple[int, int, int] = SIZES) -> Drawing:
    """Draw ``max cᵀz`` subject to Gz ≤ h and 0 ≤ z ≤ 1, with polynomial values c in float32.

    The entries of G are uniform in [0, 1], and each entry of h is a quarter of the sum of its row of G. Nearly all
    vertices have exactly as many active constraints as there are variables, which makes them non-degenerate.

    Args:
        seed: the seed of G, the features, the matrix behind the values, and the noise.
        degree: the degree of the polynomial.
        noise: the half-width of the interval of noise factors around 1.
        sizes: the numbers of samples for training, for validation and for the test.
    """
    random = np.random.RandomState(seed)
    G = random.uniform(0, 1, (CONSTRAINTS, VARIABLES))
    problem = Problem(G=G, h=CAPACITY_SHARE * G.sum(1), lb=0.0, ub=1.0, sense="max")
    x, c = draw_synthetic_costs(random, sum(sizes), VARIABLES, degree, noise)
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
