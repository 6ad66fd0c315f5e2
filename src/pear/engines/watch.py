"""A time limit for a call that cannot be interrupted: a second process kills this one when the time is up.

The second process runs this file alone. Nothing of the library is imported here, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ends_within(seconds: float, words: str) -> Iterator[None]:
    """Write ``words`` to the error stream and kill this process if the block takes longer than ``seconds``.

    This is for calls that hold Python's global lock while they wait. No other thread and no signal handler of this
    process runs meanwhile, so that no error can be raised, and Ctrl-C has no effect.

    Example:
        >>> with ends_within(60, "this took longer than a minute"):
        ...     pass
    """
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds), words]
    # In a session of its own Ctrl-C does not reach it; it ends with its input: once this block or this process does.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield


def _watch(pid: int, seconds: float, words: str) -> None:
    """Kill process ``pid`` with a message, unless a byte arrives on the standard input within ``seconds``."""
    waiting = threading.Thread(target=os.read, args=(0, 1), daemon=True)
    waiting.start()
    waiting.join(seconds)
    if waiting.is_alive():
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has the latter alone, and it kills there


if __name__ == "__main__":
    _watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
