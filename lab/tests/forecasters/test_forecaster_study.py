"""The study of forecasters: its command on every task, its file of results, and its tables."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from real_data import real_data
from scripts import import_script

from pear.errors import DataError, ProblemError
from pear_lab.forecasters import study_runs
from pear_lab.forecasters.case_table import CASES, FAMILIES, find_table_cases, make_table_case
from pear_lab.forecasters.forecaster_table import FORECASTERS, ForecasterTrainingSet, find_table_forecasters
from pear_lab.forecasters.run_study import run_study
from pear_lab.forecasters.study_case import StudyCase
from pear_lab.forecasters.study_runs import (
    StudyRunKey,
    StudyRunResult,
    expand_study_runs,
    judge_study_run,
    read_study_runs,
)
from pear_lab.forecasters.study_tables import best_study_rival, collect_study_losses, study_tables_markdown

FILES = {
    "pjm": "battery",
    "irish-battery": "energy",
    "irish-knapsack": "energy",
    "energy": "energy",
    "building": "building",
    "portfolio": "sp100",
}
"""The data that families need; the others draw their own."""

SCRIPT = Path(__file__).parents[2] / "studies" / "forecasters_study.py"

SMALL = "ridge,mse-linear,pear-linear,pear-on-ridge"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    return import_script(SCRIPT)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_runs(study: ModuleType, family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if family in FILES:
        real_data(FILES[family])
    out = tmp_path / "runs.jsonl"
    assert study.main([family, "--quick", "--out", str(out), "--forecasters", SMALL]) == 0
    results = read_study_runs(out)
    names = find_table_cases([family], quick=True)
    assert {key[:3] for key in results} == {(case, 0, name) for case in names for name in SMALL.split(",")}
    for one in results.values():
        assert not one.failed
        assert min(one.regret) >= -1e-6 * max(map(abs, one.best))
    text = (tmp_path / "runs.md").read_text("utf-8")
    assert text == capsys.readouterr().out.removesuffix("\n")
    assert all(CASES[name].title in text for name in names)


def test_what_is_missing_is_said_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAR_DATA", str(tmp_path))
    make_table_case.cache_clear()
    said: list[str] = []
    out = tmp_path / "runs.jsonl"
    run_study(expand_study_runs(["pjm-time"], ["mean", "ridge"], None, quick=True), out, say=said.append)
    assert len(said) == 1
    assert "Battery on PJM days, the last fifth is left out: found none of" in said[0]
    assert read_study_runs(out) == {}


def test_a_package_that_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pear_lab.forecasters.forecaster_table.find_spec", lambda name: None)
    said: list[str] = []
    run_study(
        expand_study_runs(["paper-paths-2-0"], ["lightgbm"], None, quick=True), tmp_path / "runs.jsonl", say=said.append
    )
    assert said == ["LightGBM is left out: lightgbm is not installed"]
    assert "trees" in find_table_forecasters([])
    assert "pear-on-trees" in find_table_forecasters([])


def test_a_stopped_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "runs.jsonl"
    runs = expand_study_runs(["paper-paths-2-0"], ["mean", "ridge"], 2, quick=True)
    run_study(runs[:3], out)
    whole = out.read_text()
    out.write_text(whole + whole[: len(whole) // 5])  # cut off within a line
    done: list[StudyRunKey] = []
    monkeypatch.setattr(study_runs, "judge_study_run", lambda *given: done.append(given) or judge_study_run(*given))
    run_study(runs, out)
    assert len(done) == 1
    assert set(read_study_runs(out)) == set(runs)
    assert out.read_text().startswith(whole)
    run_study(runs, out, again=True)
    assert len(done) == 1 + len(runs)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_runs_in_processes_are_the_same(tmp_path: Path) -> None:
    runs = expand_study_runs(["paper-paths-2-0"], ["mean", "ridge", "mse-linear"], 1, quick=True)
    for name, jobs in (("one", 1), ("two", 2)):
        run_study(runs, tmp_path / name, jobs)
    one, two = (read_study_runs(tmp_path / name) for name in ("one", "two"))
    assert {key: (run.regret, run.best) for key, run in one.items()} == {
        key: (run.regret, run.best) for key, run in two.items()
    }


def test_a_line_that_is_no_result_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps({"key": {}}) + "\n")
    with pytest.raises(DataError, match="line 1 is no result"):
        read_study_runs(file)


def test_a_training_that_fails_is_a_result_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: ForecasterTrainingSet) -> None:
        raise ValueError("no such luck")

    broken = FORECASTERS["ridge"].__class__("ridge", fail)  # type: ignore[arg-type]
    monkeypatch.setitem(FORECASTERS, "ridge", broken)
    out = tmp_path / "runs.jsonl"
    runs = expand_study_runs(["paper-paths-2-0"], ["mean", "ridge"], 1, quick=True)
    run_study(runs, out)
    text = study_tables_markdown(read_study_runs(out), quick=True)
    assert "paper-paths-2-0, ridge, split 0, seed 0" in text
    assert "no such luck" in text
    monkeypatch.undo()
    run_study(runs, out)  # what failed is tried again
    assert not read_study_runs(out)[runs[1]].failed


def results_of(losses: dict[str, list[list[float]]], case: str) -> dict[StudyRunKey, StudyRunResult]:
    """Return a result for every forecaster and seed, on one split."""
    found = {}
    for name, seeds in losses.items():
        for seed, regret in enumerate(seeds):
            key = StudyRunKey(case, 0, name, seed, False)
            found[key] = StudyRunResult(key, regret, [-10.0] * len(regret), 1.0, 2.0)
    return found


def test_tables_compare_with_the_best_rival() -> None:
    random = np.random.default_rng(0)
    base = random.uniform(1, 2, 100)
    results = results_of(
        {
            "mean": [(base + 3).tolist()],
            "ridge": [base.tolist()],
            "pear-linear": [(base - 0.5 + noise).tolist() for noise in (-0.1, 0.1)],
        },
        "pjm-time",
    )
    losses = collect_study_losses(results, "pjm-time", quick=False)
    assert best_study_rival(losses) == "ridge"
    assert len(losses["ridge"].regret) == 2
    assert losses["pear-linear"].value == pytest.approx(-10 + base.mean() - 0.5)
    text = study_tables_markdown(results, quick=False)
    assert "| **PEAR, linear** |" in text
    assert "**−0.5 (−0.5 to −0.5)**" in text
    assert "| mean of the training rows |" in text
    assert "**3 (3 to 3)**" in text
    assert "100 test days, 2 seeds; the best value is -10" in text
    assert "**PEAR, linear**: better than the best rival in 1 of 1 cases and worse in 0" in text


def test_a_forecaster_without_all_splits_is_in_no_table() -> None:
    results = results_of({"mean": [[1.0, 2.0]], "ridge": [[1.0, 1.0]]}, "pjm-folds")
    assert collect_study_losses(results, "pjm-folds", quick=False) == {}  # one of five splits


def test_shares_of_the_best_value_are_in_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEAR_DATA", raising=False)  # without published columns
    case = "spo-100-8-0.5"
    results = results_of({"ridge": [[2.0, 4.0], [3.0, 3.0]], "pear-linear": [[1.0, 2.0], [2.0, 1.0]]}, case)
    text = study_tables_markdown(results, quick=False)
    assert "| n = 100, degree 8, noise 0.5 | 30.00 | 15.00 | **−15.0 (" in text


def test_names_are_checked() -> None:
    with pytest.raises(ProblemError, match="did you mean energy"):
        find_table_cases(["enery"])
    with pytest.raises(ProblemError, match="did you mean ridge"):
        find_table_forecasters(["rigde"])


def test_samples_held_out_stop_the_training_and_train_the_others() -> None:
    X, y = np.arange(12.0)[:, None], np.arange(12.0)
    data = ForecasterTrainingSet(None, X, y, groups=np.repeat(np.arange(4), 3), held_out=1)  # type: ignore[arg-type]
    train, held_out = data.parts()
    assert train["y"].tolist() == list(range(9))
    assert held_out is not None
    assert held_out["groups"].tolist() == [3, 3, 3]
    assert FORECASTERS["mean"].train(data).predict(X[:6]).tolist() == [[4.5, 5.5, 6.5]] * 2


def test_a_table_with_a_row_for_each_value_is_the_same_problem() -> None:
    wide = make_table_case("synthetic-battery", 0, True)
    own = np.stack([wide.X[:, 24 * i : 24 * (i + 1)] for i in range(4)], axis=2)  # four features of each hour
    long = StudyCase(wide.problem, own, wide.C, wide.splits)
    found, _ = judge_study_run(long, long.splits[0], "mean", 0, True)
    assert np.array_equal(found.regret[0], judge_study_run(wide, wide.splits[0], "mean", 0, True)[0].regret[0])
    ridge, _ = judge_study_run(long, long.splits[0], "ridge", 0, True)
    assert ridge.forecasts["ridge"].shape == (len(long.splits[0].test), 24)
    assert ridge.regret[0].mean() < found.regret[0].mean() * 1.2
