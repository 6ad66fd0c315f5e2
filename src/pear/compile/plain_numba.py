"""The fallback: what ``linking``, ``compact`` and ``openmp`` offer, with numba's public interface alone.

Results are the same. Compiling takes ten times as long and kernels about twice as long, and there are no threads of
OpenMP, so that ``in_threads`` runs in the calling thread alone. Functions cannot be called by their address.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

span, floor = range, np.floor


@numba.njit(nogil=True)
def refer(value: Any) -> Any:
    """The value itself: tuples of arrays are passed on as they are."""
    return value


@numba.njit(nogil=True)
def fetch_add(array: Any, place: int, count: int) -> int:
    """The number at a place, to which ``count`` is added afterwards; one thread at a time uses an array."""
    value = array[place]
    array[place] = value + count
    return value


@numba.njit(nogil=True)
def in_threads(address: int, threads: int, function: Any, arguments: Any) -> None:
    """Call a compiled function in this thread."""
    function(*arguments)


def call_address(address: int, arguments: Any) -> None:
    """Not available here: callers look at ``jit.PRIVATE`` first."""


def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """Not available here: callers look at ``jit.PRIVATE`` first."""
    raise NotImplementedError("functions are called by their address with private parts of numba alone")
