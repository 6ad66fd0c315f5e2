"""The page of the comparison agrees with the database, in its numbers and in its sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from scripts import import_script

from pear_lab.experiments import FILE_NAME, Database, DatabaseError, RunRecord
from pear_lab.field import left_out
from pear_lab.field.field_methods import field_methods
from pear_lab.field.field_page import field_page
from pear_lab.field.field_ranks import FieldRanks
from pear_lab.field.field_runs import FieldSelection, field_run_settings
from pear_lab.field.field_tasks import field_tasks
from pear_lab.field.field_words import field_summary_words
from pear_lab.field.task_results import read_task_results
from pear_lab.tasks.public import PUBLIC_TASKS

ROOT = Path(__file__).resolve().parents[3]
TASKS = [task.name for task in PUBLIC_TASKS[:3]]
GOOD = {"mse": 0.20, "spo+": 0.12, "pear-guided": 0.08, "pear-default": 0.09}


def record(task: str, method: str, seed: int, regret: float | None, reason: str = "", **settings: object) -> RunRecord:
    said = field_run_settings(field_methods()[method], FieldSelection()) | settings
    key = f"{task} {method} {seed} {settings}"
    if regret is None:
        return RunRecord(key, "field", task, method, seed, said, "failed", reason)
    metrics = {"regret": regret, "start_regret": 0.2, "validation_regret": regret, "chosen": said["tries"][0]}
    history = [[0, 0.0, None, 0.2], [1, 0.5, 1.0, regret + 0.01], [5, 1.5, 0.9, regret]]
    return RunRecord(
        key, "field", task, method, seed, said, "done", metrics=metrics, timings={"total": 3.0, "test": 0.1},
        history=history, created=f"2026-11-18T00:00:0{seed}",
    )  # fmt: skip


def records(regrets: Mapping[str, float] = GOOD, tasks: Sequence[str] = TASKS) -> list[RunRecord]:
    return [
        record(task, name, seed, regret * (1 + 0.01 * (seed + place % 2)))
        for task in tasks
        for seed in range(3)
        for place, (name, regret) in enumerate(regrets.items())
    ]


def written(folder: Path, rows: Sequence[RunRecord]) -> Path:
    with Database(folder / FILE_NAME) as database:
        for row in rows:
            database.add(row)
    return folder / FILE_NAME


def test_the_page_has_every_part(tmp_path: Path) -> None:
    rows = [*records(), *(record(TASKS[0], "lava", seed, None, "does not apply: no vertices") for seed in range(3))]
    text = field_page(written(tmp_path, rows), tmp_path / "ranks.svg")
    assert (tmp_path / "ranks.svg").is_file()
    for task in PUBLIC_TASKS[:3]:
        assert f"## {task.title}" in text
    assert "3 tasks, 5 rows of methods, 3 seeds a task: 36 finished runs" in text
    assert "| LAVA | does not apply: no vertices |" in text
    assert "| PEAR, five tries | **8.08 ± 0.05** | – | 3.00 |" in text
    assert "+4.16 (+4.12 to +4.20)" in text
    assert "python lab/studies/field_page.py" in text
    for setting in ("mse weight 0 (9)", "mse weight 0.01 (0)", "learning rate 0.001 (9)"):
        assert setting in text


def test_what_is_left_out_is_named_with_its_reason(tmp_path: Path) -> None:
    text = field_page(written(tmp_path, records()))
    left = text[text.index("## What is left out") :]
    for task in PUBLIC_TASKS[3:]:
        assert f"| {task.title} | " in left
    assert f"| {PUBLIC_TASKS[0].title} | " not in left
    assert "| Newsvendor | most methods need a linear objective" in left
    assert "| LAVA | it does not apply to three" in left
    assert (
        f"--seeds 0-2 \\\n    --tasks {','.join(TASKS)} \\\n    --methods mse,spo+,pear-guided,pear-default\n" in text
    )
    assert set(left_out.TASKS) <= set(field_tasks())
    assert set(left_out.METHODS) <= set(field_methods())


def test_the_budget_counts_all_runs(tmp_path: Path) -> None:
    assert "Training took 108 s of processor time in 36 runs, 3.00 s a run." in field_page(written(tmp_path, records()))


def test_the_sentences_follow_the_numbers() -> None:
    def said(regrets: Mapping[str, float]) -> str:
        found = read_task_results(records(regrets))
        return " ".join(field_summary_words(found, FieldRanks.of(found)))

    ours, theirs = said(GOOD), said(GOOD | {"spo+": 0.05})
    assert "PEAR, five tries: the lowest mean regret on 3 of 3 tasks" in ours
    assert "The best mean rank over 3 tasks has SPO+" in theirs
    assert "PEAR, untouched defaults: the lowest mean regret on 0 of 3 tasks" in theirs
    assert "clearly more regret than the best on 3" in theirs


def test_a_default_behind_the_critical_difference_is_said_to_be() -> None:
    tasks = [task.name for task in PUBLIC_TASKS]
    regrets = {"mse": 0.2, "spo+": 0.05, "pfyl": 0.06, "dbb": 0.07, "pear": 0.08, "pear-default": 0.3}
    found = read_task_results(records(regrets, tasks))
    assert "It is **not** among the best" in " ".join(field_summary_words(found, FieldRanks.of(found)))


def test_seeds_that_are_not_complete_and_quick_runs_are_left_out() -> None:
    rows = records(tasks=TASKS[:1])
    rows += [record(TASKS[0], "mse", 7, 0.001), record(TASKS[0], "spo+", 8, 0.001, quick=True)]
    (one,) = read_task_results(rows)
    assert one.seeds == (0, 1, 2)
    assert one.incomplete == 1
    assert one.best == "pear-guided"


def test_a_method_that_never_ends_is_named_and_costs_nobody_a_seed() -> None:
    rows = [row for row in records() if (row.task, row.method) != (TASKS[0], "spo+")]
    one, *others = read_task_results(rows)
    assert one.seeds == others[0].seeds == (0, 1, 2)
    assert one.failed["spo+"] == dict.fromkeys((0, 1, 2), "its run has not ended")
    assert "spo+" not in one.methods
    assert FieldRanks.of([one, *others]).tasks_left_out == ()


def test_a_failed_seed_leaves_a_method_out_of_the_ranks() -> None:
    rows = [row for row in records() if (row.task, row.method, row.seed) != (TASKS[0], "mse", 1)]
    rows.append(record(TASKS[0], "mse", 1, None, "the loss is nan"))
    found = read_task_results(rows)
    assert "mse" not in found[0].methods
    assert FieldRanks.of(found).methods_left_out == ("mse",)


def test_the_time_to_come_near_is_read_from_the_checks() -> None:
    (one,) = read_task_results(records({"mse": 0.2, "spo+": 0.1, "pear": 0.105}, TASKS[:1]))
    assert one.seconds_to_near_best() == {"mse": [None] * 3, "spo+": [0.5] * 3, "pear": [1.5] * 3}


def test_a_database_without_the_comparison_is_refused(tmp_path: Path) -> None:
    other = RunRecord("k", "lp-degree", "knapsack", "mse", 0, {"degree": 8}, "done")
    with pytest.raises(DatabaseError, match="run pear reproduce field"):
        field_page(written(tmp_path, [other]))


def test_the_page_of_the_documents_is_that_of_its_database() -> None:
    study = import_script(ROOT / "lab" / "studies" / "field_page.py", "study_page")
    assert study.PAGE.read_text("utf-8") == study.text(), "run python lab/studies/field_page.py"
