"""The time limit of a call: set once where the call begins, read by the solvers that work for it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pear.errors import ProblemError

_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)
_SECONDS, _PER_UNKNOWN = 1.0, 1e-3


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Limit the calls inside to this many seconds, or to what an outer limit leaves; None sets no limit.

    Raises:
        ProblemError: ``seconds`` is not a positive number.
    """
    if seconds is None:
        yield
        return
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds > 0:
        raise ProblemError(f"time_limit must be a positive number of seconds, or None for no limit; got {seconds!r}")
    token = _DEADLINE.set(min(_DEADLINE.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def seconds_left() -> float:
    """Seconds that are left: infinite without a limit, never negative. Other threads do not inherit the limit."""
    return max(0.0, _DEADLINE.get() - time.monotonic())


def seconds_per_sample(n: int, rows: int) -> float:
    """Seconds that a solver of another package gets for one continuous sample, by its variables and rows.

    A solver that takes longer is not waited for: it hands over what it has, and the next in the table is asked.
    """
    return _SECONDS + _PER_UNKNOWN * (n + rows)


def iterations_per_sample(n: int, rows: int) -> int:
    """The same for solvers that count iterations, not time; one costs about a product with a dense factor."""
    seconds = 5e-6 + 5e-9 * (n + rows) ** 2
    return int(max(seconds_per_sample(n, rows) / seconds, 100))
