"""Shares, amounts of money, durations and lists of names as texts."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percent(value: float) -> str:
    """Write a share with as many digits as its distance from 0 and 100 % needs, and no more than two decimals.

    Example:
        >>> percent(0.0412), percent(1.0), percent(3e-4), percent(1e-9), percent(0.9967)
        ('4.1 %', '100 %', '0.03 %', '0 %', '99.7 %')
    """
    number = 100 * value
    near = abs(100 - number) if 99 < number < 100 else abs(number)
    digits = 0 if near >= 9.95 else 1 if near >= 0.995 or (number > 99 and near >= 0.095) else 2
    text = f"{number:.{digits}f} %"
    return {"-0.00 %": "0 %", "0.00 %": "0 %", "100.00 %": "100 %"}.get(text, text)


def amount(number: float) -> str:
    """Write an amount of money; a dash where it is not known.

    Example:
        >>> amount(1234567.8), amount(12.3456), amount(-0.00012), amount(float("nan"))
        ('1,234,568', '12.35', '-0.00012', '–')
    """
    if not math.isfinite(number):
        return "–"
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e12 else f"{number:.4g}"


def some(names: Sequence[str], most: int = 4) -> str:
    """Join the first few names and say how many more there are.

    Example:
        >>> some(["a", "b"]), some(["a", "b", "c", "d", "e", "f"])
        ('a, b', 'a, b, c, d and 2 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural where it is not 1.

    Example:
        >>> counted(1, "row"), counted(1200, "equality"), counted(0, "row")
        ('1 row', '1,200 equalities', '0 rows')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def seconds(value: float) -> str:
    """Write a duration with two digits.

    Example:
        >>> seconds(0.00123), seconds(0.25), seconds(90.0), seconds(1.5e-5)
        ('1.2 ms', '0.25 s', '90 s', '0.015 ms')
    """
    if value >= 10:
        return f"{value:.0f} s"
    return f"{value:.2g} s" if value >= 0.1 else f"{1e3 * value:.2g} ms"
