"""``Engine``: the interface of all engines, and the rule for tasks whose process has died."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_DEATHS = 2
"""A task is given up after this many of its processes have died."""

MAX_FAILURES = 20
"""A task is given up after this many losses of its process or machine. A lost machine is not a death."""

MESSAGE_SECONDS = 0.2
"""The shortest time between two messages of a task in another process."""

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
class TaskFailure:
    """An update which says that a task is given up, because its process or machine was lost too often.

    The text ``reason`` says how the last loss happened.
    """

    ticket: int
    reason: str


TaskUpdate = TaskStart | TaskMessage | TaskResult | TaskFailure
OnUpdate = Callable[[TaskUpdate], None]


class Engine(ABC):
    """An engine: it runs tasks and reports on them. As a context manager, it ends all tasks when its block ends.

    Every task has a number, its ticket. A task ends with one ``TaskResult`` or one ``TaskFailure``, or with an error,
    which ``wait`` raises. A task whose process dies is begun again. A task must therefore have no effect other than the
    value that it returns.

    Attributes:
        tasks: function and arguments of every task that has not ended, by ticket.
        failures: how often the process or machine of a task was lost, by ticket.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, tuple[Task, tuple[Any, ...]]] = {}
        self.failures: Counter[int] = Counter()
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
            arguments: the arguments after ``send``. An object that ``share`` has returned is replaced by the shared
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
            seconds: the longest time to wait; with 0, only updates that have already arrived are reported. An engine
                that runs tasks in this process does not interrupt a task when this time is up.

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
