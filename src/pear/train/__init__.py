"""Training: one loop for every loss."""

from pear.train.config import FitConfig
from pear.train.errors import TrainingError
from pear.train.fit import fit
from pear.train.history import Check, History, Progress
from pear.train.order import in_order, shuffled
from pear.train.race import TuneProgress
from pear.train.stopping import EarlyStopping
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
