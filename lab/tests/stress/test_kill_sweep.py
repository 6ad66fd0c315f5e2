"""``pear stress kill``: a sweep that is killed and resumed has the results of an uninterrupted one."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from pear.cli.app import app
from pear_lab.stress import kill_sweep


@pytest.mark.long
def test_a_sweep_that_is_killed_and_resumed_is_that_of_an_undisturbed_one(terminal: None) -> None:
    result = CliRunner().invoke(app, ["stress", "kill", "--times", "2", "--seed", "3"])
    assert result.exit_code == 0, result.output
    assert "Nothing is lost, nothing is repeated, nothing is wrong." in result.output


def test_an_engine_that_does_not_exist_is_not_killed(terminal: None) -> None:
    refused = CliRunner().invoke(app, ["stress", "kill", "--engine", "steam"])
    assert refused.exit_code == 2
    assert "there is no engine 'steam'; there is local, ray or ray://HOST:PORT" in refused.output


def test_a_command_that_ends_with_an_error_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_sweep, "_COMMAND", (sys.executable, "-c", "raise SystemExit('no luck')"))
    verdict = kill_sweep.kill_and_compare(2)
    assert (verdict.wrong, verdict.lost, sum(verdict.kills.values())) == (1, 15, 0)
    assert verdict.examples[0] == "the command ended with exit code 1: no luck\n"


def test_a_command_that_stands_still_is_ended_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_sweep, "_COMMAND", (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(kill_sweep, "_LIMIT_SECONDS", 1.0)
    verdict = kill_sweep.kill_and_compare(2)
    assert (verdict.wrong, verdict.lost, sum(verdict.kills.values())) == (1, 15, 0)
    assert verdict.examples[0] == "a command did not come to its end within 1 s"
    assert verdict.examples[1] == "the command ended with exit code -9: "


def test_what_is_lost_repeated_or_wrong_is_counted_and_said(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = kill_sweep.KillCounts()
    verdict.compare({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 0}, ["a", "b", "a"])
    assert (verdict.rows, verdict.lost, verdict.repeated, verdict.wrong) == (2, 1, 1, 1)
    monkeypatch.setattr("pear_lab.stress.kill_sweep.kill_and_compare", lambda *given: verdict)
    result = CliRunner().invoke(app, ["stress", "kill", "--times", "1"])
    assert result.exit_code == 1
    assert "3 things differ. the row c is missing; the row b is 0, and undisturbed 2; " in result.output
