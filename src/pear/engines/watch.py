"""A time limit for a call that cannot be interrupted: another process ends this one, and says why.

That process runs this file alone, so that it starts at once: nothing of the library is imported here.
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
    """Say ``words`` on the error stream and kill this process where a block takes longer than ``seconds``.

    For calls that hold Python's lock while they wait: no other thread of this process runs then, nor a handler of a
    signal, so that nothing can be raised, and Ctrl-C does nothing either.

    Example:
        >>> with ends_within(60, "this took longer than a minute"):
        ...     pass
    """
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds), words]
    # In a session of its own Ctrl-C does not reach it; it ends with its input: once this block or this process does.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield


def _watch(pid: int, seconds: float, words: str) -> None:
    waiting = threading.Thread(target=os.read, args=(0, 1), daemon=True)
    waiting.start()
    waiting.join(seconds)
    if waiting.is_alive():
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has the latter alone, and it kills there


if __name__ == "__main__":
    _watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
