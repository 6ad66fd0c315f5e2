"""Portfolios of 50 assets with polynomial expected returns (Elmachtoub & Grigas 2022)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from pear.problem import Problem
from pear.tasks import Samples, Task
from pear_lab.tasks.public.public_task import Drawing, PublicTask

Array = NDArray[np.float64]

ASSETS, FEATURES, FACTORS = 50, 5, 4
MEAN_RETURN = 0.1
SIGNAL, LOADING, NOISE = 0.05, 0.0025, 0.01
"""The effect of the features, the size of the factor loadings, and the noise of a single asset.

Loadings and noise are multiplied by τ, the size of the noise.
"""

VARIANCE_RATIO = 2.25
"""The largest allowed variance, as a multiple of the variance of equal weights."""

SIZES = (100, 50, 1000)


def draw_spo_portfolio(seed: int, degree: int, tau: float, sizes: tuple[int, int, int] = SIZES) -> Drawing:
    """Draw features x and returns ``r = r̄(x) + L f + 0.01 τ ε``, in float32.

    The expected return is ``r̄(x) = (0.05/√p Bx + 0.1^(1/degree))^degree`` with p features. The entries of B are 0 or 1
    with equal probability. The features x, the factors f and the noise ε are standard normal, and the loadings L are
    uniform within ±0.0025 τ.

    Args:
        seed: the seed of all random numbers.
        degree: the degree of the polynomial.
        tau: τ, the size of the noise.
        sizes: the numbers of samples for training, for validation and for the test.
    """
    random = np.random.RandomState(seed)
    B = random.binomial(1, 0.5, (ASSETS, FEATURES))
    L = random.uniform(-LOADING * tau, LOADING * tau, (ASSETS, FACTORS))
    x = random.normal(0, 1, (sum(sizes), FEATURES))
    mean = (SIGNAL / np.sqrt(FEATURES) * (x @ B.T) + MEAN_RETURN ** (1 / degree)) ** degree
    factors = random.normal(0, 1, (len(x), FACTORS))
    returns = mean + factors @ L.T + NOISE * tau * random.normal(0, 1, mean.shape)
    problem = _bounded_spo_portfolio(L / (LOADING * tau))
    samples = Samples(torch.from_numpy(x).float(), torch.from_numpy(returns).float())
    return Drawing(problem, Task("portfolio_50_assets", problem).split(samples, sizes))


def _bounded_spo_portfolio(loadings: Array) -> Problem:
    """Return the linear program of weights w ≥ 0 with ``Σᵢ wᵢ ≤ 1`` and a bounded variance.

    The variance is ``‖Lᵀw‖² + (0.01 τ)² ‖w‖²`` with the loadings L of n assets and the size τ of the noise. Linear
    constraints on both terms limit it to 2.25 times the variance of equal weights. For the first term, each entry of
    |Lᵀw| is at most 1.5 times its value at equal weights. For the second term, each weight is at most 2.25/n. As the
    sum of the weights is at most 1, ‖w‖² is then at most 2.25/n, too.

    Args:
        loadings: (n, factors) L, in any unit.
    """
    n = len(loadings)
    limits = np.sqrt(VARIANCE_RATIO) * np.abs(loadings.mean(0))
    G = np.concatenate([np.ones((1, n)), loadings.T, -loadings.T])
    h = np.concatenate([np.ones(1), limits, limits])
    return Problem(G=G, h=h, lb=0.0, ub=VARIANCE_RATIO / n, sense="max")


PORTFOLIO_ROW = PublicTask(
    name="spo-portfolio",
    title="Portfolios, degree 8",
    origin="Elmachtoub & Grigas 2022, section 6.2, https://arxiv.org/abs/1710.08005",
    protocol=(
        "50 assets, 5 features, degree 8, τ = 1: 100 samples train, 50 validate, 1,000 test. The origin bounds the "
        "variance by 2.25 times that of equal weights, which is no linear program; here linear bounds on the terms of "
        "the variance keep it below, so that the published numbers do not compare."
    ),
    draw=partial(draw_spo_portfolio, degree=8, tau=1.0),
)
