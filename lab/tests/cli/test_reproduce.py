"""``pear reproduce``: its runs, its output, and how it stops and continues."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import Run

from pear_lab.cli.dataclass_options import parse_numbers_option
from pear_lab.experiments import EXPERIMENTS, FILE_NAME, Database, ExperimentError
from pear_lab.experiments.catalogue import TASKS
from pear_lab.experiments.protocols import lp_protocol as lp


@pytest.fixture
def reproduce(terminal: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command in an empty folder, with runs that take milliseconds."""
    tiny = {
        "shortest_path": {"grid": [3, 3], "samples": 40},
        "knapsack": {"items": 6, "dimensions": 2, "samples": 24},
    }
    for name, changes in tiny.items():
        quick = {**TASKS[name].quick, **changes, "max_epochs": 2}
        monkeypatch.setitem(TASKS, name, dataclasses.replace(TASKS[name], quick=quick))
    return partial(command_line.run, "reproduce")


SOME = ("lp-degree", "--tasks", "shortest-path", "--methods", "mse,PEAR", "--degrees", "8", "--quick", "--jobs", "1")


def rows(folder: Path = Path("pear-output/lp")) -> list[Any]:
    with Database(folder / FILE_NAME) as database:
        return database.records()


def test_runs_are_rows_and_those_that_are_there_are_skipped(reproduce: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = reproduce(*SOME, "--seeds", "0-1")
    assert result.exit_code == 0, result.output
    assert "4 of 4 runs to do" in result.output
    assert "rough guess" in result.output
    first = rows()
    assert {(row.task, row.method, row.seed, row.status) for row in first} == {
        ("shortest_path", method, seed, "done") for method in ("mse", "pear") for seed in (0, 1)
    }
    with Database(Path("pear-output/lp") / FILE_NAME) as database:
        assert all(database.weights(row) for row in first)
    monkeypatch.setattr(lp, "train_as_published", None)  # nothing is trained again
    again = reproduce(*SOME, "--seeds", "0-1")
    assert again.exit_code == 0, again.output
    assert "0 of 4 runs to do" in again.output
    assert rows() == first


def test_every_experiment_runs_on_the_reduced_grid(reproduce: Run) -> None:
    result = reproduce("all", "--quick", "--seeds", "0", "--jobs", "1")
    assert result.exit_code == 0, result.output
    found = rows()
    assert {row.status for row in found} == {"done"}
    assert {row.settings.get("variant") for row in found} == {
        None, "direction-shift", "capacity-shift", "stability", "accuracy",
    }  # fmt: skip
    # Shared trainings carry the name of the one that asked first.
    assert {row.experiment for row in found} == {name for name, one in EXPERIMENTS.items() if not one.needs_data}


def test_a_dry_run_says_what_and_how_long_and_writes_nothing(reproduce: Run, tmp_path: Path) -> None:
    result = reproduce("lp-degree", "capacity-shift", "--dry-run", "--jobs", "2", "--degrees", "8", "--seeds", "0")
    assert result.exit_code == 0, result.output
    assert "18 of 18 runs to do, about " in result.output
    assert " with 2 processes." in result.output
    assert "rough guess" in result.output
    assert "capacity-shift" in result.output
    assert list(tmp_path.iterdir()) == []
    reproduce(*SOME, "--seeds", "0")
    file = tmp_path / "pear-output" / "lp" / FILE_NAME
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")  # opening it for writing would change this back
    connection.close()
    before = file.read_bytes()
    after = reproduce(*SOME, "--seeds", "0-1", "--dry-run")
    assert file.read_bytes() == before
    assert re.search(r"2 of 4 runs to do, about \d+ s with 1 process\.", after.output)
    assert "rough" not in after.output
    assert len(rows()) == 2


def test_the_list_names_every_experiment(reproduce: Run) -> None:
    result = reproduce("--list")
    assert result.exit_code == 0
    for name in EXPERIMENTS:
        assert name in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name an experiment: lp-degree, "),
        (("lp-degre",), "there is no experiment 'lp-degre'; there is lp-degree, "),
        (("all", "--tasks", "roads"), "there is no task 'roads'; there is shortest-path, knapsack"),
        (("all", "--methods", "mse,peer"), "there is no method 'peer'; there is mse, "),
        (("all", "--degrees", "5"), "there is no degree '5'; there is 2, 4, 6, 8"),
        (("all", "--degrees", "two"), "--degrees must be whole numbers"),
        (("all", "--seeds", "4-0"), "--seeds must be whole numbers"),
        (("all", "--time-cap", "-1"), "the time cap must be a positive number"),
        (("all", "--jobs", "0"), "--jobs must be at least 1"),
        (("lp-noise", "--degrees", "2"), "nothing to run"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    reproduce: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = reproduce(*arguments)
    assert result.exit_code == 2
    assert f"Error: {message}" in result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_numbers_and_ranges() -> None:
    assert parse_numbers_option("seeds", "0-4") == [0, 1, 2, 3, 4]
    assert parse_numbers_option("seeds", "7, 1-2,1") == [7, 1, 2]
    for wrong in ("", "a", "1-", "3-1", "-2"):
        with pytest.raises(ExperimentError, match="--seeds must be"):
            parse_numbers_option("seeds", wrong)


def test_failures_are_listed_and_tried_again_on_request(reproduce: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ValueError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(lp, "train_as_published", broken)
        result = reproduce(*SOME, "--seeds", "0")
    assert result.exit_code == 1
    assert "failed: shortest-path, mse, degree 8, seed 0: ValueError: no luck" in result.output
    assert "--retry-failed" in result.output
    assert "0 of 2 runs to do" in reproduce(*SOME, "--seeds", "0").output
    again = reproduce(*SOME, "--seeds", "0", "--retry-failed")
    assert again.exit_code == 0, again.output
    assert [row.status for row in rows()] == ["done", "done"]


def test_a_database_of_another_version_is_refused_with_a_way_out(reproduce: Run) -> None:
    reproduce(*SOME, "--seeds", "0")
    with sqlite3.connect(f"pear-output/lp/{FILE_NAME}") as connection:
        connection.execute("UPDATE meta SET value = '0'")
    connection.close()
    refused = reproduce(*SOME)
    assert refused.exit_code == 2
    assert "is a database of version 0" in refused.output
    assert "pear reproduce --export FILE.json --out pear-output/lp" in refused.output
    saved = reproduce("--export", "saved.json", "--out", "pear-output/lp")
    assert saved.exit_code == 0, saved.output
    data = json.loads(Path("saved.json").read_text("utf-8"))
    assert data["schema_version"] == "0"
    assert {row["method"] for row in data["tables"]["runs"]} == {"mse", "pear"}


def test_an_export_without_a_database_is_refused(reproduce: Run, tmp_path: Path) -> None:
    result = reproduce("--export", "saved.json")
    assert result.exit_code == 2
    assert "there is no database at" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_fails_before_training(
    reproduce: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lp, "train_as_published", None)
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place in ("file", "file/below", "/proc/pear"):
        result = reproduce(*SOME, "--out", place)
        assert result.exit_code == 2
        assert f"cannot use the database {place}" in result.output


def _some_are_done(folder: Path) -> bool:
    """Return whether the command has written a result; its processes are then at work."""
    if not (folder / FILE_NAME).exists():
        return False
    with Database(folder / FILE_NAME) as database:
        return bool(database.statuses())


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.long), 2])
def test_ctrl_c_stops_and_the_same_command_goes_on(reproduce: Run, tmp_path: Path, jobs: int) -> None:
    options = ["lp-degree", "--tasks", "shortest-path", "--methods", "pear", "--degrees", "8", "--jobs", str(jobs)]
    # A shell that runs the tests in the background has them ignore Ctrl-C, and so would what they start.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    start = [sys.executable, "-c", f"{listen}; from pear.cli import main; main()"]
    with subprocess.Popen(
        [*start, "reproduce", *options, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert "5 of 5 runs to do" in process.stdout.readline()
        until = time.monotonic() + 60
        while not _some_are_done(tmp_path) and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
        text, _ = process.communicate(timeout=30)
    assert process.returncode == 130, text
    assert "Stopped." in text
    assert "Traceback" not in text
    kept = {row.key: row.status for row in rows(tmp_path)}
    assert 1 <= len(kept) < 5
    assert set(kept.values()) == {"done"}
    with Database(tmp_path / FILE_NAME) as database:
        assert all(database.weights(row) for row in database.records())
    planned = reproduce(*options, "--out", tmp_path, "--dry-run")
    assert f"{5 - len(kept)} of 5 runs to do" in planned.output


def test_missing_data_is_said_before_anything_runs(
    reproduce: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEAR_DATA", "")  # and put back what --data changes
    result = reproduce("building", "--quick", "--data", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "fetch_building" in result.output
    assert not Path("pear-output").exists()
    assert reproduce("building", "energy", "--quick", "--dry-run").exit_code == 0
