"""Runs as tasks of an engine, whose records the driver writes; a process that dies loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pear.engines import Engine, SendMessage, TaskLoss, TaskMessage, TaskResult, TaskStart, TaskUpdate
from pear.train import Progress
from pear_lab.experiments.database import Database
from pear_lab.experiments.execute_run import Outcome, attempt, make_record, trained_for
from pear_lab.experiments.experiment_errors import RunError
from pear_lab.experiments.run_record import RunRecord
from pear_lab.experiments.run_spec import RunSpec


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    Attributes:
        run: which run it is about.
        progress: of its training.
        record: what came of it, written already; both None where it has just started.
    """

    run: RunSpec
    progress: Progress | None = None
    record: RunRecord | None = None


Listener = Callable[[Event], None]


class Pool:
    """Hands runs to an engine, and writes what comes of them.

    Args:
        database: where weights and records go, written by this process alone.
        engine: does the runs.
        listen: called on every event.
    """

    def __init__(self, database: Database, engine: Engine, listen: Listener) -> None:
        self.database, self.engine, self.listen = database, engine, listen
        self._waiting: list[RunSpec] = []
        self._under_way: dict[int, RunSpec] = {}

    def run(self, runs: list[RunSpec]) -> None:
        """Do these runs.

        Raises:
            DatabaseError: weights or records cannot be written.
            EngineError: the engine cannot go on.
            KeyboardInterrupt: stopped by the user; every record that has come in is written.
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
        """Remove and return the first run that does not wait for its training."""
        open_ones = {run.key for run in (*self._waiting, *self._under_way.values()) if run.variant is None}
        for i, run in enumerate(self._waiting):
            if run.variant is None or run.training().key not in open_ones:
                return self._waiting.pop(i)
        return None

    def _submit(self, run: RunSpec) -> None:
        try:
            trained = trained_for(run, self.database)
        except RunError as error:
            self.listen(Event(run))
            self._write(run, Outcome(make_record(run, "failed", reason=str(error))))
            return
        self._under_way[self.engine.submit(_attempt, run, trained)] = run

    def _hear(self, update: TaskUpdate) -> None:
        match update:
            case TaskStart(ticket):
                self.listen(Event(self._under_way[ticket]))
            case TaskMessage(ticket, progress):
                self.listen(Event(self._under_way[ticket], progress=progress))
            case TaskResult(ticket, outcome):
                self._write(self._under_way.pop(ticket), outcome)
            case TaskLoss(ticket, how):
                run = self._under_way.pop(ticket)
                reason = f"{how}; perhaps it ran out of memory: try --retry-failed with fewer --jobs"
                self._write(run, Outcome(make_record(run, "failed", reason=reason)))

    def _write(self, run: RunSpec, outcome: Outcome) -> None:
        self.database.add(outcome.record, outcome.weights)
        self.listen(Event(run, record=outcome.record))


def _attempt(tell: SendMessage, run: RunSpec, trained: Outcome | None) -> Outcome:
    return attempt(run, trained, tell)
