"""The table of file importers, by the endings of the files they read. A new importer adds a row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pear.errors import DataError
from pear.problem.importers import mps, osqp_mat
from pear.problem.importers.files_and_packages import suffix_of
from pear.problem.model import Model


@dataclass(frozen=True)
class Importer:
    """A row of the table: an importer and the files it reads.

    Attributes:
        name: the files it reads, in words.
        suffixes: the endings of these files, without ``.gz``.
        read: a function from a path to a model.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[str | Path], Model]


IMPORTERS = (
    Importer("MPS, QPS and LP files", mps.SUFFIXES, mps.from_mps),
    Importer("OSQP's arrays", osqp_mat.SUFFIXES, osqp_mat.from_osqp_mat),
)


def is_model_file(path: Path) -> bool:
    """True where some importer reads files that end like this one."""
    return any(suffix_of(path) in row.suffixes for row in IMPORTERS)


def read(path: str | Path) -> Model:
    """Read a model from a file, by the importer for the ending of its name.

    Raises:
        DataError: no importer reads such files, or the file cannot be imported.
    """
    path = Path(path)
    for row in IMPORTERS:
        if suffix_of(path) in row.suffixes:
            return row.read(path)
    known = ", ".join(suffix for row in IMPORTERS for suffix in row.suffixes)
    raise DataError(f"{path} ends in '{suffix_of(path)}'; expected one of {known}, or one of these with .gz")
