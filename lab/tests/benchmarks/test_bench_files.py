"""Models from files: what importers accept, and ``pear bench files``, judged by SciPy and known answers."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.io import savemat
from scipy.optimize import linprog, minimize
from typer.testing import CliRunner

import pear
from pear.cli.app import app
from pear.problem.importers import Model, from_file, from_osqp_mat
from pear_lab.benchmarks.files_benchmark.file_arrays import read_model_file
from pear_lab.benchmarks.files_benchmark.file_solvers import check_file_solver, prepare_file_solver
from pear_lab.benchmarks.files_benchmark.solver_process import SolverProcess
from pear_lab.benchmarks.files_benchmark.write_models import write_mat, write_models, write_mps, write_new_models
from pear_lab.benchmarks.hard_models import draw_hard_models
from pear_lab.judge import answer_accuracy
from pear_lab.judge.answer_accuracy import Accuracy, SolverAnswer, compare_accuracies, measure_accuracy, rate_accuracy
from pear_lab.judge.judged_program import JudgedProgram
from pear_lab.judge.proofs import Proof, prove_indefinite, prove_sparse_infeasible, prove_sparse_unbounded

HEAD = """NAME TEST
ROWS
 N COST
 L R1
 G R2
 E R3
COLUMNS
 X COST 1 R1 1
 X R2 1 R3 1
 Y COST -2 R1 1
 Y R2 -1
 Z R3 2 COST 1
"""
RHS = "RHS\n RHS R1 4 R2 -2\n RHS R3 5 COST -7\n"
BOUNDS = "BOUNDS\n UP BND X 3\n MI BND Z\n"
PLAIN = HEAD + RHS + BOUNDS
LP = "max\n gain: 3 x + 2 y + 5\nst\n hours: x + y <= 4\n least: x - y >= -1\nbounds\n x <= 3\n y free\nend\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def value(m: Model, **options: float) -> float:
    """Return the optimal value under the model's own costs, in its own sense."""
    return float(pear.solve(m.problem, m.known, **options).value) + m.offset


def test_an_mps_file_has_the_optimum_of_its_arrays(tmp_path: Path) -> None:
    m = pear.from_mps(write(tmp_path, "a.mps", PLAIN + "ENDATA\n"))
    # by hand: min x - 2y + z + 7, x + y <= 4, x - y >= -2, x + 2z = 5, 0 <= x <= 3, y >= 0, z free
    limits = {"A_ub": [[1, 1, 0], [-1, 1, 0]], "b_ub": [4, 2], "A_eq": [[1, 0, 2]], "b_eq": [5]}
    expected = linprog([1, -2, 1], **limits, bounds=[(0, 3), (0, None), (None, None)])
    assert value(m) == pytest.approx(expected.fun + 7, abs=1e-12)
    assert (m.variables, m.rows, m.offset) == (("X", "Y", "Z"), ("R1", "R2", "R3"), 7.0)
    assert m.known.tolist() == m.cost().tolist() == [1.0, -2.0, 1.0]
    assert m.known.dtype == torch.float64


def test_decisions_by_name(tmp_path: Path) -> None:
    m = pear.from_mps(write(tmp_path, "a.lp", LP))
    batch = pear.solve(m.problem, torch.stack([m.known, m.known * torch.tensor([-1, 1])])).x
    found = m.decision(batch)
    assert list(found) == ["x", "y"]
    assert found["x"].tolist() == [3.0, 0.0]
    assert [round(v, 12) for v in m.decision(batch[0])["y"].reshape(-1).tolist()] == [1.0]
    with pytest.raises(pear.DataError, match=r"z must have shape \(2,\) or \(B, 2\).*got \(1, 3\)"):
        m.decision(torch.zeros(1, 3))


def test_the_sense_and_the_constant_are_kept(tmp_path: Path) -> None:
    m = pear.from_mps(write(tmp_path, "a.lp", LP))
    assert (m.problem.sense, m.offset) == ("max", 5.0)
    assert value(m) == pytest.approx(3 * 3 + 2 * 1 + 5, abs=1e-12)
    turned = pear.from_mps(write(tmp_path, "b.mps", "OBJSENSE\n MAX\n" + HEAD + RHS + BOUNDS + "ENDATA\n"))
    assert turned.problem.sense == "max"


