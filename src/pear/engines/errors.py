"""The error of engines."""

from __future__ import annotations

from pear.errors import PearError


class EngineError(PearError, RuntimeError):
    """An engine that is unknown, cannot be reached, or cannot go on; the message says what to do."""
