"""A hard time limit, which stops a computation even within a training step.

Other time limits wait for the step to end.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from pear_lab.experiments.experiment_errors import RunError


class TooSlowError(RunError):
    """The error of a computation that takes longer than its hard time limit."""


@contextlib.contextmanager
def hard_time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raise ``TooSlowError`` in the block of the with statement as soon as the time is over.

    Compiled code is not interrupted; the error is raised when such code returns to Python. Outside the main thread, and
    on systems without interval timers, there is no limit.

    Args:
        seconds: the limit, in seconds of processor time of this process.
        what: the subject of the error message, such as "a step on 4 samples".

    Example:
        >>> with hard_time_limit(0.01, "a long sum"):
        ...     while True:
        ...         pass
        Traceback (most recent call last):
            ...
        pear_lab.field.hard_limit.TooSlowError: a long sum takes more than 0.01 s
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def raise_hard_limit(number: int, frame: object) -> None:
        raise TooSlowError(f"{what} takes more than {seconds:.3g} s")

    before = signal.signal(signal.SIGPROF, raise_hard_limit)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
