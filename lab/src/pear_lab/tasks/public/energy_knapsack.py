"""The energy knapsack: selling energy in the best half-hours of a day, at predicted prices."""

from __future__ import annotations

import numpy as np

from pear.problem import CostMap, Model
from pear.tasks.knapsack import knapsack
from pear_lab.data.energy_data import FOLDER, HALF_HOURS
from pear_lab.tasks.public.drawn_samples import Array
from pear_lab.tasks.public.irish_days import draw_irish_days
from pear_lab.tasks.public.public_task import Drawing, PublicTask, shared_task_forecaster

CAPACITY = 60.0


def energy_knapsack_model(weights: Array, capacity: float = CAPACITY) -> Model:
    """Return a knapsack of half-hours. If half-hour i is chosen, ``weights[i]`` units are sold at its predicted price.

    Example:
        >>> energy_knapsack_model(np.array([3.0, 5.0, 7.0]), capacity=8.0).problem
        Problem(max, n=3, 1 inequality, bounds, 3 integer)
    """
    return Model(knapsack(weights[None], capacity).problem, cost_map=CostMap(np.diag(weights)))


def draw_energy_knapsack(seed: int) -> Drawing:
    """Draw a weight of 3, 5 or 7 for each half-hour, and split the days at random into training, validation and test.

    Raises:
        DataError: ``$PEAR_DATA`` has no prices.
    """
    random = np.random.RandomState(seed)
    weights = random.choice([3.0, 5.0, 7.0], HALF_HOURS)
    return Drawing(energy_knapsack_model(weights), draw_irish_days(random, HALF_HOURS))


ENERGY_KNAPSACK = PublicTask(
    name="energy-knapsack",
    title="Energy knapsack",
    origin="Mandi, Demirović, Stuckey & Guns 2020, arXiv 1911.10092; Mandi et al. 2024, arXiv 2307.13565",
    protocol=(
        "48 half-hours sell 3, 5 or 7 units each at predicted prices, at most 60 units in all: a knapsack. Irish "
        "prices of 789 days, and what is known the day before: calendar, forecasts of wind, load and price. The origin "
        "has one set of weights and days in their order, which the experiment 'energy' of pear reproduce follows; here "
        "the seed draws the weights and which 200 days train, 100 choose and 489 test. One linear model for all "
        "half-hours. Published numbers belong to that set of weights and are not comparable."
    ),
    draw=draw_energy_knapsack,
    forecaster=shared_task_forecaster,
    needs_data=FOLDER,
)  # fmt: skip
