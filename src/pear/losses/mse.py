"""``MSELoss``: the mean squared error of the forecast, which ignores the decision."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from torch import Tensor, nn

from pear.problem import Model, Problem


class MSELoss(nn.Module):
    """The mean squared error over all entries, as ``torch.nn.MSELoss``; the baseline of the other methods.

    Args:
        problem: not used by the loss. ``fit`` computes its default metric, the regret, on this problem.
        decide: not used; all losses of ``METHODS`` take it.

    Attributes:
        seconds: zero for "solve" and "gradient", because nothing is solved.

    Example:
        >>> import torch
        >>> from pear.losses import MSELoss
        >>> MSELoss()(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]]))
        tensor(2.)
    """

    def __init__(self, problem: Problem | Model | None = None, decide: Any = None) -> None:
        super().__init__()
        self.given = problem
        self.seconds = {"solve": 0.0, "gradient": 0.0}

    def forward(self, predicted: Tensor, true: Tensor, keys: Tensor | Iterable[Hashable] | None = None) -> Tensor:
        """Compute the mean of (ĉ − c)² over all entries (B, n); ``keys`` is ignored."""
        return nn.functional.mse_loss(predicted, true)
