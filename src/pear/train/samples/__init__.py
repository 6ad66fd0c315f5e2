"""The samples that ``fit`` trains on: tensors, arrays, tables, a Dataset, a DataLoader or Parquet files."""

from pear.train.samples.parquet_samples import ParquetSamples
from pear.train.samples.sample_source import SampleSource

__all__ = ["ParquetSamples", "SampleSource"]
