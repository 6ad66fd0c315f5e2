"""The text of options."""

from __future__ import annotations


def words(text: str | None) -> list[str]:
    """Split a text at its commas.

    Example:
        >>> words("a, b,"), words(None)
        (['a', 'b'], [])
    """
    return [word.strip() for word in (text or "").split(",") if word.strip()]
