"""The database of results. A run that has ended is written as one row, in one transaction with its trained weights.

Any number of processes may read the file. A process claims the database before it writes, so that only one writes.
A row with the status "done" is never replaced; a row with the status "failed" is replaced by a later try. The checksum
of a row shows whether the row was altered. Databases that an earlier PEAR has written have no checksums.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import logging
import os
import platform
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pear_lab.experiments.experiment_errors import DatabaseError
from pear_lab.experiments.run_record import JSON_FIELDS, RunRecord

SCHEMA_VERSION = 1
FILE_NAME = "results.sqlite"
BUSY_SECONDS = 60.0
"""How long to wait for another process that is writing."""


_COLUMNS = tuple(column.name for column in fields(RunRecord))
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT)",
    "CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, experiment TEXT, task TEXT, method TEXT, seed INTEGER, "
    "settings TEXT, status TEXT, reason TEXT, metrics TEXT, timings TEXT, history TEXT, weights TEXT, versions TEXT, "
    "machine TEXT, created TEXT)",
    "CREATE TABLE IF NOT EXISTS checksums (key TEXT PRIMARY KEY, sha256 TEXT)",
    "CREATE TABLE IF NOT EXISTS weights (key TEXT PRIMARY KEY, data BLOB)",
)
logger = logging.getLogger(__name__)


class Database:
    """A database of results in a SQLite file.

    Args:
        path: the file; created with its folder if it is missing.
        read_only: whether the file is only read. If so, it must exist, and is not changed.

    Raises:
        DatabaseError: the file is damaged, is no database of this version, or cannot be opened.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / FILE_NAME) as database:
        ...     record = RunRecord("k", "lp-degree", "knapsack", "mse", 0, {"degree": 8}, "done")
        ...     database.add(record), database.add(record), database.get("k") == record
        (True, False, True)
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock: sqlite3.Connection | None = None
        with _explain_errors(self.path):
            if read_only:
                self._connection = open_read_only(self.path)
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with _explain_errors(self.path):
                self._check_version()
                self._check_whole()
                if read_only:
                    return
                _enable_write_ahead(self._connection)
                with self._transaction():
                    for statement in _SCHEMA:
                        self._connection.execute(statement)
                    version = ("schema_version", str(SCHEMA_VERSION))
                    self._connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", version)
        except DatabaseError:
            self.close()
            raise

    def claim(self) -> None:
        """Become the only writer of rows until the database is closed or the process ends.

        The lock is a transaction on an empty database beside this one. SQLite releases it when the process ends.

        Raises:
            DatabaseError: another process is the writer, which the message names; or the file cannot be written.
        """
        place = self.path.with_name(f"{self.path.name}.lock")
        with _explain_errors(place):
            self._lock = sqlite3.connect(place, timeout=0.0, isolation_level=None)
        try:
            self._lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise DatabaseError(
                f"{self.path} is in use by {self._writer()}, and one command at a time may write to it; wait until "
                "that one has ended or stop it, or name another folder with --out"
            ) from error
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with _explain_errors(self.path), self._transaction():
            words = f"process {os.getpid()} on {platform.node()} since {now}"
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('writer', ?)", (words,))

    def _writer(self) -> str:
        """Return a description of the process that has claimed the database."""
        with _explain_errors(self.path):
            found = self._connection.execute("SELECT value FROM meta WHERE name = 'writer'").fetchone()
        return str(found[0]) if found else "another process"

    def add(self, record: RunRecord, weights: bytes = b"") -> bool:
        """Write a record with the weights of its training, and return True.

        If the key of the record has a row with the status "done", nothing is written, and the result is False.
        """
        values = [json.dumps(v, sort_keys=True) if k in JSON_FIELDS else v for k, v in asdict(record).items()]
        replaced = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
        with _explain_errors(self.path), self._transaction():
            cursor = self._connection.execute(
                f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
                f"ON CONFLICT(key) DO UPDATE SET {replaced} WHERE runs.status = 'failed'",
                values,
            )
            if cursor.rowcount > 0:
                checksum = (record.key, _checksum(values))
                self._connection.execute("INSERT OR REPLACE INTO checksums VALUES (?, ?)", checksum)
                if weights:
                    self._connection.execute("INSERT OR REPLACE INTO weights VALUES (?, ?)", (record.weights, weights))
        return cursor.rowcount > 0

    def get(self, key: str) -> RunRecord | None:
        """Return the record with this key; None if there is none."""
        return next(iter(self._select("WHERE key = ?", key)), None)

    def weights(self, record: RunRecord) -> bytes | None:
        """Return the trained weights that a record names; None if they are not in this database."""
        with _explain_errors(self.path):
            found = self._connection.execute("SELECT data FROM weights WHERE key = ?", (record.weights,)).fetchone()
        return found and found[0]

    def records(self) -> list[RunRecord]:
        """Return all records, in the order in which they were first written."""
        return self._select("ORDER BY runs.rowid")

    def statuses(self) -> dict[str, str]:
        """Return the status of every row, "done" or "failed", by key."""
        with _explain_errors(self.path):
            return dict(self._connection.execute("SELECT key, status FROM runs"))

    def timings(self) -> list[tuple[str, str, dict[str, Any], dict[str, float]]]:
        """Return task, method, settings and timings of every run that is done."""
        with _explain_errors(self.path):
            found = self._connection.execute(
                "SELECT task, method, settings, timings FROM runs WHERE status = 'done'"
            ).fetchall()
        return [(task, method, json.loads(settings), json.loads(timings)) for task, method, settings, timings in found]

    def try_writing(self) -> None:
        """Write and roll back, so that a full disk or a read-only file is noticed before the work starts."""
        with _explain_errors(self.path), self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('tried', hex(zeroblob(65536)))")
            self._connection.execute("DELETE FROM meta WHERE name = 'tried'")

    def close(self) -> None:
        """Close the file. If ``claim`` made this process the only writer, other processes may write again."""
        self._connection.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _select(self, where: str, *values: object) -> list[RunRecord]:
        with _explain_errors(self.path):
            return _select_records(self._connection, where, *values)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit what is written in the block of the with statement, or roll all of it back after an error."""
        # IMMEDIATE: the lock is taken at once and waited for, instead of failing half way.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # A full disk may have ended the transaction already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _check_whole(self) -> None:
        (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(" ".join(found.split()))

    def _check_version(self) -> None:
        """Raise ``DatabaseError`` if the database is of another version, or was not made by PEAR."""
        version = _schema_version(self._connection)
        if version != str(SCHEMA_VERSION) and (version or _table_names(self._connection)):
            what = f"is a database of version {version}" if version else "holds tables, but none that PEAR made"
            raise DatabaseError(
                f"{self.path} {what}; this PEAR reads version {SCHEMA_VERSION}. Save what is in it with "
                f"`pear reproduce --export FILE.json --out {self.path.parent}`, then name another folder with --out"
            )


def read_records(path: Path) -> list[RunRecord]:
    """Return all records of a database, oldest first. The file is not changed.

    Raises:
        DatabaseError: the file is missing, damaged, no database of runs, of another version or empty; or a row was
            altered.
    """
    remedy = "run pear reproduce first, or name the database with --db"
    if not path.is_file():
        raise DatabaseError(f"there is no database of runs at {path}; {remedy}")
    try:
        with contextlib.closing(open_read_only(path)) as connection:
            if not {"runs", "meta"} <= set(_table_names(connection)):
                raise DatabaseError(f"{path} is no database of runs: it lacks the tables runs and meta; {remedy}")
            version = _schema_version(connection)
            if version != str(SCHEMA_VERSION):
                raise DatabaseError(
                    f"the database {path} is of version {version}, and this report reads version {SCHEMA_VERSION}; "
                    f"save what is in it with pear reproduce --export FILE.json --out {path.parent}, and name another "
                    "with --db"
                )
            records = _select_records(connection, "ORDER BY created, key")
    except sqlite3.Error as error:
        raise DatabaseError(f"{path} cannot be read as a database of runs ({error}); {remedy}") from error
    if not records:
        raise DatabaseError(f"the database {path} holds no runs yet; {remedy}")
    return records


def export_database(path: Path) -> dict[str, Any]:
    """Return everything in a database, of any version, as plain data. The file is only read.

    Args:
        path: the file.

    Returns:
        ``{"schema_version": …, "tables": {name: [{column: value}]}}``.

    Raises:
        DatabaseError: the file is missing, or is no SQLite database.
    """
    path = Path(path)
    if not path.is_file():
        raise DatabaseError(f"there is no database at {path}; name the folder that holds {FILE_NAME} with --out")
    with _explain_errors(path), contextlib.closing(open_read_only(path)) as connection:
        connection.row_factory = sqlite3.Row
        tables = {
            name: [
                {column: _sqlite_value_as_json(row[column]) for column in row.keys()}  # noqa: SIM118 (rows iterate over values)
                for row in connection.execute(f'SELECT * FROM "{name}"')
            ]
            for name in _table_names(connection)
        }
        return {"schema_version": _schema_version(connection), "tables": tables}


def merge_databases(sources: Sequence[Path], target: Database) -> int:
    """Copy the records, but not the weights, of other databases, which are only read.

    Args:
        sources: files of databases, such as those of other machines.
        target: the database that gets the records. Of its own records only those of failed runs are replaced.

    Returns:
        How many records were copied.

    Raises:
        DatabaseError: a source cannot be read by ``read_records`` (nothing is copied then), or a write fails.
    """
    found = [record for source in sources for record in read_records(Path(source))]
    return sum(target.add(record) for record in found)


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a database for reading only. The file is neither created nor changed."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.OperationalError:
        # Readers of a write-ahead log keep a small file beside it, which a read-only folder does not allow.
        connection.close()
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)
    return connection


def _select_records(connection: sqlite3.Connection, where: str, *values: object) -> list[RunRecord]:
    """Read the records of runs, and check each row against its checksum, if it has one.

    Args:
        connection: an open connection to the database.
        where: the end of the SQL query: a WHERE or an ORDER BY clause.
        values: the values of the placeholders in ``where``.

    Raises:
        DatabaseError: a checksum does not fit its row.
    """
    summed = "checksums" in _table_names(connection)
    source = "sha256 FROM runs LEFT JOIN checksums USING (key)" if summed else "NULL FROM runs"
    found = connection.execute(f"SELECT {', '.join(_COLUMNS)}, {source} {where}", values).fetchall()
    records = []
    for *row, checksum in found:
        records.append(RunRecord.read(dict(zip(_COLUMNS, row, strict=True))))
        if checksum is not None and checksum != _checksum(row):
            raise DatabaseError(
                f"the row with the key {row[0][:80]!r} was altered: its checksum does not fit what it says; "
                "restore the database, or delete the row and run pear reproduce again"
            )
    if missing := sum(checksum is None for *_, checksum in found):
        # an old database has none at all; one that has lost some of them is suspicious
        level = logging.INFO if missing == len(found) else logging.WARNING
        logger.log(
            level, "%d of %d rows have no checksum: nobody can tell whether they were altered", missing, len(found)
        )
    return records


def _checksum(values: Sequence[Any]) -> str:
    """Return the SHA-256 hash of the columns of a row, as they are stored."""
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()


def _table_names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def _schema_version(connection: sqlite3.Connection) -> str | None:
    """Return the version that the database states; None if it states none."""
    if "meta" not in _table_names(connection):
        return None
    try:
        found = connection.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchone()
    except sqlite3.OperationalError:  # a table of that name, but not ours
        return None
    return None if found is None else str(found[0])


def _sqlite_value_as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(value)
    return value


def _enable_write_ahead(connection: sqlite3.Connection) -> None:
    """Turn on write-ahead logging, so that many processes can read while one writes.

    SQLite does not wait for a lock when this setting changes. This function therefore tries again until the lock is
    gone.
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


@contextlib.contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, the file system and JSON in the with block into a ``DatabaseError`` with a remedy."""
    try:
        yield
    except (sqlite3.Error, OSError, json.JSONDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        if _is_damage(error):
            raise DatabaseError(
                f"{path} is damaged, or no database of runs: {reason}. It is left as it is: name another folder with "
                "--out, or put a copy that is whole in its place; the program sqlite3 may save rows of it (.recover)"
            ) from error
        raise DatabaseError(
            f"cannot use the database {path}: {reason}; name another folder with --out, or make room and allow writing"
        ) from error


def _is_damage(error: Exception) -> bool:
    """Return whether an error shows that the file is damaged. Errors of access and of full disks do not show this."""
    return isinstance(error, json.JSONDecodeError) or type(error) is sqlite3.DatabaseError