@pytest.mark.parametrize(
    ("section", "Q"),
    [
        ("QUADOBJ\n X X 2\n X Y 1\n Y Y 2\n", [[2, 1, 0], [1, 2, 0], [0, 0, 0]]),
        ("QUADOBJ\n X X 2\n Y X 1\n Y Y 2\n", [[2, 1, 0], [1, 2, 0], [0, 0, 0]]),
        ("QSECTION COST\n X X 2\n X Y 1\n Y Y 2\n", [[2, 1, 0], [1, 2, 0], [0, 0, 0]]),
        ("QMATRIX\n X X 2\n X Y 1\n Y X 1\n Y Y 2\n", [[2, 1, 0], [1, 2, 0], [0, 0, 0]]),
    ],
)
@pytest.mark.parametrize("name", ["a.qps", "a.QPS", "a.mps"])
def test_quadratic_objectives(tmp_path: Path, section: str, Q: list[list[float]], name: str) -> None:
    m = pear.from_mps(write(tmp_path, name, PLAIN + section + "ENDATA\n"))
    assert m.problem.Q is not None
    assert m.problem.Q.tolist() == Q
    c, P = np.array([1.0, -2.0, 1.0]), np.array(Q, dtype=float)
    rows = [
        {"type": "ineq", "fun": lambda z: [4 - z[0] - z[1], z[0] - z[1] + 2]},
        {"type": "eq", "fun": lambda z: z[0] + 2 * z[2] - 5},
    ]
    expected = minimize(
        lambda z: 0.5 * z @ P @ z + c @ z, [1, 1, 2], bounds=[(0, 3), (0, None), (None, None)], constraints=rows
    )
    assert value(m) == pytest.approx(expected.fun + 7, abs=1e-6)


def test_a_quadratic_lp_file(tmp_path: Path) -> None:
    text = "min\n o: - x + [ 2 x^2 + 2 x*y + 4 y^2 ]/2\nst\n c: x + y <= 4\nend\n"
    m = pear.from_mps(write(tmp_path, "a.lp", text))
    assert m.problem.Q is not None
    assert m.problem.Q.tolist() == [[2, 1], [1, 4]]


def test_products_may_be_written_in_both_orders_in_an_lp_file(tmp_path: Path) -> None:
    text = "min\n o: x + [ x^2 + x*y + y*x + y^2 ]/2\nst\n c: x + y >= 1\nend\n"
    assert pear.from_mps(write(tmp_path, "a.lp", text)).problem.Q.tolist() == [[1, 1], [1, 1]]


def test_free_format_without_indentation(tmp_path: Path) -> None:
    plain = pear.from_mps(write(tmp_path, "a.mps", PLAIN + "ENDATA\n"))
    lines = "\n".join(line.strip() for line in PLAIN.splitlines())
    m = pear.from_mps(write(tmp_path, "b.mps", lines + "\nENDATA\n"))
    assert (m.variables, m.offset, value(m)) == (plain.variables, plain.offset, value(plain))
    with pytest.raises(pear.DataError, match="line 8: 'abc' stands where section COLUMNS"):
        pear.from_mps(write(tmp_path, "c.mps", lines.replace("R1 1", "R1 abc", 1) + "\nENDATA\n"))


def test_ranges_become_two_rows_equal_limits_one(tmp_path: Path) -> None:
    text = HEAD + RHS + "RANGES\n RNG R1 2 R2 3\nENDATA\n"
    problem = pear.from_mps(write(tmp_path, "a.mps", text)).problem
    assert problem.A.tolist() == [[1, 0, 2]]
    assert problem.b.tolist() == [5]
    assert problem.G.tolist() == [[1, 1, 0], [1, -1, 0], [-1, -1, 0], [-1, 1, 0]]
    assert problem.h.tolist() == [4, 1, -2, 2]


def test_integers_and_infinite_bounds(tmp_path: Path) -> None:
    text = HEAD.replace(" Y COST", " M 'MARKER' 'INTORG'\n Y COST").replace(" Z R3", " M 'MARKER' 'INTEND'\n Z R3")
    text += RHS + "BOUNDS\n UP BND Y 1e30\n BV BND X\n FR BND Z\nENDATA\n"
    problem = pear.from_mps(write(tmp_path, "a.mps", text)).problem
    assert problem.integer.tolist() == [True, True, False]
    assert problem.ub.tolist() == [1, np.inf, np.inf]
    assert problem.lb.tolist() == [0, 0, -np.inf]


