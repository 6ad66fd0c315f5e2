"""One driver at a time: the lock that whoever writes rows holds on a database."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from pathlib import Path
from typing import IO

from pear_lab.experiments.errors import DatabaseError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[str]) -> None:
        file.seek(1 << 30)  # far behind the text, which others may read
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)
else:
    import fcntl

    def _try_lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Lock:
    """Held until it is closed, or its process ends in whatever way: the system lets go of it then.

    The file stays, and says who held the lock last; it alone stops nobody.

    Args:
        path: the database.

    Raises:
        DatabaseError: another process holds the lock, which the message names; or the file cannot be made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     held = Lock(Path(folder) / "results.sqlite")
        ...     held.close()
        ...     Lock(Path(folder) / "results.sqlite").close()  # free again
    """

    def __init__(self, path: Path) -> None:
        place = path.with_name(f"{path.name}.lock")
        try:
            self._file = place.open("a+", encoding="utf-8")
        except OSError as error:
            raise DatabaseError(
                f"cannot write to {place}: {error.strerror or error}; allow writing, or name another folder with --out"
            ) from error
        try:
            _try_lock(self._file)
        except OSError as error:
            holder = _holder(place)
            self._file.close()
            raise DatabaseError(
                f"{path} is in use by {holder}, and one command at a time may write to it; wait until that one has "
                "ended or stop it, or name another folder with --out"
            ) from error
        self._file.truncate(0)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "host": platform.node(), "since": now}, self._file)
        self._file.flush()

    def close(self) -> None:
        """Let others have it."""
        self._file.close()


def _holder(place: Path) -> str:
    try:
        found = json.loads(place.read_text("utf-8"))
        return f"process {found['pid']} on {found['host']} since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has the lock, but has not said so yet
        return "another process"
