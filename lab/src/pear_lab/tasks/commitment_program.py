"""The Irish unit commitment solved by dynamic programming, exactly and for any number of scenarios.

A commitment is a set of running plants for each block of hours. There are 16 sets of four plants. Only the starts of
plants link one block with the next. If the risk is the expectation, the cost of a commitment is therefore a sum: the
expected cost of each block with its running plants, and the cost of the starts between blocks. The cost of a block
depends on the demand of that block only. It does not matter which demands of different blocks occur together.
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
    """Return the cost (…, 16) of a block for a demand (…), with each of the 16 sets of running plants, without starts.

    All running plants produce at least their least output, and those with cheap fuel produce more first. If the
    capacity is too small, the rest of the demand is a shortage. If the least outputs are too large, there is a surplus.
    """
    need, least, most = demand[..., None], SETS @ LEAST, SETS @ MOST
    cost = SETS @ (STANDBY + FUEL * LEAST) + SURPLUS * np.maximum(least - need, 0) + SHORT * np.maximum(need - most, 0)
    rest = np.clip(need - least, 0, most - least)
    for plant in np.argsort(FUEL):
        made = np.minimum(rest, SETS[:, plant] * (MOST - LEAST)[plant])
        cost, rest = cost + FUEL[plant] * made, rest - made
    return HOURS * cost


def plan_commitment(costs: Array) -> States:
    """Return the optimal commitments (B, T): for each block, the position in ``SETS`` of its set of running plants.

    Args:
        costs: (B, T, 16) the expected costs of T blocks with each set.
    """
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
    """Return the costs (B,) of commitments, including starts.

    Args:
        states: (B, T) commitments as in ``plan_commitment``.
        costs: (B, T, 16) the costs of T blocks with each set of running plants.
    """
    on = np.take_along_axis(costs, states[..., None], 2)[..., 0].sum(1)
    total: Array = on + _STARTS[states[:, :-1], states[:, 1:]].sum(1)
    return total
