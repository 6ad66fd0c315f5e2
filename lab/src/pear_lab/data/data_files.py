"""Finding data files, reading their tables and cells, and hashing their contents."""

from __future__ import annotations

import csv
import gzip
import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

from pear.errors import DataError

_EMPTY = frozenset({"", "nan", "na", "n/a", "null", "none", "-"})

VARIABLE = "PEAR_DATA"
"""The environment variable with the path of the data folder, which has a folder for each data set."""


def find_data_file(folder: str, names: Sequence[str], path: str | Path | None, remedy: str) -> Path:
    """Return the path of the first of several files that exists.

    Args:
        folder: the name of the data set's folder inside ``$PEAR_DATA``.
        names: the names of the files, the preferred one first.
        path: the file itself, its folder, or a folder that replaces ``$PEAR_DATA``; None for ``$PEAR_DATA``.
        remedy: the end of error messages, which says how to get the file.

    Raises:
        DataError: no file exists; the message lists the paths that were tried.
    """
    if path is not None and Path(path).is_file():
        return Path(path)
    root = path if path is not None else os.environ.get(VARIABLE)
    if not root:
        raise DataError(f"no place to look for {' or '.join(names)}: set ${VARIABLE}, or name a file; {remedy}")
    tried = [place / name for place in (Path(root) / folder, Path(root)) for name in names]
    for file in tried:
        if file.is_file():
            return file
    raise DataError(f"found none of {', '.join(map(str, tried))}; {remedy}")


def read_data_file_table(file: Path, delimiter: str = ",") -> tuple[list[str], dict[int, list[str]]]:
    """Read a text table. Every line must have as many fields as the first one.

    Args:
        file: a file in UTF-8, which is decompressed if its name ends in ``.gz``.
        delimiter: the character between two fields. If it is a blank, several blanks in a row count as one.

    Returns:
        The fields of the first line, and a dictionary from line numbers to the fields of the other lines. Empty lines
        are left out.

    Raises:
        DataError: the file is no text in UTF-8, or a line has more or fewer fields than the first one.
    """
    opener = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.reader(stream, delimiter=delimiter, skipinitialspace=delimiter == " "))
    except (OSError, UnicodeDecodeError, csv.Error, EOFError) as error:
        raise DataError(f"{file} is no text in UTF-8: {error}; save it as such, or get the original") from error
    header, *below = rows or [[]]
    lines = {line: row for line, row in enumerate(below, start=2) if any(field.strip() for field in row)}
    for line, row in lines.items():
        if len(row) != len(header):
            raise DataError(f"{file}, line {line} has {len(row)} fields; the first line names {len(header)}")
    return header, lines


def parse_data_file_cell(cell: object, where: str, gaps: bool = False) -> float:
    """Convert a cell to a finite number.

    Args:
        cell: text, a number, or None for an empty cell.
        where: file, line and column of the cell, for error messages.
        gaps: whether an empty cell, or a word such as "NaN", becomes NaN instead of raising an error.

    Raises:
        DataError: the cell is empty although gaps are not allowed, or it holds no finite number.
    """
    text = "" if cell is None else str(cell).strip()
    if gaps and text.lower() in _EMPTY:
        return math.nan
    if not text:
        raise DataError(f"{where} is empty; nothing is filled in for it: complete the row or delete it")
    try:
        number = float(text)
    except ValueError:
        raise DataError(f"{where} must be a number; got {cell!r}") from None
    if not math.isfinite(number):
        raise DataError(f"{where} must be a finite number; got {cell!r}")
    return number


def fingerprint_data_files(files: Sequence[Path]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 hash of the files' contents.

    Stored results contain this fingerprint of the data that they were computed from.
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
