"""Costs that are a polynomial of hidden linear scores: the usual synthetic data of decision-focused learning."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pear.errors import ProblemError

Array = NDArray[np.float64]
Formula = Literal["code", "paper"]


def polynomial_costs(
    random: np.random.RandomState,
    count: int,
    n: int,
    degree: int,
    noise: float,
    features: int = 5,
    formula: Formula = "code",
) -> tuple[Array, Array]:
    """Features x and costs ``c = ((Bx/√p + 3)^degree + 1) / 3.5^degree · ε``.

    B is 0 or 1 with equal chance, x standard normal and ε uniform in [1 − noise, 1 + noise]. They are drawn in this
    order, ε row by row: published results depend on it. A linear model is right at degree 1 and ever more wrong above.

    Args:
        random: the state to draw from; a task that has other random parts draws them from it before.
        count: N, number of samples.
        n: costs per sample.
        degree: of the polynomial, at least 1.
        noise: half-width of ε, 0 to 1.
        features: p, features per sample.
        formula: "code" as above, which made the published numbers; "paper" as printed, with the 1 added after the
            division: ``c = ((Bx/√p + 3)^degree / 3.5^degree + 1) · ε``.

    Returns:
        Features (N, p) and costs (N, n).

    Example:
        >>> x, c = polynomial_costs(np.random.RandomState(0), count=4, n=3, degree=2, noise=0.5)
        >>> x.shape, c.shape
        ((4, 5), (4, 3))
    """
    for name, value in (("count", count), ("n", n), ("degree", degree), ("features", features)):
        if value != int(value) or value < 1:
            raise ProblemError(f"{name} must be a whole number of at least 1; got {value!r}")
    if not 0 <= noise <= 1:
        raise ProblemError(f"noise must be a number from 0 to 1, so that no cost changes its sign; got {noise!r}")
    if formula not in ("code", "paper"):
        raise ProblemError(f"formula must be 'code' (the 1 inside the division) or 'paper' (outside); got {formula!r}")
    B = random.binomial(1, 0.5, (n, features))
    x = random.normal(0, 1, (count, features))
    power = (x @ B.T / np.sqrt(features) + 3) ** degree
    c = (power + 1) / 3.5**degree if formula == "code" else power / 3.5**degree + 1
    # One block is the same stream as one row after another: RandomState fills arrays in C order.
    c *= random.uniform(1 - noise, 1 + noise, (count, n))
    return x, c
