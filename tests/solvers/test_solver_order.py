"""The order in which "auto" asks solvers for dense linear programs: by their expected time."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import pear
from pear.diagnosis.advising.advice_subject import AdviceSubject
from pear.diagnosis.advising.findings import Findings
from pear.diagnosis.advising.solver_and_loss import advise_on_solvers
from pear.solvers.backend_registry import order_backends_by_cost, resolve_backends

pytest.importorskip("highspy")


def draw_program(rows: int, density: float, equalities: bool = False) -> pear.Problem:
    rng = np.random.default_rng(0)
    matrix = rng.uniform(0.2, 1, (rows, 400)) * (rng.uniform(size=(rows, 400)) < density)
    inside = matrix @ rng.uniform(0, 1, 400)
    return pear.Problem(A=matrix, b=inside, lb=0, ub=1) if equalities else pear.Problem(G=matrix, h=inside, lb=0, ub=1)


def names_in_order(problem: pear.Problem, smoothing: float = 0.0) -> list[str]:
    qp = problem.canonical(torch.ones(1, problem.n, dtype=torch.float64), smoothing)
    return [row.name for row in order_backends_by_cost(resolve_backends("auto", "lp" if smoothing == 0 else "qp"), qp)]


def test_the_simplex_method_comes_before_the_interior_point_where_it_is_faster():
    names = names_in_order(draw_program(150, 0.02))
    assert names[:2] == ["active-set", "highs"]
    assert sorted(names) == sorted(row.name for row in resolve_backends("auto", "lp"))


def test_the_interior_point_comes_first_for_many_equalities_with_many_entries():
    names = names_in_order(draw_program(300, 0.1, equalities=True))
    assert names.index("interior-point") < names.index("highs")


def test_curved_and_sparse_programs_keep_the_order_of_the_table():
    problem = draw_program(150, 0.02)
    assert names_in_order(problem, smoothing=1.0) == [row.name for row in resolve_backends("auto", "qp")]


def test_auto_agrees_with_another_solver_where_the_order_has_changed():
    problem = draw_program(150, 0.02)
    costs = np.random.default_rng(1).normal(size=(3, 400))
    found = pear.solve(problem, costs)
    other = [linprog(c, problem.G.numpy(), problem.h.numpy(), bounds=(0, 1), method="highs-ipm").fun for c in costs]
    assert found.value.numpy() == pytest.approx(other, rel=1e-9)


def test_advise_says_which_solver_decides_and_what_it_is_expected_to_take():
    subject, findings = (
        AdviceSubject(draw_program(150, 0.02), np.random.default_rng(1).normal(size=(3, 400))),
        Findings(),
    )
    advise_on_solvers(subject, None, findings)
    assert findings.numbers["solver_decisions"] == "highs"
    sentence = findings.found[-1].sentence
    assert "takes highs, which is expected to take 3.4 ms for one of these dense linear programs" in sentence
    assert "where interior-point takes" in sentence
