"""Losses and layers for training a predictor."""

from pear.losses.baselines import DBBLoss, MSELoss, PFYLLoss, SPOPlusLoss
from pear.losses.decision_layer import DecisionLayer
from pear.losses.decision_loss import DecisionLoss
from pear.losses.lava import LAVALoss
from pear.losses.methods import METHODS, Method, OwnProblem, make_loss, method
from pear.losses.pear_loss import LastCall, PEARLoss
from pear.losses.regret_metrics import normalized_regret, regret, regret_gradient

__all__ = [
    "METHODS",
    "DBBLoss",
    "DecisionLayer",
    "DecisionLoss",
    "LAVALoss",
    "LastCall",
    "MSELoss",
    "Method",
    "OwnProblem",
    "PEARLoss",
    "PFYLLoss",
    "SPOPlusLoss",
    "make_loss",
    "method",
    "normalized_regret",
    "regret",
    "regret_gradient",
]
