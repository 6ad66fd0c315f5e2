"""A day-ahead unit commitment as a planner would export it: a model file and a table of days.

Each plant is on or off in every hour. It has a least and a greatest output, a limit on ramps, and a cost of starting.
Imports at the market price cover the demand that the plants do not cover. Demand and prices are predicted from the
weather and other features.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FEATURES = ("cold", "wind", "sun", "weekday", "gas_price", "holiday")
_SHORT, _LONG = 300, 5
"""The cost of one megawatt too little, and of one too much."""


class Plant(NamedTuple):
    """A power plant.

    Attributes:
        least, most: the least and the greatest output of a plant that is on, in MW.
        ramp: the largest increase of the output from one hour to the next, in MW, unless the plant starts.
        fuel: the cost of a MWh.
        start: the cost of a start.
    """

    least: float
    most: float
    ramp: float
    fuel: float
    start: float


class CommitmentModel:
    """A unit commitment problem with random plants.

    Each plant has three variables in every hour: its output, whether it is on, and whether it starts. Every hour has
    one more variable, the import.

    Args:
        plants: the number of plants.
        hours: the number of hours.
        seed: the seed of the random plants.

    Example:
        >>> CommitmentModel(8, 24, 0).variables
        600
    """

    def __init__(self, plants: int, hours: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 0])
        self.hours, self.plants = hours, []
        for place in np.linspace(0, 1, plants):  # from large and cheap to small and dear
            most = round(float(120 - 80 * place + rng.uniform(-10, 10)))
            fuel = round(float(18 + 45 * place + rng.uniform(-4, 4)), 2)
            start = round(float((60 - 50 * place) * most / 4))
            self.plants.append(
                Plant(round((0.55 - 0.3 * place) * most), most, round((0.45 + 0.5 * place) * most), fuel, start)
            )

    @property
    def variables(self) -> int:
        """The number of variables."""
        return self.hours * (3 * len(self.plants) + 1)

    @property
    def capacity(self) -> float:
        """The maximum total output of all plants, in MW."""
        return sum(plant.most for plant in self.plants)

    @property
    def costs(self) -> str:
        """The argument of ``pear train --costs``: import prices, and demands with the costs of shortage and surplus."""
        hours = range(self.hours)
        return ",".join([f"imp{t}" for t in hours] + [f"dem{t}={_SHORT}:{_LONG}" for t in hours])

    def write(self, path: Path) -> None:
        """Write the model as an LP file."""
        objective = [f"50 imp{t}" for t in range(self.hours)]
        rows, bounds, switches = [], [], []
        for k, plant in enumerate(self.plants):
            for t in range(self.hours):
                out, on, start = f"out{k}_{t}", f"on{k}_{t}", f"start{k}_{t}"
                objective += [f"{plant.fuel:g} {out}", f"{plant.start:g} {start}"]
                rows.append(f"most{k}_{t}: {out} - {plant.most:g} {on} <= 0")
                rows.append(f"least{k}_{t}: {out} - {plant.least:g} {on} >= 0")
                before = f" + on{k}_{t - 1}" if t else ""
                rows.append(f"starts{k}_{t}: {start} - {on}{before} >= 0")
                if t:
                    rows.append(f"up{k}_{t}: {out} - out{k}_{t - 1} - {plant.most:g} {start} <= {plant.ramp:g}")
                bounds.append(f"{start} <= 1")
                switches.append(on)
        for t in range(self.hours):
            outputs = " + ".join(f"out{k}_{t}" for k in range(len(self.plants)))
            rows.append(f"dem{t}: imp{t} + {outputs} = {0.6 * self.capacity:g}")
            bounds.append(f"imp{t} <= {0.3 * self.capacity:g}")
        sections = {
            "min": ["cost: " + " + ".join(objective)],
            "st": rows,
            "bounds": bounds,
            "binary": [" ".join(switches)],
            "end": [],
        }
        text = "".join(f"{head}\n" + "".join(f" {line}\n" for line in body) for head, body in sections.items())
        path.write_text(text, "utf-8")


def draw_commitment_days(model: CommitmentModel, days: int, seed: int) -> dict[str, NDArray[np.float64]]:
    """Draw a table of days, on which a forecaster is trained and tested.

    Demand is more uncertain on colder days, so that the mean of the demand is not the best forecast.

    Returns:
        The columns of the table by name, each (days,). They are the features, which are known the day before, the
        import prices ``imp0``, ``imp1``, …, and the demands ``dem0``, ``dem1``, ….
    """
    rng, hours = np.random.default_rng([seed, 1]), model.hours
    X = rng.normal(size=(days, len(FEATURES)))
    time = np.linspace(0, 2 * np.pi, hours, endpoint=False)
    profile = (0.52 - 0.16 * np.cos(time) - 0.08 * np.cos(2 * time)) * model.capacity
    by_weather = rng.normal(size=(len(FEATURES), 3)) @ np.stack([np.ones(hours), np.cos(time), np.sin(time)]) / 12
    spread = 0.03 + 0.12 / (1 + np.exp(-2 * X[:, :1]))
    noise = 0.7 * rng.normal(size=(days, 1)) + 0.7 * rng.normal(size=(days, hours))
    demand = profile * np.exp(X @ by_weather + spread * noise)
    of_price = rng.normal(size=(len(FEATURES), 3)) @ np.stack([np.ones(hours), np.sin(time), np.cos(2 * time)]) / 6
    price = 55 * np.exp(X @ of_price + 0.15 * rng.normal(size=(days, hours)))
    table = {name: X[:, k] for k, name in enumerate(FEATURES)}
    table |= {f"imp{t}": price[:, t] for t in range(hours)}
    return table | {f"dem{t}": np.minimum(demand[:, t], 1.25 * model.capacity) for t in range(hours)}
