"""The time limit of a call: the call sets the limit once, and the solvers that it uses read the limit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pear.clock import read_clock
from pear.errors import ProblemError

_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)
_EVEN: ContextVar[bool] = ContextVar("even", default=True)
_SECONDS, _PER_UNKNOWN = 1.0, 1e-3


@contextmanager
def limit_time(seconds: float | None, even: bool = True) -> Iterator[None]:
    """Make a context in which solvers stop after ``seconds``, or at the limit of an outer context if this is earlier.

    Args:
        seconds: the time limit; None for no limit besides that of an outer context.
        even: True to give each integer program of a batch an equal share of the time, so that all programs end with a
            point. False to let a hard program use all the time that is left. If ``seconds`` is None, the outer context
            determines this.

    Raises:
        ProblemError: ``seconds`` is not a positive number.
    """
    if seconds is None:
        yield
        return
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds > 0:
        raise ProblemError(f"time_limit must be a positive number of seconds, or None for no limit; got {seconds!r}")
    token, how = _DEADLINE.set(min(_DEADLINE.get(), read_clock() + seconds)), _EVEN.set(even)
    try:
        yield
    finally:
        _DEADLINE.reset(token)
        _EVEN.reset(how)


def time_left() -> float:
    """Return the seconds until the time limit: infinite without a limit, never negative.

    A limit holds only for the thread that has set it.
    """
    return max(0.0, _DEADLINE.get() - read_clock())


def has_even_time_shares() -> bool:
    """Return whether each integer program of a batch gets an equal share of the time that is left."""
    return _EVEN.get()


def time_per_sample(n: int, rows: int) -> float:
    """Return the seconds that a solver of another package gets for one continuous sample.

    The sample has n variables and ``rows`` rows. A solver that runs out of time returns its best point, and the
    pipeline tries the next solver of the registry.
    """
    return _SECONDS + _PER_UNKNOWN * (n + rows)


def iteration_limit_per_sample(n: int, rows: int) -> int:
    """Return the largest number of iterations for one sample, for solvers that limit iterations instead of time.

    The result is the time of one sample divided by the estimated time of one iteration, but at least 100. An iteration
    is estimated to take as long as a product with a dense factor of n variables and ``rows`` rows.
    """
    seconds = 5e-6 + 5e-9 * (n + rows) ** 2
    return int(max(time_per_sample(n, rows) / seconds, 100))
