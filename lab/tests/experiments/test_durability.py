"""Durability: after a kill signal, a full disk, a damaged file or Ctrl-C, no result is lost and none is wrong."""

from __future__ import annotations

import ast
import datetime
import errno
import multiprocessing
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from one_run import execute

import pear
from pear.engines import EngineError
from pear_lab.experiments import (
    FILE_NAME,
    Database,
    DatabaseError,
    Event,
    RunRecord,
    RunSpec,
    attempt,
    open_folder,
    run_all,
    unfinished_runs,
)
from pear_lab.experiments.database import read_records
from pear_lab.experiments.processes import MAX_STARTS, _Process

PATHS = {"grid": [3, 3], "samples": 80, "time_cap": 60.0, "max_epochs": 2, "degree": 4, "noise": 0.0}


def path_run(seed: int = 0, **settings: Any) -> RunSpec:
    return RunSpec("lp-degree", "shortest_path", "mse", seed, {**PATHS, **settings})


def record(key: str = "k", **other: Any) -> RunRecord:
    return RunRecord(key, "lp-degree", "knapsack", "mse", 0, {"degree": 8}, "done", **other)


def numbers(database: Database) -> dict[str, Any]:
    """Return the contents of a database that do not depend on the machine: everything except times."""
    return {one.key: (one.status, one.reason, one.metrics, one.weights) for one in database.records()}


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with open_folder(tmp_path) as opened:
        yield opened


# --- processes that die -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_workers_that_die_before_they_are_ready_or_at_work_lose_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [path_run(seed) for seed in range(4)]
    start, started, killed = _Process.start, [], []

    def start_and_kill_the_first(process: _Process) -> None:
        start(process)
        if not started:
            process.kill()
        started.append(process)

    def kill_one_at_work(event: Event) -> None:
        if event.record is None and not killed:
            killed.append(started[1])
            started[1].kill()

    monkeypatch.setattr(_Process, "start", start_and_kill_the_first)
    run_all(runs, database, jobs=2, listen=kill_one_at_work)
    assert len(killed) == 1
    assert len(started) == 4
    with open_folder(tmp_path / "undisturbed") as other:
        run_all(runs, other)
        assert numbers(database) == numbers(other)
    assert set(database.statuses().values()) == {"done"}


