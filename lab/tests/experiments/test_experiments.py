"""Experiments: their runs, the protocol, the database, and parallel runs."""

from __future__ import annotations

import dataclasses
import io
import json
import multiprocessing
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from one_run import execute
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pear.losses.regret_outcome import RegretOutcome
from pear.tasks.path_graph import PathGraph
from pear_lab.experiments import (
    EXPERIMENTS,
    FILE_NAME,
    Database,
    DatabaseError,
    Estimate,
    Event,
    ExperimentError,
    RunRecord,
    RunSpec,
    Selection,
    commit,
    expand,
    export_database,
    open_folder,
    run_all,
    unfinished_runs,
)
from pear_lab.experiments.catalogue import TASKS
from pear_lab.experiments.protocols import PROTOCOLS
from pear_lab.experiments.protocols import lp_protocol as lp
from pear_lab.experiments.table_spec import CONDITIONS, METRICS
from pear_lab.report import published_numbers as paper
from pear_lab.report import read, write_report
from pear_lab.tasks import metrics

PATHS = {"grid": [3, 3], "samples": 80, "time_cap": 60.0, "max_epochs": 2, "degree": 4, "noise": 0.0}
LONG: dict[str, Any] = {**PATHS, "grid": [8, 8], "samples": 400, "max_epochs": 10**6}
"""Epochs of a fraction of a second each, and more of them than any test waits for."""

ITEMS = {
    "items": 6, "dimensions": 2, "capacity_ratio": 0.5,
    "samples": 40, "time_cap": 60.0, "max_epochs": 2, "degree": 4, "noise": 0.0,
}  # fmt: skip


def path_run(method: str = "mse", seed: int = 0, **settings: Any) -> RunSpec:
    return RunSpec("lp-degree", "shortest_path", method, seed, {**PATHS, **_own(method), **settings})


def knapsack_run(method: str = "mse", seed: int = 0, **settings: Any) -> RunSpec:
    return RunSpec("lp-degree", "knapsack", method, seed, {**ITEMS, **_own(method), **settings})


def _own(method: str) -> dict[str, float]:
    return {"smoothing": 0.1, "injection": 0.1} if method == "pear" else {}


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with open_folder(tmp_path) as opened:
        yield opened


# --- what is asked for ----------------------------------------------------------------------------------------------


def test_the_experiments_ask_for_the_papers_grid() -> None:
    counts = {name: experiment.count for name, experiment in EXPERIMENTS.items()}
    assert counts == {
        "lp-degree": 2 * 6 * 4 * 5,
        "lp-noise": 2 * 6 * 3 * 5,
        "direction-shift": 6 * 4 * 5,
        "capacity-shift": 6 * 4 * 5,
        "ablation-lambda": 2 * 5 * 4 * 5,
        "ablation-beta": 2 * 5 * 4 * 5,
        "stability": 2 * 5,
        "accuracy": 2 * 6 * 4 * 5,
        "building": 6 * 5 * 5,
        "building-equality": 6 * 5 * 5,
        "energy": 6 * 3 * 5,
        "mvo": 4 * 5,
        "lower-bound-shift": 4 * 5,
    }
    runs = expand(["all"], Selection())
    trainings = [run for run in runs if run.variant is None]
    # Shared: shifts, accuracy and stability train nothing of their own, ablations all but their middle column.
    assert len(trainings) == 240 + 180 + 2 * (2 * 4 * 4 * 5)
    assert len(runs) - len(trainings) == 120 + 120 + 10 + 240
    assert runs[: len(trainings)] == trainings
    assert len({run.key for run in runs}) == len(runs)
    keys = {run.key for run in trainings}
    assert all(run.training().key in keys for run in runs)


def test_settings_are_the_papers() -> None:
    path, knapsack = expand(["lp-degree"], Selection(methods=["pear"], degrees=[8], seeds=[3]))
    assert path.settings == {
        "grid": [5, 5], "samples": 2000, "degree": 8, "noise": 0.0, "time_cap": 600.0, "max_epochs": 10_000,
        "smoothing": 0.1, "injection": 0.1,
    }  # fmt: skip
    assert (path.seed, path.experiment) == (3, "lp-degree")
    assert {k: knapsack.settings[k] for k in ("items", "dimensions", "capacity_ratio")} == {
        "items": 100, "dimensions": 5, "capacity_ratio": 0.5,
    }  # fmt: skip


