"""Samples without a verified solution are left out of a step, counted and named; the training continues."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.test_screen import samples, trained
from torch import Tensor

import pear
from pear.optimality.status import Status
from pear.train.history import History
from pear.train.sample_order import in_order

TASK = pear.tasks.shortest_path((3, 3))
X, C = (part.double() for part in TASK.samples(40, degree=3, noise=0.3, seed=0))


class HardLoss(pear.PEARLoss):
    """A loss that fails to solve the samples with certain ids."""

    hard: tuple[Any, ...] = (3,)
    status = Status.INACCURATE

    def detailed(self, predicted: Tensor, true: Any, keys: Any = None, *rest: Any, **named: Any) -> Any:
        ids = list(keys.tolist() if isinstance(keys, Tensor) else keys)
        failed = [at for at, key in enumerate(ids) if key in self.hard]
        if failed:
            raise pear.SolveError("{samples}: no verified solution", failed, [self.status] * len(failed))
        return super().detailed(predicted, true, keys, *rest, **named)


def fitted(
    loss: pear.PEARLoss, rows: Iterable[int], epochs: int = 3, batch: int = 64, checkpoint: Path | None = None
) -> tuple[torch.nn.Linear, History]:
    """Train a linear model on these rows without a race; the rows' numbers are their ids."""
    torch.manual_seed(0)
    net, rows = torch.nn.Linear(5, TASK.problem.n).double(), list(rows)
    config = pear.FitConfig(max_epochs=epochs, batch_size=batch, check_every=1, start="given")
    train, held_out = (X[rows], C[rows], rows), (X[30:], C[30:])
    return net, pear.fit(net, loss, train, held_out, config=config, order=in_order, checkpoint=checkpoint)


def test_a_step_without_the_sample_is_the_step_of_the_others() -> None:
    with pytest.warns(pear.FailedSamplesWarning, match="sample 3 .INACCURATE") as caught:
        net, history = fitted(HardLoss(TASK.problem, smoothing=0.1), range(30))
    assert len([one for one in caught if one.category is pear.FailedSamplesWarning]) == 1
    assert history.left_out == 3
    assert "3 times a sample was left out" in str(history)
    other, plain = fitted(pear.PEARLoss(TASK.problem, smoothing=0.1), [row for row in range(30) if row != 3])
    assert plain.left_out == 0
    assert "left out" not in str(plain)
    assert float((net.weight - other.weight).abs().max()) < 1e-12


def test_a_batch_without_any_solution_changes_nothing() -> None:
    loss = HardLoss(TASK.problem, smoothing=0.1)
    loss.hard = (28, 29)
    with pytest.warns(pear.FailedSamplesWarning, match="samples 28, 29"):
        net, history = fitted(loss, range(30), epochs=1, batch=2)
    assert history.left_out == 2
    assert bool(net.weight.isfinite().all())


def test_a_resumed_training_goes_on_counting(tmp_path: Path) -> None:
    for epochs in (2, 4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pear.FailedSamplesWarning)
            loss = HardLoss(TASK.problem, smoothing=0.1)
            _, history = fitted(loss, range(30), epochs, checkpoint=tmp_path / "run.pear")
        assert history.left_out == epochs


@pytest.mark.parametrize("status", [Status.INFEASIBLE, Status.UNBOUNDED, Status.NOT_FINITE])
def test_other_failures_still_end_a_training(status: Status) -> None:
    loss = HardLoss(TASK.problem, smoothing=0.1)
    loss.status = status
    with pytest.raises(pear.SolveError):
        fitted(loss, range(30))


def test_the_errors_of_other_losses_still_end_a_training() -> None:
    """Other losses may number samples differently, for example if they decide for several forecasts of each."""

    def loss(predicted: Tensor, true: Tensor) -> Tensor:
        raise pear.SolveError("{samples}", [0], [Status.INACCURATE])

    with pytest.raises(pear.SolveError):
        pear.fit(torch.nn.Linear(5, TASK.problem.n).double(), loss, (X, C), config=pear.FitConfig(start="given"))


@pytest.mark.usefixtures("keep_small_ones_sparse")
def test_the_screen_of_a_race_leaves_the_sample_out(monkeypatch: pytest.MonkeyPatch) -> None:
    history = trained(True)
    monkeypatch.setattr(pear, "PEARLoss", HardLoss)
    monkeypatch.setattr(HardLoss, "hard", (3, "held out 1, 2"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other = trained(True)
    told = [str(one.message) for one in caught if one.category is pear.FailedSamplesWarning]
    assert len(told) == 1
    assert "step" not in told[0]
    screened = [row for row in other.race if row.screened]
    assert len(screened) == len([row for row in history.race if row.screened])
    assert all(row.difference == row.difference for row in screened)  # no NaN
    assert other.left_out > 2 * 16
    assert History.from_dict(other.as_dict()).left_out == other.left_out
    assert len(samples()[0]) == 48