def test_fixed_format_with_spaces_in_names(tmp_path: Path) -> None:
    text = (
        "NAME          MODEL\nROWS\n N  COST\n G  ROW ONE\nCOLUMNS\n"
        "    X VAR     COST               1.0   ROW ONE            2.0\n"
        "RHS\n    RHS       ROW ONE            4.0\nENDATA\n"
    )
    m = pear.from_mps(write(tmp_path, "a.mps", text))
    assert (m.variables, m.rows) == (("X VAR",), ("ROW ONE",))
    assert value(m) == 2.0


def test_compressed_files(tmp_path: Path) -> None:
    mat = write_mat(tmp_path / "c.mat", np.eye(2), [-1, -2], np.eye(2), [0, 0], [1, 1])
    sources = [write(tmp_path, "a.mps", PLAIN + "ENDATA\n"), write(tmp_path, "b.lp", LP), mat]
    for source in sources:
        packed = tmp_path / f"{source.name}.gz"
        packed.write_bytes(gzip.compress(source.read_bytes()))
        assert value(from_file(packed)) == value(from_file(source))


def test_small_coefficients_are_kept(tmp_path: Path) -> None:
    m = pear.from_mps(write(tmp_path, "a.mps", HEAD.replace("R1 1", "R1 9e-10") + "ENDATA\n"))
    assert m.problem.G[0].tolist() == [9e-10, 9e-10, 0]


def test_a_large_file_stays_sparse(tmp_path: Path) -> None:
    n = 600
    A = sp.vstack([sp.eye_array(n), sp.diags_array([1.0, 1.0], offsets=[0, 1], shape=(n, n))])
    high = np.r_[np.full(n, 1.0), np.full(n, 1.5)]
    args = (sp.eye_array(n), -np.ones(n), A, np.full(2 * n, 0.0), high)
    for path in (write_mat(tmp_path / "a.mat", *args), write_mps(tmp_path / "a.mps", *args)):
        m = from_file(path)
        assert m.problem.is_sparse
        assert (m.problem.lb.tolist(), m.problem.ub.tolist()) == ([0.0] * n, [1.0] * n)  # rows of the identity
        assert m.problem.G.shape == (2 * n - 2, n)  # the last of the others is a bound, too


