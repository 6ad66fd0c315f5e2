"""The memory of this process, and the entries on memory that Linux shows below /proc."""

from __future__ import annotations

import sys
from pathlib import Path


def read_memory_entry(file: str, name: str) -> int | None:
    """Read an entry of a file below /proc, in bytes; None if the system has no such file or entry.

    Example:
        >>> read_memory_entry("meminfo", "NoSuchEntry") is None
        True
    """
    try:
        lines = Path("/proc", file).read_text("utf-8").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def peak_process_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes.

    On Linux, it is read from /proc/self/status. ``ru_maxrss`` would be wrong on Linux, because a new process inherits
    the number of the process that started it.
    """
    known = read_memory_entry("self/status", "VmHWM")
    if known is not None:
        return known
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident_process_memory() -> int:
    """Return the resident memory of this process now, in bytes, or its largest so far if only that is known."""
    known = read_memory_entry("self/status", "VmRSS")
    return peak_process_memory() if known is None else known
