"""``LoaderSamples``: samples that a DataLoader yields batch by batch, and that are not kept in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from pear.errors import ProblemError
from pear.train.sample_order import Order
from pear.train.samples.features import Features, feature_tensors, join_features
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_batch import SampleBatch, join_batch_keys, parameter_for_batches, read_sample_batch
from pear.train.samples.sample_rows import Keys, read_sample_keys
from pear.train.samples.usable_samples import find_unusable_samples, nonfinite_samples, refuse_unusable_samples

LOOK = 4096
"""The number of samples of a DataLoader whose features are kept, for an inspection before the first epoch."""


@dataclass(frozen=True, eq=False)
class LoaderSamples:
    """Samples in the batches and the order of a DataLoader, which is read again in every epoch.

    Attributes:
        loader: the DataLoader, which yields batches (features, costs) or (features, costs, ids).
        name: the name of the samples in error messages.
        model: the model. The samples get its dtype and device.
        numbered: whether row numbers are the ids of samples that the loader yields without ids.
        costs: (N, n) true costs of all samples, in the order of the first pass over the loader.
        keys: the N ids in the order of the first pass; None if the samples have no ids.
        first: the samples of the first batches, with features. They end with the batch that completes 4,096 samples
            (``LOOK``), before the first batch whose features have another shape, or with the last batch.
        unusable: the row numbers of the samples that ``find_unusable_samples`` finds.
        drop: which samples training leaves out: "" for none, "unusable" for those in ``unusable``, and "nonfinite" for
            those and for samples whose costs are not finite.
        weight: None, because only samples in memory can have weights.
    """

    loader: DataLoader[Any]
    name: str
    model: nn.Module
    numbered: bool
    costs: Tensor
    keys: Keys | None
    first: MemorySamples
    unusable: list[int]
    drop: str = ""
    weight: ClassVar[None] = None

    @classmethod
    def read(cls, loader: DataLoader[Any], name: str, model: nn.Module, number: bool) -> LoaderSamples:
        """Return the samples of a loader after a first pass, which keeps all costs, all ids and the first features.

        Args:
            loader: the DataLoader.
            name: the name of the samples in error messages.
            model: the model that is trained.
            number: whether row numbers become the ids if the loader does not shuffle and yields no ids.

        Raises:
            ProblemError: the length of the loader is not known, a batch is not (features, costs) or (features, costs,
                ids), batches have costs of different shapes, or there is no batch.
        """
        if isinstance(loader.dataset, IterableDataset) and not isinstance(loader.dataset, Sized):
            raise ProblemError(
                f"{name} is a DataLoader of an IterableDataset without a length, so that nobody knows where an epoch "
                "ends; give the dataset a __len__, or use a Dataset with __getitem__"
            )
        numbered = number and _loader_keeps_order(loader)
        costs: list[Tensor] = []
        keys: list[Keys | None] = []
        first: list[Features] = []
        unusable: list[int] = []
        count = looked = 0
        for batch in _read_loader_batches(loader, name, model, numbered):
            if costs and batch.costs.shape[1:] != costs[0].shape[1:]:
                raise ProblemError(
                    f"the batches of {name} must have costs of one shape; got {tuple(costs[0].shape)} and then "
                    f"{tuple(batch.costs.shape)}"
                )
            if looked == count < LOOK and (
                not first or _loader_input_shapes(first[0]) == _loader_input_shapes(batch.features)
            ):
                looked += len(batch.costs)  # a batch of another shape, as of padded sequences, ends ``first``
                first.append(batch.features)
            unusable += [count + row for row in find_unusable_samples(model, batch.features).nonzero()[:, 0].tolist()]
            costs.append(batch.costs)
            keys.append(batch.keys)
            count += len(batch.costs)
        if not count:
            raise ProblemError(f"{name} must hold one sample at least; its DataLoader gives none")
        every, ids = torch.cat(costs), join_batch_keys(keys)
        left_out = torch.zeros(looked, dtype=torch.bool, device=every.device)
        left_out[[row for row in unusable if row < looked]] = True
        look = MemorySamples(SampleBatch(join_features(first), every[:looked], None), left_out)
        own_keys = None if ids is None else read_sample_keys(ids, count, name)
        return cls(loader, name, model, numbered, every, own_keys, look, unusable)

    def __len__(self) -> int:
        return len(self.costs)

    def epoch(self, size: int, order: Order, generator: torch.Generator) -> Iterator[SampleBatch]:
        """Yield the batches of the loader, without the samples that training leaves out; the arguments are not used."""
        for batch in self.whole():
            if self.drop:
                bad = find_unusable_samples(self.model, batch.features)
                bad = bad | nonfinite_samples(batch.costs) if self.drop == "nonfinite" else bad
                batch = batch.only(~bad) if bool(bad.any()) else batch
            if len(batch.costs):
                yield batch

    def whole(self) -> Iterator[SampleBatch]:
        """Yield all samples, batch by batch."""
        return _read_loader_batches(self.loader, self.name, self.model, self.numbered)

    def look(self) -> MemorySamples:
        """Return the first samples of the first pass, with their features."""
        return self.first

    def usable(self, model: nn.Module, loss: Any) -> LoaderSamples:
        """Return the same samples, with those in ``unusable`` marked as left out of training.

        Raises:
            ProblemError: as in ``refuse_unusable_samples``.
        """
        left_out = refuse_unusable_samples(self.unusable, len(self), loss)
        return replace(self, drop="unusable") if left_out else self

    def finite(self) -> LoaderSamples:
        """Return the samples that training uses and whose costs are finite."""
        if not self.drop and not bool(nonfinite_samples(self.costs).any()):
            return self
        return replace(self, drop="nonfinite", first=self.first.finite())


def _loader_input_shapes(features: Features) -> list[Any]:
    """Return, for each input, the shape of its features in one sample."""
    return [part.shape[1:] for part in feature_tensors(features)]


def _read_loader_batches(loader: DataLoader[Any], name: str, model: nn.Module, numbered: bool) -> Iterator[SampleBatch]:
    """Yield the batches of a loader, converted for the model.

    Args:
        loader: the DataLoader.
        name: the name of the samples in error messages.
        model: the model. The samples get its dtype and device.
        numbered: whether row numbers are the ids of samples that the loader yields without ids.
    """
    like, count = parameter_for_batches(model), 0
    for entries in loader:
        batch = read_sample_batch(entries, name)
        if batch.keys is None and numbered:
            batch = batch._replace(keys=torch.arange(count, count + len(batch.costs)))
        count += len(batch.costs)
        yield batch.to(like)


def _loader_keeps_order(loader: DataLoader[Any]) -> bool:
    """Return whether the loader yields the samples in the order of its dataset, so that they have row numbers."""
    batches = loader.batch_sampler
    return type(batches) is BatchSampler and type(batches.sampler) is SequentialSampler
