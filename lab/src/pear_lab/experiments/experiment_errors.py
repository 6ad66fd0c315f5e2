"""The errors of experiments."""

from __future__ import annotations

from pear.errors import PearError


class ExperimentError(PearError, ValueError):
    """An invalid request, such as an unknown name or too little data; the message says what is valid."""


class DatabaseError(PearError, RuntimeError):
    """A database of results that cannot be read or written."""


class RunError(PearError, RuntimeError):
    """A run that cannot be done; the message becomes the reason in the record of the run."""
