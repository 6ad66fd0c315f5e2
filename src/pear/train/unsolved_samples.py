"""``UnsolvedSamples``: counts how often ``fit`` leaves out a sample for which no verified solution was found."""

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
    """The count of samples that were left out because their status was INACCURATE.

    INACCURATE means that no solver has found a verified solution for the present forecast of the sample. A later
    forecast of the same sample may be solved. ``fit`` therefore leaves the sample out of the present step, or of the
    present comparison in a race, and goes on. Samples with any other failure are not left out.

    Attributes:
        count: how often a sample was left out.
    """

    def __init__(self) -> None:
        self.count = 0

    def solved_rows(self, loss: Any, error: SolveError, batch: int, keys: Sequence[Hashable] | None) -> Tensor:
        """Return the positions (k,) of those samples of a batch that ``error`` does not name.

        The samples that ``error`` names are added to ``count``. The first call issues a warning.

        Args:
            loss: the loss, which has raised the error.
            error: the error.
            batch: the number of samples in the batch.
            keys: the ids of the samples in the batch, for the warning; None if they have no ids.

        Raises:
            SolveError: ``error`` itself, if a status in it is not INACCURATE, or if the loss is not a ``PEARLoss``,
                because only the errors of a ``PEARLoss`` are known to name positions in the batch.
        """
        known = isinstance(loss, PEARLoss) and error.samples and max(error.samples) < batch
        if not known or any(status != Status.INACCURATE for status in error.statuses):
            raise error
        if not self.count:
            named = list_positions("sample", [i if keys is None else str(keys[i]) for i in error.samples])
            warnings.warn(
                f"no verified solution was found for {named} (INACCURATE). The training goes on without such samples; "
                "history.left_out counts them",
                FailedSamplesWarning,
                stacklevel=2,
            )
        self.count += len(error.samples)
        rest = torch.ones(batch, dtype=torch.bool)
        rest[error.samples] = False
        return rest.nonzero()[:, 0]