BROKEN = {
    "quadratic row": ("a.mps", PLAIN + "QCMATRIX R1\n X X 2\nENDATA\n", "Quadratic rows not supported"),
    "quadratic section of a row": ("a.mps", PLAIN + "QSECTION R1\n X X 2\nENDATA\n", "Quadratic rows not supported"),
    "quadratic row in LP": (
        "a.lp",
        "min\n o: x\nst\n c: x + [ x^2 ] <= 4\nend\n",
        "Quadratic constraints not supported",
    ),
    "sets": ("a.mps", PLAIN + "SOS\n S1 SOS s1\n X:1\n Y:2\nENDATA\n", "SOS not supported"),
    "sets in LP": ("a.lp", "min\n o: x\nst\n c: x + y <= 4\nsos\n s: S1:: x:1 y:2\nend\n", "SOS not supported"),
    "semi-continuous": ("a.mps", HEAD + RHS + "BOUNDS\n SC BND X 3\nENDATA\n", "variable X is semi-continuous"),
    "semi-integer": ("a.mps", HEAD + RHS + "BOUNDS\n SI BND X 3\nENDATA\n", "variable X is semi-integer"),
    "semi in LP": ("a.lp", "min\n o: x\nst\n c: x + y <= 4\nsemi-continuous\n x\nend\n", "x is semi-continuous"),
    "indicators": ("a.mps", PLAIN + "INDICATORS\n IF R1 X 1\nENDATA\n", "cannot parse INDICATORS"),
    "cones": ("a.mps", PLAIN + "CSECTION K 0.0 QUAD\n X\n Y\nENDATA\n", "Cones not supported"),
    "both triangles": ("a.mps", PLAIN + "QUADOBJ\n X Y 1\n Y X 1\nENDATA\n", "duplicate entries"),
    "one triangle": ("a.mps", PLAIN + "QMATRIX\n X X 2\n X Y 1\n Y Y 2\nENDATA\n", "not symmetric"),
    "written twice": ("a.mps", HEAD + " Z R3 3\nENDATA\n", "duplicate nonzero"),
    "unknown row": ("a.mps", HEAD + "RHS\n RHS R9 1\nENDATA\n", 'Row name "R9"'),
    "unknown column": ("a.mps", HEAD + "BOUNDS\n UP BND XX 1\nENDATA\n", "variable XX has a bound"),
    "word for a number": (
        "a.mps",
        HEAD.replace("R1 1", "R1 abc") + "ENDATA\n",
        "line 8: 'abc' stands where section COL",
    ),
    "NaN": ("a.mps", HEAD.replace("COST 1", "COST nan") + "ENDATA\n", "line 8: 'nan' stands where"),
    "too small": ("a.mps", HEAD.replace("R1 1", "R1 1e-13") + "ENDATA\n", "less than or equal to 1e-12: ignored"),
    "cut off": ("a.mps", PLAIN, "Parser error reading a.mps"),
    "cut off in LP": ("a.lp", LP[:40], "Parser error reading a.lp"),
    "no model": ("a.mps", "hello world\n", "cannot be taken"),
    "no model in LP": ("a.lp", "hello world\n", "cannot be taken"),
    "empty": ("a.mps", "", "is empty"),
    "empty LP": ("a.lp", "", "is empty"),
    "not a mat file": ("a.mat", "hello world, this is long enough to be read as a header " * 4, "cannot be read"),
    "empty mat file": ("a.mat", "", "is empty"),
    "not compressed": ("a.mps.gz", PLAIN, "cannot be unpacked"),
    "another kind": ("a.xlsx", "x", r"ends in '.xlsx'; expected one of .mps, .qps, .lp, .mat"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_taken_is_refused(tmp_path: Path, case: str) -> None:
    name, text, reason = BROKEN[case]
    with pytest.raises(pear.DataError, match=reason):
        from_file(write(tmp_path, name, text))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(pear.DataError, match=r"none.mps does not exist; expected a file"):
        pear.from_mps(tmp_path / "none.mps")
    (tmp_path / "b.mat").mkdir()
    with pytest.raises(pear.DataError, match=r"b.mat is a folder"):
        from_osqp_mat(tmp_path / "b.mat")
    with pytest.raises(pear.DataError, match=r"ends in '.mat'; expected one of .mps"):
        pear.from_mps(tmp_path / "b.mat")
    packed = tmp_path / "c.mps.gz"
    packed.write_bytes(gzip.compress((PLAIN + "ENDATA\n").encode())[:50])
    with pytest.raises(pear.DataError, match="cannot be unpacked"):
        pear.from_mps(packed)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PLAIN + "QUADOBJ\n X X -2\nENDATA\n", "must be positive semidefinite"),
        (HEAD + "BOUNDS\n LO BND X 5\n UP BND X 3\nENDATA\n", "lb > ub at variable 0"),
        (HEAD + "BOUNDS\n UP BND X -3\nENDATA\n", "lb > ub at variable 0"),
    ],
)
def test_what_is_no_problem_names_the_file(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(pear.ProblemError, match=f"a.mps: .*{reason}"):
        pear.from_mps(write(tmp_path, "a.mps", text))


# --- OSQP's arrays --------------------------------------------------------------------------------------------------


def osqp_arrays() -> dict[str, object]:
    """Return arrays in OSQP's format: three variables with each kind of bound, an equality and a two-sided row.

    The last row has no finite limit.
    """
    A = sp.csc_matrix([[1.0, 0, 0], [0, -1.0, 0], [0, 0, 2.0], [1, 1, 1], [1, -1, 0], [1, 1, 0]])
    low, high = [0.0, -5.0, -1.0, 1.0, -1.0, -1e20], [4.0, 1e20, 6.0, 1.0, 1.0, 1e30]
    P = sp.csc_matrix([[2.0, 1.0, 0], [1.0, 2.0, 0], [0, 0, 0]])
    return {"P": P, "q": [[1.0], [-3.0], [2.0]], "A": A, "l": low, "u": high, "r": 3.0}


def test_a_mat_file_has_the_optimum_of_its_arrays(tmp_path: Path) -> None:
    data = osqp_arrays()
    savemat(tmp_path / "a.mat", data)
    m = from_osqp_mat(tmp_path / "a.mat")
    assert m.problem.lb.tolist() == [0, -np.inf, -np.inf]
    assert m.problem.ub.tolist() == [4, 5, np.inf]
    assert m.problem.A.tolist() == [[1, 1, 1]]
    assert m.problem.G.tolist() == [[0, 0, 2], [1, -1, 0], [0, 0, -2], [-1, 1, 0]]
    assert m.problem.h.tolist() == [6, 1, 1, 1]
    P, q, A = data["P"].toarray(), np.ravel(data["q"]), data["A"].toarray()
    rows = [
        {"type": "ineq", "fun": lambda z: np.clip(data["u"], -1e3, 1e3) - A @ z},
        {"type": "ineq", "fun": lambda z: A @ z - np.clip(data["l"], -1e3, 1e3)},
    ]
    expected = minimize(lambda z: 0.5 * z @ P @ z + q @ z, [0.3, 0.3, 0.4], constraints=rows).fun + 3
    assert value(m) == pytest.approx(expected, abs=1e-6)
    assert (m.offset, m.variables) == (3.0, ("x0", "x1", "x2"))


def test_bounds_that_cross_are_found_infeasible(tmp_path: Path) -> None:
    path = write_mat(tmp_path / "a.mat", np.eye(1), [1], [[1.0], [-1.0]], [2, -1], [5, 5])
    found = from_osqp_mat(path)
    with pytest.warns(pear.FailedSamplesWarning):
        status = pear.solve(found.problem, found.known, on_failure="mask").status
    assert status.tolist() == [pear.Status.INFEASIBLE]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"P": None}, r"has no P, only q, A, l, u, r; expected the arrays P"),
        ({"q": [1.0, 2.0]}, r"q \(2,\).*do not fit together"),
        ({"P": sp.csc_matrix([[2.0, 1.0, 0], [0, 2.0, 0], [0, 0, 0]])}, "one of its triangles only"),
        ({"l": [np.nan, -5.0, -1.0, 1.0, -1.0, -1e20]}, r"l\[0\] is nan"),
        ({"u": [-np.inf, 1e20, 6.0, 1.0, 1.0, 1e30]}, r"u\[0\] is -inf"),
        ({"q": [1.0, np.inf, 0.0]}, r"q\[1\] is inf"),
    ],
)
def test_mat_files_that_are_refused(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    savemat(tmp_path / "a.mat", {k: v for k, v in (osqp_arrays() | change).items() if v is not None})
    with pytest.raises(pear.DataError, match=reason):
        from_osqp_mat(tmp_path / "a.mat")


@pytest.mark.parametrize("integer", [None, [True, False, True]])
def test_written_files_read_back_with_the_same_optimum(tmp_path: Path, integer: list[bool] | None) -> None:
    data = osqp_arrays()
    P = None if integer else data["P"]
    args = (sp.csc_matrix((3, 3)) if P is None else P, np.ravel(data["q"]), data["A"], data["l"], data["u"], integer)
    models = [from_file(write_mat(tmp_path / "a.mat", *args)), from_file(write_mps(tmp_path / "a.mps", *args))]
    values = [value(m) for m in models]
    assert values[0] == pytest.approx(values[1], abs=1e-9)
    assert all((m.problem.integer is not None) == bool(integer) for m in models)
    if integer is None:
        savemat(tmp_path / "b.mat", data)
        assert values[0] == pytest.approx(value(from_osqp_mat(tmp_path / "b.mat")) - 3, abs=1e-9)


def test_generate_writes_a_folder(tmp_path: Path) -> None:
    one = (np.eye(1), [1.0], [[1.0]], [0.0], [2.0])
    made = write_models(tmp_path / "new", [("a", *one), ("b", *one, [True]), ("c", *one, None)])
    assert [path.name for path in made] == ["a.mat", "b.mps", "c.mat"]
    assert from_file(made[1]).problem.integer.tolist() == [True]


# --- the judge ------------------------------------------------------------------------------------------------------


def small(**change: object) -> JudgedProgram:
    """Return min ½x² − 2x + y with x + y ≥ 1, 0 ≤ x ≤ 3, y ≥ 0.

    The solution is x = 2, y = 0, with the value −2 and a multiplier of zero for the row.
    """
    fields = {
        "P": sp.csc_array([[1.0, 0.0], [0.0, 0.0]]),
        "q": np.array([-2.0, 1.0]),
        "A": sp.csr_array([[1.0, 1.0]]),
        "l": np.array([1.0]),
        "u": np.array([np.inf]),
        "lb": np.zeros(2),
        "ub": np.array([3.0, np.inf]),
        "integer": np.zeros(2, dtype=bool),
    }
    return JudgedProgram.from_limits(**(fields | change))


def test_residuals_of_points_that_are_known() -> None:
    exact = measure_accuracy(small(), SolverAnswer("solved", np.array([2.0, 0.0]), np.zeros(0), np.zeros(1)))
    assert (exact.primal, exact.dual, exact.gap, exact.objective) == (0, 0, 0, -2)
    assert (
        measure_accuracy(small(), SolverAnswer("solved", np.array([0.0, 0.5]), np.zeros(0), np.zeros(1))).primal == 0.5
    )
    # a negative multiplier would hold the row from the side that has no limit
    assert measure_accuracy(small(), SolverAnswer("solved", np.array([2.0, 0.0]), np.zeros(0), -np.ones(1))).dual >= 0.5
    # x = 1 is feasible; the gradient −1 would need the bound at 3, which is 2 away: a gap of 2 to |value| + 2
    off = measure_accuracy(small(), SolverAnswer("solved", np.array([1.0, 0.0]), np.zeros(0), np.zeros(1)))
    assert off.gap == pytest.approx(2 / 3.5)
    assert (
        measure_accuracy(small(), SolverAnswer("solved", np.array([np.nan, 0.0]), np.zeros(0), np.zeros(1))).worst
        == np.inf
    )


def test_integers_are_judged_by_the_best_of_the_others() -> None:
    instance = small(P=sp.csc_array((2, 2)), integer=np.array([True, True]))
    best, worse = SolverAnswer("solved", np.array([3.0, 0.0])), SolverAnswer("solved", np.array([2.0, 0.0]))
    assert [r.gap for r in compare_accuracies(instance, [best, worse])] == [0, pytest.approx(2 / 6)]
    (alone,) = compare_accuracies(instance, [best])
    assert rate_accuracy(best, alone, None, True) == "unproven"
    half = SolverAnswer("solved", np.array([2.5, 0.0]))
    assert compare_accuracies(instance, [half, best])[0].primal == 0.5


@pytest.mark.parametrize(
    ("status", "worst", "proven", "expected"),
    [
        ("solved", 0.9 * answer_accuracy.RIGHT, None, "right"),
        ("solved", 1.1 * answer_accuracy.RIGHT, None, "inaccurate"),
        ("solved", 1.1 * answer_accuracy.WRONG, None, "wrong"),
        ("solved", np.nan, None, "wrong"),
        ("iteration limit", 0.0, None, "inaccurate"),
        ("infeasible", np.nan, True, "right"),
        ("infeasible", np.nan, False, "wrong"),
        ("unbounded", np.nan, None, "unproven"),
        ("refused", np.nan, None, "refused"),
        ("time limit", np.nan, None, "out of time"),
        ("crashed", np.nan, None, "crashed"),
    ],
)
def test_verdicts(status: str, worst: float, proven: bool | None, expected: str) -> None:
    for part in ("primal", "dual", "gap"):
        clean = {} if np.isnan(worst) else {"primal": 0.0, "dual": 0.0, "gap": 0.0}
        found = Accuracy(**(clean | {part: worst}))
        assert rate_accuracy(SolverAnswer(status), found, proven, True) == expected
    assert rate_accuracy(SolverAnswer("solved"), Accuracy(0, 0, 0, 0), None, convex=False) == "unproven"


def test_certificates() -> None:
    assert prove_sparse_infeasible(small(l=np.array([5.0]), ub=np.array([3.0, 1.0])), 10.0)
    assert not prove_sparse_infeasible(small(), 10.0)
    assert not prove_sparse_infeasible(small(l=np.array([4.0]), ub=np.array([3.0, 1.0])), 10.0)  # one point is left
    assert prove_sparse_unbounded(small(q=np.array([-2.0, -1.0])), 10.0)
    assert not prove_sparse_unbounded(small(), 10.0)
    assert not prove_sparse_unbounded(small(q=np.array([-2.0, 0.0]), ub=np.full(2, np.inf)), 10.0)  # curved along x
    assert not prove_sparse_unbounded(small(q=np.array([-2.0, -1.0]), l=np.array([9.0]), u=np.array([8.0])), 10.0)
    for n in (2, 1600):
        assert prove_indefinite(sp.csc_array(sp.diags_array(np.r_[np.ones(n - 1), 0.0]))) is Proof.NO
        assert prove_indefinite(sp.csc_array(sp.diags_array(np.r_[np.ones(n - 1), -0.1]))) is Proof.YES


@pytest.mark.parametrize("solver", ["pear", "pear:active-set", "highs", "scipy", "clarabel", "piqp", "daqp"])
@pytest.mark.parametrize("kind", ["lp", "qp"])
def test_every_solver_is_right_and_its_multipliers_have_the_right_sign(tmp_path: Path, solver: str, kind: str) -> None:
    """The tested models have active limits of every kind, in minimisation and maximisation."""
    data = osqp_arrays()
    P = sp.csc_matrix((3, 3)) if kind == "lp" else data["P"]
    mat = write_mat(tmp_path / "a.mat", P, np.ravel(data["q"]), data["A"], data["l"], data["u"])
    top = write(
        tmp_path, "b.mps", "OBJSENSE\n MAX\n" + HEAD.replace(" Y R2 -1", " Y R2 -3") + RHS + BOUNDS + "ENDATA\n"
    )
    for path in (mat, top):
        answer = prepare_file_solver(path, solver, 1e-9)()
        program = read_model_file(path).program
        found = measure_accuracy(program, answer)
        if solver == "scipy" and program.H.nnz:
            assert answer.status == "refused"
        else:
            assert (answer.status, rate_accuracy(answer, found, None, True)) == ("solved", "right"), (
                path,
                answer,
                found,
            )
            assert answer.seconds > 0


def test_unknown_solvers_are_refused() -> None:
    with pytest.raises(pear.UnknownSolverError, match="unknown solver 'gorubi'; expected pear"):
        check_file_solver("gorubi")
    with pytest.raises(pear.UnknownSolverError, match="unknown solver 'gorubi'"):
        check_file_solver("pear:gorubi")


# --- the command ----------------------------------------------------------------------------------------------------

MIP = "max\n o: 5 x + 4 y\nst\n a: 6 x + 4 y <= 24\n b: x + 2 y <= 6\ngeneral\n x y\nend\n"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """Run the command; return its folder, its output and its exit code."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "deep").mkdir()
    write(folder / "deep", "plain.mps", PLAIN + "ENDATA\n")
    write(folder, "infeasible.lp", "min\n o: x + y\nst\n a: x + y <= 1\n b: x + y >= 2\nend\n")
    write(folder, "unbounded.lp", "max\n o: x + y\nst\n a: x - y <= 1\nend\n")
    write(folder, "mip.lp", MIP)
    write(folder, "broken.mps", PLAIN)
    write(folder, "crossed.mps", HEAD + "BOUNDS\n LO BND X 5\n UP BND X 3\nENDATA\n")
    write(folder, "notes.txt", "no model")
    data = osqp_arrays()
    write_mat(folder / "qp.mat", data["P"], np.ravel(data["q"]), data["A"], data["l"], data["u"])
    out = tmp_path_factory.mktemp("out")
    result = CliRunner().invoke(app, ["bench", "files", str(folder), "--solvers", "pear,highs,osqp", "--out", str(out)])
    return out, result.output, result.exit_code


def test_every_file_is_a_row_for_every_solver(measured: tuple[Path, str, int]) -> None:
    out, text, code = measured
    assert code == 0, text
    rows = json.loads((out / "results.json").read_text())["rows"]
    verdicts = {(row["file"], row["solver"]): row["verdict"] for row in rows}
    assert len(verdicts) == len(rows) == 7 * 3
    for solver in ("pear", "highs"):
        for file in ("deep/plain.mps", "infeasible.lp", "unbounded.lp", "mip.lp", "qp.mat"):
            assert verdicts[file, solver] == "right", (file, solver)
    assert {verdicts["broken.mps", solver] for solver in ("pear", "highs", "osqp")} == {"refused"}
    assert verdicts["crossed.mps", "pear"] == "refused"
    assert verdicts["mip.lp", "osqp"] == "refused"
    assert verdicts["crossed.mps", "osqp"] == "crashed"  # its package raises; the files after it are measured
    assert verdicts["qp.mat", "osqp"] != "crashed"


def test_what_is_recorded(measured: tuple[Path, str, int], tmp_path: Path) -> None:
    out, text, _ = measured
    rows = {(row["file"], row["solver"]): row for row in json.loads((out / "results.json").read_text())["rows"]}
    mip, plain, broken = (rows[f, "pear"] for f in ("mip.lp", "deep/plain.mps", "broken.mps"))
    assert mip["objective"] == pytest.approx(20)  # x = 4, y = 0; the relaxation has 21
    assert (mip["kind"], mip["n"], mip["rows"], mip["nonzeros"], mip["gap"]) == ("milp", 2, 2, 4, 0)
    assert (plain["kind"], plain["status"]) == ("lp", "solved")
    own = value(pear.from_mps(write(tmp_path, "a.mps", PLAIN + "ENDATA\n")))  # with the constant of the file
    assert plain["objective"] == pytest.approx(own)
    assert max(plain["primal"], plain["dual"], plain["gap"]) < 1e-12
    others = [rows["deep/plain.mps", solver] for solver in ("highs", "osqp")]
    fastest = min(row["seconds"] for row in others if row["verdict"] == "right")
    assert plain["ratio"] == pytest.approx(plain["seconds"] / fastest)
    assert "Parser error" in broken["note"]
    assert "broken.mps is left out" in " ".join(text.split())
    assert "Summary" in (out / "table.md").read_text()


@pytest.fixture(scope="module")
def solvers() -> Iterator[SolverProcess]:
    """Start one process for several tests, because its start takes longer than their work."""
    with SolverProcess() as started:
        yield started


def test_hard_models_are_written_once_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solvers: SolverProcess
) -> None:
    made = sorted(draw_hard_models(quick=True), key=lambda one: len(one.q))[:2]
    asked, benchmark = [], sys.modules["pear_lab.benchmarks.files_benchmark.run_files"]
    monkeypatch.setattr(benchmark, "SolverProcess", lambda: nullcontext(solvers))
    monkeypatch.setattr(benchmark, "draw_hard_models", lambda quick: asked.append(quick) or made)
    folder, out = tmp_path / "models", tmp_path / "out"
    command = ["bench", "files", str(folder), "--generate", "--quick", "--solvers", "pear,highs", "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert {(row["file"], row["solver"]) for row in rows} == {
        (f"{one.name}.mat", solver) for one in made for solver in ("pear", "highs")
    }
    assert {row["verdict"] for row in rows if row["solver"] == "pear"} == {"right"}
    assert asked == [True]

    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / f"{made[1].name}.mat").unlink()
    assert [path.name for path in write_new_models(folder, made)] == [f"{made[1].name}.mat"]
    assert {path.name for path in folder.iterdir()} == set(first)
    assert write_new_models(folder, made) == []

    write(folder, "mine.lp", MIP)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "holds 1 files that --generate does not write, such as mine.lp" in " ".join(result.output.split())


def test_a_solver_that_takes_too_long_is_ended(tmp_path: Path, solvers: SolverProcess) -> None:
    rng = np.random.default_rng(0)
    A = rng.integers(0, 100, (5, 40))  # a market split problem: no solver here comes near the end of it
    rows = "\n".join(f" r{i}: " + " + ".join(f"{a} x{j}" for j, a in enumerate(row)) for i, row in enumerate(A))
    rows = "\n".join(f"{line} = {total // 2}" for line, total in zip(rows.splitlines(), A.sum(1), strict=True))
    hard = write(
        tmp_path, "hard.lp", f"min\n o: x0\nst\n{rows}\nbinary\n {' '.join(f'x{j}' for j in range(40))}\nend\n"
    )
    answer = solvers.ask(hard, "highs", 1e-8, 0.5)
    assert (answer.status, answer.seconds) == ("time limit", 0.5)


def test_folders_without_models_and_wrong_names(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        result = CliRunner().invoke(app, ["bench", "files", *words, "--out", str(tmp_path / "out")])
        assert result.exit_code == 2
        return " ".join(result.output.split())

    assert "is no folder; expected one with models in it" in said(str(tmp_path / "none"))
    assert "holds no model; expected files that end in .mps" in said(str(tmp_path))
    write(tmp_path, "a.lp", MIP)
    assert "unknown solver 'gorubi'" in said(str(tmp_path), "--solvers", "gorubi")
    assert "--time-limit must be a positive number" in said(str(tmp_path), "--time-limit", "0")
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
