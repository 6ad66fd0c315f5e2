"""Tasks in processes of this machine: their messages, and the death of a process."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from task_results import results, results_of_deaths

from pear.engines import EngineError, TaskMessage, TaskResult, TaskStart, TaskUpdate
from pear_lab.experiments.processes import start_engine

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]


class AwkwardError(Exception):
    """An error whose constructor needs more arguments than it stores, so that it cannot be unpickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def half(send: Any, number: int) -> float:
    send("half way")
    return number / 2


def awkward(send: Any) -> None:
    raise AwkwardError("what ", "happened")


def test_what_a_worker_process_sends_back() -> None:
    updates = list[TaskUpdate]()
    with start_engine("local", 2) as engine:
        ticket = engine.submit(half, 4)
        while ticket in engine.tasks:
            engine.wait(updates.append)
        assert updates == [TaskStart(ticket), TaskMessage(ticket, "half way"), TaskResult(ticket, 2.0)]
        with pytest.raises(TypeError):
            results(engine, (half, "four"))
    with start_engine("local", 2) as engine, pytest.raises(EngineError, match=r"^AwkwardError: what happened$"):
        results(engine, (awkward,))
    assert not multiprocessing.active_children()


def test_a_task_whose_local_process_dies_is_done_again_and_given_up_after_two(tmp_path: Path) -> None:
    with start_engine("local", 2) as engine:
        once, always = results_of_deaths(engine, tmp_path)
        assert once == "done after 1"
        assert always == "its process died 2 times, the last time with signal 9 (SIGKILL)"
        assert not engine.tasks
