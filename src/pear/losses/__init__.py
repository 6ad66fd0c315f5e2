"""Losses and layers for training a predictor."""

from pear.losses.dbb import DBBLoss
from pear.losses.decision_layer import DecisionLayer
from pear.losses.last_call import LastCall
from pear.losses.lava import LAVALoss
from pear.losses.methods import METHODS, Method, make_loss, method
from pear.losses.mse import MSELoss
from pear.losses.own_problem import OwnProblem
from pear.losses.pear_loss import PEARLoss
from pear.losses.pfyl import PFYLLoss
from pear.losses.regret import normalized_regret, regret, regret_gradient
from pear.losses.spo_plus import SPOPlusLoss

__all__ = [
    "METHODS",
    "DBBLoss",
    "DecisionLayer",
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
