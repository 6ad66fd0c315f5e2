"""``LocalEngine``: runs tasks in this process, one after the other."""

from __future__ import annotations

from collections import deque
from typing import Any

from pear.engines.engine import Engine, OnUpdate, Resources, TaskMessage, TaskResult, TaskStart
from pear.errors import EngineError


def start(address: str | None, jobs: int | None, resources: Resources) -> Engine:
    """Return an engine in this process. The arguments ``address`` and ``resources`` are ignored.

    Raises:
        EngineError: ``jobs`` is neither 1 nor None.
    """
    if jobs not in (None, 1):
        raise EngineError(f"the engine 'local' does one task at a time; got jobs={jobs}")
    return LocalEngine()


class _ListenerError(BaseException):
    """An error that carries an ``OSError`` of ``on_update`` through the code of a task.

    It is no subclass of ``Exception``, because a task might catch an ``Exception``.
    """


class LocalEngine(Engine):
    """An engine that runs one task after the other in this process, each of them within ``wait``."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[int] = deque()

    @property
    def slots(self) -> int:
        """The number of tasks that run at the same time: 1."""
        return 1

    def wait(self, on_update: OnUpdate, seconds: float | None = None) -> None:
        """Run the next task to its end, however long it takes; if ``seconds`` is 0, run none."""
        if seconds == 0 or not self._waiting:
            return
        ticket = self._waiting.popleft()
        function, arguments = self.tasks[ticket]

        def send(message: Any) -> None:
            try:
                on_update(TaskMessage(ticket, message))
            except OSError as error:  # the terminal is closed
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
