"""Do many runs, in this process or in parallel on an engine, with one thread each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pear.compile.thread_pools import one_thread
from pear.engines import Engine
from pear_lab.experiments.database import FILE_NAME, Database
from pear_lab.experiments.experiment_errors import DatabaseError
from pear_lab.experiments.pool import Listener, Pool
from pear_lab.experiments.processes import start_engine
from pear_lab.experiments.protocols import PROTOCOLS
from pear_lab.experiments.run_spec import RunSpec


def open_folder(folder: Path) -> Database:
    """Open or make the database of a folder, after trying to write there, and be the only one who writes.

    Raises:
        DatabaseError: the disk is full, the folder is read-only, the database is damaged or of another version, or
            another process writes to it.
    """
    database = Database(Path(folder) / FILE_NAME)
    try:
        database.claim()
        database.try_writing()
    except DatabaseError:
        database.close()
        raise
    return database


def check_data(runs: Iterable[RunSpec], say: Callable[[str], None] = lambda line: None) -> None:
    """Read the files and make the environments that these runs need, so that a missing one shows before the first run.

    Args:
        runs: what is wanted.
        say: called with one line on what is being done.

    Raises:
        DataError: says what is missing, where it was looked for and how to get it.
        MissingExtraError: a package to read it with is not installed.
        PeerError: the environment of a peer cannot be made.
    """
    for run in runs:
        PROTOCOLS[run.task].check(run, say)


def unfinished_runs(runs: Sequence[RunSpec], statuses: dict[str, str], retry_failed: bool = False) -> list[RunSpec]:
    """The runs that are still to be done.

    Args:
        runs: what is wanted.
        statuses: of the records that are there.
        retry_failed: whether to try again what failed.
    """
    finished = ("done",) if retry_failed else ("done", "failed")
    return [run for run in runs if statuses.get(run.key) not in finished]


def run_all(
    runs: Sequence[RunSpec],
    database: Database,
    jobs: int = 1,
    listen: Listener = lambda event: None,
    engine: Engine | None = None,
) -> None:
    """Do these runs; every one leaves a record, which says whether it is done or why it failed.

    This process alone writes weights and records. A run whose process dies is done again, and fails when it dies again.

    Args:
        runs: each once; a measurement waits for its training where that is among them.
        database: where the records go.
        jobs: processes of this machine; with 1 all is done in this one.
        listen: called on every event.
        engine: does the runs in the place of these processes, and stays open; see ``start_engine``.

    Raises:
        DatabaseError: records or weights cannot be written.
        EngineError: processes die before they are ready, or a cluster is gone.
        OSError: ``listen`` raised it.
        KeyboardInterrupt: stopped by the user; what had ended is in the database, of the rest there is nothing.
    """
    if not runs:
        return
    with one_thread(), contextlib.ExitStack() as stack:
        if engine is None:
            engine = stack.enter_context(start_engine("local", min(jobs, len(runs))))
        Pool(database, engine, listen).run(list(runs))
