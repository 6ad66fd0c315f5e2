"""Reads the database of runs, and writes nothing to it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pear.errors import ProblemError
from pear.experiments.database import SCHEMA_VERSION, read_only

"""Of the databases that are read here."""

_TEXT = ("key", "experiment", "task", "method", "status", "reason", "machine", "created")
_JSON = ("settings", "metrics", "timings", "history", "versions")
_MAKE_ONE = "run pear reproduce first, or name the database with --db"


@dataclass(frozen=True)
class Run:
    """One row of the database.

    Attributes:
        key: of the row.
        experiment: the one that first asked for it.
        task, method, seed: what was trained, and how.
        settings: of the data, the method and the budget; shifted results carry ``"variant"``.
        status: ``"done"`` or ``"failed"``; reason: why it failed.
        metrics, timings: by name.
        history: ``[epoch, seconds, loss, metric]`` of every check.
        versions, machine, created: where and when it ran.
    """

    key: str
    experiment: str
    task: str
    method: str
    seed: int
    settings: Mapping[str, Any]
    status: str
    reason: str
    metrics: Mapping[str, Any]
    timings: Mapping[str, float]
    history: Sequence[Sequence[float]]
    versions: Mapping[str, str]
    machine: str
    created: str


@dataclass(frozen=True)
class Runs:
    """Every run of a database.

    Attributes:
        path: of the database.
        done: finished runs, oldest first.
        failed: runs that ended in an error, oldest first.
    """

    path: Path
    done: tuple[Run, ...]
    failed: tuple[Run, ...]

    def __len__(self) -> int:
        return len(self.done) + len(self.failed)


def read(path: Path) -> Runs:
    """Read every run.

    Raises:
        ProblemError: no database, none of ours, one of another version, or one without runs.
    """
    if not path.is_file():
        raise ProblemError(f"there is no database of runs at {path}; {_MAKE_ONE}")
    try:
        with closing(read_only(path)) as connection:
            connection.row_factory = sqlite3.Row
            _check_version(connection, path)
            rows = connection.execute("SELECT * FROM runs ORDER BY created, key").fetchall()
        runs = [_parse(row) for row in rows]
    except (sqlite3.Error, json.JSONDecodeError, IndexError) as error:
        raise ProblemError(f"{path} cannot be read as a database of runs ({error}); {_MAKE_ONE}") from error
    if not runs:
        raise ProblemError(f"the database {path} holds no runs yet; {_MAKE_ONE}")
    done = tuple(run for run in runs if run.status == "done")
    return Runs(path, done, tuple(run for run in runs if run.status != "done"))


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"runs", "meta"} <= tables:
        raise ProblemError(f"{path} is no database of runs: it lacks the tables runs and meta; {_MAKE_ONE}")
    row = connection.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchone()
    found = None if row is None else str(row[0])
    if found != str(SCHEMA_VERSION):
        raise ProblemError(
            f"the database {path} is of version {found}, and this report reads version {SCHEMA_VERSION}; "
            f"save what is in it with pear reproduce --export FILE.json --out {path.parent}, and name another with --db"
        )


def _parse(row: sqlite3.Row) -> Run:
    texts: dict[str, Any] = {name: str(row[name] or "") for name in _TEXT}
    data = {name: json.loads(row[name]) if row[name] else [] if name == "history" else {} for name in _JSON}
    return Run(seed=int(row["seed"]), **texts, **data)