def test_a_key_depends_on_what_fixes_the_outcome_alone() -> None:
    run = path_run()
    assert run.key == dataclasses.replace(run, experiment="accuracy").key
    assert run.key == dataclasses.replace(run, settings=dict(reversed(run.settings.items()))).key
    others = [
        dataclasses.replace(run, task="knapsack"),
        dataclasses.replace(run, method="pear"),
        dataclasses.replace(run, seed=1),
        path_run(degree=6),
        path_run(variant="accuracy"),
    ]
    assert len({run.key, *(other.key for other in others)}) == 6


@pytest.mark.parametrize(
    ("experiment", "quick", "words", "key"),
    [
        ("lp-degree", False, "knapsack, pear, degree 8, seed 4", "612e8ea01d83ec9a09bb"),
        ("stability", True, "stability: knapsack, pear, degree 8, seed 1", "0b19af96931807ec71b5"),
        ("ablation-beta", False, "knapsack, pear, degree 8, β 0.5, seed 4", "ecda11b9f4ec22b59363"),
        ("building", False, "building, pear, budget by inequality, fold 4, seed 4", "4df78959a78cf32baf82"),
        ("building-equality", True, "building, pear, budget by equality, fold 0, seed 1", "672a9c5e0acda7cfd787"),
        ("energy", False, "energy, pear, capacity 180.0, seed 4", "326de0772303e18a970a"),
    ],
)
def test_keys_are_those_of_databases_that_are_there(experiment: str, quick: bool, words: str, key: str) -> None:
    last = expand([experiment], Selection(quick=quick))[-1]
    assert (str(last), last.key) == (words, key)


def test_the_catalogue_knows_every_published_cell() -> None:
    tables = {experiment.table.name: experiment for experiment in EXPERIMENTS.values()}
    for cell in (*paper.published(), *paper.published("published_portfolio")):
        experiment = tables[cell.table]
        if (cell.table, cell.task) == ("accuracy", "portfolio"):  # one of mvo's metrics
            experiment = EXPERIMENTS["mvo"]
        assert cell.task in experiment.tasks
        assert cell.metric in experiment.table.metrics
        assert set(cell.condition) <= set(CONDITIONS)
        assert METRICS[cell.metric].factor == (100.0 if cell.metric.endswith("_pct") else 1.0)
    assert set(TASKS) == set(PROTOCOLS)


def test_a_table_takes_the_runs_that_its_cells_are_about() -> None:
    noisy = EXPERIMENTS["lp-noise"].table
    (run,) = expand(["lp-noise"], Selection(["knapsack"], ["pear"], seeds=[0], quick=True))
    done = RunRecord(
        run.key, run.experiment, run.task, run.method, run.seed, run.settings, "done", metrics={"mse": 1.0}
    )
    assert noisy.matches(done, {"degree": 8.0, "noise": 0.5})
    assert not noisy.matches(done, {"degree": 8.0, "noise": 0.3})
    assert not noisy.matches(done, {"degree": 8.0})  # no noise where none is named
    assert not EXPERIMENTS["stability"].table.matches(done, {})
    assert EXPERIMENTS["accuracy"].table.value(done, "mse", {}) == 1.0
    assert noisy.value(done, "normalized_regret_pct", {}) is None
    shifted = dataclasses.replace(done, metrics={"shift": {"0.3": 0.25}})
    assert EXPERIMENTS["capacity-shift"].table.value(shifted, "normalized_regret_pct", {"capacity": 0.3}) == 25.0


def test_quick_runs_are_few_and_never_taken_for_full_ones() -> None:
    quick, full = expand(["all"], Selection(quick=True)), expand(["all"], Selection())
    assert {run.experiment for run in full} - {run.experiment for run in quick} == set()
    assert len(quick) < 200
    assert not {run.key for run in quick} & {run.key for run in full}
    assert all(run.settings["quick"] for run in quick)


