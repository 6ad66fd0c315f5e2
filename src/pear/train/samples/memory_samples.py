"""``MemorySamples``: samples that are in memory as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from pear.train.base_forecast import CorrectionOffsets


@dataclass(frozen=True, eq=False)
class MemorySamples:
    """Samples in memory.

    Attributes:
        all: all N samples. If they have no ids, their row numbers are their ids.
        left_out: (N,) bool, the samples that training leaves out; None if training uses all samples.
        offsets: if a base is corrected, the forecasts that a race chooses from; None if there is no such choice. The
            forecasts that are corrected without a choice are the second input of the model.
    """

    all: SampleBatch
    left_out: Tensor | None = None
    offsets: CorrectionOffsets | None = None

    @classmethod
    def read(cls, data: Any, name: str) -> MemorySamples:
        """Return the samples in a pair (features, costs), a triple (features, costs, ids) or a Dataset, as tensors.

        The dtypes stay as they are.

        Args:
            data: the samples. ``MemorySamples`` are returned unchanged.
            name: the name of the samples in error messages.

        Raises:
            ProblemError: the data have another form, or features and costs have different numbers of rows.
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
        """Return the samples with these weights, divided by their mean. Training leaves out samples of weight 0.

        Args:
            weight: (N,) how much each sample counts.
            name: the name of the weights in error messages.
        """
        weights = normalized_weights(read_weights(weight, len(self), name)).to(self.costs.device)
        return replace(self, all=self.all._replace(weight=weights)).without_weightless()

    def without_weightless(self) -> MemorySamples:
        """Return the same samples, with those of weight 0 marked as left out of training."""
        if self.weight is None or bool((self.weight > 0).all()):
            return self
        return self._without(self.weight == 0)

    def _without(self, mask: Tensor) -> MemorySamples:
        """Return the same samples. Those that a mask (N,) selects are also marked as left out of training."""
        return replace(self, left_out=mask if self.left_out is None else mask | self.left_out)

    def with_offset(self, offset: Tensor) -> MemorySamples:
        """Return the same samples with the forecasts ``offset`` (N, n) as those that the model corrects."""
        assert isinstance(self.features, tuple)
        return replace(self, all=self.all._replace(features=(self.features[0], offset)))

    def without_offset(self) -> MemorySamples:
        """Return the same samples for a model that corrects nothing."""
        assert isinstance(self.features, tuple)
        return replace(self, all=self.all._replace(features=self.features[0]), offsets=None)

    def seen(self) -> MemorySamples:
        """Return the samples that training uses, with the ids that they have among all samples."""
        return self if self.left_out is None else MemorySamples(self.at((~self.left_out).nonzero()[:, 0]))

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def weight(self) -> Tensor | None:
        """(N,) how much each sample counts; None if all samples count alike."""
        return self.all.weight

    @property
    def mean_costs(self) -> Tensor:
        """The weighted mean (n,) of the true costs."""
        if self.weight is None:
            return self.costs.mean(0)
        weight = self.weight.to(self.costs)[:, None]
        return (weight * self.costs).sum(0) / weight.sum()

    @property
    def features(self) -> Features:
        """The features (N, …), or a tuple or dict of such tensors."""
        return self.all.features

    @property
    def costs(self) -> Tensor:
        """The true costs (N, n)."""
        return self.all.costs

    @property
    def keys(self) -> Keys | None:
        """The N ids that came with the samples; None if the row numbers are the ids."""
        return self.all.keys

    @property
    def numbered(self) -> bool:
        """Whether the ids are the row numbers."""
        rows = torch.arange(len(self), device=self.costs.device)
        return self.keys is None or (isinstance(self.keys, Tensor) and torch.equal(self.keys, rows))

    def at(self, rows: Tensor) -> SampleBatch:
        """Return the samples with these row numbers (B,), which become the ids if the samples have none."""
        batch = self.all.only(rows)
        return batch._replace(keys=rows) if batch.keys is None else batch

    def rows(self, order: Order, generator: torch.Generator) -> Tensor:
        """Return the row numbers of the samples that an epoch visits, in the order of the epoch."""
        rows = order(len(self), generator).to(self.costs.device)
        return rows if self.left_out is None else rows[~self.left_out[rows]]

    def epoch(self, size: int, order: Order, generator: torch.Generator) -> Iterator[SampleBatch]:
        """Yield the batches of an epoch, of ``size`` samples each; the last one may be smaller."""
        return (self.at(some) for some in self.rows(order, generator).split(size))

    def whole(self) -> Iterator[SampleBatch]:
        """Yield all samples in one batch."""
        yield self.all

    def look(self) -> MemorySamples:
        """Return the samples that can be inspected before the first epoch: all of them."""
        return self

    def usable(self, model: nn.Module, loss: Any, whose: str = "training") -> MemorySamples:
        """Return the same samples, with those that ``find_unusable_samples`` finds marked as left out of training.

        ``whose`` is as in ``refuse_unusable_samples``.

        Raises:
            ProblemError: as in ``refuse_unusable_samples``.
        """
        bad = find_unusable_samples(model, self.features)
        left_out = refuse_unusable_samples(bad.nonzero()[:, 0].tolist(), len(self), loss, whose)
        return self._without(bad) if left_out else self

    def finite(self) -> MemorySamples:
        """Return the samples that training uses and whose costs are finite."""
        keep = ~nonfinite_samples(self.costs)
        return MemorySamples(self.all.only(keep if self.left_out is None else keep & ~self.left_out))

    def cut(self, first: int) -> tuple[MemorySamples, MemorySamples]:
        """Return two parts: the samples before row number ``first``, and the others.

        The second part has no samples of weight 0. If its samples have no ids, their row numbers before the cut become
        their ids.
        """
        rows = torch.arange(len(self), device=self.costs.device)
        last = rows[first:] if self.weight is None else rows[first:][self.weight[first:] > 0]
        if not len(last):
            raise ProblemError(f"the last {len(self) - first} samples, which are held out, all have a weight of 0")
        return MemorySamples(self.all.only(rows[:first])).without_weightless(), MemorySamples(self.at(last))


def _read_dataset_into_memory(data: Dataset[Any], name: str) -> Any:
    """Return all items of a Dataset, stacked to tensors."""
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
