"""Unit commitment for the Irish net load, which is predicted the day before: four plants, twelve blocks of two hours.

The net load is the load less the wind production.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import pear
from pear_lab.data.energy_data import load_energy_demand

Array = NDArray[np.float64]

BLOCKS, HOURS = 12, 2.0
LEAST = np.array([600.0, 400.0, 250.0, 50.0])
"""The least output of each plant that is on, in MW: coal, two gas plants and peakers."""
MOST = np.array([1500.0, 1400.0, 1200.0, 900.0])
FUEL = np.array([22.0, 38.0, 52.0, 120.0])
"""The cost of a MWh from each plant."""
STANDBY = np.array([4000.0, 5000.0, 4000.0, 1500.0])
"""The cost of each hour in which a plant is on."""
START = np.array([60000.0, 30000.0, 18000.0, 3000.0])
SHORT, SURPLUS = 500.0, 20.0
"""The price of a MWh of demand that is not met, and of a MWh of surplus."""
LAGS = (2, 7)
"""The ages, in days, of the net loads that are features."""


@dataclass(frozen=True)
class IrishCommitmentDays:
    """The days for which the plants are committed, with features and net load.

    Attributes:
        features: (D, p) the forecasts of load and wind production, the net load two days and a week before, the
            weekday, and the season.
        net_load: (D, 12) the net load of each block, in MW.
        dates: the D dates.
    """

    features: Array
    net_load: Array
    dates: list[datetime.date]


def irish_commitment_model(integer: bool = True) -> pear.Model:
    """Return the model of the day-ahead plan. The demand of 12 blocks is predicted; shortage and surplus have prices.

    The variables are ``on``, ``start`` and ``output``, each of shape (4, 12) for 4 plants and 12 blocks.

    Args:
        integer: whether ``on`` is 0 or 1; otherwise the model is the linear relaxation.
    """
    size, plants = len(LEAST) * BLOCKS, np.repeat(np.arange(len(LEAST)), BLOCKS)
    on, start, output = (np.arange(size) + i * size for i in range(3))
    balance = np.zeros((BLOCKS, 3 * size))
    balance[np.tile(np.arange(BLOCKS), len(LEAST)), output] = 1.0
    eye = np.eye(3 * size)
    later = np.arange(size)[np.arange(size) % BLOCKS > 0]
    rows = [
        eye[output] - MOST[plants, None] * eye[on],
        LEAST[plants, None] * eye[on] - eye[output],
        eye[on[later]] - eye[on[later - 1]] - eye[start[later]],  # a plant that is on at midnight needs no start
    ]
    G = np.vstack(rows)
    problem = pear.Problem(
        A=balance,
        b=np.zeros(BLOCKS),
        G=G,
        h=np.zeros(len(G)),
        lb=0.0,
        ub=np.concatenate([np.ones(2 * size), MOST[plants]]),
        integer=on if integer else None,
    )
    names = [f"{kind}[{i},{t}]" for kind in ("on", "start", "output") for i in range(len(LEAST)) for t in range(BLOCKS)]
    layout = {
        kind: torch.from_numpy(at.reshape(len(LEAST), BLOCKS))
        for kind, at in (("on", on), ("start", start), ("output", output))
    }
    return pear.Model(
        problem,
        known=torch.from_numpy(np.concatenate([HOURS * STANDBY[plants], START[plants], HOURS * FUEL[plants]])),
        variables=tuple(names),
        layout=layout,
        constraint_map=pear.ConstraintMap(b=np.eye(BLOCKS)),
        recourse=pear.Penalty(b=(HOURS * SHORT, HOURS * SURPLUS)),
    )


def irish_commitment_days(path: str | Path | None = None, wind_factor: float = 1.0) -> IrishCommitmentDays:
    """Load the Irish days for which the net loads two days before and seven days before are known.

    Args:
        path: as in ``load_energy_demand``.
        wind_factor: the factor of the wind production, both of its forecast and of its true value.
    """
    data = load_energy_demand(path)
    blocks = data.values.reshape(len(data.values), BLOCKS, -1, 4).mean(2)
    load, wind, real_load, real_wind = (blocks[..., j] for j in range(4))
    wind, real_wind = wind_factor * wind, wind_factor * real_wind
    net = real_load - real_wind
    dates = [datetime.date.fromisoformat(day) for day in data.dates]
    at = {day: row for row, day in enumerate(dates)}
    rows = [i for i, day in enumerate(dates) if all(day - datetime.timedelta(lag) in at for lag in LAGS)]
    kept = [dates[i] for i in rows]
    lagged = [net[[at[day - datetime.timedelta(lag)] for day in kept]] for lag in LAGS]
    weekday = np.eye(7)[[day.weekday() for day in kept]]
    angle = 2 * np.pi * np.array([day.timetuple().tm_yday for day in kept])[:, None] / 365.25
    features = np.hstack([load[rows], wind[rows], *lagged, weekday, np.sin(angle), np.cos(angle)])
    return IrishCommitmentDays(features, net[rows], kept)
