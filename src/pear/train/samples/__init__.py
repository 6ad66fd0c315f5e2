"""The samples that ``fit`` trains on: tensors, arrays, tables, a Dataset, a DataLoader or Parquet files."""

from pear.train.samples.parquet import ParquetSamples
from pear.train.samples.sources import SampleSource, as_samples

__all__ = ["ParquetSamples", "SampleSource", "as_samples"]
