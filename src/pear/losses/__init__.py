"""Losses and layers: what a predictor is trained with."""

from pear.losses.layer import DecisionLayer
from pear.losses.pear import LastCall, PEARLoss
from pear.losses.regret import normalized_regret, regret_gradient

__all__ = ["DecisionLayer", "LastCall", "PEARLoss", "normalized_regret", "regret_gradient"]
