"""Real data sets, for tests that need them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def real_data(folder: str) -> Path:
    """Return the folder of a real data set under ``$PEAR_DATA``; skip the test if there is none."""
    root = os.environ.get("PEAR_DATA")
    if not root or not (Path(root) / folder).is_dir():
        pytest.skip(f"needs real data: $PEAR_DATA ({root or 'not set'}) names no folder with {folder}/")
    return Path(root) / folder
