"""Checks of numbers that users set. Each check raises an error if the number is out of range."""

from __future__ import annotations

import math
from numbers import Real
from typing import TypeGuard

from pear.errors import ProblemError


def check_number_setting(name: str, value: float, least: float = -math.inf, strict: bool = False) -> float:
    """Return the setting ``value`` as a float. Raise ``ProblemError`` if it is not finite or out of range.

    The value must be at least ``least``; if ``strict``, it must be above ``least``.

    Example:
        >>> check_number_setting("margin", 1, least=0.0)
        1.0
    """
    if not (is_real_number(value) and least <= value < math.inf) or (strict and value == least):
        bound = "" if least == -math.inf else f" {'above' if strict else 'of at least'} {least:g}"
        raise ProblemError(f"{name} must be a finite number{bound}; got {value!r}")
    return float(value)


def check_positive_setting(name: str, value: float) -> float:
    """Return a setting as a float, after a check that it is finite and above 0."""
    return check_number_setting(name, value, least=0.0, strict=True)


def check_share_setting(name: str, value: float) -> float:
    """Return a setting as a float, after a check that it is a number from 0 to 1."""
    if not (is_real_number(value) and 0 <= value <= 1):
        raise ProblemError(f"{name} must be a number from 0 to 1; got {value!r}")
    return float(value)


def check_count_setting(name: str, value: int, least: int = 1) -> int:
    """Return a setting as an int, after a check that it is a whole number of at least ``least``.

    Example:
        >>> check_count_setting("samples", 10)
        10
    """
    if not (is_real_number(value) and math.isfinite(value)) or value != int(value) or value < least:
        raise ProblemError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def check_smoothing_setting(smoothing: object, automatic: bool = True) -> None:
    """Raise ``ProblemError`` unless ``smoothing`` is a finite number of at least 0, or, if ``automatic``, "auto"."""
    if automatic and isinstance(smoothing, str) and smoothing == "auto":
        return
    if not is_real_number(smoothing) or not 0 <= float(smoothing) < math.inf:
        allowed = "a number of at least 0, or 'auto'" if automatic else "a finite number, at least 0"
        raise ProblemError(f"smoothing must be {allowed}; got {smoothing!r}")


def is_real_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number of Python or NumPy. True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)
