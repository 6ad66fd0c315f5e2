"""Percentages, amounts of money, durations, counts and lists of names as texts for messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches

_MOST_POSITIONS = 5
_MOST_SUGGESTED = 8


def format_percent(value: float) -> str:
    """Return a share as a percentage with at most two decimals. Shares near 0 and 100 % get more decimals than others.

    Example:
        >>> [format_percent(share) for share in (0.0412, 1.0, 3e-4, 1e-9, 0.9967)]
        ['4.1 %', '100 %', '0.03 %', '0 %', '99.7 %']
    """
    number = 100 * value
    near = abs(100 - number) if 99 < number < 100 else abs(number)
    digits = 0 if near >= 9.95 else 1 if near >= 0.995 or (number > 99 and near >= 0.095) else 2
    text = f"{number:.{digits}f} %"
    return {"-0.00 %": "0 %", "0.00 %": "0 %", "100.00 %": "100 %"}.get(text, text)


def format_two_decimal_percent(share: float) -> str:
    """Return a share as a percentage with two decimals.

    Example:
        >>> format_two_decimal_percent(0.0805)
        '8.05 %'
    """
    return f"{100 * share:.2f} %"


def format_amount(number: float) -> str:
    """Return an amount of money as text: a whole number from 10,000 on, otherwise four significant digits.

    Amounts from 10¹² on have four significant digits, too. NaN and infinity become a dash.

    Example:
        >>> format_amount(1234567.8), format_amount(12.3456), format_amount(-0.00012), format_amount(float("nan"))
        ('1,234,568', '12.35', '-0.00012', '–')
    """
    if not math.isfinite(number):
        return "–"
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e12 else f"{number:.4g}"


def format_seconds(value: float) -> str:
    """Return a duration as text: whole seconds from 10 s on, else two significant digits, in milliseconds below 0.1 s.

    Example:
        >>> format_seconds(0.00123), format_seconds(0.25), format_seconds(90.0), format_seconds(1.5e-5)
        ('1.2 ms', '0.25 s', '90 s', '0.015 ms')
    """
    if value >= 10:
        return f"{value:.0f} s"
    return f"{value:.2g} s" if value >= 0.1 else f"{1e3 * value:.2g} ms"


def list_names(names: Sequence[str], most: int = 4) -> str:
    """Return the first ``most`` names, joined by commas, and how many more names there are.

    Example:
        >>> list_names(["a", "b"]), list_names(["a", "b", "c", "d", "e", "f"])
        ('a, b', 'a, b, c, d and 2 more')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def join_names(names: Sequence[str], most: int = 6) -> str:
    """Return names joined by commas. If there are more than ``most``, an ellipsis replaces those in the middle.

    Example:
        >>> join_names(["a", "b"]), join_names(["a", "b", "c", "d", "e", "f", "g"])
        ('a, b', 'a, b, c, d, …, g')
    """
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[: most - 2])}, …, {names[-1]}"


def summarise_names(names: Sequence[str], most: int = 4) -> str:
    """Return the number of names and the first few names, in one line.

    Example:
        >>> summarise_names(["a", "b"]), summarise_names(["a", "b", "c", "d", "e", "f"])
        ('2: a, b', '6: a, b, c, …')
    """
    shown = names if len(names) <= most else (*names[: most - 1], "…")
    return f"{len(names)}: {', '.join(shown)}"


def list_positions(noun: str, positions: Sequence[int | str]) -> str:
    """Return a noun, the first five positions or names after it, and how many more there are.

    Example:
        >>> list_positions("sample", [3]), list_positions("row", range(8))
        ('sample 3', 'rows 0, 1, 2, 3, 4 and 3 more')
    """
    more = f" and {len(positions) - _MOST_POSITIONS} more" if len(positions) > _MOST_POSITIONS else ""
    return f"{noun}{'s' if len(positions) > 1 else ''} {', '.join(map(str, positions[:_MOST_POSITIONS]))}{more}"


def count_noun(number: int, noun: str) -> str:
    """Return a number and its noun. The noun becomes a plural unless the number is 1.

    Example:
        >>> count_noun(1, "row"), count_noun(1200, "equality"), count_noun(2, "row with two limits")
        ('1 row', '1,200 equalities', '2 rows with two limits')
    """
    head, joint, tail = noun.partition(" with")
    plural = f"{head[:-1]}ies" if head.endswith("y") else f"{head}s"
    return f"{number:,} {noun if number == 1 else plural + joint + tail}"


def suggest_name(name: str, known: Sequence[str]) -> str:
    """Return a hint with the known name closest to an unknown one; if none is close, with the first eight known names.

    Example:
        >>> suggest_name("prise", ["price", "day"]), suggest_name("x", ["price", "day"])
        (", did you mean 'price'?", ', only price, day')
    """
    if close := get_close_matches(name, known, n=1):
        return f", did you mean {close[0]!r}?"
    more = f", … ({len(known)} in all)" if len(known) > _MOST_SUGGESTED else ""
    return f", only {', '.join(known[:_MOST_SUGGESTED])}{more}"
