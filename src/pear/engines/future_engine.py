"""``FutureEngine``: the base class of engines that run tasks in other processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from pear.engines.engine import (
    MAX_DEATHS,
    MAX_FAILURES,
    Engine,
    OnUpdate,
    TaskFailure,
    TaskMessage,
    TaskResult,
    TaskStart,
)

_TICK_SECONDS = 0.1  # the longest time of one wait for an update


class FutureEngine(Engine):
    """The base class of engines that run tasks in other processes. Each running task has a ``Future`` of its result."""

    def __init__(self) -> None:
        super().__init__()
        self._futures: dict[Future[Any], int] = {}
        self._begun: set[int] = set()

    def wait(self, on_update: OnUpdate, seconds: float | None = None) -> None:
        """Wait a short time, or until a task ends, and report updates."""
        tick = _TICK_SECONDS if seconds is None else min(seconds, _TICK_SECONDS)
        ended, _ = wait(list(self._futures), tick, FIRST_COMPLETED)
        for ticket, message in self._read_messages():
            if ticket in self.tasks:
                self._report_start(ticket, on_update)
                if message is not None:
                    on_update(TaskMessage(ticket, message))
        for future in ended:
            self._collect_result(self._futures.pop(future), future, on_update)

    @abstractmethod
    def _read_messages(self) -> Iterable[tuple[int, Any]]:
        """Return new messages, each with its ticket. The message None says that a task has begun."""

    @abstractmethod
    def _collect_result(self, ticket: int, future: Future[Any], on_update: OnUpdate) -> None:
        """Report the result of a future, raise the task's error, or begin the task again."""

    def _report_start(self, ticket: int, on_update: OnUpdate) -> None:
        """Report that a task has begun, if this is not reported yet."""
        if ticket not in self._begun:
            self._begun.add(ticket)
            on_update(TaskStart(ticket))

    def _report_result(self, ticket: int, value: Any, on_update: OnUpdate) -> None:
        """Report the value of a task, and forget the task."""
        self._report_start(ticket, on_update)
        del self.tasks[ticket]
        on_update(TaskResult(ticket, value))

    def _begin_again(self, ticket: int, how: str, on_update: OnUpdate, to_blame: bool = True) -> None:
        """Begin a task again after its process has ended, or give it up: see ``MAX_DEATHS`` and ``MAX_FAILURES``.

        Args:
            ticket: the ticket of the task.
            how: how the process ended, in words.
            on_update: a function that is called with a ``TaskFailure`` if the task is given up.
            to_blame: whether the task may have caused the end of its process; False if a machine was lost.
        """
        self._begun.discard(ticket)
        self._deaths[ticket] += to_blame
        self.failures[ticket] += 1
        if self._deaths[ticket] < MAX_DEATHS and self.failures[ticket] < MAX_FAILURES:
            self._hand_over(ticket)
            return
        del self.tasks[ticket]
        on_update(TaskFailure(ticket, f"its process died {self.failures[ticket]} times, the last time with {how}"))
