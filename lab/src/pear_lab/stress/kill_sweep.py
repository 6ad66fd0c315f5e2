"""A small sweep of training runs that is killed and resumed many times, and then compared with an undisturbed sweep.

The driver is the process that starts the workers, and the workers do the runs.
"""

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
"""The beginning of the command line of a Ray worker that does a run. Ray derives it from the engine's function."""

_ORPHAN_SECONDS = 60.0
"""The time that a worker has to end after its driver. A worker that is importing ends only after its imports."""

_LIMIT_SECONDS = 1200.0
"""The time limit of a command. Runs take less than a minute, but Ray may take minutes to start or to give up."""


@dataclass
class KillCounts:
    """Counts of kills, and of the failures after them.

    Attributes:
        kills: the number of kills, by the killed process and the moment.
        commands: the number of times the sweep was started.
        sweeps: the number of times the sweep finished.
        rows: the number of database rows that were compared with those of an undisturbed sweep.
        lost: the number of rows that are missing.
        repeated: the number of runs that were repeated although their rows existed.
        wrong: the number of rows that differ, and of commands that failed.
        orphans: the number of processes that still lived a minute after the driver above them was killed.
        examples: a sentence on each failure.
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
        """The number of failures of all kinds."""
        return self.lost + self.repeated + self.wrong + self.orphans

    def compare(self, expected: dict[str, Any], found: dict[str, Any], rows: list[str]) -> None:
        """Count the differences of a finished sweep from an undisturbed one.

        Args:
            expected: the rows of the undisturbed sweep, by key.
            found: the rows of the finished sweep, by key.
            rows: the keys of all rows that the commands of the finished sweep wrote, in order.
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
    """Kill a small sweep ``times`` times, and resume it after each kill. Stop after a sweep with a failure.

    Args:
        times: the number of kills.
        seed: the seed of the random choice of processes to kill, and of moments.
        show: function that is called with the counts after every kill.
        engine: the engine of the killed sweeps, on this machine. The undisturbed sweep runs in this process.

    Returns:
        The counts of kills and failures.

    Raises:
        EngineError: there is no such engine, or the engine runs on other machines.
        ProblemError: the system has no ``/proc``, which lists the processes.
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
        expected = sweep_outcome(Path(place) / "undisturbed")
        while sum(verdict.kills.values()) < times and not verdict.bad:
            folder = Path(place) / f"sweep-{verdict.sweeps}"
            rows = _Sweep(folder, engine, draw, verdict, times, show).run()
            verdict.compare(expected, sweep_outcome(folder), rows)
    return verdict


def sweep_outcome(folder: Path) -> dict[str, Any]:
    """Return the rows of the database in a folder, by key, without times and paths, which differ between equal runs."""
    with Database(folder / FILE_NAME) as database:
        return {record.key: _comparable_sweep_row(record, database) for record in database.records()}


def _comparable_sweep_row(record: RunRecord, database: Database) -> tuple[Any, ...]:
    """Return a row without times and paths. A digest stands for its weights."""
    digest = hashlib.sha256(database.weights(record) or b"").hexdigest()
    history = [[epoch, loss, metric] for epoch, _, loss, metric in record.history]
    named = (record.experiment, record.task, record.method, record.seed, record.settings)
    return (*named, record.status, record.reason, record.metrics, history, digest)


@dataclass
class _Sweep:
    """A sweep in one folder. It is killed and started again until all its runs are done.

    Attributes:
        folder: the folder of the database.
        engine: the engine of the runs.
        draw: the generator that chooses the processes to kill and the moments.
        verdict: the counts, to which this sweep adds.
        times: the number of kills in all sweeps together.
        show: function that is called with the counts after every kill.
        rows: the keys of the rows that were written so far.
    """

    folder: Path
    engine: str
    draw: random.Random
    verdict: KillCounts
    times: int
    show: Callable[[KillCounts], None]
    rows: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Start the sweep again and again until it finishes, and return the keys of all rows that were written."""
        while self._command() != 0:
            pass
        return self.rows

    def _command(self) -> int:
        """Start the sweep, and kill some or all of its processes.

        Returns:
            The driver's exit code: 0 if the sweep is done, and a negative number if the driver was killed. If the
            driver failed otherwise, the failure is counted, and 0 is returned.
        """
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
                    os.killpg(process.pid, signal.SIGKILL)  # Ctrl-C does not reach its session
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
        """Kill a command that exceeds the time limit. It counts as wrong, unless its driver was killed before."""
        self.verdict.examples.append(f"a command did not come to its end within {_LIMIT_SECONDS:.0f} s")
        os.killpg(process.pid, signal.SIGKILL)

    def _disturb(self, process: subprocess.Popen[str]) -> bool:
        """Draw and carry out the kills, read the output to its end, and return whether the driver was killed."""
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
        """Note the keys of rows that a killed driver wrote but did not report. Opening the database also checks it."""
        if (self.folder / FILE_NAME).exists():
            with Database(self.folder / FILE_NAME) as database:
                self.rows += [key for key in database.statuses() if key not in self.rows]

    def _plan(self) -> list[tuple[str, str]]:
        """Draw the kills, as pairs of a process and a moment.

        Up to two workers are killed (with Ray at most one), then the driver or all processes.
        """
        last = self.draw.choice([(DRIVER, STARTING), (DRIVER, AT_WORK), (EVERYTHING, AT_WORK)])
        moments = (STARTING,) if last[1] == STARTING else (STARTING, AT_WORK)
        plan = [(WORKER, when) for when in moments if self.draw.random() < 0.7]
        if self.engine != "local":  # Ray's workers begin with a run, and a run whose worker is killed twice is given up
            plan = plan[-1:]
        return [*plan, last][: max(0, self.times - sum(self.verdict.kills.values()))]

    def _wait_for(self, process: subprocess.Popen[str], when: str) -> bool:
        """Wait for the moment of the next kill, and return whether the command is still running."""
        events = 0 if when == STARTING else self.draw.randint(1, 6)
        there = all(self._listen(process, (STARTED, ROW)) for _ in range(events))
        time.sleep(self.draw.uniform(0.0, _START_SECONDS[self.engine] if when == STARTING else _RUN_SECONDS))
        return there and process.poll() is None

    def _listen(self, process: subprocess.Popen[str], words: tuple[str, ...] | None) -> bool:
        """Read the output up to a line that begins with one of ``words``, and note the rows in it.

        Returns:
            Whether such a line was found. If ``words`` is None, the whole output is read, and the result is False.
        """
        assert process.stdout is not None
        for line in process.stdout:
            word, _, key = line.strip().partition(" ")
            if word == ROW:
                self.rows.append(key)
            if words is not None and word in words:
                return True
        return False

    def _kill(self, process: subprocess.Popen[str], who: str, when: str) -> None:
        """Kill the driver, a worker or all processes, and count the kill. A worker is killed only if there is one."""
        below = SweepProcess.below(process.pid)
        workers = [one for one in below if one.is_worker()]
        if who == WORKER and not workers:
            return
        if who == WORKER:
            self.draw.choice(workers).kill()
        else:
            process.kill()
        for one in below if who == EVERYTHING else ():
            one.kill()
        self.verdict.kills[who, when] += 1
        self.show(self.verdict)
        if who != WORKER:
            self._count_orphans(below)

    def _count_orphans(self, below: list[SweepProcess]) -> None:
        """Count the processes, except Ray's agents, that still live a minute after the driver above them was killed."""
        until = time.monotonic() + _ORPHAN_SECONDS
        while (
            left := [one for one in below if one.living_parent() and not one.is_ray_agent()]
        ) and time.monotonic() < until:
            time.sleep(0.02)
        self.verdict.orphans += len(left)
        self.verdict.examples += [f"process {one.pid} outlived its driver: {one.command_line()[:80]!r}" for one in left]


