"""Checks of the numbers that users set; each returns the number, and raises an error where it is out of its range."""

from __future__ import annotations

import math
from numbers import Real

from pear.errors import ProblemError


def check_number(name: str, value: float, least: float = -math.inf, strict: bool = False) -> float:
    """Return ``value`` as a float; it must be finite and at least ``least``, or, where ``strict``, above it.

    Example:
        >>> check_number("margin", 1, least=0.0)
        1.0
    """
    if not (_is_number(value) and least <= value < math.inf) or (strict and value == least):
        bound = "" if least == -math.inf else f" {'above' if strict else 'of at least'} {least:g}"
        raise ProblemError(f"{name} must be a finite number{bound}; got {value!r}")
    return float(value)


def check_positive(name: str, value: float) -> float:
    """Return ``value`` as a float; it must be finite and above 0."""
    return check_number(name, value, least=0.0, strict=True)


def check_share(name: str, value: float) -> float:
    """Return ``value`` as a float; it must be from 0 to 1."""
    if not (_is_number(value) and 0 <= value <= 1):
        raise ProblemError(f"{name} must be a number from 0 to 1; got {value!r}")
    return float(value)


def check_count(name: str, value: int, least: int = 1) -> int:
    """Return ``value`` as an int; it must be a whole number of at least ``least``.

    Example:
        >>> check_count("samples", 10)
        10
    """
    if not (_is_number(value) and math.isfinite(value)) or value != int(value) or value < least:
        raise ProblemError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def _is_number(value: object) -> bool:
    """Whether a value is a real number, of Python or NumPy, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)
