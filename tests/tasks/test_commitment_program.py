"""The Irish unit commitment by dynamic programming, compared with the two-stage program of PEAR."""

import numpy as np
import torch

import pear
from pear_lab.tasks.commitment_program import SETS, block_costs, commitment_cost, plan_commitment
from pear_lab.tasks.irish_commitment import irish_commitment_model


def test_the_dynamic_program_costs_what_the_two_stage_program_costs() -> None:
    random = np.random.default_rng(0)
    values = random.uniform(-500.0, 5500.0, (3, 1, 12)) + 400.0 * random.normal(size=(3, 4, 12))
    true = values[:, 0] + 600.0
    expected = block_costs(values).mean(1)
    states = plan_commitment(expected)
    plan = pear.Stochastic(irish_commitment_model(), ["on", "start"], 4)
    found = plan.solve(values)
    np.testing.assert_allclose(commitment_cost(states, expected), found.value, rtol=1e-9)
    on = SETS[states].swapaxes(1, 2)
    started = np.maximum(np.diff(on, axis=2, prepend=on[..., :1]), 0.0)
    x = torch.from_numpy(np.concatenate([on.reshape(3, -1), started.reshape(3, -1)], 1))
    np.testing.assert_allclose(commitment_cost(states, block_costs(true)), plan.cost(x, true), rtol=1e-9)
    least = block_costs(true)
    np.testing.assert_allclose(commitment_cost(plan_commitment(least), least), plan.best(true), rtol=1e-9)
    assert len(np.unique(states)) > 3  # the demands reach from a surplus to a shortage
