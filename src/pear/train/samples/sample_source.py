"""The sources of samples that ``fit`` trains on: memory, a DataLoader, or Parquet files."""

from __future__ import annotations

from typing import Any, TypeAlias

from torch import nn
from torch.utils.data import DataLoader

from pear.errors import ProblemError
from pear.train.samples.loader_samples import LoaderSamples
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.parquet_samples import ParquetSamples
from pear.train.samples.sample_batch import parameter_for_batches
from pear.train.samples.stream_samples import StreamSamples

SampleSource: TypeAlias = MemorySamples | LoaderSamples | StreamSamples
"""The three classes share one interface: ``epoch``, ``whole``, ``look``, ``usable``, ``finite``, costs and keys."""


def read_sample_source(data: Any, name: str, model: nn.Module, number: bool = False) -> SampleSource:
    """Convert whatever holds features and costs, to the dtype and device of the model.

    Args:
        data: a pair, a Dataset, a DataLoader, ``ParquetSamples``, or a source of samples already.
        name: the name of the samples in error messages.
        model: the model that is trained.
        number: whether the samples of a DataLoader that does not shuffle get row numbers where they have no ids.
    """
    if isinstance(data, DataLoader):
        return LoaderSamples.read(data, name, model, number)
    if isinstance(data, ParquetSamples):
        return StreamSamples.read(data, model)
    if isinstance(data, (LoaderSamples, StreamSamples)):
        return data
    known = MemorySamples.read(data, name)
    return MemorySamples(known.all.to(parameter_for_batches(model)), known.left_out)


def weigh_sample_source(samples: SampleSource, weight: Any, name: str) -> SampleSource:
    """Give every sample a weight; training and validation leave out those of weight 0.

    Args:
        samples: the samples.
        weight: (N,) how much each sample counts, or None.
        name: "sample_weight" or "validation_weight".

    Raises:
        ProblemError: the weights are wrong, or the samples are not in memory.
    """
    if weight is None:
        return samples
    if not isinstance(samples, MemorySamples):
        raise ProblemError(f"{name} needs samples in memory, such as a pair (X, C) or a Dataset; read them first")
    found = samples.weigh(weight, name)
    return found if name == "sample_weight" else found.seen()
