"""The studies of unit commitment: rules on the same days, files of results, and levels chosen on earlier folds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripts import import_script

import pear

STUDIES = Path(__file__).parents[2] / "studies"
study = import_script(STUDIES / "commitment_quantiles_study.py")
spread_study = import_script(STUDIES / "commitment_spread_study.py")
RULES = ["mean", "quantile 0.8", "quantile by size 0.8", "20 quantiles of errors, by size", "3 quantiles of errors"]


@pytest.fixture
def args(tmp_path: Path) -> argparse.Namespace:
    """Return the options of a run with two plants, three hours, two folds and six test days."""
    sizes = {"plants": 2, "hours": 3, "folds": 2, "scenarios": 3, "every": 20}
    return argparse.Namespace(seed=1, **sizes, out=tmp_path / "folds.jsonl")


def test_a_second_run_reads_all_folds_from_the_file(args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = study.run(args)
    assert [part["start"] for part in found] == [180, 240]
    with args.out.open("a") as file:
        file.write('{"start": 300, "le')  # the run was stopped while it wrote
    monkeypatch.setattr(study, "plan_fold", None)
    assert json.dumps(study.run(args)) == json.dumps(found)
    report = study.report(found)
    for rule in RULES:
        assert rule in found[0]["rules"]
    assert "\n6 days\n" in report
    assert "| quantile, level of the folds before |" in report
    assert "| 3 quantiles of errors, by size |" in report
    assert all(lost >= -1e-6 for part in found for days, _ in part["rules"].values() for lost in days)


def test_plans_are_judged_by_the_cost_of_the_whole_schedule(args: argparse.Namespace) -> None:
    model, X, Y = study.draw_commitment(args.plants, args.hours, 300, args.seed)
    _, fold, logs = next(study.folds(X, np.log(Y), args.every, (), study.FIRST_TEST, study.FOLD))
    true = logs.exp()
    plans = study.plan_fold(model, fold, true, 3)
    best = pear.solve(model, true)
    torch.testing.assert_close(plans.least, best.value)
    hours = args.hours
    means = np.exp(fold.forecasts) * np.exp(fold.errors).mean(0)
    schedule = pear.solve(model, torch.from_numpy(means)).x
    names = list(model.variables)
    sources = [[names.index(name) for name in (f"imp{t}", f"out0_{t}", f"out1_{t}")] for t in range(hours)]
    supply = schedule[:, sources].sum(2)
    missing = true[:, hours:] - supply
    cost = (model.cost(true) * schedule).sum(1) + (300 * missing.clamp(min=0) + 5 * (-missing).clamp(min=0)).sum(1)
    assert plans.rules["mean"][0] == pytest.approx((cost - best.value).tolist(), rel=1e-6, abs=1e-6)


def test_a_level_is_chosen_on_the_folds_before() -> None:
    lost: dict[str, Any] = {
        "quantile 0.8": np.array([5.0, 5.0, 1.0, 1.0, 9.0, 9.0]),
        "quantile 0.9": np.array([4.0, 4.0, 8.0, 8.0, 2.0, 2.0]),
        "quantile by size 0.8": np.zeros(6),
    }
    assert spread_study.rules_of_kind(lost, "quantile") == ["quantile 0.8", "quantile 0.9"]
    chosen = spread_study.best_before(lost, "quantile", 2, 0.8)
    assert chosen.tolist() == [5.0, 5.0, 8.0, 8.0, 9.0, 9.0]
