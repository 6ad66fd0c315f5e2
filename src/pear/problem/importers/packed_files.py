"""Files that importers read, which may be compressed (``.gz``)."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pear.errors import DataError


def packed_file_suffix(path: Path) -> str:
    """Return the ending of a file's name in lower case, without ``.gz``.

    Example:
        >>> from pathlib import Path
        >>> packed_file_suffix(Path("plan.MPS.gz")), packed_file_suffix(Path("plan"))
        ('.mps', '')
    """
    name = Path(path.name.lower())
    return (name.with_suffix("") if name.suffix == ".gz" else name).suffix


@contextmanager
def unpacked_file(path: Path, suffixes: Sequence[str], rename: str | None = None) -> Iterator[Path]:
    """Yield the path of an unpacked file: the path of the file itself, or of a copy that exists in the context only.

    Args:
        path: the path of the file.
        suffixes: the accepted endings, to which ``.gz`` may be added.
        rename: the ending that the unpacked file must have; None for its own ending in lower case, without ``.gz``.

    Raises:
        DataError: the file is missing, empty or badly compressed, is a folder, or has another ending.
    """
    suffix = packed_file_suffix(path)
    if suffix not in suffixes:
        raise DataError(
            f"{path} ends in '{suffix}'; expected one of {', '.join(suffixes)}, or one of these with .gz: rename or "
            "convert it"
        )
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{path} {what}; expected a file of kind {suffix}: check the path")
    wanted, packed = rename or suffix, path.name.lower().endswith(".gz")
    with tempfile.TemporaryDirectory() as folder:
        here = path
        if packed or path.suffix != wanted:
            here = Path(folder) / f"model{wanted}"
            _copy_unpacked_file(path, here, packed)
        if not here.stat().st_size:
            raise DataError(f"{path} is empty; expected a model of kind {suffix}: write or download it again")
        yield here


def _copy_unpacked_file(path: Path, to: Path, packed: bool) -> None:
    """Copy a file to ``to``, and unpack it if ``packed`` is True."""
    try:
        with gzip.open(path) if packed else path.open("rb") as source, to.open("wb") as target:
            shutil.copyfileobj(source, target)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} cannot be unpacked: {error}; expected a whole gzip file: write or download it again"
        ) from error
