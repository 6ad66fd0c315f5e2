"""Many runs: in this process, or side by side in others with one thread each."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from pear.experiments.database import FILE_NAME, Database
from pear.experiments.errors import DatabaseError, RunError
from pear.experiments.execute import WEIGHTS, execute, make_record
from pear.experiments.protocols import PROTOCOLS
from pear.experiments.record import Record
from pear.experiments.specs import Run
from pear.train import Progress
from pear.train.threads import one_thread

_PROGRESS_SECONDS = 0.2
_ROOM = 1 << 20


@dataclass(frozen=True)
class Event:
    """What happens on the way.

    Attributes:
        run: which run it is about.
        progress: of its training; record: what came of it; both None where it has just started.
    """

    run: Run
    progress: Progress | None = None
    record: Record | None = None


Listener = Callable[[Event], None]


def open_folder(folder: Path) -> Database:
    """Open or make the database of a folder, after trying to write there.

    Raises:
        DatabaseError: the disk is full, the folder is read-only, or the database is of another version.
    """
    weights = Path(folder) / WEIGHTS
    try:
        weights.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=weights) as file:
            file.write(bytes(_ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DatabaseError(
            f"cannot write to {folder}: {error.strerror or error}; make room, or name another folder with --out"
        ) from error
    database = Database(Path(folder) / FILE_NAME)
    database.try_writing()
    return database


def check_data(runs: Iterable[Run], say: Callable[[str], None] = lambda line: None) -> None:
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


def waiting(runs: Sequence[Run], statuses: dict[str, str], retry_failed: bool = False) -> list[Run]:
    """The runs that are still to be done.

    Args:
        runs: what is wanted.
        statuses: of the records that are there.
        retry_failed: whether to try again what failed.
    """
    finished = ("done",) if retry_failed else ("done", "failed")
    return [run for run in runs if statuses.get(run.key) not in finished]


def run_all(runs: Sequence[Run], database: Database, jobs: int = 1, listen: Listener = lambda event: None) -> None:
    """Do these runs; every one leaves a record, done or failed.

    Args:
        runs: each once; a measurement waits for its training where that is among them.
        database: where the records go.
        jobs: processes; with 1 all is done in this one.
        listen: called on every event.

    Raises:
        DatabaseError: records cannot be written.
        KeyboardInterrupt: stopped by the user; what had ended is in the database, of the rest there is nothing.
    """
    if jobs > 1 and len(runs) > 1:
        _Pool(database, min(jobs, len(runs)), listen).run(list(runs))
        return
    with one_thread():
        for run in runs:
            listen(Event(run))
            record = execute(run, database, lambda now, run=run: listen(Event(run, progress=now)))  # type: ignore[misc]
            listen(Event(run, record=record))


@dataclass
class _Worker:
    """A process and our end of the line to it."""

    process: SpawnProcess
    line: Connection
    run: Run | None = None
    ready: bool = False


class _Pool:
    """Hands runs to worker processes; one that dies costs its run, not the others."""

    def __init__(self, database: Database, jobs: int, listen: Listener) -> None:
        self.database, self.jobs, self.listen = database, jobs, listen
        self.workers: list[_Worker] = []

    def run(self, waiting: list[Run]) -> None:
        try:
            self.workers = [self._start() for _ in range(self.jobs)]
            while waiting or any(worker.run for worker in self.workers):
                for worker in self.workers:
                    self._hand_out(worker, waiting)
                for line in multiprocessing.connection.wait([worker.line for worker in self.workers]):
                    self._hear(next(worker for worker in self.workers if worker.line is line))
            for worker in self.workers:
                with contextlib.suppress(OSError):  # it has ended already
                    worker.line.send(None)
        except BaseException:
            for worker in self.workers:
                worker.process.terminate()
            raise
        finally:
            for worker in self.workers:
                worker.process.join()
                worker.line.close()

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.database.path), daemon=True)
        with _without_interrupts():
            process.start()
        theirs.close()  # so that the line ends when the worker does
        return _Worker(process, ours)

    def _hand_out(self, worker: _Worker, waiting: list[Run]) -> None:
        if worker.run is not None or not worker.ready:
            return
        under_way = {run.key for run in waiting if run.variant is None}
        under_way |= {other.run.key for other in self.workers if other.run is not None}
        for i, run in enumerate(waiting):
            if run.variant is None or run.training().key not in under_way:
                try:
                    worker.line.send(run)
                except OSError:  # it died; the end of its line is heard next
                    return
                worker.run = waiting.pop(i)
                self.listen(Event(run))
                return

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.line.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        if message is None:
            worker.ready = True
        elif isinstance(message, DatabaseError):
            raise message
        elif worker.run is not None and isinstance(message, Progress):
            self.listen(Event(worker.run, progress=message))
        elif worker.run is not None:
            run, worker.run = worker.run, None
            self.listen(Event(run, record=message))

    def _bury(self, worker: _Worker) -> None:
        worker.process.join()
        worker.line.close()
        code = worker.process.exitcode
        if not worker.ready:
            raise RunError(f"a worker process ended with exit code {code} before it was ready; try --jobs 1")
        self.workers[self.workers.index(worker)] = self._start()
        if worker.run is not None:
            reason = f"the process that ran it ended with exit code {code}; was there enough memory?"
            record = make_record(worker.run, "failed", reason=reason)
            self.database.add(record)
            self.listen(Event(worker.run, record=record))


def _work(line: Connection, path: Path) -> None:
    """What a worker process does until it is told to stop, or nobody is left to tell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            with Database(path) as database:
                line.send(None)
                while (run := line.recv()) is not None:
                    line.send(execute(run, database, _throttled(line)))
        except DatabaseError as error:
            line.send(error)


def _throttled(line: Connection) -> Callable[[Progress], None]:
    """Tell the parent how a training goes, a few times a second."""
    last = 0.0

    def tell(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _PROGRESS_SECONDS:
            last = time.monotonic()
            line.send(now)

    return tell


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process started in here never gets Ctrl-C, not even while it imports."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # the first process would start it, and that lets interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
