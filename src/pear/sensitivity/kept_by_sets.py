"""Results for sets of constraints of sparse programs, such as factorisations, kept between calls.

In training, the same samples return in every epoch, and most of their decisions have the same active constraints as
before. The results for these constraints are then used again. The keys of the results are the exact bytes of the sets,
so that a kept result equals a result that is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.bounded_cache import BoundedCache

Value = TypeVar("Value")

_ROOM = 2**29  # bytes, for each plan and each kind of result


class _Kept(NamedTuple):
    """A result, and the curvature H for which it was computed."""

    H: Any
    value: Any


def keep_by_sets(
    qp: QuadraticProgram,
    name: str,
    sets: Sequence[NDArray[np.bool_]],
    compute: Callable[[], Value],
    size: Callable[[Value], int],
) -> Value:
    """Return the result for these sets of constraints, and compute it if it is not kept from an earlier call.

    A kept result is used only if H is still the same object as when the result was computed.

    Args:
        qp: sparse programs that share their matrices. The results are kept in ``qp.plan``.
        name: the kind of result.
        sets: the sets of constraints that the result depends on, as masks.
        compute: computes the result.
        size: returns the number of bytes of a result.
    """
    cache: BoundedCache[_Kept] = qp.prepare_once(f"{name} by sets", lambda _: BoundedCache(_ROOM))
    key = np.packbits(np.concatenate(sets)).tobytes()
    found = cache.find([key])[0]
    if found is not None and found.H is qp.H:
        value: Value = found.value
        return value
    value = compute()
    cache.put(key, _Kept(qp.H, value), size(value) + len(key))
    return value
