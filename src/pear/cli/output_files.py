"""Output files and folders of commands, created and tested for writing before the work starts."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from pear.errors import PearError


class OutputError(PearError, OSError):
    """A file or folder cannot be written."""


def writable_folder(path: Path) -> Path:
    """Make the folder and try to write into it.

    Raises:
        OutputError: the path is not a folder, or nothing can be written there.
    """
    if path.exists() and not path.is_dir():
        raise OutputError(f"cannot write to {path}: it is a file, and a folder is needed; name another with --out")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OutputError(
            f"cannot write to {path}: {error.strerror or error}; name another folder with --out"
        ) from error
    return path


def writable_file(path: Path) -> Path:
    """Make the folder of a file and try to write there; the file itself is not touched.

    Raises:
        OutputError: the path is a folder, or nothing can be written there.
    """
    if path.is_dir():
        raise OutputError(f"cannot write to {path}: it is a folder, and a file is needed; name another with --out")
    writable_folder(path.parent)
    return path


def write_json(path: Path, data: Any) -> Path:
    """Write plain data as indented JSON."""
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return path
