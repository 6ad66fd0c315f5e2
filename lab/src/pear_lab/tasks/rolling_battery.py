"""The rolling battery: hour by hour, a forecast of 48 prices, a plan of 48 hours, and its first hour done.

The protocol is that of Peršak & Anjos, arXiv 2405.14719, on the hours of Donti et al. 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import pear
from pear.errors import DataError
from pear_lab.data.pjm_data import PjmHours
from pear_lab.tasks.battery_task import Battery, battery

HOURS = 48
"""Hours that are forecast and planned, and hours of history in the features."""

INPUTS = 342
TEST_SHARE = 0.2
SCALE = 100
"""Objectives are printed for as many hours."""

SPEC = Battery(hours=HOURS, sells_rest=True)
PUBLISHED = {"two-stage": -46.39, "one-step": -50.36, "rollout": -62.98, "perfect": -77.21}
"""Objectives of the test rollout that the protocol's authors print."""

_CONSTANT = SPEC.level_penalty * (SPEC.capacity / 2) ** 2  # of each hour, which solves leave out


@dataclass(frozen=True)
class RollingBattery:
    """The task: the rolling plan, features of every hour, and prices.

    Attributes:
        rolling: the battery that is planned again every hour.
        features: (N, 342) what is known at the beginning of each hour, standardised by the training hours; zero in the
            first and last 48 hours, where history or future is missing.
        prices: (N,) in $/MWh.
        first: the first hour at which a plan may be made, with a whole history.
        test: the first hour of the test.
    """

    rolling: pear.Rolling
    features: Tensor
    prices: Tensor
    first: int
    test: int

    def windows(self, hours: Tensor) -> Tensor:
        """The prices (…, 48) of the plans that are made at some hours (…)."""
        return self.prices[hours[..., None] + torch.arange(HOURS)]

    def training_hours(self) -> Tensor:
        """The hours whose plans end before the test."""
        return torch.arange(self.first, self.test - HOURS + 1)

    def rollouts(self, starts: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rollouts from some hours (W,): features (W, steps, 342), prices (W, steps, 48) and first hours (W,)."""
        return self.rolling.samples(self.features, self.prices, steps, starts)

    def test_hours(self, steps: int | None = None) -> Tensor:
        """The hours (S,) of the long test rollout; its first ``steps`` where given."""
        return torch.arange(self.test, len(self.prices) - HOURS + 1)[:steps]

    def evaluate(self, forecasts: Tensor) -> Tensor:
        """The objectives (B,) of the long test rollout for each 100 hours, of B forecasters at once.

        Args:
            forecasts: (B, S, 48) prices at the first S test hours.
        """
        loss = pear.RollingLoss(self.rolling, smoothing=0.0)
        truth = self.windows(self.test_hours(forecasts.shape[1]))
        with torch.no_grad():
            loss(forecasts, truth.expand(len(forecasts), -1, -1))
        assert loss.cost is not None
        return SCALE * (loss.cost.mean(1) + _CONSTANT)


def rolling_battery(hours: PjmHours) -> RollingBattery:
    """Make the task from the hours of the PJM market.

    Raises:
        DataError: too few hours.
    """
    count = len(hours.price)
    if count < 10 * HOURS:
        raise DataError(f"the rolling battery needs {10 * HOURS} hours at least; got {count}")
    test = int((1 - TEST_SHARE) * count)
    features = _rolling_battery_features(hours)
    train = features[HOURS : test - HOURS]
    features = (features - train.mean(0)) / train.std(0).clamp(min=1e-9)
    features[:HOURS], features[count - HOURS + 1 :] = 0.0, 0.0
    rolling = pear.Rolling(battery(SPEC), state={"state": "state[0]"})
    return RollingBattery(rolling, features, hours.price, HOURS, test)


def _rolling_battery_features(hours: PjmHours) -> Tensor:
    """(N, 342): 48 hours of history, 48 hours of what is forecast already, and calendar terms; NaN is never made."""
    count = len(hours.price)
    at = torch.arange(count)[:, None]
    past, ahead = (at - HOURS + torch.arange(HOURS)).clamp(min=0), (at + torch.arange(HOURS)).clamp(max=count - 1)
    price, temperature, load = hours.price.log(), hours.temperature / 100, hours.load / 1e5
    history = [price[past], temperature[past], temperature[past] ** 2]
    future = [load[ahead], temperature[ahead], temperature[ahead] ** 2, temperature[ahead] ** 3]
    days = hours.times.astype("datetime64[D]")
    year = (days - hours.times.astype("datetime64[Y]").astype("datetime64[D]")).astype(float) / 365.25
    hour = (hours.times - days.astype("datetime64[h]")).astype(float) / 24
    week = ((days.astype(int) + 3) % 7).astype(float)  # Monday is 0
    angles = [2 * np.pi * part for part in (hour, year, week / 7)]
    calendar = [torch.from_numpy(turn(angle))[:, None] for angle in angles for turn in (np.sin, np.cos)]
    return torch.cat([*history, *future, *calendar], 1)


class RollingPriceNetwork(nn.Module):
    """48 log-prices from 342 features by two hidden layers of 96; returns prices.

    Args:
        mean, deviation: of the log-prices of the training hours, (48,) each.
    """

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        hidden = [nn.Linear(INPUTS, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, 96), nn.ReLU(), nn.Dropout(0.1)]
        self.layers = nn.Sequential(*hidden, nn.Linear(96, HOURS))
        self.register_buffer("mean", mean.float())
        self.register_buffer("deviation", deviation.float())

    def log_price(self, features: Tensor) -> Tensor:
        """Log-prices (…, 48) from features (…, 342)."""
        found: Tensor = self.mean + self.deviation * self.layers(features)
        return found

    def forward(self, features: Tensor) -> Tensor:
        """Prices (…, 48) from features (…, 342)."""
        return self.log_price(features).exp()
