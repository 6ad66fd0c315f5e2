"""Every method of the table lowers the regret on unseen samples of a tiny task."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from pear.losses import METHODS, Method, make_loss
from pear.tasks import shortest_path

TASK = shortest_path((3, 3))
X, C = (torch.as_tensor(part).double() for part in TASK.samples(160, degree=3, noise=0.1, seed=0))
TRAIN, TEST = slice(0, 60), slice(60, 160)
STEPS, BATCH = 60, 20


@pytest.mark.parametrize("row", METHODS, ids=lambda row: row.name)
def test_training_lowers_the_regret_of_other_samples(row: Method) -> None:
    """The squared error that most methods add is off, so that the gain is due to the method itself."""
    alone = {"mse_weight": 0.0} if "mse_weight" in inspect.signature(row.loss).parameters else {}
    loss = make_loss(row.name, TASK, **alone)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(X.shape[1], TASK.problem.n).double()
    with torch.no_grad():  # forecasts in the unit of the costs, which know nothing of the features
        model.weight.mul_(C.std())
        model.bias.copy_(C[TRAIN].mean(0))

    def test_regret() -> float:
        with torch.no_grad():
            return TASK.normalized_regret(model(X[TEST]), C[TEST])

    if hasattr(loss, "calibrate"):
        loss.calibrate(C[TRAIN], keys=range(60))
    before = test_regret()
    optimizer = torch.optim.Adam(model.parameters(), 0.05 * float(C.std()))
    for step in range(STEPS):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH) % 60
        optimizer.zero_grad()
        loss(model(X[rows]), C[rows], keys=rows).backward()
        optimizer.step()
    assert test_regret() < 0.5 * before
