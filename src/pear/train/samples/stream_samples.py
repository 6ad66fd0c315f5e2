"""``StreamSamples``: samples of Parquet files, which every epoch reads again, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from pear.errors import DataError
from pear.train.sample_order import Order
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.parquet_samples import ParquetSamples, Piece, RowGroup, regroup_parquet_rows
from pear.train.samples.sample_batch import SampleBatch, parameter_for_batches
from pear.train.samples.usable_samples import masks_unusable_samples

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class StreamSamples:
    """Samples of Parquet files, for the training of a model. They have no ids, so that a loss keeps no warm starts.

    Attributes:
        source: the files.
        like: a parameter of the model, whose dtype and device the samples get.
        first: the samples in memory, which ``fit`` reads before the first step: at most ``source.buffer``.
        drop: whether rows with a value that is missing, NaN or infinite are left out; otherwise they are refused.
        keys: None, because the samples have no ids.
        weight: None, because only samples in memory can have weights.
    """

    source: ParquetSamples
    like: Tensor
    first: MemorySamples
    drop: bool = False
    keys: ClassVar[None] = None
    weight: ClassVar[None] = None

    @classmethod
    def read(cls, source: ParquetSamples, model: nn.Module) -> StreamSamples:
        """Return the samples of Parquet files for a model, and read at most ``source.buffer`` of them into memory."""
        like = parameter_for_batches(model)
        return cls(source, like, MemorySamples(_read_streamed_piece(source, source.sample(drop=True)).to(like)))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def costs(self) -> Tensor:
        """The true costs (M, n) of the M samples in memory."""
        return self.first.costs

    @property
    def note(self) -> str:
        """A sentence for the user that says which choices depend on the samples in memory alone."""
        used = "all" if len(self.first) == len(self) else f"{len(self.first):,}, spread evenly,"
        return (
            f"{self.source!r} is streamed: the scale of the costs, smoothing='auto' and the squared error that comes "
            f"first go by {used} of its samples, and no warm starts are kept"
        )

    def epoch(self, size: int, order: Order, generator: torch.Generator) -> Iterator[SampleBatch]:
        """Yield the batches of an epoch, of ``size`` samples each; the last one may be smaller.

        ``order`` first orders the row groups, and then the samples in each block of about ``buffer`` samples. A new
        generator draws these orders. Its seed is the only number that is drawn from ``generator``.
        """
        own = torch.Generator().manual_seed(int(torch.randint(2**63 - 1, (), generator=generator)))
        groups = [self.source.groups[i] for i in order(len(self.source.groups), own).tolist()]
        for block in self._blocks(groups, max(1, self.source.buffer // size) * size):
            rows = order(len(block.costs), own).to(self.like.device)
            yield from map(block.only, rows.split(size))

    def _blocks(self, groups: Sequence[RowGroup], size: int) -> Iterator[SampleBatch]:
        """Yield the samples of these row groups in blocks of ``size``. A thread reads the next block meanwhile."""
        pieces = self.source.pieces(groups, self.source.buffer, self.drop)
        return (
            _read_streamed_piece(self.source, piece).to(self.like)
            for piece in _prefetch_stream(regroup_parquet_rows(pieces, size))
        )

    def whole(self) -> Iterator[SampleBatch]:
        """Yield all samples in the order of the files, block by block."""
        return self._blocks(self.source.groups, self.source.buffer)

    def look(self) -> MemorySamples:
        """Return the samples in memory, for an inspection before the first epoch."""
        return self.first

    def usable(self, model: nn.Module, loss: Any) -> StreamSamples:
        """Return the samples; rows with a value that is not finite are left out if the loss masks failed samples.

        Raises:
            DataError: the loss does not mask failed samples, and the statistics in the files count missing values, or a
                row that is read before the first step has a value that is not finite.
        """
        if masks_unusable_samples(loss):
            return replace(self, drop=True)
        if len(self.first) < min(len(self), self.source.buffer):
            self.source.sample()  # raises now the error that an epoch would raise later
        if self.source.missing:
            raise DataError(
                f"{self.source.missing}; fill them in or leave the rows out, or make the loss with on_failure='mask', "
                "which leaves such samples out"
            )
        return self

    def finite(self) -> MemorySamples:
        """Return the samples in memory, which are all finite. Only they are used to train on the squared error."""
        return self.first


def _read_streamed_piece(source: ParquetSamples, piece: Piece) -> SampleBatch:
    """Return the arrays of a piece as a batch of tensors."""
    costs, *features = map(torch.from_numpy, piece)
    return SampleBatch(source.named(features), costs, None)


def _prefetch_stream(parts: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator. While one item is used, a thread fetches the next one."""
    with ThreadPoolExecutor(1, "pear-stream") as pool:
        coming = pool.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = pool.submit(next, parts, None)
            yield part
