"""Irish half-hour prices as samples of public tasks: days drawn by the seed, cut into slots."""

from __future__ import annotations

import os
from functools import cache

import numpy as np

from pear.tasks.task import Split
from pear_lab.data.data_files import VARIABLE
from pear_lab.data.energy_data import HALF_HOURS, load_energy
from pear_lab.tasks.public.drawn_samples import Array, cut_drawn_samples

_SIZES = (200, 100)


@cache
def _read_irish_days(folder: str | None, slots: int) -> tuple[Array, Array]:
    """Features (D, slots, p) and prices (D, slots) of all days, the means of the half-hours of each slot."""
    data = load_energy(folder, weights=[1.0] * HALF_HOURS)
    shape = (len(data.prices), slots, HALF_HOURS // slots)
    return data.features.reshape(*shape, -1).mean(2).numpy(), data.prices.reshape(shape).mean(2).numpy()


def draw_irish_days(random: np.random.RandomState, slots: int) -> Split:
    """Draw 200 days to train on, 100 to choose by, and test on the others; features are standardised by the first.

    Args:
        random: draws the order of the days.
        slots: into how many slots a day is cut; a divisor of 48.

    Returns:
        Features (N, slots, 8), what is known the day before, and prices (N, slots).

    Raises:
        DataError: ``$PEAR_DATA`` has no prices.
    """
    features, prices = _read_irish_days(os.environ.get(VARIABLE), slots)
    order = random.permutation(len(prices))
    features, prices = features[order], prices[order]
    seen = features[: _SIZES[0]].reshape(-1, features.shape[-1])
    return cut_drawn_samples((features - seen.mean(0)) / seen.std(0), prices, (*_SIZES, len(prices) - sum(_SIZES)))
