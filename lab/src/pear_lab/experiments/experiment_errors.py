"""The errors of experiments."""

from __future__ import annotations

from pear.errors import PearError


class ExperimentError(PearError, ValueError):
    """A name or number that no experiment has; the message lists what there is."""


class DatabaseError(PearError, RuntimeError):
    """A database of results that cannot be read or written."""


class RunError(PearError, RuntimeError):
    """One run cannot be done; the message becomes the reason in its row."""
