"""Numbers as texts for the tables of benchmarks. A missing number becomes a dash."""

from __future__ import annotations

import math


def format_error(value: float) -> str:
    """Format an error with one significant digit.

    Example:
        >>> format_error(2.34e-15), format_error(float("nan"))
        ('2e-15', '–')
    """
    return "–" if math.isnan(value) else f"{value:.0e}" if math.isfinite(value) else "∞"


def format_number(value: float | None, digits: int = 3) -> str:
    """Format a number with ``digits`` significant digits, and with all digits before the decimal point.

    A very small number has an exponent.

    Example:
        >>> format_number(12345.6), format_number(0.01234), format_number(1.5e-7), format_number(None)
        ('12,346', '0.0123', '1.5e-07', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def format_share(value: float | None) -> str:
    """Format a share in percent.

    Example:
        >>> format_share(0.735), format_share(None)
        ('74 %', '–')
    """
    return "–" if value is None or math.isnan(value) else f"{value:.0%}".replace("%", " %")


def format_long_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes, hours or days, whichever reads best.

    Example:
        >>> format_long_duration(0.5), format_long_duration(90), format_long_duration(7200), format_long_duration(1e6)
        ('0.5 s', '1.5 min', '2 h', '11.6 d')
    """
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{format_number(seconds / size)} {unit}"
    return f"{format_number(seconds)} s"
