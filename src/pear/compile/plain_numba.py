"""The fallback for ``linking``, ``compact_arrays`` and ``openmp``: the same functions on numba's public interface.

Results are the same. Compiling takes ten times as long, and kernels run about twice as long. OpenMP is not used, so
that ``in_threads`` runs in the calling thread alone. Functions cannot be called by their address.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

span, floor = range, np.floor


@numba.njit(nogil=True)
def refer(value: Any) -> Any:
    """Return the value itself. Without compact arrays, a tuple of arrays is passed on as it is."""
    return value


@numba.njit(nogil=True)
def fetch_add(array: Any, place: int, count: int) -> int:
    """Return ``array[place]`` and then add ``count`` to it. This is not atomic, because one thread uses an array."""
    value = array[place]
    array[place] = value + count
    return value


@numba.njit(nogil=True)
def in_threads(address: int, threads: int, function: Any, arguments: Any) -> None:
    """Call a compiled function in the calling thread; ``address`` and ``threads`` are ignored."""
    function(*arguments)


def call_address(address: int, arguments: Any) -> None:
    """Do nothing. Callers check ``jit.PRIVATE`` first and do not call this where it is False."""


def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """Raise NotImplementedError. Callers check ``jit.PRIVATE`` first and do not call this where it is False."""
    raise NotImplementedError("functions are called by their address with private parts of numba alone")
