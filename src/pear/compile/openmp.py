"""The address of ``GOMP_parallel`` in torch's OpenMP library."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import torch

_PROCESS = os.getpid()  # a process with another id is a fork of the one that imported this module


def openmp_address() -> int:
    """The address of ``GOMP_parallel`` in the OpenMP library that torch uses; 0 where there is none.

    It is 0 in a forked child, where the library would wait for the parent's threads, which the child does not have.
    """
    return _find_openmp() if os.getpid() == _PROCESS else 0


@cache
def _find_openmp() -> int:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.exists():
        return 0
    function = getattr(
        ctypes.CDLL(str(library)), "GOMP_parallel", None
    )  # also searches the libraries that torch is linked with
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
