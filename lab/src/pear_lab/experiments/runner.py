"""Doing runs on an engine, and writing their records to the database of a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pear.compile.thread_pools import one_thread
from pear.engines import Engine, SendMessage, TaskFailure, TaskMessage, TaskResult, TaskStart, TaskUpdate
from pear.train import Progress
from pear_lab.experiments.database import FILE_NAME, Database
from pear_lab.experiments.execute_run import Outcome, attempt, make_record, trained_for
from pear_lab.experiments.experiment_errors import DatabaseError, RunError
from pear_lab.experiments.processes import start_engine
from pear_lab.experiments.protocols import protocol_of
from pear_lab.experiments.run_record import RunRecord
from pear_lab.experiments.run_spec import RunSpec


@dataclass(frozen=True)
class Event:
    """The start of a run, a report of its progress, or its end.

    Attributes:
        run: the run.
        progress: the progress of the training; None at the start and at the end of the run.
        record: the record of the run, which is already in the database; None before the end of the run.
    """

    run: RunSpec
    progress: Progress | None = None
    record: RunRecord | None = None


EventListener = Callable[[Event], None]


class Pool:
    """A queue of runs that are handed to an engine, and whose outcomes are written to the database.

    Args:
        database: where weights and records go, written by this process alone.
        engine: does the runs.
        listen: called on every event.
    """

    def __init__(self, database: Database, engine: Engine, listen: EventListener) -> None:
        self.database, self.engine, self.listen = database, engine, listen
        self._waiting: list[RunSpec] = []
        self._under_way: dict[int, RunSpec] = {}

    def run(self, runs: list[RunSpec]) -> None:
        """Do all of ``runs``, and write a record of each.

        Raises:
            DatabaseError: weights or records cannot be written.
            EngineError: the engine cannot go on.
            KeyboardInterrupt: stopped by the user. The records of runs that have ended are written.
        """
        self._waiting = list(runs)
        try:
            while self._waiting or self._under_way:
                while self.engine.free > 0 and (run := self._next()) is not None:
                    self._submit(run)
                if self._under_way:
                    self.engine.wait(self._hear)
        except KeyboardInterrupt:
            self.listen = lambda event: None
            self.engine.wait(self._hear, 0.0)
            raise

    def _next(self) -> RunSpec | None:
        """Remove and return the first waiting run that can begin; None if there is none.

        A measurement cannot begin before its training has ended.
        """
        open_ones = {run.key for run in (*self._waiting, *self._under_way.values()) if run.variant is None}
        for i, run in enumerate(self._waiting):
            if run.variant is None or run.training().key not in open_ones:
                return self._waiting.pop(i)
        return None

    def _submit(self, run: RunSpec) -> None:
        """Hand a run to the engine. If the training that it measures is missing or failed, record a failure at once."""
        try:
            trained = trained_for(run, self.database)
        except RunError as error:
            self.listen(Event(run))
            self._write(run, Outcome(make_record(run, "failed", reason=str(error))))
            return
        self._under_way[self.engine.submit(_attempt, run, trained)] = run

    def _hear(self, update: TaskUpdate) -> None:
        """Pass an update of the engine on to the listener, and write results to the database."""
        match update:
            case TaskStart(ticket):
                self.listen(Event(self._under_way[ticket]))
            case TaskMessage(ticket, progress):
                self.listen(Event(self._under_way[ticket], progress=progress))
            case TaskResult(ticket, outcome):
                self._write(self._under_way.pop(ticket), outcome)
            case TaskFailure(ticket, how):
                run = self._under_way.pop(ticket)
                reason = f"{how}; perhaps it ran out of memory: try --retry-failed with fewer --jobs"
                self._write(run, Outcome(make_record(run, "failed", reason=reason)))

    def _write(self, run: RunSpec, outcome: Outcome) -> None:
        self.database.add(outcome.record, outcome.weights)
        self.listen(Event(run, record=outcome.record))


def _attempt(tell: SendMessage, run: RunSpec, trained: Outcome | None) -> Outcome:
    return attempt(run, trained, tell)


def open_folder(folder: Path) -> Database:
    """Open or make the database of a folder, become its only writer, and check that writing works.

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


def check_data_of_runs(runs: Iterable[RunSpec], say: Callable[[str], None] = lambda line: None) -> None:
    """Read the files and make the environments that these runs need, so that errors come before the first run.

    Args:
        runs: the runs that will be done.
        say: called with one line on what is being done.

    Raises:
        DataError: a file is missing or broken; the message says where it is looked for and how to get it.
        MissingExtraError: a package that reads the files is not installed.
        PeerError: the environment of another library (a peer) cannot be made.
    """
    for run in runs:
        protocol_of(run).check(run, say)


def unfinished_runs(runs: Sequence[RunSpec], statuses: dict[str, str], retry_failed: bool = False) -> list[RunSpec]:
    """Return the runs that are still to be done.

    Args:
        runs: the runs that are wanted.
        statuses: the statuses of the stored records, by key.
        retry_failed: whether failed runs are to be done again.
    """
    finished = ("done",) if retry_failed else ("done", "failed")
    return [run for run in runs if statuses.get(run.key) not in finished]


def run_all(
    runs: Sequence[RunSpec],
    database: Database,
    jobs: int = 1,
    listen: EventListener = lambda event: None,
    engine: Engine | None = None,
) -> None:
    """Do all of ``runs``. Each leaves a record, which says that it is done or why it failed.

    This process alone writes weights and records. If the process of a run dies, the run is done a second time. If its
    process dies again, the run has failed.

    Args:
        runs: the runs, without repetition. A measurement waits for its training if that is among them.
        database: where the records go.
        jobs: number of processes of this machine; with 1, all runs are done in this process.
        listen: called on every event.
        engine: the engine that does the runs, instead of ``jobs`` processes. It is not closed. See ``start_engine``.

    Raises:
        DatabaseError: records or weights cannot be written.
        EngineError: processes die before they are ready, or a cluster is gone.
        OSError: ``listen`` raised it.
        KeyboardInterrupt: stopped by the user. Runs that had ended are in the database; the others leave no trace.
    """
    if not runs:
        return
    with one_thread(), contextlib.ExitStack() as stack:
        if engine is None:
            engine = stack.enter_context(start_engine("local", min(jobs, len(runs))))
        Pool(database, engine, listen).run(list(runs))
