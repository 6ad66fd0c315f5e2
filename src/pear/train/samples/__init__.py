"""The samples of a run, whatever they came as: tensors, arrays, tables, a Dataset, a DataLoader or Parquet files."""

from pear.train.samples.parquet import ParquetSamples
from pear.train.samples.samples import Samples, as_samples

__all__ = ["ParquetSamples", "Samples", "as_samples"]
