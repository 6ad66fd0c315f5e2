"""How much memory a process has, and the machine has left."""

from __future__ import annotations

import sys
from pathlib import Path


def read_memory_entry(file: str, name: str) -> int | None:
    """The bytes that a file below /proc states under a name; None where the system does not say."""
    try:
        lines = Path("/proc", file).read_text("utf-8").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def peak_process_memory() -> int:
    """Largest resident memory of this process so far, in bytes.

    On Linux it is read from the kernel's files. ``ru_maxrss`` would be wrong there, because a new process inherits the
    value of the process that started it.
    """
    known = read_memory_entry("self/status", "VmHWM")
    if known is not None:
        return known
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident_process_memory() -> int:
    """Resident memory of this process now, in bytes; where the system does not tell it, the largest so far."""
    known = read_memory_entry("self/status", "VmRSS")
    return peak_process_memory() if known is None else known
