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
    """Raise ``TooSlowError`` in the block after so many seconds; without effect outside the main thread.

    Args:
        seconds: the limit.
        what: the subject of the message, such as "a step on 4 samples".

    Example:
        >>> import time
        >>> with at_most(0.01, "a nap"):
        ...     time.sleep(5)
        Traceback (most recent call last):
            ...
        pear_lab.field.hard_limit.TooSlowError: a nap takes more than 0.01 s
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise TooSlowError(f"{what} takes more than {seconds:.3g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