def test_a_selection_narrows_what_there_is() -> None:
    runs = expand(
        ["lp-degree", "lp-noise", "ablation-beta"],
        Selection(tasks=["knapsack"], methods=["spo+relaxed", "pear"], degrees=[8], seeds=[7], time_cap=30),
    )
    assert {(run.method, run.settings["noise"]) for run in runs} == {
        (method, noise) for method in ("spo+relaxed", "pear") for noise in (0.0, 0.1, 0.3, 0.5)
    }
    assert {run.settings.get("injection") for run in runs if run.method == "pear"} == {0.0, 0.05, 0.1, 0.2, 0.5}
    assert {(run.task, run.seed, run.settings["time_cap"]) for run in runs} == {("knapsack", 7, 30.0)}


@pytest.mark.parametrize(
    ("names", "selection", "message"),
    [
        (
            ["lp-degre"],
            {},
            r"no experiment 'lp-degre'; there is lp-degree, .*, accuracy, .*, all; did you mean lp-degree\?",
        ),
        (["all"], {"tasks": ["path"]}, "no task 'path'; there is shortest-path, knapsack"),
        (["all"], {"methods": ["spo"]}, r"no method 'spo'; there is mse, spo\+, .*pear.*; did you mean spo\+\?"),
        (["all"], {"degrees": [3]}, "no degree '3'; there is 2, 4, 6, 8"),
        (["all"], {"time_cap": 0.0}, "time cap must be a positive number"),
        (["all"], {"seeds": [-1]}, "seeds must be"),
        (["lp-noise"], {"degrees": [2]}, "nothing to run: .* lp-noise; `pear reproduce --list` shows"),
        (["stability"], {"methods": ["mse"]}, "nothing to run"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(
    names: list[str], selection: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExperimentError, match=message):
        expand(names, Selection(**selection))


# --- the protocol ---------------------------------------------------------------------------------------------------


def test_the_stream_of_random_numbers_is_that_of_torchs_loaders() -> None:
    """Torch itself draws first weights and two epochs with checks; the protocol uses the same random numbers."""
    rows = TensorDataset(torch.arange(70))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        layer = nn.Linear(5, 40)
        train, validation = DataLoader(rows, 32, shuffle=True), DataLoader(rows, 32)
        orders = []
        for _ in range(2):
            orders.append(torch.cat([batch for (batch,) in train]))
            list(validation)
        after = torch.rand(3)

    state = torch.get_rng_state()
    model, stream = lp.paper_model(40, seed=3)
    assert torch.equal(model.weight, layer.weight)
    for order in orders:
        assert torch.equal(lp.paper_order(70, stream), order)
        torch.empty((), dtype=torch.int64).random_(generator=stream)  # what the protocol's metric draws
    assert torch.equal(torch.rand(3, generator=stream), after)
    assert torch.equal(torch.get_rng_state(), state)


def all_paths(graph: PathGraph) -> torch.Tensor:
    """Return all paths of a graph, (paths, arcs) with entries 0 or 1."""
    leaving: dict[int, list[int]] = {}
    for k, (tail, _) in enumerate(graph.arcs):
        leaving.setdefault(tail, []).append(k)
    ways, ended = [([], graph.source)], []
    while ways:
        path, node = ways.pop()
        ways += [([*path, k], graph.arcs[k][1]) for k in leaving.get(node, [])]
        ended += [path] if node == graph.target else []
    return torch.stack([torch.zeros(len(graph.arcs)).index_fill(0, torch.tensor(path), 1.0) for path in ended])


@pytest.mark.parametrize("method", ["spo+", "spo+relaxed", "pfyl", "dbb", "lava"])
@pytest.mark.parametrize("make", [path_run, knapsack_run])
def test_published_settings_are_absolute_numbers(make: Any, method: str) -> None:
    """The weight of the squared error, σ and τ stay the same if all costs are multiplied by 1,000."""
    run = make(method)
    task = lp.make_task(run)
    loss: Any = lp.make_run_loss(run, task)
    train = lp.make_split(run, task).train
    loss.calibrate(1000 * train.costs)
    loss(1000 * train.costs, 1000 * train.costs)
    assert (loss.cost_unit, loss.chosen_unit) == (1.0, 1.0)


def test_the_published_regret_adds_a_number_below_the_line() -> None:
    outcome = RegretOutcome(torch.tensor([1e-7]), torch.tensor([-1e-7]))
    assert (metrics.published_regret_metric(outcome), outcome.normalized) == (pytest.approx(0.5, rel=1e-6), 1.0)
    run = path_run(max_epochs=1)
    task = lp.make_task(run)
    split = lp.make_split(run, task)
    costs = split.validation.costs
    small = split._replace(validation=split.validation._replace(costs=1e-9 * costs))
    found = [lp.train_as_published(run, task, one)[1].checks[0].metric for one in (split, small)]
    best = 1e-9 * float(task.outcome(costs, costs).best.sum())
    assert found[1] == pytest.approx(found[0] * best / (best + metrics.PUBLISHED_SHIFT), rel=1e-5)
    assert found[1] < 0.9 * found[0]


def published(method: str) -> tuple[float, float]:
    """Return the mean and the deviation of 100 × test regret on paths at degree 8, over five seeds.

    In training, all 70 paths are compared, which is much faster than dynamic programming. Both agree on all true costs,
    and on the final predicted ones.
    """
    regrets, cheapest, paths = [], PathGraph.cheapest, all_paths(PathGraph.grid(5, 5)).double()
    assert len(paths) == 70

    def look(graph: PathGraph, cost: torch.Tensor, true: torch.Tensor | None = None) -> torch.Tensor:
        return cheapest(graph, cost, true) if true is not None else paths[(cost @ paths.T).argmin(1)]

    for run in expand(["lp-degree"], Selection(["shortest_path"], [method], [8])):
        task = lp.make_task(run)
        split = lp.make_split(run, task)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PathGraph, "cheapest", look)
            model, _ = lp.train_as_published(run, task, split)
        with torch.no_grad():
            predicted = model(split.test.features)
            regrets.append(100 * task.normalized_regret(predicted, split.test.costs))
            for cost in (split.train.costs, model(split.train.features), split.test.costs, predicted):
                assert torch.equal(look(task.graph, cost.double()), cheapest(task.graph, cost.double()))
    return round(statistics.mean(regrets), 3), round(statistics.stdev(regrets), 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "mean", "deviation"),
    [("mse", 15.428, 3.085), ("spo+", 4.403, 1.491), pytest.param("pfyl", 5.236, 2.331, marks=pytest.mark.long)],
)
def test_published_regret_comes_out_to_every_digit(method: str, mean: float, deviation: float) -> None:
    assert published(method) == (mean, deviation)


@pytest.mark.long
def test_pear_is_not_worse_than_published() -> None:
    assert published("pear")[0] <= 4.246


# --- the database ---------------------------------------------------------------------------------------------------


def row(key: str = "k", status: str = "done", **other: Any) -> RunRecord:
    return RunRecord(key, "lp-degree", "knapsack", "mse", 0, {"degree": 8}, status, **other)


def test_a_record_comes_back_as_it_went_in(database: Database) -> None:
    there = row(metrics={"shift": {"0.3": 0.1}}, timings={"total": 1.5}, history=[[1, 0.5, 2.0, 0.25]], reason="ä")
    assert database.add(there)
    assert database.get("k") == there
    assert database.records() == [there]
    assert database.get("other") is None
    assert json.loads(json.dumps(dataclasses.asdict(there))) == dataclasses.asdict(there)


def test_done_stays_and_failed_gives_way(database: Database) -> None:
    assert database.add(row(status="failed", reason="first"))
    assert database.add(row(status="failed", reason="second"))
    assert database.statuses() == {"k": "failed"}
    assert database.add(row(metrics={"mse": 1.0}))
    assert not database.add(row(metrics={"mse": 2.0}))
    assert not database.add(row(status="failed"))
    found = database.get("k")
    assert found is not None
    assert (found.status, found.reason, found.metrics) == ("done", "", {"mse": 1.0})


def _write_many(path: Path, first: int) -> None:
    with Database(path) as database:
        for k in range(first, first + 40):
            database.add(row(str(k)))


def test_processes_share_a_file_that_none_has_made_before(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # nothing to import: all three come at the same time
    processes = [context.Process(target=_write_many, args=(tmp_path / "shared.sqlite", k)) for k in (0, 20, 40)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    with Database(tmp_path / "shared.sqlite") as database:
        assert sorted(int(key) for key in database.statuses()) == list(range(80))


def test_a_database_of_another_version_is_refused_and_can_be_exported(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with Database(path) as database:
        database.add(row())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '7' WHERE name = 'schema_version'")
        connection.execute("ALTER TABLE runs ADD COLUMN colour TEXT DEFAULT 'red'")
    connection.close()
    with pytest.raises(DatabaseError, match=r"is a database of version 7; this PEAR reads version 1\. .*--export"):
        open_folder(tmp_path)
    data = export_database(path)
    assert data["schema_version"] == "7"
    (there,) = data["tables"]["runs"]
    assert (there["key"], there["settings"], there["colour"]) == ("k", {"degree": 8}, "red")
    json.dumps(data)


def test_files_that_are_no_database_of_ours_are_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    with pytest.raises(DatabaseError, match="holds tables, but none that PEAR made"):
        Database(other)
    assert list(export_database(other)["tables"]) == ["birds"]
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to look like one" * 10, encoding="utf-8")
    with pytest.raises(DatabaseError, match="file is not a database"):
        Database(text)
    with pytest.raises(DatabaseError, match="file is not a database"):
        export_database(text)
    with pytest.raises(DatabaseError, match="there is no database at"):
        export_database(tmp_path / "missing.sqlite")


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(DatabaseError, match=r"cannot use the database .*file"):
        open_folder(tmp_path / "file")
    with pytest.raises(DatabaseError, match="cannot use the database /proc/pear"):
        open_folder(Path("/proc/pear"))

    with open_folder(tmp_path / "full") as database:
        database._connection.executescript("VACUUM; PRAGMA max_page_count = 20")
        with pytest.raises(DatabaseError, match="disk is full; name another folder with --out, or make room"):
            database.try_writing()


def test_a_read_only_database_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_folder(tmp_path).close()
    connect = sqlite3.connect

    def read_only(path: Path, **options: Any) -> sqlite3.Connection:
        # Not by chmod: tests may run as root, who writes anyway.
        return connect(f"{Path(path).as_uri()}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    with pytest.raises(DatabaseError, match=r"cannot use the database .*readonly"):
        open_folder(tmp_path)


# --- one run --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["mse", "spo+", "spo+relaxed", "pfyl", "dbb", "lava", "pear", "pear-guided"])
@pytest.mark.parametrize("make", [path_run, knapsack_run])
def test_every_method_trains_on_every_task(database: Database, make: Any, method: str) -> None:
    done = execute(make(method), database)
    assert (done.status, done.reason) == ("done", "")
    assert database.records() == [done]
    needed = {"normalized_regret", "unambiguous_regret", "mse", "validation_regret", "relaxation_gap"}
    assert needed | {"relaxation_share"} <= set(done.metrics)
    assert 0 <= done.metrics["normalized_regret"] <= done.metrics["unambiguous_regret"] + 1e-12
    assert {"total", "solve", "gradient", "validation", "rest", "epochs", "test"} == set(done.timings)
    parts = sum(done.timings[name] for name in ("solve", "gradient", "validation", "rest"))
    assert parts == pytest.approx(done.timings["total"], rel=0.05)
    assert [check[0] for check in done.history] == [1, 2]
    assert min(check[3] for check in done.history) == done.metrics["validation_regret"]
    assert done.versions["torch"] == torch.__version__
    assert done.machine
    assert done.created


def test_the_weights_are_those_that_were_tested(database: Database) -> None:
    run = path_run("pear")
    done = execute(run, database)
    task = lp.make_task(run)
    model = nn.Linear(5, task.problem.n)
    model.load_state_dict(safetensors.torch.load(database.weights(done) or b""))
    test = lp.make_split(run, task).test
    with torch.no_grad():
        assert (
            metrics.published_regret_metric(task.outcome(model(test.features), test.costs))
            == done.metrics["normalized_regret"]
        )


def test_training_again_gives_the_same_and_a_row_that_is_there_is_not_trained_again(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = execute(path_run("pear"), database)
    with open_folder(tmp_path / "again") as other:
        assert execute(path_run("pear"), other).metrics == first.metrics
    monkeypatch.setattr("pear_lab.experiments.protocols.lp_protocol.train_as_published", None)
    assert execute(path_run("pear"), database) == first


@pytest.mark.parametrize(
    ("run", "check"),
    [
        (path_run("pear", variant="direction-shift"), lambda m: set(m["shift"]) == {"forward", "cross"}),
        (knapsack_run("pear", variant="capacity-shift"), lambda m: set(m["shift"]) == {"0.3", "0.5", "0.7", "0.9"}),
        (path_run("pear", variant="stability"), lambda m: 0 <= m["active_change_rate"] < 1),
        (knapsack_run("pear", variant="stability"), lambda m: 0 <= m["active_change_rate"] < 1),
        (path_run("mse", variant="accuracy"), lambda m: m["mse"] > 0),
    ],
)
def test_measurements_use_the_trained_weights(database: Database, run: RunSpec, check: Any) -> None:
    trained = execute(run.training(), database)
    measured = execute(run, database)
    assert (measured.status, measured.reason) == ("done", "")
    assert check(measured.metrics), measured.metrics
    assert measured.weights == trained.weights
    assert measured.key != trained.key
    if "shift" in measured.metrics:
        same = measured.metrics["shift"]["forward" if run.task == "shortest_path" else "0.5"]
        assert same == trained.metrics["normalized_regret"]
    if run.variant == "accuracy":
        assert measured.metrics["mse"] == trained.metrics["mse"]


def test_the_change_rate_is_a_share_in_the_record_and_per_cent_in_the_table(database: Database) -> None:
    run = path_run("pear", variant="stability", degree=8, noise=0.0)
    execute(run.training(), database)
    rate = execute(run, database).metrics["active_change_rate"]
    assert 0.0005 < rate < 1
    text = write_report(read(database.path), database.path.parent).tables.read_text("utf-8")
    section = text.partition("## Stability of the active set")[2].partition("\n## ")[0]
    assert f"| Shortest path | ours | {100 * rate:.2f} " in section, section


def test_failures_are_records_with_a_reason(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("nothing to divide by")

    with monkeypatch.context() as patch:
        patch.setattr("pear_lab.experiments.protocols.lp_protocol.train_as_published", broken)
        done = execute(path_run(), database)
    assert done.status == "failed"
    assert done.reason.startswith("ZeroDivisionError: nothing to divide by (test_experiments.py, line ")
    measured = execute(path_run(variant="accuracy"), database)
    assert measured.status == "failed"
    assert measured.reason.startswith("the training it measures failed: ZeroDivisionError")
    runs = [path_run(), path_run(variant="accuracy")]
    assert unfinished_runs(runs, database.statuses()) == []
    run_all(unfinished_runs(runs, database.statuses(), retry_failed=True), database)
    assert set(database.statuses().values()) == {"done"}


def test_measuring_without_a_training_or_without_its_weights_fails_with_a_reason(database: Database) -> None:
    assert "has not been run" in execute(path_run(variant="accuracy"), database).reason
    done = execute(path_run(), database)
    assert database.weights(done)
    database._connection.execute("DELETE FROM weights")
    assert "the trained weights are gone" in execute(path_run(variant="accuracy"), database).reason


def test_weights_are_read_from_the_database_alone(database: Database, tmp_path: Path) -> None:
    done = execute(path_run(), database)
    outside = tmp_path / "outside"
    outside.write_bytes(database.weights(done) or b"")
    for said in (str(outside), outside.name, "", None):
        with sqlite3.connect(database.path) as connection:
            connection.execute("UPDATE runs SET weights = ?", (said,))
            connection.execute("DELETE FROM checksums")
        assert "the trained weights are gone" in execute(path_run(variant="accuracy"), database).reason


def test_weights_that_are_a_pickle_or_of_another_model_are_a_reason(database: Database) -> None:
    execute(path_run(), database)
    pickled = io.BytesIO()
    torch.save(nn.Linear(2, 2).state_dict(), pickled)
    for data in (pickled.getvalue(), safetensors.torch.save(nn.Linear(2, 2).state_dict())):
        database._connection.execute("UPDATE weights SET data = ?", (data,))
        reason = execute(path_run(variant="accuracy"), database).reason
        assert "do not belong to this model" in reason
        assert "train again into another folder (--out)" in reason


def test_an_interrupted_run_leaves_nothing(database: Database) -> None:
    def stop(now: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(path_run(), database, stop)
    assert database.records() == []
    assert database._connection.execute("SELECT count(*) FROM weights").fetchone() == (0,)


@pytest.mark.slow
def test_a_killed_run_leaves_no_half_row(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from pear_lab.experiments import *\n"
        f"run = RunSpec('x', 'shortest_path', 'pear', 0, {LONG!r})\n"
        "with open_folder(Path(sys.argv[1])) as database:\n"
        "    run_all([run], database, listen=lambda now: now.progress and print(now.progress.epoch, flush=True))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"  # it is training
        process.kill()
    with open_folder(tmp_path) as database:
        assert database.records() == []
        assert database._connection.execute("SELECT count(*) FROM weights").fetchone() == (0,)


# --- many runs ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("forked_workers")
def test_processes_do_what_one_process_does(database: Database, tmp_path: Path) -> None:
    runs = [path_run("mse"), path_run("pear"), knapsack_run("pear"), knapsack_run("pear", variant="capacity-shift")]
    failing = [path_run("pear", smoothing=-1.0), path_run(grid=[0, 0])]
    events: list[Event] = []
    run_all([*failing, *runs], database, jobs=2, listen=events.append)
    with open_folder(tmp_path / "one") as one:
        run_all([*failing, *runs], one)
        for run in (*failing, *runs):
            ours, theirs = database.get(run.key), one.get(run.key)
            assert ours is not None
            assert theirs is not None
            assert ours.status == ("failed" if run in failing else "done"), ours.reason
            assert (ours.metrics, ours.reason) == (theirs.metrics, theirs.reason)
    ended = {event.run.key: event.record for event in events if event.record is not None}
    assert ended[failing[1].key].reason.startswith("a grid needs rows and columns")
    assert len(ended) == len(runs) + len(failing)
    assert list(ended).index(runs[3].key) > list(ended).index(runs[2].key)  # a measurement waits for its training
    assert any(event.progress is not None for event in events)
    assert not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_a_run_that_kills_its_process_twice_fails_and_costs_no_other(database: Database) -> None:
    long = path_run("pear", **LONG)
    runs = [long, *(path_run(seed=seed) for seed in range(3))]
    killed: list[int] = []

    def kill(event: Event) -> None:
        # Once another run has ended both workers are up. The run goes to a new process, which is killed as well.
        if event.run is long and event.progress is not None and database.statuses():
            for process in multiprocessing.active_children():
                if process.pid not in killed:
                    process.kill()
                    killed.append(process.pid or 0)

    run_all(runs, database, jobs=2, listen=kill)
    assert len(killed) >= 3
    lost = database.get(long.key)
    assert lost is not None
    assert lost.status == "failed"
    assert lost.reason.startswith("its process died 2 times, the last time with signal 9 (SIGKILL); perhaps it ran out")
    assert len(database.records()) == len(runs)
    assert sorted(database.statuses().values()) == ["done", "done", "done", "failed"]


@pytest.mark.long  # on the command line it is test_reproduce.py's
def test_an_interruption_stops_the_workers_and_the_rest_is_done_the_next_time(database: Database) -> None:
    long = path_run("pear", **LONG)
    runs = [path_run(), long, path_run(seed=1), path_run(seed=2)]

    def stop(event: Event) -> None:
        if len(database.statuses()) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(runs, database, jobs=2, listen=stop)
    assert not multiprocessing.active_children()
    assert unfinished_runs(runs, database.statuses()) == [long]


# --- how long it takes ----------------------------------------------------------------------------------------------


def test_an_estimate_learns_from_runs_of_the_same_kind() -> None:
    full = expand(["lp-degree"], Selection(["shortest_path"], ["mse"], [2, 8], [0]))
    quick = expand(["lp-degree"], Selection(["shortest_path"], ["mse"], [8], [0], quick=True))
    estimate = Estimate([])
    guess = estimate.seconds(full[0])
    assert estimate.is_rough(full)
    estimate.add(full[0], {"total": 1.0, "test": 0.5})
    assert [estimate.seconds(run) for run in full] == [1.5, 1.5]
    estimate.add(full[1], {"total": 4.5})
    assert [estimate.seconds(run) for run in full] == [1.5, 4.5]
    assert not estimate.is_rough(full)
    assert estimate.is_rough(quick)
    capped = expand(["lp-degree"], Selection(["shortest_path"], ["mse"], [8], [0], time_cap=0.5))
    assert estimate.seconds(capped[0]) == 0.5 < guess
    assert estimate.wall_seconds(full, 1) == 6.0
    assert estimate.wall_seconds(full, 2) == 4.5
    assert estimate.wall_seconds([], 2) == 0.0


def test_a_worker_is_out_of_reach_of_ctrl_c_while_it_starts() -> None:
    # A fresh process: the first worker of a pool is the one that was not.
    code = (
        "import signal\n"
        "from pear_lab.experiments.processes import without_interrupts\n"
        "with without_interrupts():\n"
        "    from multiprocessing import resource_tracker\n"
        "    resource_tracker.ensure_running()  # as starting a process does\n"
        "    assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Make a repository with one commit of the module that reports the commit; return its folder."""
    package = tmp_path / "clone" / "pear" / "experiments"
    package.mkdir(parents=True)
    (package / "commit.py").write_text(Path(commit.__file__).read_text("utf-8"), "utf-8")
    (tmp_path / "clone" / ".gitattributes").write_text("commit.py export-subst\n", "utf-8")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path / "clone"), *words], check=True)
    return tmp_path / "clone"


def told_commit(folder: Path) -> str:
    code = "import runpy; print(runpy.run_path('pear/experiments/commit.py')['current_commit']())"
    return subprocess.run(
        [sys.executable, "-c", code.replace("pear/", f"{folder}/pear/")], capture_output=True, text=True, check=True
    ).stdout.strip()


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_told_in_a_clone_and_in_an_archive(clone: Path, tmp_path: Path) -> None:
    head = git(clone, "rev-parse", "--short", "HEAD")
    assert told_commit(clone) == head
    git(clone, "archive", "-o", str(tmp_path / "archive.tar"), "HEAD")
    shutil.unpack_archive(tmp_path / "archive.tar", tmp_path / "archive")
    assert told_commit(tmp_path / "archive") == head
    with (clone / "pear" / "experiments" / "commit.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert told_commit(clone) == head + "+"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_telling_the_commit_writes_nothing_to_the_repository(clone: Path) -> None:
    index = clone / ".git" / "index"
    os.utime(clone / "pear" / "experiments" / "commit.py", (1e9, 1e9))  # git would note the new time in its index
    before = index.read_bytes()
    assert told_commit(clone)
    assert index.read_bytes() == before


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_package_installed_within_another_repository_tells_no_commit(clone: Path) -> None:
    shutil.copytree(clone / "pear", clone / "site" / "pear")
    assert told_commit(clone / "site") == "None"
