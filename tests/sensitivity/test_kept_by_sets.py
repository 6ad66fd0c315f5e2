"""Factorisations that are stored by the sets of constraints to which they belong."""

from dataclasses import replace

import numpy as np
import torch
from scipy import sparse

import pear
from pear.problem.matrix import SparseMatrix
from pear.sensitivity.kept_by_sets import keep_by_sets


def sparse_problem() -> pear.Problem:
    n = 500
    rows = sparse.csr_array(sparse.diags_array([np.ones(n), np.full(n - 1, 0.5)], offsets=[0, 1]))
    return pear.Problem(G=rows, h=np.ones(n), lb=0, ub=1)


def test_a_result_is_computed_once_for_the_same_sets_and_curvature():
    problem, computed = sparse_problem(), []

    def number(qp, *sets):
        arrays = [np.array(one) for one in sets]
        return keep_by_sets(qp, "count", arrays, lambda: computed.append(1) or len(computed), lambda _: 8)

    qp = problem.canonical(torch.ones(1, problem.n, dtype=torch.float64), 1.0)
    assert number(qp, [True, False], [True]) == number(qp, [True, False], [True]) == 1
    assert number(qp, [True, True], [True]) == 2
    again = problem.canonical(torch.zeros(1, problem.n, dtype=torch.float64), 1.0)
    assert number(again, [True, False], [True]) == 1  # costs do not matter
    other = replace(qp, H=SparseMatrix(2 * qp.H.csr, shared=True))
    assert number(other, [True, False], [True]) == 3


def test_gradients_of_a_later_visit_are_those_of_a_fresh_problem_to_the_bit():
    rng = np.random.default_rng(0)
    predicted, true = torch.from_numpy(rng.normal(size=(2, 3, 500)))
    problem = sparse_problem()
    first = pear.regret_gradient(problem, predicted, true, smoothing=1.0)
    later = pear.regret_gradient(problem, predicted, true, smoothing=1.0)
    near = pear.regret_gradient(problem, predicted + 1e-6, true, smoothing=1.0)
    assert torch.equal(first, later)
    assert torch.equal(near, pear.regret_gradient(sparse_problem(), predicted + 1e-6, true, smoothing=1.0))