@dataclass(frozen=True)
class SweepProcess:
    """A process of this machine, by its id. Its state is read from ``/proc``."""

    pid: int

    @classmethod
    def below(cls, driver: int) -> list[SweepProcess]:
        """Return all processes that descend from the process ``driver``, in the order of their ids."""
        everything = [cls(int(place.name)) for place in Path("/proc").glob("[0-9]*")]
        parents = {process.pid: process.living_parent() for process in everything}
        found, new = set[int](), {driver}
        while new:
            new = {pid for pid, parent in parents.items() if parent in new}
            found |= new
        return [cls(pid) for pid in sorted(found)]

    def living_parent(self) -> int | None:
        """Return the id of the parent; None if this process has ended or is a zombie."""
        try:
            state, parent, *_ = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        return None if state == "Z" else int(parent)

    def command_line(self) -> str:
        """Return the command line; empty if the process has ended."""
        try:
            text = Path(f"/proc/{self.pid}/cmdline").read_text("utf-8", errors="replace")
        except OSError:
            return ""
        return text.replace("\0", " ").strip()

    def is_worker(self) -> bool:
        """Return whether the process is a worker of this package, or a worker of Ray that does a run."""
        title = self.command_line()
        return "spawn_main" in title or title.startswith(_WORKER_OF_RAY)

    def is_ray_agent(self) -> bool:
        """Return whether the process is an agent of Ray. Agents look for Ray's head for a minute before they end."""
        title = self.command_line()
        return title.startswith("ray::") and "Agent" in title

    def kill(self) -> None:
        """Kill the process, if it is alive."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


OPEN, STARTED, ROW = "open", "started", "row"
"""The first words of lines: the database is open, a run is handed to a worker, a row is written."""

_SHORT = {"time_cap": 600.0, "max_epochs": 6, "degree": 4, "noise": 0.0}
_TASKS: dict[str, dict[str, Any]] = {
    "shortest_path": {**_SHORT, "grid": [4, 4], "samples": 200},
    "knapsack": {**_SHORT, "items": 6, "dimensions": 2, "capacity_ratio": 0.5, "samples": 100},
}
_METHODS: dict[str, dict[str, Any]] = {"mse": {}, "pear": {"smoothing": 0.1, "injection": 0.1}}


def sweep_runs() -> list[RunSpec]:
    """Return the 15 runs of the sweep.

    Twelve are trainings of a tenth of a second each. The other three are variants of the trainings of PEAR on
    knapsacks, with the setting ``variant="capacity-shift"``.

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
    """Do the unfinished runs of the sweep with two workers. The command line names the folder and the engine."""
    folder, engine = sys.argv[1:]
    with open_folder(Path(folder)) as database:
        _print_sweep_line(OPEN)
        with start_engine(engine, 2) as opened:
            run_all(
                unfinished_runs(sweep_runs(), database.statuses()), database, listen=_print_sweep_event, engine=opened
            )


def _print_sweep_event(event: Event) -> None:
    """Print a line when a run is started, and one when its row is written."""
    if event.record is not None:
        _print_sweep_line(ROW, event.run.key)
    elif event.progress is None:
        _print_sweep_line(STARTED, event.run.key)


def _print_sweep_line(*words: str) -> None:
    """Print a line to the process that kills the sweep."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()
