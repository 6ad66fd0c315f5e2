"""``pear stress cvxpy``: random CVXPY problems pass with default settings, and planted errors are caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pear.cli.app import app
from pear.errors import NotUniqueError

pytest.importorskip("cvxpy")

from pear_lab.stress import examine_cvxpy
from pear_lab.stress.cvxpy_families import CVXPY_FAMILIES, SAMPLES, draw_cvxpy_family
from pear_lab.stress.examine_cvxpy import CvxpyVerdict

pytestmark = pytest.mark.usefixtures("keep_thread_count")

CI_SEED, CI_COUNT = 7, 36


def test_the_defaults_run_on_every_problem() -> None:
    found = examine_cvxpy.examine_cvxpy_numbers(list(range(CI_COUNT)), CI_SEED)
    assert [(one.number, one.wrong) for one in found.wrong] == []
    assert found.reasons() == {}
    counts = dict(found.counts())
    assert all(counts[family]["ran"] == CI_COUNT // len(CVXPY_FAMILIES) for family in CVXPY_FAMILIES)
    assert counts["all"]["gradients"] > 0.9 * SAMPLES * CI_COUNT
    assert counts["all"]["fits"] == len(range(0, CI_COUNT, examine_cvxpy.FIT_EVERY))


def test_a_problem_does_not_depend_on_what_else_is_drawn() -> None:
    for number in range(len(CVXPY_FAMILIES)):
        one, other = draw_cvxpy_family(3, number), draw_cvxpy_family(3, number)
        assert one.family == list(CVXPY_FAMILIES)[number]
        assert np.array_equal(one.true, other.true)
        assert one.predicted.shape == (SAMPLES, sum(p.size for p in one.parameters))
        one.set_parameters(one.true[0])
        other.set_parameters(other.true[0])
        assert one.problem.solve(solver="CLARABEL") == other.problem.solve(solver="CLARABEL")


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_planted_gradient_is_caught(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = examine_cvxpy._examined_cvxpy_gradient

    def off(*call: Any) -> tuple[torch.Tensor, torch.Tensor]:
        value, gradient = exact(*call)
        return value, 1.001 * gradient

    assert examine_cvxpy.examine_cvxpy(0, number, with_fit=False).ran
    monkeypatch.setattr(examine_cvxpy, "_examined_cvxpy_gradient", off)
    assert "the slope of the loss is" in examine_cvxpy.examine_cvxpy(0, number, with_fit=False).wrong


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.x.add_(1e-5 * torch.ones_like(s.x)), "is off by"),
        (lambda s: s.value.add_(1e-5), "our value is off by 1.0e-05"),
    ],
)
def test_a_planted_optimum_is_caught(change: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = examine_cvxpy.solve

    def off(*call: Any) -> Any:
        solution = exact(*call)
        change(solution)
        return solution

    monkeypatch.setattr(examine_cvxpy, "solve", off)
    assert said in examine_cvxpy.examine_cvxpy(0, 3, with_fit=False).wrong


def test_crashes_are_wrong_and_sentences_are_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(error: Exception) -> Any:
        def raise_it(*call: Any, **settings: Any) -> Any:
            raise error

        return raise_it

    monkeypatch.setattr(examine_cvxpy, "PEARLoss", raising(ZeroDivisionError("by zero")))
    assert examine_cvxpy.examine_cvxpy(0, 0, with_fit=False).wrong == "raised ZeroDivisionError: by zero"
    monkeypatch.setattr(examine_cvxpy, "PEARLoss", raising(NotUniqueError("sample 12 is free")))
    refused = examine_cvxpy.examine_cvxpy(0, 0, with_fit=False)
    assert (refused.wrong, refused.refused) == ("", "NotUniqueError: sample 12 is free")
    assert examine_cvxpy.ExaminedCvxpy([refused, refused]).reasons() == {"NotUniqueError: sample ## is free": 2}


def test_the_command_counts_and_fails_where_something_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = {0: {"gradients": 4, "fitted": True}, 1: {"refused": "no"}, 2: {"wrong": "a slope"}}

    def planted(job: tuple[int, int]) -> CvxpyVerdict:
        return CvxpyVerdict(job[1], "linear", **verdicts[job[1]])

    monkeypatch.setattr(examine_cvxpy, "_examine_cvxpy_job", planted)
    result = CliRunner().invoke(app, ["stress", "cvxpy", "--count", "3", "--seed", "5", "--workers", "1"])
    assert result.exit_code == 1
    assert "problem 2 of seed 5 (linear): a slope" in result.stderr
    assert [line.split()[1:] for line in result.stdout.splitlines() if line.split()[:1] == ["all"]] == [
        ["3", "1", "1", "1", "4", "0", "1"]
    ]
    fine = CliRunner().invoke(app, ["stress", "cvxpy", "--count", "2", "--workers", "1"])
    assert fine.exit_code == 0
    assert "Nothing is wrong." in fine.stdout
