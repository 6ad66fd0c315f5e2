"""``PFYLLoss``: the perturbed Fenchel–Young loss (Berthet et al., 2020)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.losses.decision_loss import Decide, DecisionLoss, check_number
from pear.problem import Model, Problem


class PFYLLoss(DecisionLoss):
    """``ℓ = ĉᵀz*(c) − mean_m min_z (ĉ + σε_m)ᵀz``, mean over the batch; gradient ``z*(c) − mean_m z*(ĉ + σε_m)``.

    ε is standard normal and drawn anew in every step. For maximisation every cost changes its sign. The smallest value
    is negative and unknown (at least ``E min_z σεᵀz``), so that only changes of the value are meaningful.

    Args:
        problem: the decision problem, with a linear objective.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` where left out.
        samples: the number of perturbations per sample and step.
        sigma: σ, the size of the perturbations.
        seed: the seed of the loss's own ``numpy.random.RandomState``, whose state is part of ``state_dict()``.
        mse_weight: weight of ``½ ‖ĉ − c‖²``, mean over the samples, added to the loss.

    Example:
        >>> import torch, pear
        >>> from pear.losses import PFYLLoss
        >>> loss = PFYLLoss(pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0), samples=4, sigma=0.1)
        >>> predicted = torch.tensor([[2.0, 1.0]], requires_grad=True)
        >>> loss(predicted, torch.tensor([[1.0, 3.0]])).backward()
        >>> predicted.grad
        tensor([[ 1., -1.]])
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        samples: int = 1,
        sigma: float = 1.0,
        seed: int = 135,
        mse_weight: float = 0.0,
    ) -> None:
        super().__init__(problem, decide, mse_weight)
        if samples != int(samples) or samples < 1:
            raise ProblemError(f"samples must be a whole number of at least 1; got {samples!r}")
        check_number("sigma", sigma, least=0.0, strict=True)
        self.samples = int(samples)
        self.sigma = float(sigma)
        self._random = np.random.RandomState(seed)

    def value(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss with all decisions held fixed, so that its derivative is the gradient of the class."""
        best = self.best(true, ids)
        # Published numbers depend on the order of the draws: one draw of (m, B, n) per step.
        noise = torch.from_numpy(self._random.normal(0, 1, (self.samples, *predicted.shape))).to(predicted)
        perturbed = predicted + self.problem.sign * self.sigma * noise
        z = self.decide(perturbed.flatten(0, 1), None if ids is None else ids * self.samples).view_as(noise)
        with self.timed("gradient"):
            gap = (predicted * best).sum(1) - (perturbed * z).sum(2).mean(0)
            return self.problem.sign * gap.mean()

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the random generator, so that a resumed run draws the same numbers."""
        name, words, *rest = self._random.get_state(legacy=True)
        return {"name": name, "words": torch.from_numpy(np.asarray(words, dtype=np.int64)), "rest": rest}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the random generator from a saved state."""
        words = state["words"].numpy().astype(np.uint32)
        self._random.set_state((state["name"], words, *state["rest"]))
