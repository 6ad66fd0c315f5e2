"""The errors of experiments."""

from __future__ import annotations

from pear.errors import PearError


class ExperimentError(PearError, ValueError):
    """The error of an invalid request, such as an unknown name or too little data. The message says what is valid."""


class DatabaseError(PearError, RuntimeError):
    """The error of a database of results that cannot be read or written."""


class RunError(PearError, RuntimeError):
    """The error of a run that cannot be done. The message becomes the reason in the record of the run."""
