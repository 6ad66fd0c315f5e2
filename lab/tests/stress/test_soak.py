"""``pear stress soak``: memory, times and answers in long trainings."""

from __future__ import annotations

from collections import Counter

import pytest
from typer.testing import CliRunner

from pear.cli.app import app
from pear_lab.stress import soak


def test_a_short_soak_meets_its_goals_but_for_time(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty steps are too few for the goal of time; those of memory, statuses and answers are met."""
    some = [
        one for one in soak.STRUCTURES if one.name in ("paths", "paths, in compiled epochs", "some samples infeasible")
    ]
    monkeypatch.setattr(soak, "STRUCTURES", some)
    monkeypatch.setattr(soak, "SLOWDOWN", float("inf"))
    monkeypatch.setattr(soak, "_JUDGED", 10)
    found = soak.soak_all(120)
    assert [(one.steps, one.judged, one.wrong) for one in found] == [(40, 4, [])] * 3
    assert found[2].statuses == {"SOLVED": 560, "INFEASIBLE": 80}
    monkeypatch.setattr(soak, "soak_all", lambda *given: found)
    result = CliRunner().invoke(app, ["stress", "soak"])
    assert result.exit_code == 0, result.output
    assert "no answer is wrong" in result.stdout


def test_a_soak_says_which_goals_are_missed(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"early": 1000, "late": 1009, "first": 1.0, "last": 1.2}
    statuses = Counter({"SOLVED": 5})
    assert soak.SoakResult("a", statuses=statuses, **good).missed() == []
    bad = soak.SoakResult("b", statuses=Counter(), early=1000, late=1020, first=1.0, last=2.0, wrong=["step 3: x"])
    monkeypatch.setattr(soak, "soak_all", lambda *given: [bad])
    result = CliRunner().invoke(app, ["stress", "soak"])
    assert result.exit_code == 1
    for why in ("step 3: x", "memory grew by 2.0% (goal 1%)", "2.00 times as long", "0 samples are inaccurate"):
        assert why in result.stderr


def test_a_wrong_answer_of_a_long_training_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    training = soak.SoakTraining(soak.STRUCTURES[0], 40, 0, lambda steps: None)
    training.loss(training.model(training.X[:4]), training.C[:4]).backward()
    last = training.loss.last
    assert last is not None
    training._judge(last)
    assert training.found.wrong == []
    last._parts.exact.add_(1.0)
    training._judge(last)
    assert "the gradient is off" in training.found.wrong[0]
    last.decision.mul_(2.0)
    training._judge(last)
    assert "objective" in training.found.wrong[1]
