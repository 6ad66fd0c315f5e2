"""The address of ``GOMP_parallel`` in torch's OpenMP library."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import torch

_PROCESS = os.getpid()  # a process with another id is a fork of the one that imported this module


def openmp_address() -> int:
    """Return the address of ``GOMP_parallel`` in the OpenMP library that torch uses; 0 if the library has none.

    The result is 0 in a forked process, because the library would wait for threads that only the parent process has.
    """
    return _find_openmp() if os.getpid() == _PROCESS else 0


@cache
def _find_openmp() -> int:
    """Return the address of ``GOMP_parallel`` in torch's CPU library or a library that it is linked with; 0 if none."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.exists():
        return 0
    function = getattr(ctypes.CDLL(str(library)), "GOMP_parallel", None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
