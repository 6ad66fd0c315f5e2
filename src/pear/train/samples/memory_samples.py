"""``MemorySamples``: samples in memory as tensors; and ``SampleBatch``, which every source of samples gives."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, default_collate

from pear.errors import ProblemError
from pear.losses.sample_weights import normalized_weights, read_weights
from pear.train.sample_order import Order
from pear.train.samples.features import Features
from pear.train.samples.sample_batch import SampleBatch, describe_batch_type, read_sample_batch
from pear.train.samples.sample_rows import Keys, check_sample_rows
from pear.train.samples.usable_samples import find_unusable_samples, nonfinite_samples, refuse_unusable_samples


@dataclass(frozen=True, eq=False)
class MemorySamples:
    """Samples in memory.

    Attributes:
        all: N samples; where they have no ids, their row numbers serve as ids.
        left_out: (N,) bool, the samples that training does not see; None where it sees all.
    """

    all: SampleBatch
    left_out: Tensor | None = None

    @classmethod
    def read(cls, data: Any, name: str) -> MemorySamples:
        """Convert a pair (features, costs), a triple with ids, or a Dataset to tensors of their own dtype.

        Raises:
            ProblemError: it is something else, or features and costs are not of the same samples.
        """
        if isinstance(data, MemorySamples):
            return data
        if isinstance(data, IterableDataset):
            raise ProblemError(
                f"{name} is an IterableDataset, which only a DataLoader can read; pass DataLoader(dataset, …)"
            )
        if isinstance(data, Dataset):
            return cls(read_sample_batch(_read_dataset_into_memory(data, name), name))
        if isinstance(data, Iterator):
            raise ProblemError(
                f"{name} is a {type(data).__name__}, which gives its samples only once, and every epoch needs them; "
                "pass arrays, a Dataset or a DataLoader"
            )
        if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
            raise ProblemError(
                f"{name} must be a pair of features and costs, a Dataset or a DataLoader of such samples; got "
                f"{describe_batch_type(data)}"
            )
        check_sample_rows(*data)
        return cls(read_sample_batch(data, name))

    def weigh(self, weight: Any, name: str) -> MemorySamples:
        """Give every sample a weight, in the unit of the mean weight; training does not see those of weight 0.

        Args:
            weight: (N,) how much each sample counts, or None.
            name: the name of the argument in messages.
        """
        if weight is None:
            return self
        weights = normalized_weights(read_weights(weight, len(self), name)).to(self.costs.device)
        return replace(self, all=self.all._replace(weight=weights)).without_weightless()

    def without_weightless(self) -> MemorySamples:
        """Leave samples of weight 0 out of the training."""
        if self.weight is None or bool((self.weight > 0).all()):
            return self
        left_out = self.weight == 0
        return replace(self, left_out=left_out if self.left_out is None else left_out | self.left_out)

    def seen(self) -> MemorySamples:
        """The samples without those that are left out; they keep their row numbers as ids."""
        return self if self.left_out is None else MemorySamples(self.at((~self.left_out).nonzero()[:, 0]))

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def weight(self) -> Tensor | None:
        """(N,) how much each sample counts; None where all count alike."""
        return self.all.weight

    @property
    def mean_costs(self) -> Tensor:
        """(n,) the weighted mean of the true costs."""
        if self.weight is None:
            return self.costs.mean(0)
        weight = self.weight.to(self.costs)[:, None]
        return (weight * self.costs).sum(0) / weight.sum()

    @property
    def features(self) -> Features:
        """(N, …), or a tuple or dict of such tensors."""
        return self.all.features

    @property
    def costs(self) -> Tensor:
        """(N, n) true costs."""
        return self.all.costs

    @property
    def keys(self) -> Keys | None:
        """N ids that came with the samples; None where they are the row numbers."""
        return self.all.keys

    @property
    def numbered(self) -> bool:
        """Whether the ids are the row numbers."""
        rows = torch.arange(len(self), device=self.costs.device)
        return self.keys is None or (isinstance(self.keys, Tensor) and torch.equal(self.keys, rows))

    def at(self, rows: Tensor) -> SampleBatch:
        """The samples at these row numbers (B,), with ids."""
        batch = self.all.only(rows)
        return batch._replace(keys=rows) if batch.keys is None else batch

    def rows(self, order: Order, generator: torch.Generator) -> Tensor:
        """Return the row numbers of an epoch, in the order of the epoch."""
        rows = order(len(self), generator).to(self.costs.device)
        return rows if self.left_out is None else rows[~self.left_out[rows]]

    def epoch(self, size: int, order: Order, generator: torch.Generator) -> Iterator[SampleBatch]:
        """The batches of an epoch, ``size`` samples each."""
        return (self.at(some) for some in self.rows(order, generator).split(size))

    def whole(self) -> Iterator[SampleBatch]:
        """All samples, in one batch."""
        yield self.all

    def look(self) -> MemorySamples:
        """The samples that can be looked at before the first epoch: all of them."""
        return self

    def usable(self, model: nn.Module, loss: Any, whose: str = "training") -> MemorySamples:
        """Leave out samples from which the model predicts nothing finite; ``refuse_unusable_samples`` says when."""
        bad = find_unusable_samples(model, self.features)
        left_out = refuse_unusable_samples(bad.nonzero()[:, 0].tolist(), len(self), loss, whose)
        return replace(self, left_out=bad if self.left_out is None else bad | self.left_out) if left_out else self

    def finite(self) -> MemorySamples:
        """The samples that training sees and whose costs are finite."""
        keep = ~nonfinite_samples(self.costs)
        return MemorySamples(self.all.only(keep if self.left_out is None else keep & ~self.left_out))

    def cut(self, first: int) -> tuple[MemorySamples, MemorySamples]:
        """Split into the first samples and the others, which keep their row numbers as ids."""
        rows = torch.arange(len(self), device=self.costs.device)
        last = rows[first:] if self.weight is None else rows[first:][self.weight[first:] > 0]
        if not len(last):
            raise ProblemError(f"the last {len(self) - first} samples, which are held out, all have a weight of 0")
        return MemorySamples(self.all.only(rows[:first])).without_weightless(), MemorySamples(self.at(last))


def _read_dataset_into_memory(data: Dataset[Any], name: str) -> Any:
    """Stack all items of a Dataset to one batch."""
    if not isinstance(data, Sized) or not len(data):
        raise ProblemError(f"{name} must hold one sample at least; got a {type(data).__name__} without any")
    items = [data[i] for i in range(len(data))]
    if not isinstance(items[0], (tuple, list)) or len(items[0]) not in (2, 3):
        raise ProblemError(
            f"an item of {name} must be (features, costs) or (features, costs, id); got "
            f"{describe_batch_type(items[0])}. Several inputs of a model go together: ((a, b), costs)"
        )
    try:
        return default_collate(items)
    except (TypeError, RuntimeError) as error:
        raise ProblemError(
            f"the items of {name} cannot be stacked: {error}; make features and costs tensors or arrays of one shape"
        ) from error
