"""The small sweep that ``pear stress kill`` kills: a command that reports what it does line by line."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pear.engines import start
from pear_lab.experiments import Event, RunSpec, open_folder, run_all, unfinished_runs

OPEN, STARTED, ROW = "open", "started", "row"
"""The first word of a line: the database is open, a run is handed to a worker, a row is written."""

_SHORT = {"time_cap": 600.0, "max_epochs": 6, "degree": 4, "noise": 0.0}
_TASKS: dict[str, dict[str, Any]] = {
    "shortest_path": {**_SHORT, "grid": [4, 4], "samples": 200},
    "knapsack": {**_SHORT, "items": 6, "dimensions": 2, "capacity_ratio": 0.5, "samples": 100},
}
_METHODS: dict[str, dict[str, Any]] = {"mse": {}, "pear": {"smoothing": 0.1, "injection": 0.1}}


def runs() -> list[RunSpec]:
    """Twelve trainings of a tenth of a second each, and measurements of three of them.

    Example:
        >>> len(runs()), len({run.key for run in runs()})
        (15, 15)
    """
    trainings = [
        RunSpec("stress", task, method, seed, {**settings, **own})
        for seed in range(3)
        for task, settings in _TASKS.items()
        for method, own in _METHODS.items()
    ]
    measured = [run for run in trainings if (run.task, run.method) == ("knapsack", "pear")]
    return trainings + [replace(run, settings={**run.settings, "variant": "capacity-shift"}) for run in measured]


def main() -> None:
    """Run what is left of the sweep with two workers; the arguments are a folder and an engine."""
    folder, engine = sys.argv[1:]
    with open_folder(Path(folder)) as database:
        _say(OPEN)
        with start(engine, 2) as opened:
            run_all(unfinished_runs(runs(), database.statuses()), database, listen=_hear, engine=opened)


def _hear(event: Event) -> None:
    if event.record is not None:
        _say(ROW, event.run.key)
    elif event.progress is None:
        _say(STARTED, event.run.key)


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()
