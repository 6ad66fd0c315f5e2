"""``pear stress milp``: results on random integer programs agree with other solvers, and planted errors are caught."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pear.cli.app import app
from pear.errors import ProblemError

pytest.importorskip("highspy")

from pear_lab.judge.integer_judge import IntegerJudge
from pear_lab.judge.judged_program import JudgedProgram
from pear_lab.judge.proofs import Proof
from pear_lab.stress import examine_milp, milp_references
from pear_lab.stress.journal import Journal
from pear_lab.stress.milp_families import MILP_FAMILIES, MilpFamilyCase, draw_milp_family

pytestmark = pytest.mark.usefixtures("keep_thread_count")

CI_SEED, CI_COUNT = 7, 24


def knapsack(**fields: Any) -> MilpFamilyCase:
    """Return max 3 x + 2 y + z with 2 x + 2 y + z ≤ 3, x and y in {0, 1}, z up to 9; x = z = 1 gives the optimum 4."""
    case = MilpFamilyCase(
        family="battery",
        sense="max",
        c=np.array([3.0, 2.0, 1.0]),
        A=np.zeros((0, 3)),
        b=np.zeros(0),
        G=np.array([[2.0, 2.0, 1.0]]),
        h=np.array([3.0]),
        lb=np.zeros(3),
        ub=np.array([1.0, 1.0, 9.0]),
        integer=np.array([True, True, False]),
        sparse=False,
    )
    return replace(case, **fields)


def test_nothing_is_wrong_or_refused() -> None:
    found = examine_milp.examine_milp_numbers(list(range(CI_COUNT)), CI_SEED)
    assert found.bad == []
    counts = dict(found.counts())
    assert all(counts[family]["drawn"] == str(CI_COUNT // len(MILP_FAMILIES)) for family in MILP_FAMILIES)
    assert {one.ours for one in found.verdicts} == {"SOLVED", "INFEASIBLE", "UNBOUNDED"}


def test_a_program_does_not_depend_on_what_else_is_drawn() -> None:
    for number in range(len(MILP_FAMILIES)):
        one, other = draw_milp_family(3, number), draw_milp_family(3, number)
        assert one.family == list(MILP_FAMILIES)[number]
        assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("c", "A", "G", "h", "ub"))


def test_the_references_agree_with_arithmetic() -> None:
    program = knapsack().minimised()
    for solve in (milp_references.highs_milp_reference, milp_references.scipy_milp_reference):
        assert solve(program) == milp_references.MilpReference("solved", -4.0)
        endless = knapsack(G=np.zeros((1, 3)), ub=np.array([1.0, 1.0, np.inf])).minimised()
        assert solve(endless).status == "unbounded"
        assert solve(replace(program, h=np.array([-1.0]))).status == "infeasible"


@pytest.mark.parametrize(
    ("status", "x", "wrong"),
    [
        ("SOLVED", [1.0, 0.0, 1.0], ""),
        ("SOLVED", [0.0, 1.0, 1.0], "is possible"),
        ("SOLVED", [1.0, 1.0, 0.0], "violated"),
        ("SOLVED", [0.99, 0.0, 1.02], "violated"),
        ("SOLVED", [np.nan] * 3, "violated"),
        ("INFEASIBLE", [np.nan] * 3, "feasible"),
        ("UNBOUNDED", [np.nan] * 3, "the others say"),
        ("NOT_FINITE", [np.nan] * 3, "finite"),
    ],
)
def test_a_planted_answer_is_caught(status: str, x: list[float], wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine_milp, "examined_milp_answer", lambda case: (status, np.array(x), False))
    verdict = examine_milp.examine_milp_case(knapsack())
    assert (wrong in verdict.wrong) if wrong else (verdict.wrong == "")
    assert not verdict.refused


def test_rounding_of_zeros_is_no_violation() -> None:
    """A continuous variable of −1.4e-115 is rounding; one of −1e-10 is a violation."""
    program = knapsack().minimised()
    assert float(IntegerJudge(program).violations(np.array([[1.0, 0.0, -1.4e-115]]))[0]) < 1e-100
    assert float(IntegerJudge(program).violations(np.array([[1.0, 0.0, -1e-10]]))[0]) > 1e-6


def test_what_both_solve_must_not_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine_milp, "examined_milp_answer", lambda case: ("INACCURATE", np.full(3, np.nan), False))
    assert examine_milp.examine_milp_case(knapsack()).refused
    assert not examine_milp.examine_milp_case(knapsack(h=np.array([-1.0]))).refused


def test_a_crash_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(case: MilpFamilyCase) -> None:
        raise ProblemError("a planted error")

    monkeypatch.setattr(examine_milp, "examined_milp_answer", crash)
    assert examine_milp.examine_milp_case(knapsack()).wrong == "raised ProblemError: a planted error"


def test_the_command_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["stress", "milp", "--workers", "1", "--out", str(tmp_path)]
    first = CliRunner().invoke(app, [*options, "--count", "2"])
    assert first.exit_code == 0, first.output
    assert "Nothing is wrong or refused." in first.output
    lines = (tmp_path / "verdicts.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines[1:]] == [0, 1]
    examined = []

    def note(seed: int, number: int) -> examine_milp.MilpVerdict:
        examined.append(number)
        return examine_milp.MilpVerdict(number, "battery", "SOLVED", ("solved", "solved"), "a planted error")

    monkeypatch.setattr(examine_milp, "examine_milp", note)
    second = CliRunner().invoke(app, [*options, "--count", "3", "--resume"])
    assert examined == [2]
    assert second.exit_code == 1
    assert "program 2 of seed 0 (battery): a planted error" in second.output
    assert "3" in (tmp_path / "table.md").read_text().splitlines()[-1]
    other = CliRunner().invoke(app, [*options, "--seed", "1", "--resume"])
    assert other.exit_code != 0


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    def journal() -> Journal[dict[str, int]]:
        return Journal(tmp_path, {"seed": 0}, dict, dict)

    assert journal().begin(resume=True) == []
    journal().append({"number": 0})
    file = tmp_path / "verdicts.jsonl"
    file.write_text(file.read_text() + '{"num')
    again = journal()
    assert again.begin(resume=True) == [{"number": 0}]
    again.append({"number": 1})
    assert journal().begin(resume=True) == [{"number": 0}, {"number": 1}]


def test_an_unbounded_program_is_not_taken_for_an_infeasible_one() -> None:
    program = JudgedProgram(
        H=np.zeros((2, 2)), c=np.array([0.0, -1.0]), A=np.zeros((0, 2)), b=np.zeros(0), G=np.zeros((0, 2)),
        h=np.zeros(0), lb=np.zeros(2), ub=np.array([1.0, np.inf]), integer=np.array([True, False]),
    )  # fmt: skip
    best = IntegerJudge(program).best_point()
    assert best.feasible is Proof.YES
    assert not best.proven
    assert IntegerJudge(program).judge("INFEASIBLE", np.full(2, np.nan))[0] == "wrong"
    assert IntegerJudge(program).judge("UNBOUNDED", np.full(2, np.nan))[0] == "refused"
