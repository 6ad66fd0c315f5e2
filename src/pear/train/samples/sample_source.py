"""``SampleSource``: the samples that ``fit`` trains on, from memory, a DataLoader or Parquet files."""

from __future__ import annotations

from dataclasses import replace
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
"""One of three classes that share the methods ``epoch``, ``whole``, ``look``, ``usable`` and ``finite``."""


def read_sample_source(data: Any, name: str, model: nn.Module, number: bool = False) -> SampleSource:
    """Return samples with the dtype and on the device of the model.

    Args:
        data: a pair of features and costs, a triple with ids, a Dataset, a DataLoader, ``ParquetSamples``, or a
            ``SampleSource``.
        name: the name of the samples in error messages.
        model: the model that is trained.
        number: whether row numbers become the ids if a DataLoader does not shuffle and yields no ids.
    """
    if isinstance(data, DataLoader):
        return LoaderSamples.read(data, name, model, number)
    if isinstance(data, ParquetSamples):
        return StreamSamples.read(data, model)
    if isinstance(data, (LoaderSamples, StreamSamples)):
        return data
    known = MemorySamples.read(data, name)
    return replace(known, all=known.all.to(parameter_for_batches(model)))


def weigh_sample_source(samples: SampleSource, weight: Any, name: str) -> SampleSource:
    """Return the samples with these weights. Training and validation leave out samples of weight 0.

    Args:
        samples: the samples.
        weight: (N,) how much each sample counts; None weighs all samples alike.
        name: the name of the weights: "sample_weight" or "validation_weight".

    Raises:
        ProblemError: the weights have another shape or are negative, or the samples are not in memory.
    """
    if weight is None:
        return samples
    if not isinstance(samples, MemorySamples):
        raise ProblemError(f"{name} needs samples in memory, such as a pair (X, C) or a Dataset; read them first")
    found = samples.weigh(weight, name)
    return found if name == "sample_weight" else found.seen()
