"""What every engine does: it takes tasks, says what becomes of them, and does those of a lost process again."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_DEATHS = 2
"""How many processes a task may cost before it is given up."""

MAX_LOSSES = 20
"""How many times it is begun anew in all, where whole machines are lost, for which it is not to blame."""

TELL_SECONDS = 0.2
"""A task is heard at most this often."""

Tell = Callable[[Any], None]
"""What a task calls to say how it goes."""

Task = Callable[..., Any]
"""``function(tell, *given)``; a function of a module, so that other processes find it by its name."""


class Resources(NamedTuple):
    """What one task needs.

    Attributes:
        cpus: cores; gpus: devices.
    """

    cpus: int = 1
    gpus: int = 0


@dataclass(frozen=True)
class Begun:
    """A worker has begun with a task, for the first time or again."""

    ticket: int


@dataclass(frozen=True)
class Told:
    """A task under way has said something; not all that it says is heard."""

    ticket: int
    message: Any


@dataclass(frozen=True)
class Ended:
    """A task has returned a value."""

    ticket: int
    value: Any


@dataclass(frozen=True)
class Lost:
    """A task is given up, since its processes die; ``how`` is the end of a sentence on the last one."""

    ticket: int
    how: str


Update = Begun | Told | Ended | Lost
Hear = Callable[[Update], None]


class Engine(ABC):
    """Takes tasks and says what becomes of them; a context manager that ends what is under way.

    Each ticket that ``submit`` returns is ended or lost once. A task whose process dies is begun anew, so that a task
    must not leave anything behind but the value it returns.

    Attributes:
        tasks: ticket → function and arguments of all that is under way.
        losses: ticket → how often a process or a machine was lost with it.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, tuple[Task, tuple[Any, ...]]] = {}
        self._numbers = itertools.count()
        self._deaths: Counter[int] = Counter()
        self.losses: Counter[int] = Counter()

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many tasks at once are of use; more than that are not handed over."""

    @property
    def free(self) -> int:
        """How many more tasks are of use now."""
        return self.slots - len(self.tasks)

    def submit(self, function: Task, *given: Any) -> int:
        """Hand over a task.

        Args:
            function: called as ``function(tell, *given)`` on one core.
            given: what it gets; what ``share`` returned comes as what it was given.

        Returns:
            The ticket that updates name.
        """
        ticket = next(self._numbers)
        self.tasks[ticket] = (function, given)
        self._hand_over(ticket)
        return ticket

    def share(self, value: Any) -> Any:
        """Send a value once for all tasks that get it; returns what stands for it as an argument."""
        return value

    @abstractmethod
    def wait(self, hear: Hear, seconds: float | None = None) -> None:
        """Wait until something happens, and say what.

        Args:
            hear: called with each update, in this thread.
            seconds: to wait at most; 0 says what has happened already.

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
        """Have a task begun as soon as there is room."""

    def _end(self, ticket: int, value: Any, hear: Hear) -> None:
        if self.tasks.pop(ticket, None) is not None:
            hear(Ended(ticket, value))

    def _begin_anew(self, ticket: int, how: str, hear: Hear, to_blame: bool = True) -> None:
        """Hand a task over once more, or give it up.

        Args:
            ticket: of a task whose process is gone; how: it went.
            hear: is told where the task is given up.
            to_blame: False where a whole machine went.
        """
        if ticket not in self.tasks:
            return
        self._deaths[ticket] += to_blame
        self.losses[ticket] += 1
        if self._deaths[ticket] < MAX_DEATHS and self.losses[ticket] < MAX_LOSSES:
            self._hand_over(ticket)
            return
        del self.tasks[ticket]
        hear(Lost(ticket, f"its process died {self.losses[ticket]} times, the last time with {how}"))


def throttled(tell: Tell, seconds: float = TELL_SECONDS) -> Tell:
    """Pass on the first message, and later ones that come after a while.

    Example:
        >>> heard = []
        >>> tell = throttled(heard.append)
        >>> tell("one"), tell("two at once"), heard
        (None, None, ['one'])
    """
    last = -float("inf")

    def tell_sometimes(message: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            tell(message)

    return tell_sometimes
