"""``pear stress fuzz``: the judge catches planted errors, shares no code with the library, and finds no others."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
from command_line import Run

import pear_lab.judge
from pear.errors import DataError, ProblemError
from pear_lab.judge import judge_answer as judge
from pear_lab.judge.extended_precision import extended_cholesky, factor_extended, wide
from pear_lab.judge.judge_answer import (
    Answer,
    Verdict,
    answer_tangent,
    judge_answer_gradient,
    judge_answer_in_batch,
    judge_answer_regret,
)
from pear_lab.judge.judged_program import JudgedProgram
from pear_lab.judge.linear_programs import best_linear_program_point
from pear_lab.judge.point_residuals import PointMultipliers, measure_point_residuals, point_residuals
from pear_lab.judge.program_units import ProgramUnits
from pear_lab.judge.proofs import Proof, prove_feasible, prove_unbounded
from pear_lab.stress import counterexamples, examine_case, fuzz
from pear_lab.stress.case_families import FAMILIES, build_family_case
from pear_lab.stress.fuzz import FuzzResult, FuzzTally
from pear_lab.stress.recipes import Recipe, draw_recipe
from pear_lab.stress.strategies import recipes

HERE = Path(__file__).parent / "counterexamples"
INF = float("inf")
# Families in which nothing is wrong and nothing is slow.
CLEAN = ["well scaled", "badly scaled", "degenerate", "repeated rows", "contradictory", "bounds", "huge bounds"]
CLEAN += ["unbounded", "mixes", "sparse"]


def square(**changes: Any) -> JudgedProgram:
    """Return min ½‖z‖² − (3, 1)z with z₁ ≤ 1 and z₁ + z₂ = 1.5.

    The solution is z = (1, 0.5), with multipliers 0.5 of the equality and (1.5, 0) of the bounds.
    """
    fields: dict[str, Any] = {"H": np.eye(2), "c": np.array([-3.0, -1.0])}
    fields |= {"A": np.ones((1, 2)), "b": np.array([1.5]), "G": np.array([[1.0, -1.0]]), "h": np.array([9.0])}
    fields |= {"lb": np.full(2, -INF), "ub": np.array([1.0, INF]), "integer": np.zeros(2, bool)}
    return JudgedProgram(**{**fields, **changes})


def answer(**changes: Any) -> Answer:
    fields: dict[str, Any] = {"status": "SOLVED", "x": np.array([1.0, 0.5]), "value": -2.875}
    fields |= {"equality": np.array([0.5]), "inequality": np.zeros(1), "bound": np.array([1.5, 0.0])}
    return Answer(**{**fields, **changes})


# -- what is planted is caught -----------------------------------------------------------------------------------------


def test_a_right_answer_is_right() -> None:
    assert judge.judge_answer(square(), answer()).kind == "right"


@pytest.mark.parametrize(
    "planted",
    [
        {"x": np.array([1.0, 0.5 + 1e-6])},  # off the equality
        {"x": np.array([1.0 + 1e-6, 0.5 - 1e-6])},  # over the bound
        {"x": np.array([1.0 - 1e-6, 0.5 + 1e-6])},  # feasible, but not the best
        {"x": np.array([1.0, np.nan])},
        {"bound": np.array([-1.5, 0.0])},  # at the lower bound, which there is none of
        {"bound": np.array([1.5, 0.1]), "equality": np.array([0.4])},  # a multiplier without a constraint
        {"inequality": np.array([-0.3]), "bound": np.array([1.8, 0.0]), "equality": np.array([0.2])},  # sign
        {"inequality": np.array([0.3]), "bound": np.array([1.2, 0.0]), "equality": np.array([0.8])},  # loose row
        {"value": -2.875 + 1e-6},
        {"bound": None},
        *({"status": name} for name in ("INFEASIBLE", "UNBOUNDED", "NOT_FINITE", "NOT_CONVEX")),
    ],
)
def test_a_planted_error_is_caught(planted: dict[str, Any]) -> None:
    assert judge.judge_answer(square(), answer(**planted)).kind == "wrong"


def test_huge_multipliers_that_cancel_are_corrected_and_not_excused() -> None:
    """Two rows parallel to 1e-9 have multipliers of ±1e9, whose rounding exceeds their sum; the judge corrects it."""
    A = np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-30]])
    s = square(A=A, b=A @ [1.0, 0.5], c=np.array([-3.1, -1.7]), ub=np.full(2, INF))
    x, lost = np.array([1.0, 0.5]), 2.0**-24
    exact = np.linalg.solve(A.T, [2.1, 1.2])
    y = PointMultipliers(wide(exact + lost * np.array([1.0, -0.5])), wide([0.0]), wide([0.0, 0.0]))
    assert point_residuals(s, wide(x), y, ProgramUnits.of(s)).worst > 1e-8
    assert measure_point_residuals(s, x, y).worst < 1e-10
    assert measure_point_residuals(s, x, replace(y, equality=wide(exact + 30.0))).worst > 1.0


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"c": np.array([np.nan, 1.0])}, "NOT_FINITE"),
        ({"h": np.array([-INF])}, "INFEASIBLE"),
        ({"G": np.array([[-1.0, -1.0]]), "h": np.array([-1.5 - 1e-6])}, "INFEASIBLE"),
        ({"A": np.zeros((1, 2))}, "INFEASIBLE"),
        ({"H": np.zeros((2, 2)), "A": np.zeros((0, 2)), "b": np.zeros(0)}, "UNBOUNDED"),
        ({"H": np.diag([1.0, -1e-3])}, "NOT_CONVEX"),
    ],
)
def test_a_failure_is_confirmed_and_a_solution_of_it_is_not(changes: dict[str, Any], status: str) -> None:
    s = square(**changes)
    y = {"equality": np.zeros(len(s.b))} if len(s.b) == 0 else {}
    assert judge.judge_answer(s, answer(status=status)).kind == "refused"
    assert judge.judge_answer(s, answer(**y)).kind == "wrong"
    others = {"INFEASIBLE", "UNBOUNDED", "NOT_FINITE", "NOT_CONVEX"} - {status}
    assert {judge.judge_answer(s, answer(status=other)).kind for other in others} == {"wrong"}


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_an_edge_is_one_by_a_margin_and_in_any_unit(unit: float) -> None:
    def opposed(by: float) -> JudgedProgram:
        G, h = np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([1.0, -1.0 - by])
        d = np.array([unit, 1.0])
        return square(A=np.zeros((0, 2)), b=np.zeros(0), G=unit * G / d, h=unit * h, lb=-2 * d, ub=2 * d)

    assert [prove_feasible(opposed(by)) for by in (1e-7, 1e-11, 2e-12, 0.0, -1e-7)] == [
        Proof.NO,
        Proof.EDGE,
        Proof.EDGE,
        Proof.YES,
        Proof.YES,
    ]


def test_little_curvature_is_some() -> None:
    def bowl(least: float) -> JudgedProgram:
        free = {"lb": np.full(2, -INF), "ub": np.full(2, INF), "A": np.zeros((0, 2)), "b": np.zeros(0)}
        V = np.array([[0.6, 0.8], [-0.8, 0.6]])
        return square(H=(V * [1.0, least]) @ V.T, c=np.array([1.0, 0.7]), G=np.zeros((0, 2)), h=np.zeros(0), **free)

    assert prove_unbounded(bowl(1e-12)) is Proof.NO
    assert prove_unbounded(replace(bowl(0.0), H=np.diag([1.0, 0.0]))) is Proof.YES


def gradient_exam() -> tuple[JudgedProgram, Verdict, np.ndarray, np.ndarray]:
    s = replace(square(), A=np.zeros((0, 2)), b=np.zeros(0), c=np.array([-3.0, -0.5]))
    a = answer(equality=np.zeros(0), bound=np.array([2.0, 0.0]), value=-2.625)
    return s, judge.judge_answer(s, a), np.array([0.0, 0.3]), np.array([0.7, 0.3])  # z₁ is held; g = P e


def test_a_wrong_gradient_is_caught() -> None:
    s, verdict, g, e = gradient_exam()
    space = answer_tangent(s, verdict)
    assert space is not None
    assert judge_answer_gradient(space, g, e) == ""
    for wrong in (g + 1e-6 * np.array([0.0, 1.0]), g + 1e-6 * np.array([1.0, 0.0]), -g, e, g * np.nan):
        assert judge_answer_gradient(space, wrong, e) != ""
    # up to there z₂ = 0.5 moves freely, and the multiplier 2 of z₁ stays positive
    assert space.longest_step(np.array([1.0, 0.5]), (np.zeros(1), np.array([2.0, 0.0])), np.array([4.0, 0.0])) == 0.5


def test_no_gradient_is_asked_for_on_an_edge() -> None:
    s, _, _, _ = gradient_exam()
    s = replace(s, c=np.array([-1.0, -0.5]))  # z₁ would be 1 without its bound
    weak = answer(equality=np.zeros(0), bound=np.zeros(2), value=-0.625)
    verdict = judge.judge_answer(s, weak)
    assert verdict.kind == "right"
    assert answer_tangent(s, verdict) is None


def test_a_wrong_loss_and_a_neighbour_are_caught() -> None:
    s, x, best = square(), np.array([0.5, 1.0]), np.array([1.0, 0.5])
    assert judge_answer_regret(s, x, answer(x=best), 1.0) == ""
    assert judge_answer_regret(s, x, answer(x=best), 1.0 + 1e-5) != ""
    verdict = judge.judge_answer(s, answer())
    assert judge_answer_in_batch(s, answer(), answer(), verdict) == ""
    assert judge_answer_in_batch(s, answer(), answer(status="INACCURATE"), verdict) != ""
    assert judge_answer_in_batch(s, answer(), answer(x=np.array([1.0 - 1e-6, 0.5 + 1e-6])), verdict) != ""


@pytest.mark.parametrize(("bound", "known"), [(1e3, True), (1e15, False)])
def test_another_solver_is_trusted_where_its_point_is_right(bound: float, known: bool) -> None:
    """For min z with −z ≤ −0.5 and bounds of ±1e15, HiGHS returns 0, which violates the row and is not trusted."""
    one: dict[str, Any] = {"H": np.zeros((1, 1)), "c": np.ones(1), "G": np.array([[-1.0]]), "h": np.array([-0.5])}
    one |= {"lb": np.array([-bound]), "ub": np.array([bound]), "A": np.zeros((0, 1)), "b": np.zeros(0)}
    s = square(**one, integer=np.zeros(1, bool))
    found = best_linear_program_point(s)
    assert found is not None and found == 0.5 if known else found is None
    right, off = (answer(x=np.array([x])) for x in (0.5, 0.6))
    assert judge.judge_answer_objective(s, right) == ""
    assert (judge.judge_answer_objective(s, off) != "") == known


@pytest.mark.parametrize(
    ("status", "x", "kind"),
    [
        ("SOLVED", [2.0, 1.0], "right"),
        ("SOLVED", [3.0, 0.0], "wrong"),  # integer and feasible, but not the best
        ("SOLVED", [2.5, 0.75], "wrong"),  # better, but no integer
        ("SOLVED", [3.0, 1.0], "wrong"),  # over the row, whose coefficients are small
        ("INFEASIBLE", [np.nan] * 2, "wrong"),
        ("UNBOUNDED", [np.nan] * 2, "wrong"),
        ("INACCURATE", [np.nan] * 2, "inaccurate"),
    ],
)
@pytest.mark.parametrize("mixed", [False, True])
def test_integer_programs(status: str, x: list[float], kind: str, mixed: bool) -> None:
    """The program is max x + 1.4 y with 1e-9 (x + 2 y) ≤ 4e-9, integer x up to 3 and y up to 1.

    If ``mixed``, y is continuous.
    """
    integer = np.array([True, not mixed])
    s = square(
        H=np.zeros((2, 2)),
        c=np.array([-1.0, -1.4]),
        A=np.zeros((0, 2)),
        b=np.zeros(0),
        G=np.array([[1e-9, 2e-9]]),
        h=np.array([4e-9]),
        lb=np.zeros(2),
        ub=np.array([3.0, 1.0]),
        integer=integer,
    )
    if mixed and x == [3.0, 0.0]:
        x = [3.0, 0.2]  # the best is (3, 0.5) there
    if mixed and x == [2.0, 1.0]:
        x = [3.0, 0.5]
    assert judge.judge_answer(s, answer(status=status, x=np.array(x))).kind == kind


def test_extended_precision() -> None:
    rng = np.random.default_rng(0)
    M = rng.integers(-9, 10, (6, 4)).astype(float)
    M[:, 3] = M[:, 0] + 2 * M[:, 1]
    found = factor_extended(M)
    assert found.rank(1e-14) == 3
    assert float(np.abs(wide(M).T @ found.null(3)).max()) < 1e-17 * 20
    assert float(np.abs(found.Q @ found.R - wide(M)[:, found.order]).max()) < 1e-17 * 20
    rhs = wide(M) @ wide([1.0, 2.0, 3.0, 4.0])
    assert float(np.abs(wide(M) @ found.least_squares(rhs, 3) - rhs).max()) < 1e-16
    x = found.smallest_norm(wide(M).T @ wide(np.ones(6)), 3)
    assert float(np.abs(wide(M).T @ (x - 1)).max()) < 1e-16
    L = extended_cholesky(wide(M.T @ M + np.eye(4)))
    assert L is not None
    assert float(np.abs(L @ L.T - wide(M.T @ M + np.eye(4))).max()) < 1e-17 * 100
    assert extended_cholesky(wide(-np.eye(2))) is None


def test_units_are_those_of_the_program() -> None:
    s = square(A=np.array([[1e6, 1e-3]]), G=np.array([[1e3, 1e-6]]))
    units = ProgramUnits.of(s)
    for rows, scale in ((s.A, units.row[:1]), (s.G, units.row[1:])):
        scaled = np.abs(scale[:, None] * rows * units.column).astype(float)
        assert ((scaled > 0.2) & (scaled < 3)).all()


# -- it shares nothing with the library --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", sorted(Path(pear_lab.judge.__file__).parent.glob("*.py")), ids=lambda path: path.stem
)
def test_the_judge_imports_nothing_of_the_library(source: Path) -> None:
    nodes = list(ast.walk(ast.parse(source.read_text("utf-8"))))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    ours = {m for m in modules if m.split(".")[0] in ("pear", "pear_lab")}
    assert {m for m in ours if not m.startswith("pear_lab.judge.")} <= {"pear.errors"}


# -- the library has nothing wrong -------------------------------------------------------------------------------------


# Programs that contradict themselves take five times as long as others: a search for the proof of it.
@pytest.mark.parametrize(
    ("count", "families", "gradients", "refused"),
    [(1000, CLEAN[:4], 500, 0), (104, CLEAN[4:5], 0, 20), (1000, CLEAN[5:], 200, 40)],
    ids=["feasible", "contradictory", "other"],
)
def test_problems_have_no_wrong_answer(count: int, families: list[str], gradients: int, refused: int) -> None:
    found = fuzz.run_fuzz(count, seed=0, families=families)
    total = found.total()
    assert total.tried >= count
    assert [f"{f.recipe}: sample {f.sample}: {f.reason}" for f in found.failures] == []
    assert total.gradients > gradients
    assert total.refused >= refused


def test_hypothesis_finds_no_wrong_answer() -> None:
    hypothesis = pytest.importorskip("hypothesis")

    @hypothesis.settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @hypothesis.given(recipes(CLEAN, batch=3, largest=8))
    def holds(recipe: Recipe) -> None:
        found = examine_case.examine(build_family_case(recipe)).verdicts
        assert [v.reason for v in found if v.kind in ("wrong", "inaccurate")] == []

    holds()


@pytest.mark.parametrize("path", sorted(HERE.glob("*.json")), ids=lambda path: path.stem)
def test_counterexamples_stay_mended(path: Path) -> None:
    found = examine_case.examine(counterexamples.read(path)).verdicts
    assert [v.reason for v in found if v.kind in ("wrong", "inaccurate")] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recipe_is_its_case(family: str) -> None:
    for seed in range(6):
        recipe = draw_recipe(np.random.default_rng(seed), family)
        one, two = build_family_case(recipe), build_family_case(recipe)
        assert one.family == family
        assert np.array_equal(one.cost, two.cost, equal_nan=True)
        assert one.batch in (recipe.batch, 4)
        for name, value in one.fields.items():
            assert np.array_equal(value, two.fields[name])


# -- files, runs and the command ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["mixes", "big M", "sparse"])
def test_a_file_rebuilds_its_case(family: str, tmp_path: Path) -> None:
    case = build_family_case(draw_recipe(np.random.default_rng(3), family))
    again = counterexamples.read(
        counterexamples.write_counterexample(tmp_path / "a" / "one.json", case, "why", kind="wrong")
    )
    for name in ("family", "smoothing", "sense", "sparse"):
        assert getattr(case, name) == getattr(again, name)
    for mine, theirs in ((case.fields, again.fields), (case.overrides, again.overrides)):
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name], equal_nan=True) for name in mine)
    assert np.array_equal(case.cost, again.cost, equal_nan=True)
    assert (case.integer is None) == (again.integer is None)


@pytest.mark.parametrize("text", ["{}", "no json", '{"format": 7}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=r"x\.json"):
        counterexamples.read(tmp_path / "x.json")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the decisions of the library wrong in the second half of every batch."""
    real = examine_case.solve

    def off(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        x = found.x.clone()
        x[len(x) // 2 :] += 1e-5
        return replace(found, x=x)

    monkeypatch.setattr(examine_case, "solve", off)


@pytest.mark.usefixtures("broken")
def test_a_run_counts_and_writes_what_is_wrong(tmp_path: Path) -> None:
    found = fuzz.run_fuzz(32, seed=1, families=["well scaled"], folder=tmp_path)
    tally = found.tallies["well scaled"]
    assert tally.tried == 32
    assert tally.wrong == 32  # those of the first half are right in the batch, and off alone
    assert len(found.files) == fuzz.KEPT
    written = json.loads(found.files[0].read_text("utf-8"))
    assert written["kind"] == "wrong"
    assert "32 wrong" in found.missed()
    assert counterexamples.read(found.files[0]).batch in (1, 8)


def test_a_library_that_raises_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any, **__: Any) -> None:
        raise RuntimeError("singular")

    monkeypatch.setattr(examine_case, "solve", raises)
    verdicts = examine_case.examine(build_family_case(Recipe("well scaled"))).verdicts
    assert {(v.kind, v.reason) for v in verdicts} == {("wrong", "raised RuntimeError: singular")}


def test_a_slow_sample_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case, calls = build_family_case(Recipe("well scaled")), []
    examination = examine_case.CaseExamination(replace(case, cost=case.cost[:0]), None, [])

    def alone(i: int) -> tuple[str, float]:
        calls.append(i)
        return "", 0.2

    monkeypatch.setattr(examination, "solve_alone", alone)
    seconds = np.array([0.01, 0.01, 0.9, 0.01])
    assert examination.slowest_ratio(seconds) == pytest.approx(20.0)
    assert calls == [2, 2]


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    def stop(_: FuzzTally) -> None:
        raise KeyboardInterrupt

    first = fuzz.run_fuzz(24, families=["bounds"], folder=tmp_path, progress=stop)
    assert first.interrupted
    assert first.total().tried == 8
    again = fuzz.run_fuzz(24, families=["bounds"], folder=tmp_path, resume=True)
    whole = fuzz.run_fuzz(24, families=["bounds"])
    assert vars(again.total()) | {"slowest": 0} == vars(whole.total()) | {"slowest": 0}
    with pytest.raises(ProblemError, match="other settings"):
        fuzz.run_fuzz(24, seed=1, families=["bounds"], folder=tmp_path, resume=True)
    with pytest.raises(ProblemError, match="no family 'bound'"):
        fuzz.run_fuzz(8, families=["bound"])


def test_the_goals() -> None:
    def missed(**counts: Any) -> list[str]:
        tally = FuzzTally("bounds", **{"right": 10_000, **counts})
        return FuzzResult(
            {"bounds": tally, "nearly parallel": FuzzTally("nearly parallel", right=995, inaccurate=5)}
        ).missed()

    assert missed() == []
    assert missed(inaccurate=10) == []
    assert len(missed(inaccurate=11)) == 1
    assert missed(wrong=1) == ["1 wrong"]
    assert "51 times" in missed(slowest=51.0)[0]
    assert len(FuzzResult({"nearly parallel": FuzzTally("nearly parallel", right=98, inaccurate=2)}).missed()) == 1


@pytest.fixture
def command(terminal: None) -> Run:
    return partial(command_line.run, "stress", "fuzz")


def test_the_command(command: Run, tmp_path: Path) -> None:
    result = command("--count", "16", "--families", "well scaled,bounds", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "Every goal is met." in result.output
    folder = tmp_path / "pear-output" / "stress" / "fuzz"
    assert json.loads((folder / "results.json").read_text("utf-8"))["missed"] == []
    assert "| well scaled | 8 |" in (folder / "table.md").read_text("utf-8")
    assert command("--families", "nonsense").exit_code == 2


@pytest.mark.usefixtures("broken")
def test_the_command_fails_where_something_is_wrong(command: Run) -> None:
    result = command("--count", "8", "--families", "well scaled", "--workers", "1", "--out", "here")
    assert result.exit_code == 1
    assert "8 wrong" in result.stderr
    assert "counterexamples: here" in result.output


def test_the_command_can_be_stopped(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fuzz, "run_fuzz", lambda *_: FuzzResult({"bounds": FuzzTally("bounds", right=8)}, interrupted=True)
    )
    result = command("--count", "16")
    assert result.exit_code == 130
    assert "--resume" in result.stderr
