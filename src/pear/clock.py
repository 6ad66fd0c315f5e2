"""The clock of trainings and time limits: the wall's, or the processor time of this process.

Every time cap, time limit and number of seconds of a training is read from here. By default a second is one on the
wall. Where many programs share a machine, a second of processor time says more about a method: what others do does
not end its training early.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_counts_processor = False


def read_clock() -> float:
    """Return the seconds of the clock in use; differences between two calls have a meaning."""
    return time.process_time() if _counts_processor else time.perf_counter()


@contextmanager
def count_processor_time() -> Iterator[None]:
    """A context within which all clocks of trainings count the processor time of this process, over all its threads.

    Waiting and sleeping cost nothing then, and neither does work in other processes. It holds for all threads of the
    process. An integer solver of another package reads the wall by itself: what is left when it starts is its limit.

    Example:
        >>> import time
        >>> with count_processor_time():
        ...     began = read_clock()
        ...     time.sleep(0.2)
        ...     read_clock() - began < 0.1
        True
    """
    global _counts_processor
    before, _counts_processor = _counts_processor, True
    try:
        yield
    finally:
        _counts_processor = before
