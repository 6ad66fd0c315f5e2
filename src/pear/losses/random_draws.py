"""``RandomDraws``: random numbers whose state can be saved; ``DrawingLoss``: the base of losses that draw them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from pear.losses.decision_loss import CostSettings, Decide, DecisionLoss
from pear.problem import Model, Problem


class RandomDraws:
    """Random numbers of one loss, whose state can be saved and restored.

    Args:
        seed: the seed of a ``numpy.random.RandomState``, whose stream is the same in every version of NumPy.

    Attributes:
        generator: the ``RandomState``, for distributions that have no method here.

    Example:
        >>> draws = RandomDraws(135)
        >>> kept = draws.state()
        >>> first = draws.normal(2, 3)
        >>> draws.load_state(kept)
        >>> bool((draws.normal(2, 3) == first).all())
        True
    """

    def __init__(self, seed: int) -> None:
        self.generator = np.random.RandomState(seed)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normal numbers of this shape, in float64, with one call of the generator."""
        return torch.from_numpy(self.generator.normal(0, 1, shape))

    def sum_of_gammas(self, kappa: float, terms: int, *shape: int) -> Tensor:
        """Draw ``(Σ_{i=1..s} γ_i − log s) / κ`` with γ_i ~ Gamma(1/κ, κ/i) and s = ``terms``, in float64."""
        total = sum(self.generator.gamma(1 / kappa, kappa / i, shape) for i in range(1, terms + 1))
        return torch.from_numpy((total - np.log(terms)) / kappa)

    def state(self) -> dict[str, Any]:
        """Return the state of the generator, as tensors, numbers and strings."""
        name, words, *rest = self.generator.get_state(legacy=True)
        return {"name": name, "words": torch.from_numpy(np.asarray(words, dtype=np.int64)), "rest": rest}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state of the generator from a result of ``state``."""
        words = state["words"].numpy().astype(np.uint32)
        self.generator.set_state((state["name"], words, *state["rest"]))


class DrawSettings(CostSettings, total=False):
    """The settings that all ``DrawingLoss`` classes have; ``DrawingLoss`` and ``DecisionLoss`` document them."""

    seed: int


class DrawingLoss(DecisionLoss):
    """A loss that draws random numbers. A resumed run draws the same numbers as an uninterrupted one.

    Args:
        seed: the seed of the loss's own ``numpy.random.RandomState``, whose state is part of ``state_dict()``.
        problem, decide, mse_weight, cost_unit: as for ``DecisionLoss``.

    Attributes:
        draws: the ``RandomDraws`` of the loss.
    """

    def __init__(
        self, problem: Problem | Model, decide: Decide | None = None, seed: int = 135, **shared: Unpack[CostSettings]
    ) -> None:
        super().__init__(problem, decide, **shared)
        self.draws = RandomDraws(seed)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the unit of the costs and the state of the random generator, for ``state_dict``."""
        return {**super().get_extra_state(), **self.draws.state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the unit of the costs and the random generator from a saved state."""
        super().set_extra_state(state)
        self.draws.load_state(state)
