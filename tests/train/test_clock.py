"""The clock of trainings: a time cap counts wall-clock time by default, and processor time if set to."""

from __future__ import annotations

import time

import pytest
import torch

import pear
from pear.clock import count_processor_time, read_clock
from pear.solvers import time_limit
from pear.tasks import shortest_path

TASK = shortest_path((3, 3))


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile the kernels, so that no training waits for them."""
    x, c = TASK.samples(8, seed=0)
    pear.fit(
        torch.nn.Linear(5, TASK.problem.n), pear.PEARLoss(TASK.problem), (x, c), config=pear.FitConfig(max_epochs=1)
    )


def train(start: str) -> pear.train.History:
    """Train for up to four epochs, after each of which the process sleeps for more than a quarter of the cap."""
    x, c = TASK.samples(40, seed=0)
    torch.manual_seed(0)
    model = torch.nn.Linear(5, TASK.problem.n)
    config = pear.FitConfig(max_epochs=4, time_cap=0.8, start=start, patience=9)  # type: ignore[arg-type]
    return pear.fit(
        model, pear.PEARLoss(TASK.problem), (x[:30], c[:30]), (x[30:], c[30:]), config=config, progress=sleep
    )


def sleep(now: pear.train.Progress) -> None:
    time.sleep(0.3)


@pytest.mark.parametrize("start", ["given", "race"])
def test_sleep_uses_up_a_cap_of_the_wall_alone(start: str) -> None:
    by_wall = train(start)
    assert by_wall.stopped == "time_cap"
    assert by_wall.seconds > 0.6
    with count_processor_time():
        by_processor = train(start)
    assert by_processor.stopped != "time_cap"
    assert by_processor.seconds < 0.8


def test_the_clock_is_the_wall_again_after_an_error() -> None:
    with pytest.raises(KeyError), count_processor_time():
        raise KeyError
    began = read_clock()
    time.sleep(0.2)
    assert read_clock() - began > 0.19


def test_a_time_limit_counts_by_the_clock() -> None:
    with count_processor_time(), time_limit.limit_time(1.0):
        time.sleep(0.3)
        assert time_limit.time_left() > 0.8
    with time_limit.limit_time(1.0):
        time.sleep(0.3)
        assert time_limit.time_left() < 0.75
