"""The time that a validation may take if the training has a time cap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pear.errors import SolveError
from pear.optimality.status import Status
from pear.solvers.time_limit import limit_time

T = TypeVar("T")

OVERRUN = 0.05
"""The share of a time cap by which a validation that is under way may exceed the cap."""


def seconds_left_to_validate(cap: float | None, spent: float) -> float | None:
    """Return the seconds that a validation may still take; None without a time cap.

    A validation that is under way may exceed the time cap by a small share of the cap (``OVERRUN``). The result is 0 or
    negative if no time is left.

    Args:
        cap: the time cap in seconds, or None.
        spent: the seconds of the training so far.
    """
    return None if cap is None else (1 + OVERRUN) * cap - spent


def validate_in_time(seconds: float | None, judge: Callable[[], T]) -> T | None:
    """Return the result of a validation; None if the time is over before it ends.

    Only the search of integer programs is interrupted; other computations may take longer than the time.

    Args:
        seconds: the time in seconds; None for no limit.
        judge: the function that makes the validation and returns its result.
    """
    if seconds is None:
        return judge()
    if seconds <= 0:
        return None
    try:
        with limit_time(seconds, even=False):
            return judge()
    except SolveError as error:
        if Status.TIME_LIMIT in error.statuses:
            return None
        raise
