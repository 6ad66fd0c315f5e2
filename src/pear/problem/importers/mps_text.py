"""Checks of the text of MPS files for errors that HiGHS accepts silently: words for numbers, bounds of no column."""

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
        path: of the file, as the user knows it.
        file: its text.
        names: of the variables that were found.
        spaces: True where names have spaces in them, so that words do not tell fields apart.

    Raises:
        DataError: says which line it is.
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
    """Free format needs no indentation: ``RHS R1 4`` is a line of the set RHS, ``RHS`` alone opens a section."""
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
