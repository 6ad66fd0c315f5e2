"""``MSELoss``: the error of the forecast, whatever is decided with it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from torch import Tensor, nn

from pear.problem import Model, Problem


class MSELoss(nn.Module):
    """Mean squared error over all entries, as ``torch.nn.MSELoss``: what the other methods are compared with.

    Args:
        problem: not used by the loss; ``fit`` takes its metric on it where it is given none.
        decide: not used; there so that every method is made in the same way.

    Attributes:
        seconds: zero for "solve" and "gradient": nothing is solved.

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
        """Mean of (ĉ − c)² over the batch's (B, n) entries."""
        return nn.functional.mse_loss(predicted, true)
