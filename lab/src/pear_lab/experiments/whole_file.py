"""A file that is there as a whole or not at all, whatever happens while it is written."""

from __future__ import annotations

from pathlib import Path

from pear.train.archive import replace_file
from pear_lab.experiments.errors import DatabaseError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that one of that name is always whole: the old one until the new one is safe on the disk.

    Args:
        path: the file; its folder is made where it is missing.
        data: everything in it.

    Raises:
        DatabaseError: the disk is full, or the folder cannot be written to; the old file is as it was.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(Path(folder) / "a.bin", b"new")
        ...     [(one.name, one.read_bytes()) for one in Path(folder).iterdir()]
        [('a.bin', b'new')]
    """
    try:
        path.parent.mkdir(exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        raise DatabaseError(
            f"cannot write {path}: {error.strerror or error}; make room or allow writing, then start the same command "
            "again: what has ended is kept"
        ) from error


def remove_temporary(folder: Path) -> None:
    """Delete what writers that were killed have left; nobody else may be writing there."""
    for left in folder.glob("*.part"):
        left.unlink(missing_ok=True)
