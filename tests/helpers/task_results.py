"""What the tasks of an engine return, also if their processes die."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pear.engines import Engine, TaskFailure, TaskResult, TaskUpdate


def results(engine: Engine, *tasks: tuple[Any, ...]) -> list[Any]:
    """Return the results of the tasks, in their order; for a lost task, the reason of the loss."""
    tickets, found = [engine.submit(*task) for task in tasks], {}

    def hear(update: TaskUpdate) -> None:
        if isinstance(update, TaskResult):
            found[update.ticket] = update.value
        elif isinstance(update, TaskFailure):
            found[update.ticket] = update.reason

    while len(found) < len(tickets):
        engine.wait(hear)
    return [found[ticket] for ticket in tickets]


def dies(tell: Any, folder: str, times: int) -> str:
    """A task whose first ``times`` processes kill themselves."""
    died = len(os.listdir(folder))
    if died < times:
        Path(folder, str(died)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"done after {died}"


def results_of_deaths(engine: Engine, folder: Path) -> list[Any]:
    """Return the results of a task whose process dies once, and of one whose process always dies."""
    for name in ("once", "always"):
        (folder / name).mkdir()
    return results(engine, (dies, str(folder / "once"), 1), (dies, str(folder / "always"), 99))
