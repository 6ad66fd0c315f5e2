"""Runs side by side in worker processes, whose records the driver writes; a process that dies loses nothing."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pear.experiments.database import Database
from pear.experiments.errors import DatabaseError, RunError
from pear.experiments.execute import make_record
from pear.experiments.record import Record
from pear.experiments.specs import Run
from pear.experiments.worker import Worker
from pear.train import Progress

MAX_DEATHS = 2
"""How many processes a run may cost before it counts as failed."""

MAX_STARTS = 5
"""How many processes in a row may end before one is ready."""


@dataclass(frozen=True)
class Event:
    """What happens on the way.

    Attributes:
        run: which run it is about.
        progress: of its training; record: what came of it, written already; both None where it has just started.
    """

    run: Run
    progress: Progress | None = None
    record: Record | None = None


Listener = Callable[[Event], None]


class Pool:
    """Hands runs to worker processes; the run of one that dies is done again.

    Args:
        database: where the records go, written by this process alone.
        jobs: how many workers.
        listen: called on every event.
    """

    def __init__(self, database: Database, jobs: int, listen: Listener) -> None:
        self.database, self.jobs, self.listen = database, jobs, listen
        self.workers: list[Worker] = []
        self._waiting: list[Run] = []
        self._deaths: Counter[str] = Counter()
        self._starts = 0

    def run(self, runs: list[Run]) -> None:
        """Do these runs.

        Raises:
            DatabaseError: a worker or the driver cannot write.
            RunError: workers die again and again before they are ready.
            KeyboardInterrupt: stopped by the user; every record that has come in is written.
        """
        self._waiting = list(runs)
        try:
            self.workers = [self._start() for _ in range(self.jobs)]
            while self._waiting or any(worker.run for worker in self.workers):
                for worker in self.workers:
                    self._hand_out(worker)
                for line in multiprocessing.connection.wait([worker.line for worker in self.workers]):
                    self._hear(next(worker for worker in self.workers if worker.line is line))
            for worker in self.workers:
                if not worker.ready:
                    worker.process.kill()  # nothing is left to do, so that nobody waits for it
                with contextlib.suppress(OSError):  # it has ended already
                    worker.line.send(None)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._save_what_came()
            for worker in self.workers:
                worker.process.kill()  # nothing they write can be left half done
            raise
        finally:
            for worker in self.workers:
                worker.end()

    def _start(self) -> Worker:
        return Worker.start(self.database.path.parent)

    def _hand_out(self, worker: Worker) -> None:
        if worker.run is not None or not worker.ready:
            return
        under_way = {run.key for run in self._waiting if run.variant is None}
        under_way |= {other.run.key for other in self.workers if other.run is not None}
        for i, run in enumerate(self._waiting):
            if run.variant is None or run.training().key not in under_way:
                trained = None if run.variant is None else self.database.get(run.training().key)
                try:
                    worker.line.send((run, trained))
                except OSError:  # it died; the end of its line is heard next
                    return
                worker.run = self._waiting.pop(i)
                self.listen(Event(run))
                return

    def _hear(self, worker: Worker) -> None:
        try:
            message = worker.line.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if message is None:
            worker.ready, self._starts = True, 0
        elif isinstance(message, DatabaseError):
            raise message
        elif worker.run is not None and isinstance(message, Progress):
            self.listen(Event(worker.run, progress=message))
        elif worker.run is not None:
            run, worker.run = worker.run, None
            self._book(run, message)

    def _book(self, run: Run, record: Record) -> None:
        self.database.add(record)
        self.listen(Event(run, record=record))

    def _replace(self, worker: Worker) -> None:
        """A new process in the place of one that has died, and its run once more."""
        how = worker.end()
        if not worker.ready:
            self._starts += 1
        if self._starts >= MAX_STARTS:
            raise RunError(
                f"{self._starts} worker processes in a row ended before they were ready, the last with {how}; what has "
                "ended is kept. Is there enough memory? Start the same command again with --jobs 1"
            )
        self.workers[self.workers.index(worker)] = self._start()
        if worker.run is None:
            return
        self._deaths[worker.run.key] += 1
        if self._deaths[worker.run.key] < MAX_DEATHS:
            self._waiting.insert(0, worker.run)
            return
        reason = (
            f"its process died {MAX_DEATHS} times, the last time with {how}; perhaps it ran out of memory: try "
            "--retry-failed with fewer --jobs"
        )
        self._book(worker.run, make_record(worker.run, "failed", reason=reason))

    def _save_what_came(self) -> None:
        """Write the records that workers had sent before the driver was told to stop."""
        for worker in self.workers:
            with contextlib.suppress(EOFError, OSError):
                while worker.run is not None and worker.line.poll():
                    message = worker.line.recv()
                    if isinstance(message, Record):
                        self.database.add(message)
                        worker.run = None
