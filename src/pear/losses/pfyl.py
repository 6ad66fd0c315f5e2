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

    ε is standard normal, new in every step. For maximisation the sign of every cost is turned. The value falls to a
    number below zero that is not known, ``E min_z σεᵀz`` at the least: only its changes mean something.

    Args:
        problem: what is decided, with a linear objective.
        decide: (B, n) costs → (B, n) best decisions; left out, ``pear.solve`` on ``problem``.
        samples: m, perturbations a sample and step.
        sigma: σ, their size.
        seed: of a ``numpy.random.RandomState`` made with the loss; its state is part of ``state_dict()``.
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
        """The loss, as a function that is linear in ĉ at the decisions: its derivative is the formula above."""
        best = self.best(true, ids)
        # Published numbers depend on the order: one draw of (m, B, n) a step.
        noise = torch.from_numpy(self._random.normal(0, 1, (self.samples, *predicted.shape))).to(predicted)
        perturbed = predicted + self.problem.sign * self.sigma * noise
        z = self.decide(perturbed.flatten(0, 1), None if ids is None else ids * self.samples).view_as(noise)
        with self.timed("gradient"):
            gap = (predicted * best).sum(1) - (perturbed * z).sum(2).mean(0)
            return self.problem.sign * gap.mean()

    def get_extra_state(self) -> dict[str, Any]:
        """The state of the random numbers, so that a resumed run draws the same ones."""
        name, words, *rest = self._random.get_state(legacy=True)
        return {"name": name, "words": torch.from_numpy(np.asarray(words, dtype=np.int64)), "rest": rest}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        words = state["words"].numpy().astype(np.uint32)
        self._random.set_state((state["name"], words, *state["rest"]))
