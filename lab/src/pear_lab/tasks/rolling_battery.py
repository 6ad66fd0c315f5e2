"""A battery that is planned again every hour: 48 prices are predicted, 48 hours planned, and one hour carried out.

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
"""The number of predicted and planned hours, and the number of past hours in the features."""

INPUTS = 342
TEST_SHARE = 0.2
SCALE = 100
"""Objectives are given per this many hours."""

SPEC = Battery(hours=HOURS, sells_rest=True)
PUBLISHED = {"two-stage": -46.39, "one-step": -50.36, "rollout": -62.98, "perfect": -77.21}
"""Objectives of the test rollout, by method, that the authors of the protocol published."""

_CONSTANT = SPEC.level_penalty * (SPEC.capacity / 2) ** 2  # a term of every hour that the solved problem leaves out


@dataclass(frozen=True)
class RollingBattery:
    """A battery that is planned again every hour, with the features and the prices of N hours.

    Attributes:
        rolling: the rolling plan of the battery.
        features: (N, 342) the numbers known at the beginning of each hour, standardised with statistics of the training
            hours; zero in the first 48 and the last 47 hours, which lack past or future hours.
        prices: (N,) in $/MWh.
        first: the first hour that has 48 past hours.
        test: the first hour of the test.
    """

    rolling: pear.Rolling
    features: Tensor
    prices: Tensor
    first: int
    test: int

    def windows(self, hours: Tensor) -> Tensor:
        """Return the true prices (…, 48) of the 48 hours that begin with each of ``hours`` (…)."""
        return self.prices[hours[..., None] + torch.arange(HOURS)]

    def training_hours(self) -> Tensor:
        """Return the hours at which the plans for training begin: all hours whose plans end before the test."""
        return torch.arange(self.first, self.test - HOURS + 1)

    def rollouts(self, starts: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the samples of W rollouts of ``steps`` hours that begin at the hours ``starts`` (W,).

        The samples are features (W, steps, 342), prices (W, steps, 48), and the first hours (W,).
        """
        return self.rolling.samples(self.features, self.prices, steps, starts)

    def test_hours(self, steps: int | None = None) -> Tensor:
        """Return the hours (S,) at which the test rollout makes a plan: all of them, or the first ``steps``."""
        return torch.arange(self.test, len(self.prices) - HOURS + 1)[:steps]

    def evaluate(self, forecasts: Tensor) -> Tensor:
        """Return the objective per 100 hours of the test rollout for each of B forecasters. Shape (B,).

        Args:
            forecasts: (B, S, 48) the 48 prices predicted at each of the first S test hours.
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
        DataError: there are fewer than 480 hours.
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
    """Return the features (N, 342) of every hour: 48 past hours, forecasts for 48 hours ahead, and the calendar.

    Where the 48 hours reach beyond the data, its first or last hour is repeated. ``rolling_battery`` replaces the
    features of these hours by zeros.
    """
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


class RollingBatteryNetwork(nn.Module):
    """A network with two hidden layers of 96 units that predicts 48 prices from 342 features.

    Args:
        mean, deviation: (48,) mean and standard deviation of the log-prices of the training hours.
    """

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        hidden = [nn.Linear(INPUTS, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, 96), nn.ReLU(), nn.Dropout(0.1)]
        self.layers = nn.Sequential(*hidden, nn.Linear(96, HOURS))
        self.register_buffer("mean", mean.float())
        self.register_buffer("deviation", deviation.float())

    def log_price(self, features: Tensor) -> Tensor:
        """Return log-prices (…, 48) for features (…, 342)."""
        found: Tensor = self.mean + self.deviation * self.layers(features)
        return found

    def forward(self, features: Tensor) -> Tensor:
        """Return prices (…, 48) for features (…, 342)."""
        return self.log_price(features).exp()
