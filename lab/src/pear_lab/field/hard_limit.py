"""``at_most``: ends a computation that takes far longer than its time cap, which is looked at between steps alone."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from pear_lab.experiments.experiment_errors import RunError


class TooSlowError(RunError):
    """A step of a method takes longer than a whole training may."""


@contextlib.contextmanager
def at_most(seconds: float, what: str) -> Iterator[None]:
    """Raise ``TooSlowError`` in the block after some time of the processor; without effect outside the main thread.

    Compiled code is not interrupted: the error is raised when it returns to Python.

    Args:
        seconds: the limit, in seconds of processor time of this process.
        what: the subject of the message, such as "a step on 4 samples".

    Example:
        >>> with at_most(0.01, "a long sum"):
        ...     while True:
        ...         pass
        Traceback (most recent call last):
            ...
        pear_lab.field.hard_limit.TooSlowError: a long sum takes more than 0.01 s
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise TooSlowError(f"{what} takes more than {seconds:.3g} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
