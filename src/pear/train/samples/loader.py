"""``LoaderSamples``: samples that a DataLoader gives batch by batch, without keeping them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from pear.errors import ProblemError
from pear.train.sample_order import Order
from pear.train.samples.features import Features, Keys, input_tensors, nonfinite_rows, read_keys
from pear.train.samples.in_memory import MemorySamples, SampleBatch, join_keys, parameter_of, read_batch
from pear.train.samples.unusable import find_unusable, refuse_or_warn

LOOK = 4096
"""The number of samples of a DataLoader whose features are kept, to inspect before the first epoch."""


@dataclass(frozen=True, eq=False)
class LoaderSamples:
    """Samples in the batches and the order of a DataLoader, which is read again in every epoch.

    Attributes:
        loader: gives batches (features, costs) or (features, costs, ids).
        name: of the samples, for error messages.
        model: the model; samples get its dtype and device.
        seen: the results of the first pass over the loader.
        numbered: whether the row numbers serve as ids where the loader gives none.
        drop: "" to train on all samples; "unusable" to leave out those from which the model predicts nothing finite;
            "nonfinite" to leave out those with costs that are not finite as well.
    """

    loader: DataLoader[Any]
    name: str
    model: nn.Module
    seen: _LoaderSummary
    numbered: bool
    drop: str = ""

    @classmethod
    def read(cls, loader: DataLoader[Any], name: str, model: nn.Module, number: bool) -> LoaderSamples:
        """Make the first pass over a loader.

        Args:
            loader: gives the batches.
            name: of the samples, for error messages.
            model: what is trained.
            number: whether row numbers serve as ids, where the loader does not shuffle and gives none.

        Raises:
            ProblemError: the loader's length is not known, its batches are not what they must be, or there are none.
        """
        if isinstance(loader.dataset, IterableDataset) and not isinstance(loader.dataset, Sized):
            raise ProblemError(
                f"{name} is a DataLoader of an IterableDataset without a length, so that nobody knows where an epoch "
                "ends; give the dataset a __len__, or use a Dataset with __getitem__"
            )
        number = number and _keeps_order(loader)
        return cls(loader, name, model, _LoaderSummary.of(_batches(loader, name, model, number), name, model), number)

    def __len__(self) -> int:
        return len(self.seen.costs)

    @property
    def costs(self) -> Tensor:
        """(N, n) true costs, in the order of the first pass."""
        return self.seen.costs

    @property
    def keys(self) -> Keys | None:
        """N ids, in the order of the first pass; None where the samples have none."""
        return self.seen.keys

    def epoch(self, size: int, order: Order, generator: torch.Generator) -> Iterator[SampleBatch]:
        """The loader's own batches."""
        for batch in self.whole():
            if self.drop:
                bad = find_unusable(self.model, batch.features)
                bad = bad | nonfinite_rows(batch.costs) if self.drop == "nonfinite" else bad
                batch = batch.only(~bad) if bool(bad.any()) else batch
            if len(batch.costs):
                yield batch

    def whole(self) -> Iterator[SampleBatch]:
        """All samples, batch by batch."""
        return _batches(self.loader, self.name, self.model, self.numbered)

    def look(self) -> MemorySamples:
        """Return the first samples of the first pass, with their features."""
        return self.seen.first

    def usable(self, model: nn.Module, loss: Any) -> LoaderSamples:
        """Leave out samples from which the model predicts nothing finite; ``refuse_or_warn`` says when."""
        left_out = refuse_or_warn(self.seen.bad, len(self), loss)
        return replace(self, drop="unusable") if left_out else self

    def finite(self) -> LoaderSamples:
        """The samples that training sees and whose costs are finite."""
        if not self.drop and not bool(nonfinite_rows(self.costs).any()):
            return self
        return replace(self, drop="nonfinite", seen=replace(self.seen, first=self.seen.first.finite()))


@dataclass(frozen=True, eq=False)
class _LoaderSummary:
    """The results of the first pass over a DataLoader.

    Attributes:
        costs: (N, n) true costs of all samples.
        keys: N ids; None where the samples have none.
        first: the samples of the first batches, with features, at least ``LOOK`` of them where there are as many.
        bad: row numbers of the samples from which the model predicts nothing finite.
    """

    costs: Tensor
    keys: Keys | None
    first: MemorySamples
    bad: list[int]

    @classmethod
    def of(cls, batches: Iterator[SampleBatch], name: str, model: nn.Module) -> _LoaderSummary:
        costs: list[Tensor] = []
        keys: list[Keys | None] = []
        first: list[Features] = []
        bad: list[int] = []
        count = looked = 0
        for batch in batches:
            if costs and batch.costs.shape[1:] != costs[0].shape[1:]:
                raise ProblemError(
                    f"the batches of {name} must have costs of one shape; got {tuple(costs[0].shape)} and then "
                    f"{tuple(batch.costs.shape)}"
                )
            if looked == count < LOOK and (not first or _shapes(first[0]) == _shapes(batch.features)):
                looked += len(batch.costs)  # a batch of another shape, as of padded sequences, ends the look
                first.append(batch.features)
            bad += [count + row for row in find_unusable(model, batch.features).nonzero()[:, 0].tolist()]
            costs.append(batch.costs)
            keys.append(batch.keys)
            count += len(batch.costs)
        if not count:
            raise ProblemError(f"{name} must hold one sample at least; its DataLoader gives none")
        every, ids = torch.cat(costs), join_keys(keys)
        left_out = torch.zeros(looked, dtype=torch.bool, device=every.device)
        left_out[[row for row in bad if row < looked]] = True
        look = MemorySamples(SampleBatch(_join_features(first), every[:looked], None), left_out)
        return cls(every, None if ids is None else read_keys(ids, count, name), look, bad)


def _shapes(features: Features) -> list[Any]:
    return [part.shape[1:] for part in input_tensors(features)]


def _batches(loader: DataLoader[Any], name: str, model: nn.Module, numbered: bool) -> Iterator[SampleBatch]:
    """The loader's batches, converted for the model; row numbers serve as ids where ``numbered`` is true."""
    like, count = parameter_of(model), 0
    for entries in loader:
        batch = read_batch(entries, name)
        if batch.keys is None and numbered:
            batch = batch._replace(keys=torch.arange(count, count + len(batch.costs)))
        count += len(batch.costs)
        yield batch.to(like)


def _keeps_order(loader: DataLoader[Any]) -> bool:
    """Whether the loader gives the samples in the order of its dataset, so that they have row numbers."""
    batches = loader.batch_sampler
    return type(batches) is BatchSampler and type(batches.sampler) is SequentialSampler


def _join_features(parts: list[Features]) -> Features:
    """Join the features of several batches to those of one."""
    columns = [torch.cat(column) for column in zip(*map(input_tensors, parts), strict=True)]
    if isinstance(parts[0], Tensor):
        return columns[0]
    return dict(zip(parts[0], columns, strict=True)) if isinstance(parts[0], dict) else tuple(columns)
