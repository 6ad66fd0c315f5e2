"""``TrainingError``: the error that ends a training run."""

from __future__ import annotations

from pear.errors import PearError


class TrainingError(PearError, RuntimeError):
    """Training cannot go on; the message names the epoch."""
