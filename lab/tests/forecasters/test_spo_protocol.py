"""The protocol of Elmachtoub & Grigas: SPO+ and lasso against other solvers, its command, and its table."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scripts import import_script
from sklearn.linear_model import Lasso

import pear
from pear.errors import DataError, SolveError
from pear.tasks import shortest_path
from pear_lab.data.path_regrets import PathCell
from pear_lab.forecasters import spo_plus_program, spo_protocol
from pear_lab.forecasters.spo_plus_program import LAST_SMOOTHING, SPOPlusProgram
from pear_lab.forecasters.spo_protocol import (
    PENALTIES,
    SpoProtocolResult,
    fit_spo_protocol_by_least_squares,
    list_spo_protocol_paths,
    read_spo_protocol_results,
    spo_protocol_regret,
    spo_protocol_table,
)

SCRIPT = Path(__file__).parents[2] / "studies" / "spo_paths_study.py"
SAMPLES = 25


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features with an intercept (25, 3), costs (25, 12), and the six paths of a 3×3 grid."""
    task = shortest_path((3, 3))
    x, c = task.samples(SAMPLES, degree=4, noise=0.5, seed=1, features=2, dtype=torch.float64)
    return np.column_stack([np.ones(SAMPLES), x.numpy()]), c.numpy(), list_spo_protocol_paths(task.graph)


def linear_program_value(X: np.ndarray, C: np.ndarray, paths: np.ndarray, penalties: np.ndarray) -> float:
    """Return the least mean SPO+ loss plus penalty, by HiGHS.

    The program is min Σ tᵢ/n + Σ penalty v with tᵢ at least the loss of every path, and v ≥ |B|.
    """
    (n, q), (K, m) = X.shape, paths.shape
    best = paths[(C @ paths.T).argmin(1)]
    turned = (best[:, None] - paths[None])[..., None] * 2 * X[:, None, None]
    rows = np.concatenate([turned.reshape(n * K, m * q), -np.repeat(np.eye(n), K, 0), np.zeros((n * K, m * q))], 1)
    right = (C[:, None] * (best[:, None] - paths)).sum(2).ravel()
    eye, none = np.eye(m * q), np.zeros((m * q, n))
    G = np.concatenate([rows, np.hstack([eye, none, -eye]), np.hstack([-eye, none, -eye])])
    h = np.concatenate([right, np.zeros(2 * m * q)])
    cost = np.concatenate([np.zeros(m * q), np.full(n, 1 / n), np.tile(penalties, m)])
    return float(linprog(cost, A_ub=G, b_ub=h, bounds=(None, None)).fun)


@pytest.mark.parametrize("weight", [0.001, 0.1])
def test_spo_plus_reaches_the_value_of_the_linear_program(data, weight: float) -> None:
    """Smoothing raises the maximum of K functions, and hence its minimum, by at most τ log K."""
    X, C, paths = data
    penalties = weight * np.array([0.0, 1.0, 1.0])
    program = SPOPlusProgram.from_samples(X, C, paths)
    fit = program.minimise(penalties, np.zeros((12, 3)))
    excess = fit.value - linear_program_value(X, C, paths, penalties)
    tau = LAST_SMOOTHING * program.unit
    assert 0 <= excess <= tau * (np.log(len(paths)) + 24 * weight * np.log(2))


def test_spo_plus_has_the_value_of_the_loss_in_the_library(data) -> None:
    X, C, paths = data
    B = np.random.default_rng(0).normal(size=(12, 3))
    loss = pear.losses.SPOPlusLoss(shortest_path((3, 3)).problem)
    expected = float(loss(torch.from_numpy(X @ B.T), torch.from_numpy(C)))
    program = SPOPlusProgram.from_samples(X, C, paths)
    found = program.objective(B / program.unit, np.zeros((12, 3)), 0.0) * program.unit / SAMPLES
    assert found == pytest.approx(expected, rel=1e-9)


def test_too_many_steps_are_an_error(data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spo_plus_program, "MAX_STEPS", 2)
    X, C, paths = data
    with pytest.raises(SolveError, match="more than 2 steps"):
        SPOPlusProgram.from_samples(X, C, paths).minimise(np.zeros(3), np.zeros((12, 3)))


def test_least_squares_is_the_lasso_of_scikit_learn(data) -> None:
    X, C, _ = data
    fits = fit_spo_protocol_by_least_squares(X, C)
    assert len(fits) == len(PENALTIES) == 10
    assert PENALTIES[[0, -1]] == pytest.approx([1e-6, 100])
    for weight, B in list(zip(PENALTIES, fits, strict=True))[4:7]:
        other = Lasso(alpha=weight, tol=1e-12, max_iter=100_000).fit(X[:, 1:], C)
        np.testing.assert_allclose(B, np.column_stack([other.intercept_, other.coef_]), rtol=1e-7, atol=1e-9)
    assert not fits[-1][:, 1:].any()


def test_regret_is_that_of_the_library(data) -> None:
    X, C, paths = data
    B = np.random.default_rng(1).normal(size=(12, 3))
    expected = 100 * pear.normalized_regret(shortest_path((3, 3)).problem, X @ B.T, C)
    assert spo_protocol_regret(B, X, C, paths) == pytest.approx(expected, rel=1e-9)


@pytest.fixture(scope="module")
def study() -> ModuleType:
    return import_script(SCRIPT)


def test_the_command_goes_on_where_it_was(study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("PEAR_DATA", str(tmp_path))
    monkeypatch.setattr(spo_protocol, "PENALTIES", np.array([0.1]))
    file = tmp_path / "runs.jsonl"
    words = ["--sizes", "20", "--degrees", "2", "--noises", "0", "--out", str(file), "--replications"]
    assert study.main([*words, "1"]) == 0
    (only,) = read_spo_protocol_results(file).values()
    assert (only.size, only.degree, only.noise, only.seed) == (20, 2, 0.0, 0)
    assert only.penalty == {"SPO+": 0.1, "least squares": 0.1}
    assert 0 < only.regret["SPO+"] < 20
    file.write_text(file.read_text("utf-8") + '{"size": 20, "deg', "utf-8")  # a line that was cut off
    monkeypatch.setattr(spo_protocol, "run_spo_protocol", lambda key: pytest.fail(f"{key} is run again"))
    assert study.main([*words, "1"]) == 0
    assert "Published numbers are left out" in capsys.readouterr().err
    assert file.with_suffix(".md").read_text("utf-8").count("| 20 | 0 | 2 | 1 |") == 2
    file.write_text("nothing\n", "utf-8")
    assert study.main([*words, "1"]) == 1
    assert "line 1 is no replication" in capsys.readouterr().err
    with pytest.raises(DataError, match="delete the line"):
        read_spo_protocol_results(file)


def test_the_table_counts_in_standard_errors() -> None:
    """Means of 2 and 4 with standard errors 1 and 0 differ by two standard errors."""
    cell = PathCell(100, 8, 0.5)
    ours = [SpoProtocolResult(*cell, seed, {"SPO+": 4.0, "least squares": 1.0}, {}, 1.0) for seed in range(2)]
    text = spo_protocol_table(ours, {cell: {"SPO+": [1.0, 3.0]}})
    assert "| 100 | 0.5 | 8 | 2 | SPO+ | 2.0000 ± 1.0000 | 4.0000 ± 0.0000 | +2.00 |" in text
    assert "| 100 | 0.5 | 8 | 2 | least squares |  | 1.0000 ± 0.0000 |  |" in text
