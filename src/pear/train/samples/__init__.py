"""The samples of a run, whatever they came as: tensors, arrays, tables, a Dataset or a DataLoader."""

from pear.train.samples.samples import Samples, as_samples

__all__ = ["Samples", "as_samples"]
