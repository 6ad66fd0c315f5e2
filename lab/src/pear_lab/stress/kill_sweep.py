"""Kill a small sweep again and again, resume it, and compare its results with those of an undisturbed sweep."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pear.engines import EngineError, check_engine_name
from pear.errors import ProblemError
from pear_lab.experiments import FILE_NAME, Database, Event, RunRecord, RunSpec, open_folder, run_all, unfinished_runs
from pear_lab.experiments.processes import start_engine

DRIVER, WORKER, EVERYTHING = "the driver", "a worker", "driver and workers"
STARTING, AT_WORK = "while workers start", "while runs are under way"

_COMMAND = (sys.executable, "-c", "from pear_lab.stress.kill_sweep import run_sweep; run_sweep()")
_START_SECONDS = {"local": 2.0, "ray": 10.0}
_RUN_SECONDS = 0.15
_WORKER_OF_RAY = "ray::_work"
"""After the function of the engine; others of its processes are idle, its mailbox, or of Ray itself."""

_ORPHAN_SECONDS = 60.0
"""A worker that is still importing when its driver dies ends once it has, which takes a while on a busy machine."""

_LIMIT_SECONDS = 1200.0
"""Time limit of a command. Its runs take less than a minute; Ray may take a few minutes to start, or to give up."""


@dataclass
class KillCounts:
    """Counts of kills, and of what went wrong after them.

    Attributes:
        kills: (who, when) → how often.
        commands: how many times the sweep was started.
        sweeps: how many times it finished.
        rows: how many were compared with those of an undisturbed sweep.
        lost: rows that are missing.
        repeated: runs done again although their row was there.
        wrong: rows that differ.
        orphans: workers that outlived their driver.
        examples: descriptions of the first few failures.
    """

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    commands: int = 0
    sweeps: int = 0
    rows: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: int = 0
    orphans: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        """Number of failures of all kinds."""
        return self.lost + self.repeated + self.wrong + self.orphans

    def compare(self, expected: dict[str, Any], found: dict[str, Any], rows: list[str]) -> None:
        """Count the differences to an undisturbed sweep.

        Args:
            expected: rows of an undisturbed sweep, by key.
            found: rows of this sweep, by key.
            rows: the keys of all rows that the commands of this sweep wrote, in order.
        """
        self.sweeps += 1
        self.rows += len(found)
        for key in sorted(expected.keys() - found.keys()):
            self.lost += 1
            self.examples.append(f"the row {key} is missing")
        for key in sorted(found):
            if found[key] != expected.get(key):
                self.wrong += 1
                self.examples.append(f"the row {key} is {found[key]}, and undisturbed {expected.get(key)}")
        for key, count in Counter(rows).items():
            if count > 1:
                self.repeated += count - 1
                self.examples.append(f"the row {key} was written {count} times")


def kill_and_compare(
    times: int, seed: int = 0, show: Callable[[KillCounts], None] = lambda verdict: None, engine: str = "local"
) -> KillCounts:
    """Kill a small sweep ``times`` times and resume it each time; stop early where something differs.

    Args:
        times: how many kills.
        seed: the seed that decides which process is killed, and when.
        show: called after every kill.
        engine: the engine that does the runs, on this machine. The undisturbed sweep runs in this process.

    Returns:
        The differences that were found; there should be none.

    Raises:
        EngineError: there is no such engine, or it is one of other machines.
        ProblemError: the system does not tell which processes a process has started.
    """
    if not Path("/proc/self/stat").exists():
        raise ProblemError("pear stress kill finds worker processes in /proc, which this system has not; use Linux")
    _, address = check_engine_name(engine)
    if address is not None:
        raise EngineError(f"pear stress kill kills processes of this machine, and {engine} is elsewhere; use ray")
    draw, verdict = random.Random(seed), KillCounts()
    with tempfile.TemporaryDirectory(prefix="pear-kill-") as place:
        with open_folder(Path(place) / "undisturbed") as database:
            run_all(sweep_runs(), database)
        expected = outcome(Path(place) / "undisturbed")
        while sum(verdict.kills.values()) < times and not verdict.bad:
            folder = Path(place) / f"sweep-{verdict.sweeps}"
            rows = _Sweep(folder, engine, draw, verdict, times, show).run()
            verdict.compare(expected, outcome(folder), rows)
    return verdict


def outcome(folder: Path) -> dict[str, Any]:
    """The rows of a folder by key, without times and paths, with a digest of the weights."""
    with Database(folder / FILE_NAME) as database:
        return {record.key: _comparable_fields(record, database) for record in database.records()}


def _comparable_fields(record: RunRecord, database: Database) -> tuple[Any, ...]:
    digest = hashlib.sha256(database.weights(record) or b"").hexdigest()
    history = [[epoch, loss, metric] for epoch, _, loss, metric in record.history]
    named = (record.experiment, record.task, record.method, record.seed, record.settings)
    return (*named, record.status, record.reason, record.metrics, history, digest)


@dataclass
class _Sweep:
    """One sweep in one folder, which is started again until all its runs are done."""

    folder: Path
    engine: str
    draw: random.Random
    verdict: KillCounts
    times: int
    show: Callable[[KillCounts], None]
    rows: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Run the sweep to its end; returns the keys of all rows that were written."""
        while self._command() != 0:
            pass
        return self.rows

    def _command(self) -> int:
        """Start the sweep, kill some or all of its processes, and return the exit code of the driver."""
        self.verdict.commands += 1
        self._note_rows()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
            with subprocess.Popen(
                [*_COMMAND, str(self.folder), self.engine], stdout=subprocess.PIPE, stderr=complaints, text=True,
                start_new_session=True,
            ) as process:  # fmt: skip
                limit = threading.Timer(_LIMIT_SECONDS, self._give_up, (process,))
                limit.start()
                try:
                    killed = self._disturb(process)
                except BaseException:
                    os.killpg(process.pid, signal.SIGKILL)  # Ctrl-C does not reach it
                    raise
                finally:
                    limit.cancel()
            complaints.seek(0)
            complaint = complaints.read()[-500:]
        if process.returncode not in ((0, -signal.SIGKILL) if killed else (0,)):
            self.verdict.wrong += 1
            self.verdict.examples.append(f"the command ended with exit code {process.returncode}: {complaint}")
            return 0
        return process.returncode

    def _give_up(self, process: subprocess.Popen[str]) -> None:
        """End a command that takes too long. It is counted as wrong unless the plan has killed it."""
        self.verdict.examples.append(f"a command did not come to its end within {_LIMIT_SECONDS:.0f} s")
        os.killpg(process.pid, signal.SIGKILL)

    def _disturb(self, process: subprocess.Popen[str]) -> bool:
        """Kill according to plan, and read the output to its end; returns whether the driver was killed."""
        killed = False
        self._listen(process, (OPEN,))
        for who, when in self._plan():
            if not self._wait_for(process, when):
                break
            self._kill(process, who, when)
            killed = who != WORKER
        self._listen(process, None)
        return killed

    def _note_rows(self) -> None:
        """Note rows that the driver wrote but did not report before it was killed. Opening the file also checks it."""
        if (self.folder / FILE_NAME).exists():
            with Database(self.folder / FILE_NAME) as database:
                self.rows += [key for key in database.statuses() if key not in self.rows]

    def _plan(self) -> list[tuple[str, str]]:
        """Draw which process to kill and when: often a worker or two first, then the driver or all processes."""
        last = self.draw.choice([(DRIVER, STARTING), (DRIVER, AT_WORK), (EVERYTHING, AT_WORK)])
        moments = (STARTING,) if last[1] == STARTING else (STARTING, AT_WORK)
        plan = [(WORKER, when) for when in moments if self.draw.random() < 0.7]
        if self.engine != "local":  # whose workers have a run from the start, and one that costs two is given up
            plan = plan[-1:]
        return [*plan, last][: max(0, self.times - sum(self.verdict.kills.values()))]

    def _wait_for(self, process: subprocess.Popen[str], when: str) -> bool:
        """Wait for the moment of the next kill; False where the command ends before."""
        events = 0 if when == STARTING else self.draw.randint(1, 6)
        there = all(self._listen(process, (STARTED, ROW)) for _ in range(events))
        time.sleep(self.draw.uniform(0.0, _START_SECONDS[self.engine] if when == STARTING else _RUN_SECONDS))
        return there and process.poll() is None

    def _listen(self, process: subprocess.Popen[str], words: tuple[str, ...] | None) -> bool:
        """Read output up to a line that begins with one of these words, or to the end, and note the rows in it."""
        assert process.stdout is not None
        for line in process.stdout:
            word, _, key = line.strip().partition(" ")
            if word == ROW:
                self.rows.append(key)
            if words is not None and word in words:
                return True
        return False

    def _kill(self, process: subprocess.Popen[str], who: str, when: str) -> None:
        """Kill the driver, a worker or everything, and count it; nothing happens where there is no worker."""
        below = _descendants(process.pid)
        workers = [pid for pid in below if _is_worker(pid)]
        if who == WORKER and not workers:
            return
        if who == WORKER:
            _kill_process(self.draw.choice(workers))
        else:
            process.kill()
        for pid in below if who == EVERYTHING else ():
            _kill_process(pid)
        self.verdict.kills[who, when] += 1
        self.show(self.verdict)
        if who != WORKER:
            self._count_orphans(below)

    def _count_orphans(self, below: list[int]) -> None:
        """Count the processes that are still alive a while after their driver was killed."""
        until = time.monotonic() + _ORPHAN_SECONDS
        while (
            left := [pid for pid in below if _living_parent(pid) and not _is_agent(pid)]
        ) and time.monotonic() < until:
            time.sleep(0.02)
        self.verdict.orphans += len(left)
        self.verdict.examples += [f"process {pid} outlived its driver: {_command_line(pid)[:80]!r}" for pid in left]


