"""The runs of the comparison: equal start, budget and selection for all methods, and records of failures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from typer.testing import Result

import pear
from pear.tasks import shortest_path
from pear_lab.experiments import Database, ExperimentError, attempt
from pear_lab.experiments.database import FILE_NAME
from pear_lab.field import field_tasks
from pear_lab.field.field_methods import LEARNING_RATES, field_methods
from pear_lab.field.field_protocol import NOT_APPLICABLE
from pear_lab.field.field_runs import FieldSelection, expand_field_runs
from pear_lab.field.prepared_task import PreparedTaskJudge, prepare_task
from pear_lab.tasks.public import Drawing, PublicTask

SMALL = (60, 30, 30)


def reproduce(*arguments: object) -> Result:
    return command_line.run("reproduce", "field", *arguments)


def rows(folder: Path) -> list[Any]:
    with Database(folder / FILE_NAME) as database:
        return database.records()


def test_every_method_has_five_tries_and_the_untouched_default_has_one() -> None:
    found = field_methods()
    assert {name for name, row in found.items() if len(row.tries) != 5} == {
        "pear-default", "pear-fit", "spo+-fit", "pfyl-fit",
    }  # fmt: skip
    assert (found["spo+-fit"].loss, found["spo+-fit"].title) == ("spo+", "SPO+ by pear.fit")
    assert found["mse"].tries == LEARNING_RATES
    for row in found.values():
        assert len({str(one) for one in row.tries}) == len(row.tries)


def test_the_start_is_the_ridge_regression_of_the_library() -> None:
    from pear.train.output_layer import fit_output_layer

    prepared = prepare_task("quick-paths", 3, SMALL)
    other = torch.nn.Linear(5, 12)
    fit_output_layer(other, *prepared.split.train)
    for seed in (0, 1):
        torch.testing.assert_close(prepared.model(seed).state_dict(), dict(other.state_dict()))
    fresh = prepared.model(0, start=False).state_dict()
    assert not torch.equal(fresh["weight"], prepared.model(1, start=False).state_dict()["weight"])


def test_a_quick_comparison_is_run_once_and_goes_on(terminal: None, tmp_path: Path) -> None:
    some = ("--quick", "--tasks", "quick-paths", "--methods", "mse,spo+,pear-default,spo+-fit", "--jobs", "1")
    first = reproduce(*some, "--seeds", "0", "--out", tmp_path)
    assert first.exit_code == 0, first.output
    assert "4 of 4 runs to do" in first.output
    more = reproduce(*some, "--seeds", "0-1", "--out", tmp_path)
    assert "4 of 8 runs to do" in more.output, more.output
    found = {(row.method, row.seed): row for row in rows(tmp_path)}
    assert len(found) == 8
    assert {row.status for row in found.values()} == {"done"}
    starts = {seed: {row.metrics["start_regret"] for row in found.values() if row.seed == seed} for seed in (0, 1)}
    assert [len(values) for values in starts.values()] == [1, 1]
    spo = found["spo+", 0].metrics
    assert [one["setting"] for one in spo["tries"]] == [dict(one) for one in field_methods()["spo+"].tries]
    best = min(spo["tries"], key=lambda one: one["validation"])
    assert spo["chosen"] == best["setting"]
    assert found["spo+", 0].history[0][:2] == [0, 0.0]
    assert spo["validation_regret"] == min(check[3] for check in found["spo+", 0].history)


def test_a_method_that_does_not_apply_says_why(terminal: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = shortest_path((3, 3))
    curved = pear.Problem(Q=torch.eye(12), A=task.problem.A, b=task.problem.b, lb=0.0)

    def draw(seed: int) -> Drawing:
        return Drawing(curved, task.split(task.samples(40, seed=seed)))

    row = PublicTask("curved", "Curved", "nobody", "", draw, measure="mean", unsuited={"lava": "it takes too long"})
    monkeypatch.setattr(field_tasks, "QUICK_TASKS", (row,))
    options = ("--tasks", "curved", "--methods", "mse,spo+,lava", "--seeds", "0", "--quick", "--jobs", "1")
    result = reproduce(*options, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "2 runs are of methods that do not apply" in result.output
    reasons = {one.method: one.reason for one in rows(tmp_path)}
    assert reasons["mse"] == ""
    assert reasons["lava"] == f"{NOT_APPLICABLE}it takes too long"
    assert reasons["spo+"].startswith(f"{NOT_APPLICABLE}SPOPlusLoss is made for linear objectives")


def test_the_measure_is_the_mean_or_the_share() -> None:
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    true, predicted = torch.tensor([[1.0, 3.0], [2.0, 4.0]]), torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    assert PreparedTaskJudge(problem, true, None, "mean")(predicted) == pytest.approx(1.0)
    assert PreparedTaskJudge(problem, true, None, "normalized")(predicted) == pytest.approx(2.0 / 3.0)


def test_samples_of_a_problem_with_fields_per_sample_keep_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    x, c = torch.rand(12, 2, generator=generator), torch.rand(12, 3, generator=generator)
    allowed = torch.ones(12, 3)
    allowed[torch.arange(12), c.argmin(1)] = 0.0
    problem = pear.Problem(A=torch.ones(1, 3), b=torch.ones(1), lb=0.0, ub=allowed)
    task = shortest_path((2, 2))
    row = PublicTask(
        "rows", "Rows", "nobody", "", lambda seed: Drawing(problem, task.split(pear.tasks.Samples(x, c), (6, 3, 3)))
    )
    monkeypatch.setattr(field_tasks, "QUICK_TASKS", (row,))
    prepared = prepare_task("rows", 0, (5, 2, 2))
    assert prepared.keys is not None
    assert [keys.tolist() for keys in prepared.keys] == [[0, 1, 2, 3, 4], [6, 7], [9, 10]]
    second = c.double().sort(1).values[6:8, 1]
    assert prepared.validation._outcomes(c[6:8]).best.tolist() == pytest.approx(second.tolist())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tasks", "roads"), "there is no task 'roads'"),
        (("--methods", "peer", "--quick"), "there is no method 'peer'"),
        (("--time-cap", "-1"), "the time cap must be a positive number"),
        (("--degrees", "8"), "field is run alone"),
        (("lp-degree",), "field is run alone"),
    ],
)
def test_wrong_options_say_what_there_is(terminal: None, arguments: tuple[str, ...], message: str) -> None:
    result = reproduce(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_training_that_fails_in_all_tries_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from pear_lab.field import field_protocol

    (run,) = expand_field_runs(FieldSelection(["quick-paths"], ["spo+"], [0], quick=True))

    def fail(*given: Any, **named: Any) -> None:
        raise pear.errors.TrainingError("the loss is nan")

    monkeypatch.setattr(field_protocol, "warm_up_field_protocol", lambda run, prepared: None)
    monkeypatch.setattr(field_protocol, "fit", fail)
    record = attempt(run).record
    assert (record.status, record.reason) == ("failed", "all 5 tries failed: the loss is nan")
    with pytest.raises(ExperimentError, match="seeds must be whole numbers"):
        FieldSelection(seeds=[-1])


def test_a_method_whose_step_takes_too_long_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from pear.losses import SPOPlusLoss
    from pear_lab.field import field_protocol

    (run,) = expand_field_runs(FieldSelection(["quick-paths"], ["spo+"], [0], quick=True))
    values = SPOPlusLoss.values

    def work(self: Any, *given: Any) -> Any:
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        return values(self, *given)

    monkeypatch.setattr(SPOPlusLoss, "values", work)
    monkeypatch.setattr(field_protocol, "STEP_SHARE", 0.2)
    record = attempt(run).record
    assert (record.status, record.reason) == ("failed", "a step on 4 samples takes more than 0.1 s")
    monkeypatch.setattr(field_protocol, "STEP_SHARE", 10.0)
    monkeypatch.setattr(field_protocol, "HARD_SHARE", 1.0)
    assert attempt(run).record.reason.startswith("all 5 tries failed: a training takes more than 0.1 s")
