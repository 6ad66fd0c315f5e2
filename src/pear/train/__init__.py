"""``fit`` trains a model on a loss, and ``tune`` finds the loss and settings with the lowest validation regret."""

from __future__ import annotations

from pear.errors import TrainingError
from pear.train.early_stopping import EarlyStopping
from pear.train.fit import fit
from pear.train.fit_config import FitConfig
from pear.train.history import Check, History, Progress
from pear.train.sample_order import in_order, shuffled
from pear.train.successive_halving import TuneProgress
from pear.train.tune import TuneResult, tune

__all__ = [
    "Check",
    "EarlyStopping",
    "FitConfig",
    "History",
    "Progress",
    "TrainingError",
    "TuneProgress",
    "TuneResult",
    "fit",
    "in_order",
    "shuffled",
    "tune",
]


def __getattr__(name: str) -> object:
    if name == "Tuned":
        raise AttributeError("pear.train.Tuned is now pear.train.TuneResult")
    raise AttributeError(f"module 'pear.train' has no attribute {name!r}")
