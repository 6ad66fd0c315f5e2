"""Decisions over time: at every step a forecast, a plan from the state that was reached, and its first part done."""

from pear.rolling.rolling import Rolling
from pear.rolling.rolling_loss import RollingLoss
from pear.rolling.rollout import Rollout

__all__ = ["Rolling", "RollingLoss", "Rollout"]
