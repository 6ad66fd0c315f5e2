"""Comparisons: their runs, the merge of databases from several machines, and their report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from scipy import stats
from typer.testing import CliRunner

from pear.cli.app import app
from pear.errors import ProblemError
from pear.losses.methods import method
from pear.pages.page import RankedText
from pear_lab.experiments import (
    COMPARISONS,
    FILE_NAME,
    Database,
    DatabaseError,
    RunRecord,
    RunSpec,
    Selection,
    expand,
    merge_databases,
)
from pear_lab.report import read, write_report
from pear_lab.report.bootstrap import t_interval
from pear_lab.report.paired_comparison import comparison_lines, comparison_section, slower_method_lines
from pear_lab.report.paper_tables import time_cap_section

SEEDS = (30, 31, 32, 33)
REGRETS = {
    "mse": (0.150, 0.140, 0.160, 0.150),
    "spo+": (0.050, 0.041, 0.060, 0.049),
    "pear": (0.042, 0.040, 0.050, 0.040),
    "pear-guided": (0.040, 0.039, 0.044, 0.041),
}


def record(run: RunSpec, regret: float, status: str = "done") -> RunRecord:
    metrics = {"normalized_regret": regret} if status == "done" else {}
    return RunRecord(run.key, run.experiment, run.task, run.method, run.seed, run.settings, status, metrics=metrics)


def path_records(seeds: Sequence[int] = SEEDS) -> list[RunRecord]:
    runs = expand(["comparison"], Selection(["shortest_path"], degrees=[8], seeds=seeds))
    return [record(run, REGRETS[run.method][SEEDS.index(run.seed)]) for run in runs if run.settings["noise"] == 0.0]


def database(folder: Path, records: Sequence[RunRecord]) -> Path:
    with Database(folder / FILE_NAME) as opened:
        for one in records:
            opened.add(one)
    return folder / FILE_NAME


# --- what is run ----------------------------------------------------------------------------------------------------


def test_a_comparison_trains_the_cells_of_its_experiments_by_four_methods() -> None:
    runs = expand(["comparison"], Selection())
    assert len(runs) == COMPARISONS["comparison"].count == 2 * 4 * (4 + 3) * 20
    assert [run.seed for run in runs[:: 2 * 4 * 7]] == list(range(30, 50))  # stopped early, it has whole seeds
    assert {run.method for run in runs if run.task == "knapsack"} == {"mse", "spo+relaxed", "pear", "pear-guided"}
    assert {run.method for run in runs if run.task == "shortest_path"} == {"mse", "spo+", "pear", "pear-guided"}
    cells = {(run.settings["degree"], run.settings["noise"]) for run in runs}
    assert cells == {(2, 0.0), (4, 0.0), (6, 0.0), (8, 0.0), (8, 0.1), (8, 0.3), (8, 0.5)}
    real = expand(["comparison-real"], Selection())
    assert len(real) == COMPARISONS["comparison-real"].count == 4 * (3 + 5) * 20
    assert {run.experiment for run in (*runs, *real)} == set(COMPARISONS)


def test_the_methods_of_the_paper_are_trained_as_in_its_tables() -> None:
    selection = Selection(methods=["mse", "spo+", "pear"], seeds=[30])
    shared = {run.key for run in expand(["lp-degree", "lp-noise"], selection)}
    assert {run.key for run in expand(["comparison"], selection)} <= shared
    tables = {run.key for run in expand(["energy", "building"], selection)}
    real = expand(["comparison-real"], selection)
    assert {run.settings.get("start") for run in real if run.method != "mse"} == {"mse"}
    plain = [{name: value for name, value in run.settings.items() if name != "start"} for run in real]
    same = {dataclasses.replace(run, settings=settings).key for run, settings in zip(real, plain, strict=True)}
    assert same == tables  # but for the start


def test_every_method_on_real_data_begins_from_the_squared_error() -> None:
    methods = ["mse", "spo+", "pfyl", "dbb", "lava", "pear", "pear-guided"]
    runs = expand(["comparison-real"], Selection(methods=methods, seeds=[30]))
    assert {(run.method, run.settings.get("start")) for run in runs} == {
        (name, None if name == "mse" else "mse") for name in methods
    }


def test_runs_with_the_common_start_take_the_place_of_others(tmp_path: Path) -> None:
    runs = expand(["comparison-real"], Selection(["building"], seeds=[30, 31]))
    common = [record(run, 0.02) for run in runs]
    former = [
        record(dataclasses.replace(run, settings={k: v for k, v in run.settings.items() if k != "start"}), 0.03)
        for run in expand(["building"], Selection(methods=["spo+", "pear"], seeds=range(30, 36)))
    ]
    section = comparison_section(read(database(tmp_path / "both", [*former, *common])))
    assert section is not None
    assert [cell.text for cell in section.grids[0].rows[0][1:5]] == ["2.000"] * 4
    assert "Every method but MSE begins from weights" in section.grids[0].caption
    ours = [one for one in common if one.method in ("mse", "pear-guided")]
    section = comparison_section(read(database(tmp_path / "former", [*former, *ours])))
    assert section is not None
    assert [cell.text for cell in section.grids[0].rows[0][1:5]] == ["2.000", "3.000", "3.000", "2.000"]
    assert "squared error: PEAR, our defaults alone." in section.grids[0].caption


def test_a_guided_run_writes_down_the_defaults_that_it_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    selection = Selection(["knapsack", "energy"], ["pear-guided"], degrees=[2], seeds=[30])
    runs = expand(["comparison", "comparison-real"], selection)
    assert {run.task for run in runs} == {"knapsack", "energy"}
    for run in runs:
        assert run.settings["options"] == method("pear-guided").defaults
        assert set(run.settings["options"]) == {"smoothing", "injection", "guidance"}
        assert "tuned" not in run.settings
    assert method("pear").defaults == {}


def test_a_selection_narrows_a_comparison() -> None:
    runs = expand(["comparison"], Selection(["knapsack"], ["spo+", "pear"], degrees=[4], seeds=[7]))
    assert [str(run) for run in runs] == ["knapsack, pear, degree 4, seed 7", "knapsack, spo+, degree 4, seed 7"]
    quick = expand(["comparison"], Selection(["knapsack"], quick=True))
    assert {run.seed for run in quick} == {0, 1}
    assert all(run.settings["quick"] for run in quick)


def test_slower_methods_are_compared_on_the_seeds_that_they_have(tmp_path: Path) -> None:
    slow = expand(["comparison"], Selection(["shortest_path"], ["lava"], degrees=[8], seeds=SEEDS[:2]))
    lava = [record(run, 0.048) for run in slow if run.settings["noise"] == 0.0]
    runs = read(database(tmp_path, [*path_records(), *lava]))
    (line,) = slower_method_lines(runs)["shortest_path"]
    assert set(line.values) == {"lava", "pear-guided"}
    difference = line.difference("pear-guided", "lava")
    assert (difference.wins, difference.seeds) == (2, 2)
    assert difference.points.estimate == pytest.approx(100 * (0.0395 - 0.048))
    section = comparison_section(runs)
    assert section is not None
    assert [grid.title for grid in section.grids] == ["Shortest path", "Shortest path, slower methods"]
    assert section.grids[1].rows[0][:4] == ("degree 8", "LAVA", "4.800", "3.950")


def test_a_shorter_time_cap_is_named(tmp_path: Path) -> None:
    chosen = {"degrees": [8], "seeds": [30, 31]}
    ours = expand(["comparison"], Selection(["knapsack"], **chosen))
    slower = expand(["comparison"], Selection(["knapsack"], ["pfyl"], time_cap=60.0, **chosen))
    section = comparison_section(read(database(tmp_path, [record(run, 0.01 * run.seed) for run in (*ours, *slower)])))
    assert section is not None
    assert {row[1] for row in section.grids[1].rows} == {"PFYL, 60 s"}


# --- databases of several machines ----------------------------------------------------------------------------------


def test_databases_merge_and_what_is_done_wins(tmp_path: Path) -> None:
    first, second = path_records(SEEDS[:2]), path_records(SEEDS[2:])
    failed = dataclasses.replace(second[0], status="failed", metrics={}, reason="no luck")
    sources = [database(tmp_path / "a", [*first, failed]), database(tmp_path / "b", second)]
    with Database(tmp_path / "all" / FILE_NAME) as target:
        assert merge_databases(sources, target) == len(first) + 1 + len(second)
        assert merge_databases(sources, target) == 0
        assert {one.key: one for one in target.records()} == {one.key: one for one in (*first, *second)}
        with pytest.raises(DatabaseError, match="there is no database of runs at"):
            merge_databases([tmp_path / "none.sqlite"], target)


def test_the_command_merges(tmp_path: Path) -> None:
    folders = [database(tmp_path / str(seed), path_records([seed])).parent for seed in SEEDS[:2]]
    given = [text for folder in folders for text in ("--merge", str(folder))]
    result = CliRunner().invoke(app, ["reproduce", *given, "--out", str(tmp_path / "all")])
    assert result.exit_code == 0, result.output
    assert "Copied 8 runs to" in result.output
    assert len(read(tmp_path / "all" / FILE_NAME).done) == 8


# --- the report -----------------------------------------------------------------------------------------------------


def test_students_interval_is_scipys() -> None:
    differences = [a - b for a, b in zip(REGRETS["pear-guided"], REGRETS["pear"], strict=True)]
    expected = stats.ttest_rel(REGRETS["pear-guided"], REGRETS["pear"]).confidence_interval(0.95)
    found = t_interval(differences)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert t_interval([0.5, 0.5]) == (0.5, 0.5, 0.5)
    with pytest.raises(ProblemError, match="at least 2 paired differences; got 1"):
        t_interval([1.0])


def test_means_differences_and_wins_are_of_the_seeds_that_all_have(tmp_path: Path) -> None:
    records = path_records()
    (extra,) = expand(["comparison"], Selection(["shortest_path"], ["mse"], degrees=[6], seeds=[30]))
    (lonely,) = (
        run
        for run in expand(["comparison"], Selection(["shortest_path"], ["mse"], degrees=[8], seeds=[99]))
        if run.settings["noise"] == 0.0
    )
    path = database(tmp_path, [*records, record(extra, 0.9), record(lonely, 0.9)])
    ((task, (line,)),) = comparison_lines(read(path)).items()
    assert (task, line.label, line.best_other) == ("shortest_path", "degree 8", "pear")
    assert line.means == pytest.approx({"mse": 15.0, "spo+": 5.0, "pear": 4.3, "pear-guided": 4.1})
    found = line.difference("pear-guided", "pear")
    assert (found.wins, found.seeds) == (3, 4)
    low, high = stats.ttest_rel(REGRETS["pear-guided"], REGRETS["pear"]).confidence_interval(0.95)
    assert found.points == pytest.approx((-0.2, 100 * low, 100 * high))
    section = comparison_section(read(path))
    assert section is not None
    (grid,) = section.grids
    assert grid.header[1:5] == ("MSE", "SPO+", "PEAR as published", "PEAR, our defaults")
    assert grid.rows[0][:5] == (
        "degree 8",
        RankedText("15.000"),
        RankedText("5.000"),
        RankedText("4.300"),
        RankedText("4.100", 1),
    )
    assert grid.rows[0][5].text == "−0.200 (−0.668 to +0.268), 3 of 4"
    assert grid.rows[0][6].text.endswith("(PEAR as published)")


def test_instances_that_were_kept_are_resampled(tmp_path: Path) -> None:
    lost = {"mse": 1.0, "spo+": 2.0, "pear": 3.0, "pear-guided": 0.5}
    runs = expand(["comparison-real"], Selection(["building"], seeds=[30, 31]))
    kept = []
    for run in runs:
        ids = list(range(3))
        own = {"id": ids, "lost": [lost[run.method] * (1 + i) for i in ids], "best": [100.0] * 3}
        one = record(run, 0.01)
        kept.append(dataclasses.replace(one, metrics={**one.metrics, "instances": own}))
    ((task, (line,)),) = comparison_lines(read(database(tmp_path, kept))).items()
    assert (task, line.label, line.best_other) == ("building", "budget 0.4", "mse")
    assert line.means == pytest.approx({name: 2 * share for name, share in lost.items()})
    found = line.difference("pear-guided", "mse")
    assert found.points.estimate == pytest.approx(-1.0)
    assert found.points.low < -1.0 < found.points.high < 0
    assert found.mark.place == 1


def test_runs_by_former_defaults_are_left_out_and_the_defaults_are_named(tmp_path: Path) -> None:
    records = [dataclasses.replace(one, created="2026-11-16T04:00:00+00:00") for one in path_records()]
    former = [
        dataclasses.replace(
            one,
            key=f"former {one.key}",
            settings={**one.settings, "options": {"smoothing": 7.0}},
            metrics={"normalized_regret": 0.9},
            created="2026-11-16T03:00:00+00:00",
        )
        for one in records
        if one.method == "pear-guided"
    ]
    runs = read(database(tmp_path, [*former, *records]))
    ((_, (line,)),) = comparison_lines(runs).items()
    assert line.means["pear-guided"] == pytest.approx(4.1)
    section = comparison_section(runs)
    assert section is not None
    assert "smoothing='auto'" in section.grids[0].caption


def test_quick_runs_are_not_compared(tmp_path: Path) -> None:
    runs = expand(["comparison"], Selection(["shortest_path"], seeds=SEEDS, quick=True))
    path = database(tmp_path, [record(run, 0.1) for run in runs])
    assert comparison_section(read(path)) is None


def test_the_report_draws_one_picture_of_its_own(tmp_path: Path) -> None:
    path = database(tmp_path, path_records())
    page, tables, _ = write_report(read(path), tmp_path)
    picture = (tmp_path / "comparison.svg").read_text("utf-8")
    for word in ("MSE", "SPO+", "PEAR, our defaults", "PEAR as published", "degree 8", "Shortest path"):
        assert word in picture
    assert "## PEAR, our defaults, beside the others" in tables.read_text("utf-8")
    assert "Shortest path: regret relative to PEAR as published" in page.read_text("utf-8")


def test_a_longer_cap_stands_beside_a_shorter_one_on_the_seeds_of_both(tmp_path: Path) -> None:
    records = []
    for cap, seeds, regret, seconds in ((60.0, (0, 1, 2), 0.006, 61.0), (600.0, (1, 2), 0.005, 600.5)):
        for run in expand(["lp-degree"], Selection(["knapsack"], ["spo+"], [8], seeds, time_cap=cap)):
            timings = {"total": seconds if run.seed == 2 else 30.0, "epochs": cap / 10}
            records.append(dataclasses.replace(record(run, regret + 0.001 * run.seed), timings=timings))
    section = time_cap_section(read(database(tmp_path, records)))
    assert section is not None
    (grid,) = section.grids
    assert grid.rows == (("SPO+, degree 8", "1, 2", "60 s", "0.750", "0.650", "60", "1"),)
    assert time_cap_section(read(database(tmp_path / "one", records[:3]))) is None
