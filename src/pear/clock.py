"""The clock of trainings and time limits: real time, or the processor time of this process.

PEAR measures the times and time limits of trainings and solves with this clock. By default the clock counts real time.
On a machine that runs many programs, processor time compares methods better, because other programs do not shorten a
training.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_counts_processor = False


def read_clock() -> float:
    """Return the time of the clock in seconds. Only the difference between two results has a meaning."""
    return time.process_time() if _counts_processor else time.perf_counter()


class Stopwatch:
    """A context that adds the time spent inside to ``seconds[what]``.

    Args:
        seconds: the time spent so far under each name. It must contain ``what``.
        what: the name under which the time is counted.
    """

    def __init__(self, seconds: dict[str, float], what: str) -> None:
        self._seconds, self._what = seconds, what

    def __enter__(self) -> None:
        self._began = read_clock()

    def __exit__(self, *error: object) -> None:
        self._seconds[self._what] += read_clock() - self._began


@contextmanager
def count_processor_time() -> Iterator[None]:
    """A context in which ``read_clock`` returns the processor time of this process, summed over all its threads.

    Waiting, sleeping and the work of other processes then take no time. The context affects all threads of the process.
    Integer solvers of other packages always measure their time limit in real time. When such a solver starts, it gets
    at most the seconds that are left of PEAR's own limit.

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
