"""``MSELoss``: the squared error of the forecast, which does not depend on the decision."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from torch import Tensor, nn

from pear.errors import ProblemError
from pear.losses.cost_pairs import check_cost_pair
from pear.losses.decision_loss import Decide
from pear.losses.sample_weights import read_weights, weighted_mean
from pear.problem import Model, Problem
from pear.problem.oracle import make_oracle


class MSELoss(nn.Module):
    """The mean squared error over all entries, as ``torch.nn.MSELoss``, with the interface of the other losses.

    Args:
        problem: not used by the loss. The default metric of ``fit``, the regret, is computed for this problem.
        decide: not used by the loss. Maps costs (B, n) to decisions (B, n) in the default metric of ``fit``;
            ``pear.solve`` on ``problem`` if omitted.

    Attributes:
        seconds: zero for "solve" and "gradient", because nothing is solved.

    Example:
        >>> import torch
        >>> from pear.losses import MSELoss
        >>> MSELoss()(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]]))
        tensor(2.)
    """

    def __init__(self, problem: Problem | Model | None = None, decide: Decide | None = None) -> None:
        super().__init__()
        if problem is None and decide is not None:
            raise ProblemError("decide came without a problem, which says what a decision is worth; pass both")
        self.given = problem if problem is None or decide is None else make_oracle(problem, decide)
        self.seconds = {"solve": 0.0, "gradient": 0.0}

    def forward(
        self, predicted: Tensor, true: Tensor, keys: Tensor | Iterable[Hashable] | None = None, weight: Any = None
    ) -> Tensor:
        """Compute the mean squared error over all entries (B, n), weighted by ``weight`` (B,); ``keys`` is ignored."""
        check_cost_pair(predicted, true)
        if weight is None:
            return nn.functional.mse_loss(predicted, true)
        weights = read_weights(weight, len(predicted)).to(predicted.device)
        return weighted_mean(nn.functional.mse_loss(predicted, true, reduction="none"), weights)
