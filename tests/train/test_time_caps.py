"""Time caps of ``fit`` and ``tune`` hold within a tenth if validation is slow, by a simulated clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pear
from pear.errors import SolveError
from pear.losses import forecast_judge
from pear.optimality.status import Status
from pear.solvers import time_limit
from pear.train import FitConfig
from pear.train.tune_candidate import LATE
from pear.train.validation_time import validate_in_time

TASK = pear.tasks.knapsack(torch.arange(1.0, 7.0)[None], 0.5)
FEATURES, VALUES = (rows[:60] for rows in TASK.samples(60, degree=2, seed=3))
STEP, SAMPLE = 0.01, 0.01
"""The seconds of a step of training, and of deciding for one held-out sample."""


@dataclass
class Clock:
    """A clock that advances only if the test moves it."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock that every decision for validation moves forward."""
    clock, solve = Clock(), forecast_judge.solve
    monkeypatch.setattr(time, "perf_counter", clock)

    def slowly(problem: Any, cost: Tensor, **options: Any) -> Any:
        clock.now += SAMPLE * len(cost)
        return solve(problem, cost, **options)

    monkeypatch.setattr(forecast_judge, "solve", slowly)
    return clock


class SlowModel(nn.Module):
    """A model of one or two layers whose forecasts in training move the clock forward."""

    def __init__(self, clock: Clock, hidden: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        inputs = FEATURES.shape[1]
        self.hidden = nn.Linear(inputs, hidden) if hidden else nn.Identity()
        self.last, self.move = nn.Linear(hidden or inputs, TASK.problem.n), [clock]

    def __deepcopy__(self, memo: dict[int, Any]) -> SlowModel:
        copied = SlowModel(self.move[0], getattr(self.hidden, "out_features", 0))
        copied.load_state_dict(self.state_dict())
        return copied.to(next(self.parameters())).train(self.training)

    def forward(self, rows: Tensor) -> Tensor:
        if self.training:
            self.move[0].now += STEP
        return self.last(torch.relu(self.hidden(rows)))


def slow_metric(clock: Clock, seconds: float) -> Callable[[Tensor, Tensor], float]:
    def metric(predicted: Tensor, true: Tensor) -> float:
        clock.now += seconds
        return float((predicted - true).square().mean())

    return metric


def fit_for(clock: Clock, cap: float, hidden: int = 0, **options: Any) -> tuple[nn.Module, pear.train.History]:
    model = SlowModel(clock, hidden).to(VALUES)
    config = FitConfig(time_cap=cap, batch_size=12, **options.pop("config", {}))
    return model, pear.fit(model, pear.PEARLoss(TASK.problem), (FEATURES, VALUES), config=config, **options)


@pytest.mark.parametrize("hidden", [0, 4])
@pytest.mark.parametrize("cap", [3.0, 5.5, 12.0])
def test_a_race_ends_in_time_with_slow_decisions(clock: Clock, cap: float, hidden: int) -> None:
    began, (model, history) = clock.now, fit_for(clock, cap, hidden)
    assert clock.now - began <= 1.1 * cap
    assert history.seconds == pytest.approx(clock.now - began)
    assert history.stopped == "time_cap"
    assert history.best is not None
    fresh = SlowModel(clock, hidden).to(VALUES).state_dict()
    assert not torch.equal(model.state_dict()["last.weight"], fresh["last.weight"])


@pytest.mark.parametrize("hidden", [0, 4])
def test_a_race_without_time_has_trained_weights_and_one_judgement(clock: Clock, hidden: int) -> None:
    model, history = fit_for(clock, 1e-3, hidden)
    assert history.stopped == "time_cap"
    assert [row.contender for row in history.race] == ["start"]
    fresh = SlowModel(clock, hidden).to(VALUES).state_dict()
    assert not torch.equal(model.state_dict()["last.weight"], fresh["last.weight"])


@pytest.mark.parametrize("start", ["mse", "standardised"])
@pytest.mark.parametrize("cap", [1.0, 2.3])
def test_a_single_training_ends_in_time_with_slow_checks(clock: Clock, cap: float, start: str) -> None:
    began = clock.now
    _, history = fit_for(clock, cap, config={"start": start, "check_every": 3, "patience": 10**6}, validation=0.4)
    assert history.stopped == "time_cap"
    assert 0.5 * cap < clock.now - began <= 1.1 * cap
    assert history.best is not None


@pytest.mark.parametrize("cap", [5.0, 12.0])
def test_the_time_of_tune_is_that_of_all_candidates(clock: Clock, cap: float) -> None:
    began = clock.now
    config = FitConfig(time_cap=cap, batch_size=12, check_every=2, patience=10**6)
    tuned = pear.tune(TASK.problem, FEATURES, VALUES, model=SlowModel(clock).to(VALUES), config=config)
    assert 0.5 * cap < clock.now - began <= 1.1 * cap
    assert all(row.epochs > 0 for row in tuned.rows)
    assert tuned.history.best is not None


def test_candidates_without_a_turn_say_so(clock: Clock) -> None:
    began, metric = clock.now, slow_metric(clock, 1.0)
    config = FitConfig(time_cap=3.5, batch_size=12)
    model = SlowModel(clock).to(VALUES)
    tuned = pear.tune(TASK.problem, FEATURES, VALUES, model=model, config=config, metric=metric)
    assert clock.now - began <= 1.1 * 3.5
    judged = [row for row in tuned.rows if not row.note]
    assert 1 <= len(judged) < len(tuned.rows)
    assert {row.note for row in tuned.rows} == {"", LATE}


def test_tune_without_time_has_one_candidate(clock: Clock) -> None:
    config, model = FitConfig(time_cap=1e-3), SlowModel(clock).to(VALUES)
    tuned = pear.tune(TASK.problem, FEATURES, VALUES, model=model, config=config)
    assert [row.note for row in tuned.rows] == ["", *[LATE] * (len(tuned.rows) - 1)]


def test_a_judgement_that_is_cut_off_ends_the_race_with_what_was_judged(clock: Clock) -> None:
    """The validation of the fresh model takes longer than expected, and is cut off by the time cap."""
    calls: list[float] = []

    def metric(predicted: Tensor, true: Tensor) -> float:
        calls.append(time_limit.time_left())
        clock.now += 0.01
        if len(calls) == 17:
            clock.now += 100.0
            raise SolveError("{samples}: the time was up", [0], [int(Status.TIME_LIMIT)])
        return float((predicted - true).square().mean())

    _, history = fit_for(clock, 50.0, metric=metric)
    assert history.stopped == "time_cap"
    assert len(history.race) == 2
    assert all(left == math.inf for left in calls[:5])  # the start is always judged
    assert all(left < 1.05 * 50.0 for left in calls[5:])


def test_only_the_time_ends_a_judgement_quietly() -> None:
    def fail(status: Status) -> float:
        raise SolveError("{samples}", [0], [int(status)])

    assert validate_in_time(1.0, lambda: fail(Status.TIME_LIMIT)) is None
    assert validate_in_time(0.0, lambda: 1.0) is None
    assert validate_in_time(None, lambda: 1.0) == 1.0
    with pytest.raises(SolveError):
        validate_in_time(1.0, lambda: fail(Status.INFEASIBLE))


def test_a_hard_program_may_use_the_time_of_the_others() -> None:
    assert time_limit.has_even_time_shares()
    with time_limit.limit_time(5.0, even=False):
        assert not time_limit.has_even_time_shares()
        assert time_limit.time_left() <= 5.0
    assert time_limit.has_even_time_shares()
