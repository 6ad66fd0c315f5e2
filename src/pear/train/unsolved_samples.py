"""``UnsolvedSamples``: counts how often a training leaves out a sample for which no verified solution was found."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from pear.errors import FailedSamplesWarning, SolveError
from pear.losses import PEARLoss
from pear.optimality.status import Status
from pear.wording import list_positions


class UnsolvedSamples:
    """The count of samples that were left out of a step of a training because their status was INACCURATE.

    Such a sample has a solution, but no solver has found it under the forecast of this one step. It would be wrong to
    lose a long training for it. Samples with any other failure are not left out.

    Attributes:
        count: how often a sample was left out.
    """

    def __init__(self) -> None:
        self.count = 0

    def solved_rows(self, loss: Any, error: SolveError, batch: int, keys: Sequence[Hashable] | None) -> Tensor:
        """Return the positions (k,) of the other samples of a batch, count those in ``error``, and warn the first time.

        Args:
            loss: the loss, which has raised the error.
            error: the error.
            batch: the number of samples in the batch.
            keys: their ids, for the warning; None if they have none.

        Raises:
            SolveError: the error itself, if a sample has another status, or if the loss is not a ``PEARLoss``, whose
                errors name positions in the batch.
        """
        known = isinstance(loss, PEARLoss) and error.samples and max(error.samples) < batch
        if not known or any(status != Status.INACCURATE for status in error.statuses):
            raise error
        if not self.count:
            named = list_positions("sample", [i if keys is None else str(keys[i]) for i in error.samples])
            warnings.warn(
                f"no verified solution was found for {named} (INACCURATE). The training leaves such samples out of the "
                "step, and goes on; history.left_out counts them",
                FailedSamplesWarning,
                stacklevel=2,
            )
        self.count += len(error.samples)
        rest = torch.ones(batch, dtype=torch.bool)
        rest[error.samples] = False
        return rest.nonzero()[:, 0]
