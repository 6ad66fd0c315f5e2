"""What must be alike on all ranks of a data-parallel training: given alike, or taken from rank 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from pear.errors import ProblemError
from pear.losses import PEARLoss
from pear.train.checkpoint import load_weights, loss_identity, model_identity
from pear.train.config import FitConfig
from pear.train.order import Order
from pear.train.ranks import Ranks, fingerprint
from pear.train.samples import Samples
from pear.train.samples.arrays import leaves
from pear.train.samples.loader import FromLoader


def same_start(ranks: Ranks, model: nn.Module, loss: Any, config: FitConfig) -> None:
    """Refuse ranks with another model, loss or config; all get the weights of rank 0."""
    if ranks.size > 1:
        ranks.meet(f"a model {model_identity(model)}")
        ranks.meet(f"a loss {loss_identity(loss)}")
        ranks.meet(str(replace(config, seed=0)))  # the order is drawn from the generator of rank 0
        same_weights(ranks, model)


def same_samples(ranks: Ranks, samples: Samples) -> None:
    """Refuse ranks with other samples; those of a DataLoader are compared batch by batch."""
    if ranks.size == 1:
        return
    if isinstance(samples, FromLoader):
        if isinstance(samples.loader.sampler, DistributedSampler):
            raise ProblemError(
                "the DataLoader has a DistributedSampler, and fit splits every batch over the ranks itself; give all "
                "ranks the same loader, with sampler= left out, and where it shuffles a generator of the same seed"
            )
        ranks.meet(f"{len(samples)} samples of a DataLoader")
        return
    digest = fingerprint(*leaves(samples.look().features), samples.costs)
    ranks.meet(f"{len(samples)} samples, of which the fingerprint is {digest}")


def same_weights(ranks: Ranks, model: nn.Module) -> None:
    """Those of rank 0, also of what no gradient changes, as the statistics of a batch norm."""
    if ranks.size > 1:
        load_weights(model, ranks.same("the weights", lambda: {"weights": dict(model.state_dict())})["weights"])


def agreed(order: Order, ranks: Ranks) -> Order:
    """The same order, which all ranks must have drawn alike."""
    if ranks.size == 1:
        return order

    def compared(count: int, generator: torch.Generator) -> Tensor:
        rows = order(count, generator)
        ranks.meet(f"samples in the order {fingerprint(rows)}")
        return rows

    return compared


def counts(loss: Any) -> tuple[int, int]:
    """Samples that the loss has seen, and those that kept their working set; zeros where it does not count."""
    return (loss.samples, loss.reused) if isinstance(loss, PEARLoss) else (0, 0)


def add_up(ranks: Ranks, loss: Any, before: tuple[int, int]) -> None:
    """Let the loss count what all ranks have done since ``before``."""
    own = [now - then for now, then in zip(counts(loss), before, strict=True)]
    samples, reused, _ = ranks.meet("the counters of the loss", *own)
    if isinstance(loss, PEARLoss):
        loss.count(int(samples) - own[0], int(reused) - own[1])
