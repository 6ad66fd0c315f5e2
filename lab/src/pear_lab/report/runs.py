"""The runs of a database, as the report takes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pear_lab.experiments.database import read_records
from pear_lab.experiments.record import Record


@dataclass(frozen=True)
class Runs:
    """Every run of a database.

    Attributes:
        path: of the database.
        done: finished runs, oldest first.
        failed: runs that ended in an error, oldest first.
    """

    path: Path
    done: tuple[Record, ...]
    failed: tuple[Record, ...]


def read(path: Path) -> Runs:
    """Read every run; the file is not changed.

    Raises:
        DatabaseError: no database, none of ours, one of another version, or one without runs.
    """
    records = read_records(path)
    done = tuple(record for record in records if record.status == "done")
    return Runs(path, done, tuple(record for record in records if record.status != "done"))
