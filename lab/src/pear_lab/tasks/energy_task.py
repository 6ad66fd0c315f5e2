"""Sell energy in the best half-hours of a day: a knapsack of 48 items with known weights and forecast prices."""

from __future__ import annotations

from collections.abc import Sequence

from pear.errors import ProblemError
from pear.tasks.knapsack import Knapsack, knapsack
from pear_lab.data.energy_data import EnergyData, load_energy
from pear_lab.tasks.splits import TaskSplit, split_instances


def energy_split(
    data: EnergyData | None = None, capacity: float = 120.0, shares: Sequence[float] = (0.7, 0.1, 0.2)
) -> TaskSplit[Knapsack]:
    """Split the days in their order: the first for training, the next for validation, the last for the test.

    Half-hour i sells ``weights[i]`` units at its price, which makes its value; the units sold in a day are at most
    ``capacity``. Features are standardised, and values divided by a unit, by numbers of the training days alone.

    Args:
        data: the result of ``load_energy``, which is called if omitted.
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
