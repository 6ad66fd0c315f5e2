"""Samples that are read from files anew in every epoch, and of which no more than a few blocks are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pear.errors import DataError
from pear.train.order import Order
from pear.train.samples.memory import Batch, InMemory, parameter_of
from pear.train.samples.parquet import ParquetSamples, Piece, RowGroup, regrouped
from pear.train.samples.rows import masks

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class FromStream:
    """Samples of Parquet files. They have no ids, so that no loss keeps a warm start for each of them.

    Attributes:
        source: the files.
        like: a parameter of the model, whose dtype and device they get.
        first: a bounded sample of them, by which everything is settled that has to be known before the first step.
        drop: whether rows with a value that is missing, NaN or infinite are left out; else they are refused.
    """

    source: ParquetSamples
    like: Tensor
    first: InMemory
    drop: bool = False

    @classmethod
    def read(cls, source: ParquetSamples, model: nn.Module) -> FromStream:
        """Read the sample."""
        like = parameter_of(model)
        return cls(source, like, InMemory(_batch(source, source.sample(drop=True)).to(like)))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def costs(self) -> Tensor:
        """(M, n) of the bounded sample."""
        return self.first.costs

    @property
    def keys(self) -> None:
        """No ids."""
        return None

    @property
    def note(self) -> str:
        """What a user should know about a stream."""
        used = "all" if len(self.first) == len(self) else f"{len(self.first):,}, spread evenly,"
        return (
            f"{self.source!r} is streamed: the scale of the costs, smoothing='auto' and the squared error that comes "
            f"first go by {used} of its samples, and no warm starts are kept"
        )

    def epoch(self, size: int, order: Order, generator: torch.Generator) -> Iterator[Batch]:
        """The batches of an epoch, ``size`` samples each.

        ``order`` puts the row groups in an order, and then the samples of each block of about ``buffer`` of them. All
        of it goes by one number that is drawn from ``generator``: the same number, the same epoch.
        """
        own = torch.Generator().manual_seed(int(torch.randint(2**63 - 1, (), generator=generator)))
        groups = [self.source.groups[i] for i in order(len(self.source.groups), own).tolist()]
        for block in self._blocks(groups, max(1, self.source.buffer // size) * size):
            rows = order(len(block.costs), own).to(self.like.device)
            yield from map(block.only, rows.split(size))

    def _blocks(self, groups: Sequence[RowGroup], size: int) -> Iterator[Batch]:
        """So many samples at a time, for the model; the next ones are read meanwhile."""
        pieces = self.source.pieces(groups, self.source.buffer, self.drop)
        return (_batch(self.source, piece).to(self.like) for piece in _ahead(regrouped(pieces, size)))

    def whole(self) -> Iterator[Batch]:
        """All samples, in the order of the files, block by block."""
        return self._blocks(self.source.groups, self.source.buffer)

    def look(self) -> InMemory:
        """What there is to see before the first epoch: the bounded sample."""
        return self.first

    def usable(self, model: nn.Module, loss: Any) -> FromStream:
        """Without rows in which a value is missing, where the loss masks.

        Raises:
            DataError: the files themselves say that there are such rows, and the loss does not mask.
        """
        if masks(loss):
            return replace(self, drop=True)
        if len(self.first) < min(len(self), self.source.buffer):
            self.source.sample()  # refuses now what an epoch would refuse later
        if self.source.missing:
            raise DataError(
                f"{self.source.missing}; fill them in or leave the rows out, or make the loss with on_failure='mask', "
                "which leaves such samples out"
            )
        return self

    def finite(self) -> InMemory:
        """What the squared error that comes first is trained on: the bounded sample, all of it finite."""
        return self.first


def _batch(source: ParquetSamples, piece: Piece) -> Batch:
    costs, *features = map(torch.from_numpy, piece)
    return Batch(source.named(features), costs, None)


def _ahead(parts: Iterator[T]) -> Iterator[T]:
    """The same, each of them fetched in another thread while the one before it is used."""
    with ThreadPoolExecutor(1, "pear-stream") as pool:
        coming = pool.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = pool.submit(next, parts, None)
            yield part
