"""Irish days as samples of public tasks: half-hour prices are averaged over slots, and the days shuffled."""

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
    """Return features (D, slots, p) and prices (D, slots) of all D days, averaged over the half-hours of each slot."""
    data = load_energy(folder, weights=[1.0] * HALF_HOURS)
    shape = (len(data.prices), slots, HALF_HOURS // slots)
    return data.features.reshape(*shape, -1).mean(2).numpy(), data.prices.reshape(shape).mean(2).numpy()


def draw_irish_days(random: np.random.RandomState, slots: int) -> Split:
    """Shuffle the days, and return 200 for training, 100 for validation and the others for the test.

    Features are standardised with statistics of the training days.

    Args:
        random: the generator of the order of the days.
        slots: the number of slots of a day, a divisor of 48.

    Returns:
        For the N days of each part, features (N, slots, 8) that are known the day before, and prices (N, slots).

    Raises:
        DataError: ``$PEAR_DATA`` has no prices.
    """
    features, prices = _read_irish_days(os.environ.get(VARIABLE), slots)
    order = random.permutation(len(prices))
    features, prices = features[order], prices[order]
    seen = features[: _SIZES[0]].reshape(-1, features.shape[-1])
    return cut_drawn_samples((features - seen.mean(0)) / seen.std(0), prices, (*_SIZES, len(prices) - sum(_SIZES)))
