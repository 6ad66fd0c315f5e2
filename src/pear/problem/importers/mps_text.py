"""Checks of the text of MPS files for errors that HiGHS accepts silently: bad numbers and bounds of unknown columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pear.errors import DataError

_NUMBERS = {"COLUMNS", "RHS", "RANGES", "BOUNDS", "QUADOBJ", "QMATRIX", "QSECTION"}
_SECTIONS = {*_NUMBERS, "ROWS", "OBJSENSE", "OBJNAME", "ENDATA"}
_OPENED_WITH_MORE = {"NAME", "QSECTION", "OBJSENSE"}  # the same line goes on with a name, or the sense
_NO_NUMBER = {"FR", "MI", "PL", "BV"}  # kinds of bounds that may have none


def check_text(path: Path, file: Path, names: Iterable[str], spaces: bool) -> None:
    """Raise where an MPS file has a word in place of a number, or a bound of an unknown variable.

    Args:
        path: the path of the file that the user gave, for the message.
        file: the path of the unpacked text.
        names: the names of the variables that the reader found.
        spaces: True where names contain spaces, so that fields cannot be separated at spaces.

    Raises:
        DataError: names the line and the error.
    """
    columns = set()
    for number, section, words in _lines(file):
        if section == "COLUMNS":
            columns.add(words[0])
        for word in _values(section, words, spaces):
            if not _is_number(word):
                raise DataError(
                    f"{path}, line {number}: '{word}' stands where section {section} needs a number; correct the file"
                )
    unknown = [] if spaces else [name for name in names if name not in columns]
    if unknown:
        raise DataError(
            f"{path}: the variable {unknown[0]} has a bound or a quadratic term, but is not in section COLUMNS; "
            "correct its name, or add it there"
        )


def _lines(file: Path) -> Iterator[tuple[int, str, list[str]]]:
    """The line number, section and words of every line of data."""
    section = ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or line.startswith("*"):
                continue
            if _opens_section(words, indented=line[0].isspace()):
                section = words[0].upper()
            elif section in _NUMBERS and "'MARKER'" not in words:
                yield number, section, words


def _opens_section(words: list[str], indented: bool) -> bool:
    """Whether a line opens a section. In free format ``RHS`` alone does, and ``RHS R1 4`` is a line of data."""
    word = words[0].upper()
    return not indented and (word in _OPENED_WITH_MORE or (word in _SECTIONS and len(words) == 1))


def _values(section: str, words: list[str], spaces: bool) -> list[str]:
    """The words of a line that must be numbers."""
    if section == "BOUNDS" and words[0].upper() in _NO_NUMBER:
        return []
    if spaces or len(words) < 4 or section == "BOUNDS":
        return words[-1:]
    return [words[-1], words[-3]]


def _is_number(word: str) -> bool:
    try:
        return float(word.upper().replace("D", "E")) is not None and "nan" not in word.lower()
    except ValueError:
        return False
