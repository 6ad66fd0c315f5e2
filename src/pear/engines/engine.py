"""``Engine``: the interface of all engines, and the rule for tasks whose process has died."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_DEATHS = 2
"""A task is given up after this many of its processes have died."""

MAX_LOSSES = 20
"""A task is given up after this many losses of its process or machine. A lost machine is not a death."""

MESSAGE_SECONDS = 0.2
"""The shortest time between two messages of a task in another process."""

_TICK_SECONDS = 0.1

SendMessage = Callable[[Any], None]
"""The function by which a task reports its progress."""

Task = Callable[..., Any]
"""A task: a function ``function(send, *arguments)`` at the top level of a module, which other processes can import."""


class Resources(NamedTuple):
    """The numbers of CPU cores and of GPUs that a task needs."""

    cpus: int = 1
    gpus: int = 0


@dataclass(frozen=True)
class TaskStart:
    """An update which says that a worker has begun a task, for the first time or again."""

    ticket: int


@dataclass(frozen=True)
class TaskMessage:
    """An update which says that a task has sent a message. Messages may get lost."""

    ticket: int
    message: Any


@dataclass(frozen=True)
class TaskResult:
    """An update which says that a task has returned a value."""

    ticket: int
    value: Any


@dataclass(frozen=True)
class TaskLoss:
    """An update which says that a task is given up, because its process or machine was lost too often.

    The text ``reason`` says how the last loss happened.
    """

    ticket: int
    reason: str


TaskUpdate = TaskStart | TaskMessage | TaskResult | TaskLoss
OnUpdate = Callable[[TaskUpdate], None]


class Engine(ABC):
    """An engine: it runs tasks and reports on them. As a context manager, it ends all tasks when its block ends.

    Every task has a number, its ticket. A task ends with one ``TaskResult`` or one ``TaskLoss``, unless it raises an
    error. A task whose process dies is begun again. A task must therefore have no effect other than the value that it
    returns.

    Attributes:
        tasks: function and arguments of every task that has not ended, by ticket.
        losses: how often the process or machine of a task was lost, by ticket.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, tuple[Task, tuple[Any, ...]]] = {}
        self.losses: Counter[int] = Counter()
        self._numbers = itertools.count()
        self._deaths: Counter[int] = Counter()

    @property
    @abstractmethod
    def slots(self) -> int:
        """The number of tasks that the engine runs at the same time."""

    @property
    def free(self) -> int:
        """The number of tasks that the engine could begin now."""
        return self.slots - len(self.tasks)

    def submit(self, function: Task, *arguments: Any) -> int:
        """Add a task to the engine.

        Args:
            function: the function, called as ``function(send, *arguments)``.
            arguments: the arguments after ``send``. Instead of a result of ``share``, the function gets the shared
                value.

        Returns:
            The ticket of the task, which its updates contain.
        """
        ticket = next(self._numbers)
        self.tasks[ticket] = (function, arguments)
        self._hand_over(ticket)
        return ticket

    def share(self, value: Any) -> Any:
        """Send a value once for all tasks. Return an object that stands for the value as an argument of ``submit``."""
        return value

    @abstractmethod
    def wait(self, on_update: OnUpdate, seconds: float | None = None) -> None:
        """Wait a short time, or until a task ends, and report updates.

        Args:
            on_update: a function that is called with each update, in this thread.
            seconds: the longest time to wait; 0 to report only updates that are there already.

        Raises:
            EngineError: the engine cannot continue.
            Exception: the error that a task raised.
        """

    @abstractmethod
    def close(self) -> None:
        """End all tasks, and the processes that belong to this engine."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _hand_over(self, ticket: int) -> None:
        """Begin the task with this ticket as soon as a slot is free."""


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
        """Begin a task again after its process has ended, or give it up.

        Args:
            ticket: the ticket of the task.
            how: how the process ended, in words.
            on_update: a function that is called with a ``TaskLoss`` if the task is given up.
            to_blame: whether the task may have caused the end of its process; False if a machine was lost.
        """
        self._begun.discard(ticket)
        self._deaths[ticket] += to_blame
        self.losses[ticket] += 1
        if self._deaths[ticket] < MAX_DEATHS and self.losses[ticket] < MAX_LOSSES:
            self._hand_over(ticket)
            return
        del self.tasks[ticket]
        on_update(TaskLoss(ticket, f"its process died {self.losses[ticket]} times, the last time with {how}"))


def throttle_messages(send: SendMessage) -> SendMessage:
    """Return a function that calls ``send``, but drops messages within ``MESSAGE_SECONDS`` after the last one sent.

    Example:
        >>> sent = []
        >>> send = throttle_messages(sent.append)
        >>> send("one"), send("two at once"), sent
        (None, None, ['one'])
    """
    last = -float("inf")

    def send_sometimes(message: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= MESSAGE_SECONDS:
            last = time.monotonic()
            send(message)

    return send_sometimes
