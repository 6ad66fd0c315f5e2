"""``SyntheticTask``: a task with synthetic samples, whose costs are a polynomial of the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.tensor_conversion import to_batch_tensor
from pear.setting_checks import check_count_setting
from pear.tasks.task import Samples, Task

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
    """Draw features x and costs ``c = ((Bx/√p + 3)^degree + 1) / 3.5^degree · ε``.

    B is 0 or 1 with equal chance, x standard normal and ε uniform in [1 − noise, 1 + noise]. They are drawn in this
    order, ε row by row: published results depend on it. A linear model is right at degree 1 and ever more wrong above.

    Args:
        random: the state to draw from; a task that has other random parts draws them from it before.
        count: N, number of samples.
        n: costs per sample.
        degree: the degree of the polynomial, at least 1.
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
        check_count_setting(name, value)
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


@dataclass(frozen=True)
class SyntheticTask(Task):
    """A task with synthetic samples. Subclasses may override ``_random``, the random state, and ``_costs``."""

    columns: ClassVar[str] = "variables"

    def samples(
        self,
        count: int = 2000,
        degree: int = 8,
        noise: float = 0.5,
        seed: int | None = None,
        features: int = 5,
        dtype: torch.dtype = torch.float32,
        formula: Formula = "code",
    ) -> Samples:
        """Draw synthetic features and costs, ``c = ((Bx/√p + 3)^degree + 1) / 3.5^degree · ε``.

        Args:
            count: N, number of samples.
            degree: the degree of the polynomial. With 1 a linear model is right; the higher the degree, the more wrong
                it is.
            noise: half-width of the factor ε around 1.
            seed: the seed of a ``numpy.random.RandomState``; the same seed gives the same data everywhere. If omitted,
                the task's own, or 0.
            features: p, features per sample.
            dtype: the type of the tensors; their numbers are drawn in float64, then rounded.
            formula: "code", or "paper" for the formula as printed, with the 1 outside the division.

        Returns:
            Features (N, p) and costs (N, n).

        Example:
            >>> from pear.tasks import shortest_path
            >>> X, C = shortest_path((5, 5)).samples(100, degree=4)
            >>> X.shape, C.shape
            (torch.Size([100, 5]), torch.Size([100, 40]))
        """
        x, c = polynomial_costs(self._random(seed), count, self.problem.n, degree, noise, features, formula)
        return Samples(torch.from_numpy(x).to(dtype), torch.from_numpy(self._costs(c)).to(dtype))

    def _random(self, seed: int | None) -> np.random.RandomState:
        return np.random.RandomState(0 if seed is None else seed)

    def _costs(self, polynomial: Array) -> Array:
        return polynomial

    def _checked(self, cost: Any) -> Tensor:
        """Return costs (B, n), or raise an error where there is not one for each variable."""
        costs, n = to_batch_tensor(cost).detach(), self.problem.n
        if costs.shape[1] != n:
            raise ProblemError(f"cost must have one column for each of the {n} {self.columns}; got {costs.shape[1]}")
        return costs
