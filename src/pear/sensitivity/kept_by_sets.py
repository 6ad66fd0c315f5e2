"""Results that depend on the matrices of a sparse program and on sets of its constraints, kept between calls.

In training, the same samples return in every epoch, and at most of their decisions the same constraints are active as
before. What was computed for these constraints, such as a factorisation, is then used again. Keys are the exact bytes
of the sets, so that a stored result equals what would be computed anew.
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
    """A result, and the curvature it was computed with."""

    H: Any
    value: Any


def keep_by_sets(
    qp: QuadraticProgram,
    name: str,
    sets: Sequence[NDArray[np.bool_]],
    compute: Callable[[], Value],
    size: Callable[[Value], int],
) -> Value:
    """Return what was computed before for the same matrices and sets, or compute it.

    Args:
        qp: sparse programs, whose plan keeps the results; all samples share their matrices.
        name: the kind of result.
        sets: the sets of constraints that the result depends on.
        compute: computes the result.
        size: the bytes that a result takes.
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
