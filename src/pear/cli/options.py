"""Reading what people write in an option."""

from __future__ import annotations


def words(text: str | None) -> list[str]:
    """The words of a text that lists them with commas between.

    Example:
        >>> words("a, b,"), words(None)
        (['a', 'b'], [])
    """
    return [word.strip() for word in (text or "").split(",") if word.strip()]
