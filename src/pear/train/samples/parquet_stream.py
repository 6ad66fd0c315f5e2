"""Samples of Parquet files, which are read again in every epoch, a few blocks at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pear.errors import DataError
from pear.train.sample_order import Order
from pear.train.samples.in_memory import MemorySamples, SampleBatch, parameter_of
from pear.train.samples.parquet import ParquetSamples, Piece, RowGroup, regroup
from pear.train.samples.unusable import masks

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class StreamSamples:
    """Samples of Parquet files. They have no ids, so that a loss keeps no warm starts.

    Attributes:
        source: the files.
        like: a parameter of the model, whose dtype and device the samples get.
        first: a bounded number of samples, which ``fit`` looks at before the first step.
        drop: whether rows with a value that is missing, NaN or infinite are left out; otherwise they are refused.
    """

    source: ParquetSamples
    like: Tensor
    first: MemorySamples
    drop: bool = False

    @classmethod
    def read(cls, source: ParquetSamples, model: nn.Module) -> StreamSamples:
        """Read the samples to look at."""
        like = parameter_of(model)
        return cls(source, like, MemorySamples(_batch(source, source.sample(drop=True)).to(like)))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def costs(self) -> Tensor:
        """(M, n) true costs of the samples to look at."""
        return self.first.costs

    @property
    def keys(self) -> None:
        """None: the samples have no ids."""
        return None

    @property
    def note(self) -> str:
        """A sentence for the user: what is settled by a part of the samples alone."""
        used = "all" if len(self.first) == len(self) else f"{len(self.first):,}, spread evenly,"
        return (
            f"{self.source!r} is streamed: the scale of the costs, smoothing='auto' and the squared error that comes "
            f"first go by {used} of its samples, and no warm starts are kept"
        )

    def epoch(self, size: int, order: Order, generator: torch.Generator) -> Iterator[SampleBatch]:
        """The batches of an epoch, ``size`` samples each.

        ``order`` orders the row groups, and then the samples of each block of about ``buffer`` samples. Both are drawn
        from a generator of their own, whose seed is the only number that is drawn from ``generator``.
        """
        own = torch.Generator().manual_seed(int(torch.randint(2**63 - 1, (), generator=generator)))
        groups = [self.source.groups[i] for i in order(len(self.source.groups), own).tolist()]
        for block in self._blocks(groups, max(1, self.source.buffer // size) * size):
            rows = order(len(block.costs), own).to(self.like.device)
            yield from map(block.only, rows.split(size))

    def _blocks(self, groups: Sequence[RowGroup], size: int) -> Iterator[SampleBatch]:
        """Blocks of ``size`` samples for the model; the next block is read while one is used."""
        pieces = self.source.pieces(groups, self.source.buffer, self.drop)
        return (_batch(self.source, piece).to(self.like) for piece in _ahead(regroup(pieces, size)))

    def whole(self) -> Iterator[SampleBatch]:
        """All samples, in the order of the files, block by block."""
        return self._blocks(self.source.groups, self.source.buffer)

    def look(self) -> MemorySamples:
        """The samples that can be looked at before the first epoch."""
        return self.first

    def usable(self, model: nn.Module, loss: Any) -> StreamSamples:
        """Leave out rows in which a value is missing, where the loss masks failed samples.

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

    def finite(self) -> MemorySamples:
        """The samples to look at, all of them finite; training on the squared error uses them alone."""
        return self.first


def _batch(source: ParquetSamples, piece: Piece) -> SampleBatch:
    costs, *features = map(torch.from_numpy, piece)
    return SampleBatch(source.named(features), costs, None)


def _ahead(parts: Iterator[T]) -> Iterator[T]:
    """The same items, each fetched in another thread while the one before it is used."""
    with ThreadPoolExecutor(1, "pear-stream") as pool:
        coming = pool.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = pool.submit(next, parts, None)
            yield part
