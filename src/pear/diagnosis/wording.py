"""Shares and amounts of money as texts."""

from __future__ import annotations

import math


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
