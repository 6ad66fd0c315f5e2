"""The Irish unit commitment solved by dynamic programming, exactly and for any number of scenarios.

A commitment says which plants run in each block of hours. With four plants, a block has 16 possible sets of running
plants. Only the costs of starting plants link one block with the next. The expected cost of a commitment is therefore
the sum of the expected costs of its blocks and of the costs of the starts between them. The expected cost of a block
depends on the distribution of its own demand only, and not on the correlation with other blocks.
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
    """Return the cost (…, 16) of a block with demand (…) for each of the 16 sets of running plants, without starts.

    Each running plant produces at least its minimum output. The rest of the demand goes to the plants in the order of
    their fuel prices. Demand beyond their capacity is a shortage, and minimum outputs beyond the demand are a surplus.
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

    Plants that run in the first block need no start.

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
    """Return the costs (B,) of commitments, including starts after the first block.

    Args:
        states: (B, T) commitments as in ``plan_commitment``.
        costs: (B, T, 16) the costs of T blocks with each set of running plants.
    """
    on = np.take_along_axis(costs, states[..., None], 2)[..., 0].sum(1)
    total: Array = on + _STARTS[states[:, :-1], states[:, 1:]].sum(1)
    return total