def test_workers_that_always_die_at_the_start_end_the_command_in_words(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.add(record())
    start, started = _Process.start, []

    def dies(process: _Process) -> None:
        start(process)
        process.kill()
        started.append(process)

    monkeypatch.setattr(_Process, "start", dies)
    with pytest.raises(
        EngineError, match=r"5 worker processes in a row .* signal 9 \(SIGKILL\); what has ended is kept"
    ):
        run_all([path_run(), path_run(1)], database, jobs=2)
    assert MAX_STARTS == 5
    # The fifth death ends the command; whether the second of the two workers runs at that moment is chance.
    assert len(started) in (MAX_STARTS, MAX_STARTS + 1)
    assert database.statuses() == {"k": "done"}
    assert not multiprocessing.active_children()


DRIVER = """
import os, sys
from pathlib import Path
from pear_lab.experiments import *
runs = [RunSpec("lp-degree", "shortest_path", "mse", seed, {settings!r}) for seed in range(6)]
def listen(event):
    if event.record is None and event.progress is None:
        print(*[p.pid for p in __import__("multiprocessing").active_children()], flush=True)
    if event.record is not None:
        os.kill(os.getpid(), 9)
if __name__ == "__main__":
    with open_folder(Path(sys.argv[1])) as database:
        run_all(unfinished_runs(runs, database.statuses()), database, 2, listen)
"""


@pytest.mark.slow
def test_a_killed_driver_leaves_true_rows_alone_and_no_process(tmp_path: Path) -> None:
    settings = {**PATHS, "samples": 400, "max_epochs": 8}
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.replace("{settings!r}", repr(settings)), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    workers = {int(word) for word in ended.stdout.split()}
    assert len(workers) == 2
    _wait_for(lambda: not any(map(_is_alive, workers)), 5)
    with open_folder(tmp_path / "out") as database:  # the dead driver's lock is free
        assert set(database.statuses().values()) == {"done"}
        runs = [RunSpec("lp-degree", "shortest_path", "mse", seed, settings) for seed in range(6)]
        assert 1 <= len(database.statuses()) <= 2
        run_all(unfinished_runs(runs, database.statuses()), database)
        with open_folder(tmp_path / "undisturbed") as other:
            run_all(runs, other)
            assert numbers(database) == numbers(other)


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    assert condition()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_listener_that_cannot_be_told_is_no_failure_of_a_run(database: Database) -> None:
    def gone(event: Event) -> None:
        if event.progress is not None:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        run_all([path_run()], database, listen=gone)
    assert database.records() == []


# --- one writer -------------------------------------------------------------------------------------------------------


def test_a_second_driver_is_refused_by_name_and_a_dead_ones_lock_is_taken_over(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from pear_lab.experiments import open_folder\n"
        "database = open_folder(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DatabaseError) as refused:
            open_folder(tmp_path)
        today = datetime.datetime.now(datetime.UTC).isoformat()[:8]
        assert f"in use by process {other.pid} on {platform.node()} since {today}" in str(refused.value)
        Database(tmp_path / FILE_NAME).close()  # reading is for everyone
        other.kill()
    open_folder(tmp_path).close()
    open_folder(tmp_path).close()  # and one that was let go of


# --- files ------------------------------------------------------------------------------------------------------------


def _with_little_room(folder: Path, answer: Any) -> None:
    with open_folder(folder) as database:
        database.add(record("before"))
        # From here on no file may grow past what it has: as on a full disk, for the weights and for the database.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        said = []
        for write in (lambda: execute(path_run(), database), lambda: database.add(record("after"))):
            try:
                write()
            except DatabaseError as error:
                said.append(str(error))
        answer.send(said)


def test_a_full_disk_ends_the_command_in_words_and_is_no_failure_of_a_run(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_with_little_room, args=(tmp_path, theirs))
    process.start()
    assert ours.poll(30)
    weights, row = ours.recv()
    process.join()
    assert "cannot use the database" in weights
    assert "make room" in weights
    assert "cannot use the database" in row
    with open_folder(tmp_path) as database:
        assert database.statuses() == {"before": "done"}
        assert database._connection.execute("SELECT count(*) FROM weights").fetchone() == (0,)


@pytest.mark.usefixtures("forked_workers")
def test_a_row_that_cannot_be_written_ends_the_command(database: Database) -> None:
    database._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(DatabaseError, match=r"cannot use the database .*make room and allow writing"):
        run_all([path_run(), path_run(1)], database, jobs=2)
    assert database.records() == []


@pytest.mark.parametrize("where", ["header", "page"])
def test_a_damaged_database_is_refused_in_words_and_kept(tmp_path: Path, where: str) -> None:
    path = tmp_path / FILE_NAME
    with Database(path) as database:
        for k in range(200):
            database.add(record(f"{k:03}", reason="x" * 300))
    data = bytearray(path.read_bytes())
    place = 0 if where == "header" else 5 * 4096
    data[place : place + 64] = bytes(range(64))
    path.write_bytes(data)
    for look in (open_folder, lambda folder: Database(folder / FILE_NAME)):
        with pytest.raises(DatabaseError, match=r"is damaged, or no database of runs: .* It is left as it is: name"):
            look(tmp_path)
    assert path.read_bytes() == bytes(data)


def test_a_row_that_is_no_json_is_refused_in_words(database: Database) -> None:
    database.add(record())
    database._connection.execute("UPDATE runs SET metrics = '{half'")
    with pytest.raises(DatabaseError, match="is damaged"):
        database.get("k")


def test_a_row_that_was_altered_is_named_whoever_reads_it(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with Database(path) as database:
        for key in ("a", "b"):
            database.add(record(key, metrics={"test_regret": 0.5}, created="today"))
        database._connection.execute("UPDATE runs SET metrics = '{\"test_regret\": 0.4}' WHERE key = 'b'")
        assert database.get("a") is not None
        for read in (database.records, lambda: database.get("b"), lambda: read_records(path)):
            with pytest.raises(
                DatabaseError, match=r"key 'b' was altered: its checksum .*restore .* or delete the row"
            ):
                read()
        database._connection.execute("DELETE FROM runs WHERE key = 'b'")
        assert database.add(record("b"))  # what was deleted is done again
        assert [one.key for one in database.records()] == ["a", "b"]


def test_rows_without_a_checksum_are_read_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / FILE_NAME
    caplog.set_level("INFO", "pear_lab")
    with Database(path) as database:
        for key in ("a", "b"):
            database.add(record(key, created="today"))
        database._connection.execute("DELETE FROM checksums WHERE key = 'b'")
        assert len(database.records()) == 2
        assert [one.levelname for one in caplog.records] == ["WARNING"]
        assert "1 of 2 rows have no checksum" in caplog.text
        database._connection.execute("DROP TABLE checksums")  # as an earlier version leaves it
    caplog.clear()
    assert len(read_records(path)) == 2
    assert [one.levelname for one in caplog.records] == ["INFO"]
    with Database(path) as database:
        assert database.add(record("c"))
        assert len(database.records()) == 3


def test_a_read_only_folder_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **named: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))  # not by chmod: root writes anyway

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DatabaseError, match=r"cannot use the database .*: Read-only file system; name another folder"):
        open_folder(tmp_path)
    assert not (tmp_path / FILE_NAME).exists()


# --- clocks and interrupts --------------------------------------------------------------------------------------------


def test_a_clock_that_goes_backwards_makes_no_negative_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    clock = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: now - 3600 * next(clock))
    done = attempt(path_run()).record
    assert done.status == "done", done.reason
    assert all(value >= 0 for value in done.timings.values())
    seconds = [check[1] for check in done.history]
    assert seconds == sorted(seconds)
    assert all(value >= 0 for value in seconds)


def test_no_duration_is_measured_with_a_clock_that_can_be_set() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in Path(pear.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.time_ns")
    ]
    assert found == []


@pytest.mark.slow
def test_ctrl_c_twice_ends_at_once_and_leaves_a_database_that_is_whole(tmp_path: Path) -> None:
    settings = {**PATHS, "grid": [8, 8], "samples": 400, "max_epochs": 10**6}
    script = (
        "import os, signal, sys; from pathlib import Path; from pear_lab.experiments import *\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"runs = [RunSpec('x', 'shortest_path', 'mse', 0, {PATHS!r})]\n"
        f"runs += [RunSpec('x', 'shortest_path', 'pear', seed, {settings!r}) for seed in range(2)]\n"
        "def listen(event):\n"
        "    if event.progress is not None and event.run is not runs[0]: print('at work', flush=True)\n"
        "if __name__ == '__main__':\n"
        "    with open_folder(Path(sys.argv[1])) as database:\n"
        "        run_all(runs, database, 2, listen)\n"
    )
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    arguments = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "out")]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        with Database(tmp_path / "out" / FILE_NAME) as database:
            _wait_for(lambda: len(database.statuses()) == 1, 20)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=20)
    assert time.monotonic() - began < 10
    with open_folder(tmp_path / "out") as database:
        assert list(database.statuses().values()) == ["done"]
        assert database._connection.execute("SELECT count(*) FROM weights").fetchone() == (1,)
