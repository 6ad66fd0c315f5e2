"""A time limit for a call that cannot be interrupted: a second process kills this process when the time is up.

The second process runs only this file. The file imports nothing of the library, so that the second process starts fast.
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
def process_deadline(seconds: float, words: str) -> Iterator[None]:
    """A context that kills this process if its block takes longer than ``seconds``, after writing ``words`` to stderr.

    The context is for calls that hold Python's global lock while they wait. During such a call, no other thread and no
    signal handler of this process runs, so that neither an error nor Ctrl-C can end the call.

    Example:
        >>> with process_deadline(60, "this took longer than a minute"):
        ...     pass
    """
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds), words]
    # In a new session, the second process gets no Ctrl-C. It ends with its input: when the block or this process ends.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield


def _enforce_process_deadline(pid: int, seconds: float, words: str) -> None:
    """Kill process ``pid`` and write ``words``, unless the standard input ends within ``seconds``."""
    waiting = threading.Thread(target=os.read, args=(0, 1), daemon=True)
    waiting.start()
    waiting.join(seconds)
    if waiting.is_alive():
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows has only SIGTERM


if __name__ == "__main__":
    _enforce_process_deadline(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
