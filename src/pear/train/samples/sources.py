"""``as_samples``: one interface for samples in memory, from a DataLoader or from Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from pear.errors import ProblemError
from pear.train.samples.features import check_order
from pear.train.samples.in_memory import MemorySamples, describe, parameter_of, read_batch
from pear.train.samples.loader import LoaderSamples
from pear.train.samples.parquet import ParquetSamples
from pear.train.samples.parquet_stream import StreamSamples

SampleSource = MemorySamples | LoaderSamples | StreamSamples


def as_samples(data: Any, name: str, model: nn.Module, number: bool = False) -> SampleSource:
    """Convert whatever holds features and costs, to the dtype and device of the model.

    Args:
        data: a pair, a Dataset, a DataLoader, ``ParquetSamples``, or a source of samples already.
        name: for errors.
        model: what is trained.
        number: whether the samples of a DataLoader that does not shuffle get row numbers where they have no ids.
    """
    if isinstance(data, DataLoader):
        return LoaderSamples.read(data, name, model, number)
    if isinstance(data, ParquetSamples):
        return StreamSamples.read(data, model)
    if isinstance(data, (LoaderSamples, StreamSamples)):
        return data
    known = in_memory(data, name)
    return MemorySamples(known.all.to(parameter_of(model)), known.left_out)


def in_memory(data: Any, name: str) -> MemorySamples:
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
        return MemorySamples(read_batch(_collate(data, name), name))
    if isinstance(data, Iterator):
        raise ProblemError(
            f"{name} is a {type(data).__name__}, which gives its samples only once, and every epoch needs them; pass "
            "arrays, a Dataset or a DataLoader"
        )
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        raise ProblemError(
            f"{name} must be a pair of features and costs, a Dataset or a DataLoader of such samples; got "
            f"{describe(data)}"
        )
    check_order(data[0], data[1], name)
    return MemorySamples(read_batch(data, name))


def _collate(data: Dataset[Any], name: str) -> Any:
    """All items of a Dataset as one batch."""
    if not isinstance(data, Sized) or not len(data):
        raise ProblemError(f"{name} must hold one sample at least; got a {type(data).__name__} without any")
    items = [data[i] for i in range(len(data))]
    if not isinstance(items[0], (tuple, list)) or len(items[0]) not in (2, 3):
        raise ProblemError(
            f"an item of {name} must be (features, costs) or (features, costs, id); got {describe(items[0])}. Several "
            "inputs of a model go together: ((a, b), costs)"
        )
    try:
        return default_collate(items)
    except (TypeError, RuntimeError) as error:
        raise ProblemError(
            f"the items of {name} cannot be stacked: {error}; make features and costs tensors or arrays of one shape"
        ) from error