def _descendants(driver: int) -> list[int]:
    """The ids of all processes that descend from ``driver``."""
    parents = {int(place.name): _living_parent(int(place.name)) for place in Path("/proc").glob("[0-9]*")}
    found, new = set[int](), {driver}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return sorted(found)


def _is_worker(pid: int) -> bool:
    """Whether a process is a worker of this package, or one of Ray's that is at work on a run."""
    title = _command_line(pid)
    return "spawn_main" in title or title.startswith(_WORKER_OF_RAY)


def _is_agent(pid: int) -> bool:
    """Whether a process is an agent of Ray. Agents look for Ray's head for a minute before they end."""
    title = _command_line(pid)
    return title.startswith("ray::") and "Agent" in title


def _command_line(pid: int) -> str:
    """The command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(pid, signal.SIGKILL)


def _living_parent(pid: int) -> int | None:
    """The parent of a living process; None for one that has ended, zombies included."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(parent)


OPEN, STARTED, ROW = "open", "started", "row"
"""The first word of a line: the database is open, a run is handed to a worker, a row is written."""

_SHORT = {"time_cap": 600.0, "max_epochs": 6, "degree": 4, "noise": 0.0}
_TASKS: dict[str, dict[str, Any]] = {
    "shortest_path": {**_SHORT, "grid": [4, 4], "samples": 200},
    "knapsack": {**_SHORT, "items": 6, "dimensions": 2, "capacity_ratio": 0.5, "samples": 100},
}
_METHODS: dict[str, dict[str, Any]] = {"mse": {}, "pear": {"smoothing": 0.1, "injection": 0.1}}


def sweep_runs() -> list[RunSpec]:
    """Return the runs of the sweep: twelve trainings of a tenth of a second each, and three that measure a variant.

    Example:
        >>> len(sweep_runs()), len({run.key for run in sweep_runs()})
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


def run_sweep() -> None:
    """Run what is left of the sweep with two workers; the arguments are a folder and an engine."""
    folder, engine = sys.argv[1:]
    with open_folder(Path(folder)) as database:
        _print_line(OPEN)
        with start_engine(engine, 2) as opened:
            run_all(unfinished_runs(sweep_runs(), database.statuses()), database, listen=_print_event, engine=opened)


def _print_event(event: Event) -> None:
    if event.record is not None:
        _print_line(ROW, event.run.key)
    elif event.progress is None:
        _print_line(STARTED, event.run.key)


def _print_line(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()
