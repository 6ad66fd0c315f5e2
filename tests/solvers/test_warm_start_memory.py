"""The memory of warm starts is bounded, whatever keys come; results do not depend on it."""

import pytest
import torch

import pear
from pear.losses import SPOPlusLoss
from pear.solvers import warm_starts

PROBLEM = pear.Problem(A=torch.ones(1, 6), b=[1.0], lb=0.0)
LOSSES = {
    "compiled": lambda: pear.PEARLoss(PROBLEM, smoothing=0.3),
    "pipeline": lambda: pear.PEARLoss(PROBLEM, smoothing=0.3, solver="interior-point"),
    "decisions": lambda: SPOPlusLoss(PROBLEM),
}


@pytest.mark.parametrize("name", LOSSES)
def test_keys_that_never_come_again_do_not_fill_the_memory(name, monkeypatch):
    monkeypatch.setattr(warm_starts, "MOST_BYTES", 100_000)
    bounded, free = LOSSES[name](), LOSSES[name]()
    draw = torch.Generator().manual_seed(0)
    sizes = []
    for call in range(60):
        predicted, true = (torch.rand(8, 6, generator=draw, dtype=torch.float64) for _ in range(2))
        keys = range(8 * call, 8 * call + 8)
        torch.testing.assert_close(bounded(predicted, true, keys=keys), free(predicted, true), rtol=0, atol=1e-12)
        starts = bounded.starts if name == "decisions" else bounded.decider.starts
        sizes.append(len(starts))
    assert max(sizes) * starts._bytes_per_key() <= 2 * 100_000
    assert starts.generation > 0
    assert len(starts) < 480


def test_a_batch_of_its_own_is_kept_whole(monkeypatch):
    monkeypatch.setattr(warm_starts, "MOST_BYTES", 1)
    store = warm_starts.WarmStarts()
    assert store.slots(range(4)).tolist() == [0, 1, 2, 3]
    assert store.slots(range(4)).tolist() == [0, 1, 2, 3]
    assert store.generation == 0
    assert store.slots([9, 2]).tolist() == [0, 1]
    assert store.generation == 1


def test_a_training_goes_on_after_its_starts_were_forgotten(monkeypatch):
    task = pear.tasks.shortest_path((3, 3))
    X, C = task.samples(40)
    loss, model = pear.PEARLoss(task.problem, smoothing=1.0), torch.nn.Linear(5, 12)
    config = pear.FitConfig(max_epochs=3, start="given", batch_size=8)
    pear.fit(model, loss, (X, C), (X, C), config=config)
    monkeypatch.setattr(warm_starts, "MOST_BYTES", 1)
    loss(C, C, keys=range(1000, 1040))  # forgets those of the training
    assert loss.decider.starts.generation == 1
    history = pear.fit(model, loss, (X, C), (X, C), config=config)
    assert history.epochs == 3
