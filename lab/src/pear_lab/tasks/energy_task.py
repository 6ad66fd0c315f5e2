"""Selling energy in the best half-hours of a day: a knapsack of 48 items with known weights and predicted prices."""

from __future__ import annotations

from collections.abc import Sequence

from pear.errors import ProblemError
from pear.tasks.knapsack import Knapsack, knapsack
from pear_lab.data.energy_data import EnergyData, load_energy
from pear_lab.tasks.splits import TaskSplit, split_instances


def energy_split(
    data: EnergyData | None = None, capacity: float = 120.0, shares: Sequence[float] = (0.7, 0.1, 0.2)
) -> TaskSplit[Knapsack]:
    """Return the knapsack of half-hours, with days for training, validation and test in the order of time.

    The value of half-hour i is ``weights[i]`` times its price, and at most ``capacity`` units are sold in a day.
    Features are standardised, and values are divided by their standard deviation, with statistics of the training days
    only.

    Args:
        data: the days; ``load_energy()`` if omitted.
        capacity: the capacity of the knapsack.
        shares: the shares of the days for training, validation and test, with a sum of 1.
    """
    data = load_energy() if data is None else data
    count = len(data.prices)
    if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise ProblemError(f"shares must be three positive numbers with a sum of 1; got {tuple(shares)}")
    first, second = round(shares[0] * count), round((shares[0] + shares[1]) * count)
    if not 0 < first < second < count:
        raise ProblemError(f"{count} days are too few to be cut into {tuple(shares)}")
    task = knapsack(data.weights[None], capacity)
    parts = range(first), range(first, second), range(second, count)
    return split_instances(data.features, data.prices * data.weights, parts, lambda ids: task)
