"""A battery on days of the PJM market, with 24 predicted prices (Donti et al. 2017; Yeh et al. 2024)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from pear.tasks import Samples, Split
from pear_lab.data.pjm_data import load_pjm_days
from pear_lab.tasks.battery_task import PJM, Battery, battery
from pear_lab.tasks.public.public_task import Drawing, PublicTask, Published

TEST_SHARE, VALIDATION_SHARE = 0.2, 0.2
SHUFFLE_SEED = 100
"""The seed with which Yeh et al. shuffle the days."""

HIDDEN = 64
BEST = {"time": -32.505, "shuffled": -45.499}
"""The objective of optimal decisions on the test days, by the order of the days."""

_METHODS = ("two-stage, box", "end to end, ellipsoid", "end to end, PICNN")
_OBJECTIVES: dict[str, tuple[tuple[float, float | None], ...]] = {
    "time": ((-24.73, None), (-31.09, 1.24), (-30.82, 0.21)),
    "shuffled": ((-36.81, None), (-40.96, 3.85), (-43.17, 0.10)),
}
"""Published objectives on the test days, with standard deviations: a pair for each of ``_METHODS``."""


def draw_pjm_battery(seed: int, order: str, spec: Battery = PJM) -> Drawing:
    """Return the planning problem of a battery, and the days of PJM as samples in float32, split in the given order.

    The last fifth of the days is for the test, the last fifth of the other days for validation.

    Args:
        seed: the seed of the shuffled order; 0 gives the order of Yeh et al. It is ignored if ``order`` is "time".
        order: the order of the days, "time" or "shuffled".
        spec: the sizes and costs of the battery.
    """
    days = load_pjm_days()
    features, prices, count = days.features.float(), days.prices.float(), len(days.features)
    rows = np.arange(count) if order == "time" else np.random.default_rng(SHUFFLE_SEED + seed).permutation(count)
    first = int((1 - TEST_SHARE) * count)
    middle = first - int(VALIDATION_SHARE * first)
    parts = (torch.from_numpy(part) for part in (rows[:middle], rows[middle:first], rows[first:]))
    return Drawing(battery(spec), Split(*(Samples(features[part], prices[part]) for part in parts)))


def make_pjm_network(features: int, outputs: int) -> nn.Module:
    """Make a network with one hidden layer of 64 units, for the days of PJM."""
    return nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def _pjm_battery_row(order: str, name: str, title: str, said: str) -> PublicTask:
    """Return the public task with one order of the days. ``said`` describes the order in the task's protocol."""
    numbers = zip(_METHODS, _OBJECTIVES[order], strict=True)
    return PublicTask(
        name=name,
        title=title,
        origin="Donti et al. 2017, https://arxiv.org/abs/1703.04529; Yeh et al. 2024, https://arxiv.org/abs/2409.20534",
        protocol=(
            f"2,189 days, 101 features, 24 prices, {said}; a fifth of the days tests, a fifth of the others validates. "
            "The published numbers are objectives of robust plans, from which the best one is taken off here. The "
            "forecaster has one hidden layer of 64 units."
        ),
        draw=partial(draw_pjm_battery, order=order),
        forecaster=make_pjm_network,
        measure="mean",
        published=tuple(
            Published(method, round(value - BEST[order], 3), "Yeh et al., objective less the best one", error)
            for method, (value, error) in numbers
        ),
        needs_data="battery",
    )


_LINEAR = PublicTask(
    name="pjm-battery-linear",
    title="Battery on PJM days, linear",
    origin="Donti et al. 2017, https://arxiv.org/abs/1703.04529, without its quadratic terms",
    protocol=(
        "The days of pjm-battery-shuffled with the same battery, and the money alone as objective: a linear program, "
        "for methods that need one. The forecaster is linear. Nothing is published."
    ),
    draw=partial(draw_pjm_battery, order="shuffled", spec=replace(PJM, level_penalty=0.0, flow_penalty=0.0)),
    needs_data="battery",
)

BATTERY_ROWS = (
    _pjm_battery_row("time", "pjm-battery", "Battery on PJM days", "in the order of time"),
    _pjm_battery_row("shuffled", "pjm-battery-shuffled", "Battery on PJM days, shuffled", "shuffled by the seed"),
    _LINEAR,
)
