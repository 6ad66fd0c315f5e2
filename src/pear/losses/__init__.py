"""Losses and layers for training a predictor."""

from pear.losses.dbb import DBBLoss
from pear.losses.decision_layer import DecisionLayer
from pear.losses.decision_loss import DecisionLoss
from pear.losses.lava import LAVALoss
from pear.losses.method_row import REQUIREMENTS, Method, OwnProblem
from pear.losses.methods import METHODS, make_loss, method
from pear.losses.mse import MSELoss
from pear.losses.pear_loss import LastCall, PEARLoss
from pear.losses.pfyl import PFYLLoss
from pear.losses.random_draws import DrawingLoss, RandomDraws
from pear.losses.regret_metrics import normalized_regret, regret, regret_gradient
from pear.losses.spo_plus import SPOPlusLoss

__all__ = [
    "METHODS",
    "REQUIREMENTS",
    "DBBLoss",
    "DecisionLayer",
    "DecisionLoss",
    "DrawingLoss",
    "LAVALoss",
    "LastCall",
    "MSELoss",
    "Method",
    "OwnProblem",
    "PEARLoss",
    "PFYLLoss",
    "RandomDraws",
    "SPOPlusLoss",
    "make_loss",
    "method",
    "normalized_regret",
    "regret",
    "regret_gradient",
]
