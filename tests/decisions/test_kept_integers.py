"""Integer programs that were solved before are not solved again."""

import numpy as np
import pytest
import torch
from scipy import sparse

import pear
from pear.decisions import integer_programs


@pytest.fixture
def solved(monkeypatch):
    """Return a list that receives, for every call, the number of programs that were solved."""
    sizes = []

    class Counted(integer_programs._IntegerProgramRun):
        def __init__(self, qp):
            sizes.append(qp.batch)
            super().__init__(qp)

    monkeypatch.setattr(integer_programs, "_IntegerProgramRun", Counted)
    return sizes


def knapsack(is_sparse: bool) -> pear.Problem:
    """Return a knapsack in which the first four variables are integer.

    It is sparse with 500 variables, or dense with 6.
    """
    n = 500 if is_sparse else 6
    weights = np.where(np.arange(n) < 6, np.arange(n) + 2.0, 0.0)[None]
    rows = sparse.csr_array(weights) if is_sparse else weights
    return pear.Problem(G=rows, h=[9.5], lb=0, ub=1, integer=np.arange(n) < 4, sense="max")


@pytest.mark.parametrize("is_sparse", [False, True])
def test_equal_programs_are_solved_once_and_answers_are_those_of_a_fresh_problem(solved, is_sparse):
    problem, rng = knapsack(is_sparse), np.random.default_rng(0)
    costs = torch.from_numpy(rng.uniform(1, 3, (4, problem.n)))
    batch = costs[[0, 1, 0, 2]]
    first = pear.solve(problem, batch)
    again = pear.solve(problem, costs)
    assert solved == [3, 1]
    fresh = pear.solve(knapsack(is_sparse), costs)
    for name in ("x", "value", "status", "gap", "kkt_residual"):
        assert torch.equal(getattr(again, name), getattr(fresh, name)), name
        assert torch.equal(getattr(first, name), getattr(fresh, name)[[0, 1, 0, 2]]), name
    assert torch.equal(again.active.rows, fresh.active.rows)


def test_other_right_hand_sides_and_matrices_are_other_programs(solved):
    problem, cost = knapsack(False), torch.tensor([[3.0, 2.0, 2.5, 4.0, 1.0, 1.0]], dtype=torch.float64)
    tight = pear.solve(problem, cost, h=[2.5])
    assert float(pear.solve(problem, cost).value) > float(tight.value)
    light = pear.solve(problem, cost, G=np.full((1, 6), 1.5))
    assert light.value.tolist() == pear.solve(knapsack(False), cost, G=np.full((1, 6), 1.5)).value.tolist()
    assert pear.solve(problem, cost, h=[2.5]).value.tolist() == tight.value.tolist()
    assert solved == [1, 1, 1, 1]


def test_what_fails_is_tried_again(solved):
    problem = pear.Problem(G=[[1.0, 1.0], [-1.0, -1.0]], h=[1.4, -1.2], lb=0, ub=1, integer=[True, True])
    for _ in range(2):
        assert not bool(pear.solve(problem, [[1.0, 2.0]], on_failure="mask").solved.any())
    assert len(solved) >= 2
