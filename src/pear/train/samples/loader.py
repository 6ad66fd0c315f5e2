"""Samples that come from a DataLoader, batch by batch, and are not kept."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from pear.errors import ProblemError
from pear.train.order import Order
from pear.train.samples.arrays import Features, Keys, leaves, nonfinite_rows, read_keys
from pear.train.samples.memory import Batch, InMemory, joined, parameter_of, read_batch
from pear.train.samples.rows import refuse_or_warn, unusable

LOOK = 4096
"""Samples of a DataLoader that are looked at before the first epoch, to tell whether and where a model begins."""


@dataclass(frozen=True, eq=False)
class FromLoader:
    """Samples that come in the batches and the order of a DataLoader, anew in every epoch; no features are kept.

    Attributes:
        loader: whose batches are (features, costs) or (features, costs, ids).
        name: for errors.
        model: whose dtype and device they get.
        seen: what one pass over them has found.
        numbered: whether samples without ids have their row numbers instead.
        drop: "" to train on all; "unusable" to leave out samples from which the model predicts nothing finite;
            "nonfinite" to leave out those with costs that are not finite as well.
    """

    loader: DataLoader[Any]
    name: str
    model: nn.Module
    seen: _Seen
    numbered: bool
    drop: str = ""

    @classmethod
    def read(cls, loader: DataLoader[Any], name: str, model: nn.Module, number: bool) -> FromLoader:
        """Look at all samples once.

        Args:
            loader: not shuffled, its samples may be numbered; name: for errors.
            model: what is trained.
            number: whether row numbers take the place of ids.

        Raises:
            ProblemError: the loader's length is not known, its batches are not what they must be, or there are none.
        """
        if isinstance(loader.dataset, IterableDataset) and not isinstance(loader.dataset, Sized):
            raise ProblemError(
                f"{name} is a DataLoader of an IterableDataset without a length, so that nobody knows where an epoch "
                "ends; give the dataset a __len__, or use a Dataset with __getitem__"
            )
        number = number and _in_order(loader)
        return cls(loader, name, model, _Seen.of(_batches(loader, name, model, number), name, model), number)

    def __len__(self) -> int:
        return len(self.seen.costs)

    @property
    def costs(self) -> Tensor:
        """(N, n)."""
        return self.seen.costs

    @property
    def keys(self) -> Keys | None:
        """N ids, in the order of the first pass; None where samples have none."""
        return self.seen.keys

    def epoch(self, size: int, order: Order, generator: torch.Generator) -> Iterator[Batch]:
        """The loader's own batches."""
        for batch in self.whole():
            if self.drop:
                bad = unusable(self.model, batch.features)
                bad = bad | nonfinite_rows(batch.costs) if self.drop == "nonfinite" else bad
                batch = batch.only(~bad) if bool(bad.any()) else batch
            if len(batch.costs):
                yield batch

    def whole(self) -> Iterator[Batch]:
        """All samples, batch by batch."""
        return _batches(self.loader, self.name, self.model, self.numbered)

    def look(self) -> InMemory:
        """The first samples of the pass, with their features."""
        return self.seen.first

    def usable(self, model: nn.Module, loss: Any) -> FromLoader:
        """Without samples from which the model predicts nothing finite; see ``refuse_or_warn``."""
        left_out = refuse_or_warn(self.seen.bad, len(self), loss)
        return replace(self, drop="unusable") if left_out else self

    def finite(self) -> FromLoader:
        """Those that training sees and whose costs are finite."""
        if not self.drop and not bool(nonfinite_rows(self.costs).any()):
            return self
        return replace(self, drop="nonfinite", seen=replace(self.seen, first=self.seen.first.finite()))


@dataclass(frozen=True, eq=False)
class _Seen:
    """What one pass over a DataLoader finds.

    Attributes:
        costs: (N, n) of all samples; keys: their ids, or None.
        first: the samples of the first batches, with their features, until they are ``LOOK``.
        bad: the places of samples from which the model predicts nothing finite.
    """

    costs: Tensor
    keys: Keys | None
    first: InMemory
    bad: list[int]

    @classmethod
    def of(cls, batches: Iterator[Batch], name: str, model: nn.Module) -> _Seen:
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
            bad += [count + row for row in unusable(model, batch.features).nonzero()[:, 0].tolist()]
            costs.append(batch.costs)
            keys.append(batch.keys)
            count += len(batch.costs)
        if not count:
            raise ProblemError(f"{name} must hold one sample at least; its DataLoader gives none")
        every, ids = torch.cat(costs), joined(keys)
        left_out = torch.zeros(looked, dtype=torch.bool, device=every.device)
        left_out[[row for row in bad if row < looked]] = True
        look = InMemory(Batch(_stacked(first), every[:looked], None), left_out)
        return cls(every, None if ids is None else read_keys(ids, count, name), look, bad)


def _shapes(features: Features) -> list[Any]:
    return [part.shape[1:] for part in leaves(features)]


def _batches(loader: DataLoader[Any], name: str, model: nn.Module, numbered: bool) -> Iterator[Batch]:
    """The loader's batches for the model, their samples numbered where they have no ids and that is asked for."""
    like, count = parameter_of(model), 0
    for entries in loader:
        batch = read_batch(entries, name)
        if batch.keys is None and numbered:
            batch = batch._replace(keys=torch.arange(count, count + len(batch.costs)))
        count += len(batch.costs)
        yield batch.to(like)


def _in_order(loader: DataLoader[Any]) -> bool:
    """True where the samples come in the order of the data, and so have row numbers."""
    batches = loader.batch_sampler
    return type(batches) is BatchSampler and type(batches.sampler) is SequentialSampler


def _stacked(parts: list[Features]) -> Features:
    """Batches of features one below the other."""
    columns = [torch.cat(column) for column in zip(*map(leaves, parts), strict=True)]
    if isinstance(parts[0], Tensor):
        return columns[0]
    return dict(zip(parts[0], columns, strict=True)) if isinstance(parts[0], dict) else tuple(columns)
