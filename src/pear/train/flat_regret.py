"""``FlatRegret``: warns if most samples have a positive regret, but a gradient of zero, for several epochs."""

from __future__ import annotations

import logging
from typing import Any

from torch import Tensor

from pear.losses import PEARLoss
from pear.train.parallel_ranks import ParallelRanks

logger = logging.getLogger("pear")

MOST = 0.5
"""An epoch counts as flat if a larger share of its samples than this has a positive regret and a gradient of zero."""
EPOCHS = 10
"""The number of flat epochs in a row that leads to a warning; the first epochs of an untrained model are often flat."""
_GUIDED = 0.01  # stronger guidance than this gives a gradient even if that of the regret is zero


class FlatRegret:
    """A counter of the samples in each epoch that have a positive regret but a gradient of exactly zero.

    The user is warned once for each loss, because nothing is learnt from such samples.

    Args:
        loss: the loss that is trained. It is watched only if it is a ``PEARLoss`` whose user has set the smoothing λ or
            has turned guidance off, because only then is a change of these settings useful advice.
    """

    def __init__(self, loss: Any) -> None:
        changed = isinstance(loss, PEARLoss) and (loss.smoothing != "auto" or not loss.guidance)
        self.loss = loss if changed else None
        self.count: float | Tensor = 0.0
        self.epochs = 0  # in a row

    @property
    def watching(self) -> bool:
        """Whether samples are counted: the loss is watched, and its user was not warned yet."""
        return self.loss is not None and not self.loss.warned_of_flat

    def step(self) -> None:
        """Count the samples of the loss's last call that have a positive regret but a gradient of zero.

        The count stays on the device, so that no step waits for it.
        """
        if self.watching and self.loss is not None and self.loss.last is not None:
            parts = self.loss.last._parts
            self.count = self.count + ((parts.exact == 0).all(1) & (parts.value > 0)).sum()

    def end(self, epoch: int, compiled: float, seen: int, ranks: ParallelRanks) -> None:
        """End an epoch, and warn after several flat epochs in a row (``EPOCHS``).

        An epoch is flat if guidance is weak, and most samples have a positive regret but a gradient of zero.

        Args:
            epoch: the number of the epoch.
            compiled: the number of samples with a positive regret and a gradient of zero that compiled code has
                counted in this epoch.
            seen: the number of samples in the epoch.
            ranks: the processes that train together. Their counts are added, and rank 0 warns.
        """
        counts, self.count = ranks.meet(f"the end of epoch {epoch}", float(self.count) + compiled), 0.0
        count = sum(one for (one,) in counts)
        loss = self.loss
        if loss is None or not self.watching:
            return
        self.epochs = self.epochs + 1 if count > MOST * seen and loss.current_guidance <= _GUIDED else 0
        if self.epochs < EPOCHS:
            return
        loss.warned_of_flat = True
        if not ranks.first:
            return
        advice = [f"a larger smoothing (λ is {loss.chosen_smoothing:.3g}; 'auto' picks one)"]
        if loss.smoothing == "auto":
            advice = [f"a larger smoothing than 'auto' has picked (λ is {loss.chosen_smoothing:.3g})"]
        if loss.guidance < 1.0:
            advice.append("guidance=1.0, which pulls where regret is flat")
        logger.warning(
            f"the gradient of {count / seen:.0%} of the samples is exactly zero in epoch {epoch}, although they have a "
            "regret, and of more than half in the epochs before: their decisions are corners, which a small change of "
            "the forecast does not move, so that nothing is learnt from them. "
            f"Pass {', '.join(advice)}, or begin with a model that predicts the mean of the training costs",
        )
