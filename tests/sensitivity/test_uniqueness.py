"""Uniqueness of decisions, on small programs with many ties, compared with a search along every coordinate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import OptimizeResult, linprog
from zoo import arrays

import pear
from pear.decisions.continuous_programs import solve_continuous_programs
from pear.optimality.status import Status
from pear.sensitivity import uniqueness
from pear.sensitivity.projection import project
from pear.sensitivity.uniqueness import is_unique
from pear_lab.judge.judged_program import JudgedProgram

n = 4


def width_of_the_optimal_set(a: JudgedProgram, x: np.ndarray) -> float:
    """Return how far two optimal points can differ in one coordinate; they have Hz = Hx and the same cost."""
    A, b = np.vstack([a.A, a.H]), np.concatenate([a.b, a.H @ x])
    G, h = np.vstack([a.G, a.c + a.H @ x]), np.append(a.h, (a.c + a.H @ x) @ x + 1e-11)
    some = np.abs(A).sum(1) > 0
    ends = []
    for c in np.vstack([np.eye(n), -np.eye(n)]):
        found = linprog(c, G, h, A[some], b[some], np.column_stack([a.lb, a.ub]), options={"presolve": False})
        assert found.status == 0
        ends.append(found.fun)
    return float(-(np.array(ends[:n]) + ends[n:]).min())


def test_ties_of_every_kind() -> None:
    answers = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        G, A = rng.integers(-1, 2, (2, n)).astype(float), rng.integers(0, 2, (1, n)).astype(float)
        inside = rng.integers(0, 3, n) / 2
        fields = {"G": G, "h": G @ inside + rng.integers(0, 2, 2) / 2, "lb": 0.0, "ub": 1.0}
        if seed % 3 == 0:
            fields |= {"A": A, "b": A @ inside}
        if seed % 2 == 0:
            v = rng.integers(-1, 2, n).astype(float)
            fields["Q"] = np.outer(v, v)
        problem, cost = pear.Problem(**fields), torch.from_numpy(rng.integers(-1, 2, n).astype(float))[None]
        found = solve_continuous_programs(problem, cost, 0.0, "auto")
        assert bool(found.solved.all())
        if not bool(found.systems.project(cost)[3]):  # flat along what is tight: not unique, and nothing to ask
            continue
        width = width_of_the_optimal_set(arrays(problem, cost, 0.0, 0), found.x[0].numpy())
        answers.append(bool(is_unique(found.qp, found.active, found.weak)))
        assert answers[-1] == (width < 1e-6), (seed, width)
    assert min(answers.count(True), answers.count(False)) >= 5


@pytest.mark.parametrize("failures", [1, 2])
def test_a_failed_linear_program_is_no_tie(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of the second sample is weakly active, so that a program is solved; the solver fails once or always."""
    problem, cost = pear.Problem(A=[[1.0]], b=[[0.5], [1.0]], ub=1.0), torch.zeros(2, 1, dtype=torch.float64)
    found = solve_continuous_programs(problem, cost, 0.0, "auto")
    solved, calls = uniqueness.solve_with_linprog, []

    def failing(*args: Any, presolve: bool) -> OptimizeResult:
        calls.append(presolve)
        return OptimizeResult(status=4) if len(calls) <= failures else solved(*args, presolve=presolve)

    monkeypatch.setattr(uniqueness, "solve_with_linprog", failing)
    if failures == 1:
        assert project(found, cost).tolist() == [[0.0], [0.0]]
    else:
        with pytest.raises(pear.SolveError, match="no solver could tell whether the decision of sample 1") as error:
            project(found, cost)
        assert error.value.statuses == [Status.INACCURATE]
    assert calls == [True, False]
