"""The fallback for ``linking``, ``compact_arrays``, ``span`` and ``intrinsics`` on numba's public interface.

Results are the same. Compiling takes ten times as long, and kernels run about twice as long. OpenMP is not used:
``plain_in_threads`` runs a function in the calling thread only. Functions cannot be called by their address.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

span, floor = range, np.floor


@numba.njit(nogil=True)
def plain_refer(value: Any) -> Any:
    """Return the value itself: without compact arrays, functions pass the tuple of arrays."""
    return value


@numba.njit(nogil=True)
def plain_fetch_add(array: Any, place: int, count: int) -> int:
    """Return ``array[place]`` and then add ``count`` to this entry. Only one thread may use the array at a time."""
    value = array[place]
    array[place] = value + count
    return value


@numba.njit(nogil=True)
def plain_in_threads(address: int, threads: int, function: Any, arguments: Any) -> None:
    """Call a compiled function in the calling thread; ``address`` and ``threads`` are ignored."""
    function(*arguments)


def plain_call_address(address: int, arguments: Any) -> None:
    """Do nothing. No caller gets here, because callers check that ``jit.PRIVATE`` is True."""


def plain_address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """Raise NotImplementedError. No caller gets here, because callers check that ``jit.PRIVATE`` is True."""
    raise NotImplementedError("functions are called by their address with private parts of numba alone")
