"""What the tasks of an engine return."""

from __future__ import annotations

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
