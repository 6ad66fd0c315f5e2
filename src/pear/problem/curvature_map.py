"""``CurvatureMap``: the curvature Q of the objective as a function of predicted weights of quadratic terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.cost_map import CostMap, read_cost_map_matrix
from pear.problem.problem import Problem
from pear.problem.tensor_conversion import ArrayLike, to_batch_tensor, to_float64_tensor


class CurvatureMap:
    """The map ``Q = Q₀ + Σ ŷᵢ Qᵢ`` from predicted weights ŷ (k,) of quadratic terms, such as a price of risk.

    Q₀ is the Q of the problem, and Qᵢ (n, n) is what one unit of ŷᵢ adds to it. A predicted weight with a sign that
    ``signs`` forbids counts as 0, because the objective would not be convex with it.

    Args:
        M: (n·n, k) matrix, dense or sparse, whose column i is Qᵢ, flattened row by row. The column of a predicted value
            that is not a weight is zero.
        signs: (k,) 1 for a weight that may not be negative, −1 for one that may not be positive, 0 for others.

    Attributes:
        inputs: the number k of predicted values.
        n: the number of variables.

    Example:
        >>> CurvatureMap([[2.0]], signs=[1.0])(torch.tensor([[3.0], [-1.0]]), None).flatten()
        tensor([6., 0.])
    """

    def __init__(self, M: ArrayLike, signs: ArrayLike) -> None:
        self._map = CostMap(read_cost_map_matrix(M, "M of a curvature map", "(n·n, k)"))
        self.inputs, self.n = self._map.inputs, round(self._map.n**0.5)
        self.signs = to_float64_tensor("signs", signs)
        if self.n**2 != self._map.n or tuple(self.signs.shape) != (self.inputs,):
            raise ProblemError(
                f"M of a curvature map must have n² rows, and signs a number for each of its {self.inputs} columns; "
                f"got {self._map.n} rows and {len(self.signs)} signs"
            )

    @property
    def M(self) -> Any:
        """The matrix (n·n, k) with the flattened Qᵢ as columns, a tensor or SciPy's CSR."""
        return self._map.M

    def __call__(self, values: Tensor, own: Tensor | None) -> Tensor:
        """Compute the curvature (B, n, n) under predicted values. Differentiable, in the dtype of the values.

        Args:
            values: (B, k) predicted values.
            own: (n, n) or (B, n, n) the Q of the problem; None for zero.
        """
        signs = self.signs.to(values)
        weights = torch.where(signs * values < 0, torch.zeros_like(values), values)
        Q = self._map(weights).reshape(len(values), self.n, self.n)
        return Q if own is None else Q + own.to(Q)

    def of_samples(self, problem: Problem, keys: list[Any] | None, *values: Tensor) -> tuple[Tensor, ...]:
        """Compute a curvature (B, n, n) for each of several forecasts (B, k).

        Args:
            problem: the problem whose Q is Q₀.
            keys: the row numbers of the B samples, if the problem's fields differ between samples; None for 0, 1, ….
            values: forecasts of the k predicted values.
        """
        own = (problem if keys is None else problem[keys]).Q
        return tuple(self(one, own) for one in values)

    def __repr__(self) -> str:
        return f"CurvatureMap({self.inputs} predicted values → Q of {self.n} variables)"


def split_curvature_map(problem: Any, *values: Any) -> tuple[Any, ...]:
    """Return a model without its curvature map, and the Q that this map predicts under each of several forecasts.

    Args:
        problem: a ``Problem`` or a ``Model``.
        values: forecasts, each (B, k) predicted values.

    Returns:
        The model without its curvature map, and a detached Q (B, n, n) for each forecast. A problem, or a model that
        predicts no curvature, is returned unchanged, with None for each forecast.
    """
    if getattr(problem, "curvature_map", None) is None:
        return (problem, *[None] * len(values))
    plain = replace(problem, curvature_map=None)
    return (plain, *(problem.curvature(to_batch_tensor(one).detach().double()) for one in values))
