"""The interface of all engines, and the rule by which a task is done again after its process has died."""

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
"""A task is given up after this many losses in all. Lost machines count here alone: a task is not to blame for them."""

MESSAGE_SECONDS = 0.2
"""A task sends a message at most this often."""

_TICK_SECONDS = 0.1

SendMessage = Callable[[Any], None]
"""The function that a task calls to report its progress."""

Task = Callable[..., Any]
"""``function(send, *arguments)``; a function of a module, so that other processes can import it."""


class Resources(NamedTuple):
    """The numbers of cores and of GPUs that one task needs."""

    cpus: int = 1
    gpus: int = 0


@dataclass(frozen=True)
class TaskStart:
    """A worker has begun a task, for the first time or again."""

    ticket: int


@dataclass(frozen=True)
class TaskMessage:
    """A message that a task has sent; messages may get lost."""

    ticket: int
    message: Any


@dataclass(frozen=True)
class TaskResult:
    """The value that a task has returned."""

    ticket: int
    value: Any


@dataclass(frozen=True)
class TaskLoss:
    """A task is given up because its processes die; ``reason`` says how the last one ended."""

    ticket: int
    reason: str


TaskUpdate = TaskStart | TaskMessage | TaskResult | TaskLoss
OnUpdate = Callable[[TaskUpdate], None]


class Engine(ABC):
    """Does tasks and reports on them; a context manager that ends what is under way.

    Every ticket gets one ``TaskResult`` or one ``TaskLoss``. A task whose process dies is begun again, so that a task
    must have no effect but the value it returns.

    Attributes:
        tasks: ticket → function and arguments of every task that has not ended.
        losses: ticket → how often the task's process or machine was lost.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, tuple[Task, tuple[Any, ...]]] = {}
        self.losses: Counter[int] = Counter()
        self._numbers = itertools.count()
        self._deaths: Counter[int] = Counter()

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many tasks the engine does at a time."""

    @property
    def free(self) -> int:
        """How many more tasks could be done at once now."""
        return self.slots - len(self.tasks)

    def submit(self, function: Task, *arguments: Any) -> int:
        """Add a task.

        Args:
            function: called as ``function(send, *arguments)`` on one core.
            arguments: its arguments; a result of ``share`` arrives as the value that was shared.

        Returns:
            The ticket, by which updates name the task.
        """
        ticket = next(self._numbers)
        self.tasks[ticket] = (function, arguments)
        self._hand_over(ticket)
        return ticket

    def share(self, value: Any) -> Any:
        """Send a value once for all tasks; returns what stands for it among the arguments of ``submit``."""
        return value

    @abstractmethod
    def wait(self, on_update: OnUpdate, seconds: float | None = None) -> None:
        """Wait for a moment, or until a task ends, and report what has happened.

        Args:
            on_update: called with each update, in this thread.
            seconds: to wait at most; 0 reports what has happened already.

        Raises:
            EngineError: the engine cannot go on.
            Exception: whatever a task raised.
        """

    @abstractmethod
    def close(self) -> None:
        """End all tasks and processes."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _hand_over(self, ticket: int) -> None:
        """Begin a task as soon as there is room."""


class FutureEngine(Engine):
    """An engine whose tasks are futures, in other processes."""

    def __init__(self) -> None:
        super().__init__()
        self._futures: dict[Future[Any], int] = {}
        self._begun: set[int] = set()

    def wait(self, on_update: OnUpdate, seconds: float | None = None) -> None:
        """Wait for a task to end, for a moment at most; then report messages and results."""
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
        """Return the messages that have come, each with its ticket; the message None says that a task has begun."""

    @abstractmethod
    def _collect_result(self, ticket: int, future: Future[Any], on_update: OnUpdate) -> None:
        """Report the result of a future, raise the task's error, or begin the task again."""

    def _report_start(self, ticket: int, on_update: OnUpdate) -> None:
        """Report that a task has begun, once."""
        if ticket not in self._begun:
            self._begun.add(ticket)
            on_update(TaskStart(ticket))

    def _report_result(self, ticket: int, value: Any, on_update: OnUpdate) -> None:
        """Report the value of a task, which then is done."""
        self._report_start(ticket, on_update)
        del self.tasks[ticket]
        on_update(TaskResult(ticket, value))

    def _begin_again(self, ticket: int, how: str, on_update: OnUpdate, to_blame: bool = True) -> None:
        """Hand a task over once more, or give it up.

        Args:
            ticket: the ticket of a task whose process has ended.
            how: how the process ended, in words.
            on_update: called with a ``TaskLoss`` where the task is given up.
            to_blame: whether the loss counts as a death; False where a whole machine was lost.
        """
        self._begun.discard(ticket)
        self._deaths[ticket] += to_blame
        self.losses[ticket] += 1
        if self._deaths[ticket] < MAX_DEATHS and self.losses[ticket] < MAX_LOSSES:
            self._hand_over(ticket)
            return
        del self.tasks[ticket]
        on_update(TaskLoss(ticket, f"its process died {self.losses[ticket]} times, the last time with {how}"))


def throttle(send: SendMessage) -> SendMessage:
    """Wrap ``send``: a message is dropped where another one was sent within the last ``MESSAGE_SECONDS``.

    Example:
        >>> sent = []
        >>> send = throttle(sent.append)
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
