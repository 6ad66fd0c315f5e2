"""Decisions over time: every step makes a forecast, plans from the present state, and carries out the first periods."""

from pear.rolling.rolling import Rolling
from pear.rolling.rolling_loss import RollingLoss
from pear.rolling.rollout import Rollout

__all__ = ["Rolling", "RollingLoss", "Rollout"]
