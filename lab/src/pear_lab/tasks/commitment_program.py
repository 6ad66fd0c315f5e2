"""The Irish unit commitment by dynamic programming, exact for any number of scenarios.

Blocks of hours are linked by starts of plants alone. With the expectation as the risk, a commitment therefore costs the
sum over blocks of an expected cost of the plants that are on, and of the starts between blocks. There are 16 sets of
four plants. Since the cost of each block depends on the demand of that block only, it does not matter which demands of
different blocks occur together.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from pear_lab.tasks.irish_commitment import FUEL, HOURS, LEAST, MOST, SHORT, STANDBY, START, SURPLUS, Array

States = NDArray[np.intp]

SETS = np.array([*itertools.product((0.0, 1.0), repeat=len(LEAST))])
"""(16, 4) for each set of plants, which of them are on."""
_STARTS = np.maximum(SETS[None] - SETS[:, None], 0) @ START


def block_costs(demand: Array) -> Array:
    """Return the cost (…, 16) of each block with each set of plants on, starts excluded, for a demand (…).

    Plants on produce at least their least output, cheap fuel first; the rest of the demand is short, or a surplus.
    """
    need, least, most = demand[..., None], SETS @ LEAST, SETS @ MOST
    cost = SETS @ (STANDBY + FUEL * LEAST) + SURPLUS * np.maximum(least - need, 0) + SHORT * np.maximum(need - most, 0)
    rest = np.clip(need - least, 0, most - least)
    for plant in np.argsort(FUEL):
        made = np.minimum(rest, SETS[:, plant] * (MOST - LEAST)[plant])
        cost, rest = cost + FUEL[plant] * made, rest - made
    return HOURS * cost


def plan_commitment(costs: Array) -> States:
    """Return the best set of plants (B, T) of each of T blocks for expected costs (B, T, 16) of the blocks."""
    total, choices = costs[:, 0], []
    for block in range(1, costs.shape[1]):
        reached = total[:, :, None] + _STARTS
        choices.append(reached.argmin(1))
        total = reached.min(1) + costs[:, block]
    states = [total.argmin(1)]
    for choice in reversed(choices):
        states.append(choice[np.arange(len(costs)), states[-1]])
    return np.stack(states[::-1], 1)


def commitment_cost(states: States, costs: Array) -> Array:
    """Return the cost (B,) of the sets of plants (B, T), with starts, for costs (B, T, 16) of the blocks."""
    on = np.take_along_axis(costs, states[..., None], 2)[..., 0].sum(1)
    total: Array = on + _STARTS[states[:, :-1], states[:, 1:]].sum(1)
    return total
