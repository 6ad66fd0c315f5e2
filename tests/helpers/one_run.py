"""One run of the laboratory in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pear_lab.experiments import Database, Event, RunRecord, RunSpec, run_all, unfinished_runs


def execute(run: RunSpec, database: Database, progress: Callable[[Any], None] = lambda now: None) -> RunRecord:
    """Do a run unless the database has its result; return its record. ``progress`` is called after every epoch."""

    def listen(event: Event) -> None:
        if event.progress is not None:
            progress(event.progress)

    run_all(unfinished_runs([run], database.statuses(), retry_failed=True), database, listen=listen)
    record = database.get(run.key)
    assert record is not None
    return record
