"""``SyntheticTask``: a task with synthetic samples, whose costs are polynomials of the features."""

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


def draw_synthetic_costs(
    random: np.random.RandomState,
    count: int,
    n: int,
    degree: int,
    noise: float,
    features: int = 5,
    formula: Formula = "code",
) -> tuple[Array, Array]:
    """Return random features x and costs ``c = ((Bx/√p + 3)^degree + 1) / 3.5^degree · ε``.

    The entries of the matrix B are 0 or 1 with equal probability, those of x are standard normal, and those of ε are
    uniform in [1 − noise, 1 + noise]. Published results depend on the order of the draws: B, then x, then ε. A linear
    model is exact for degree 1, apart from the noise, and less accurate for higher degrees.

    Args:
        random: the random state. If a task has other random parts, such as weights, it has drawn them from this state
            before.
        count: N, the number of samples.
        n: the number of costs of a sample.
        degree: the degree of the polynomial, at least 1.
        noise: half-width of the factor ε around 1, from 0 to 1.
        features: p, the number of features of a sample.
        formula: "code" for the formula above, from which the published numbers come; "paper" for the formula as printed
            in the paper that introduced these data, ``c = ((Bx/√p + 3)^degree / 3.5^degree + 1) · ε``.

    Returns:
        Features (N, p) and costs (N, n).

    Example:
        >>> x, c = draw_synthetic_costs(np.random.RandomState(0), count=4, n=3, degree=2, noise=0.5)
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
    # RandomState fills arrays in C order, so that one call gives the same numbers as a call for each row.
    c *= random.uniform(1 - noise, 1 + noise, (count, n))
    return x, c


@dataclass(frozen=True)
class SyntheticTask(Task):
    """A task that draws synthetic samples. Their costs are polynomials of their features; see ``samples``."""

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
        """Return random features x and costs ``c = ((Bx/√p + 3)^degree + 1) / 3.5^degree · ε``.

        The entries of the random matrix B are 0 or 1, those of x are standard normal, and ε is noise. The costs of a
        knapsack are the values ``⌈5 c⌉``.

        Args:
            count: N, the number of samples.
            degree: the degree of the polynomial. A linear model is exact for degree 1 and less accurate for higher
                degrees.
            noise: half-width of the factor ε around 1.
            seed: the seed of a ``numpy.random.RandomState``. A seed gives the same data on every machine. If omitted,
                the seed of the task, or 0.
            features: p, the number of features of a sample.
            dtype: the type of the tensors. Their numbers are drawn in float64 and then rounded.
            formula: "code" for the formula above; "paper" for the formula as printed in the paper that introduced these
                data, with the 1 added after the division.

        Returns:
            Features (N, p) and costs (N, n).

        Example:
            >>> from pear.tasks import shortest_path
            >>> X, C = shortest_path((5, 5)).samples(100, degree=4)
            >>> X.shape, C.shape
            (torch.Size([100, 5]), torch.Size([100, 40]))
        """
        x, c = draw_synthetic_costs(self._random(seed), count, self.problem.n, degree, noise, features, formula)
        return Samples(torch.from_numpy(x).to(dtype), torch.from_numpy(self._costs(c)).to(dtype))

    def _random(self, seed: int | None) -> np.random.RandomState:
        """Return the random state from which samples are drawn. Subclasses may override this method."""
        return np.random.RandomState(0 if seed is None else seed)

    def _costs(self, polynomial: Array) -> Array:
        """Return the costs (N, n) of the task from polynomial costs (N, n). Subclasses may override it."""
        return polynomial

    def _checked(self, cost: Any) -> Tensor:
        """Return costs as a tensor (B, n). Raise ``ProblemError`` if their number of columns is not n."""
        costs, n = to_batch_tensor(cost).detach(), self.problem.n
        if costs.shape[1] != n:
            raise ProblemError(f"cost must have one column for each of the {n} {self.columns}; got {costs.shape[1]}")
        return costs
