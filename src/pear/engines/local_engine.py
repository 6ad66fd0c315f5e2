"""``InProcess``: does tasks in this process, one after the other."""

from __future__ import annotations

from collections import deque
from typing import Any

from pear.engines.engine import Engine, OnUpdate, Resources, TaskMessage, TaskResult, TaskStart
from pear.errors import EngineError


def start(address: str | None, jobs: int | None, resources: Resources) -> Engine:
    """Make an engine in this process; an address is never given, and resources are what the machine has.

    Raises:
        EngineError: more than one task at a time is asked for.
    """
    if jobs not in (None, 1):
        raise EngineError(f"the engine 'local' does one task at a time; got jobs={jobs}")
    return InProcess()


class _ListenerError(BaseException):
    """Carries an error of ``on_update`` through a task. It is not an ``Exception``, which the task might catch."""


class InProcess(Engine):
    """Does one task after the other in this process, each within ``wait``."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[int] = deque()

    @property
    def slots(self) -> int:
        """One."""
        return 1

    def wait(self, on_update: OnUpdate, seconds: float | None = None) -> None:
        """Do the next task, unless there is no time at all."""
        if seconds == 0 or not self._waiting:
            return
        ticket = self._waiting.popleft()
        function, arguments = self.tasks[ticket]

        def send(message: Any) -> None:
            try:
                on_update(TaskMessage(ticket, message))
            except OSError as error:  # the terminal is gone
                raise _ListenerError(error) from error

        on_update(TaskStart(ticket))
        try:
            value = function(send, *arguments)
        except _ListenerError as error:
            raise error.args[0] from None
        del self.tasks[ticket]
        on_update(TaskResult(ticket, value))

    def close(self) -> None:
        """Forget the tasks that have not begun."""
        self._waiting.clear()
        self.tasks.clear()

    def _hand_over(self, ticket: int) -> None:
        self._waiting.append(ticket)
