"""Options whose value is a list separated by commas."""

from __future__ import annotations


def split_at_commas(text: str | None) -> list[str]:
    """Split a text at its commas.

    Example:
        >>> split_at_commas("a, b,"), split_at_commas(None)
        (['a', 'b'], [])
    """
    return [word.strip() for word in (text or "").split(",") if word.strip()]
