"""Lazy rows, added if a decision violates them: round trips without subtours, compared with all round trips."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from tours import Tours

import pear
from pear.problem.derived_problems import problem_with_rows

TOURS = Tours(6)
COSTS = np.random.default_rng(3).uniform(1.0, 9.0, (12, 15))
WHOLE = pear.Problem(A=TOURS.degrees.A, b=TOURS.degrees.b, lb=0.0, ub=1.0, integer=True)


def subtour(z):
    """Return the violated row for the cities that are connected with city 0, and its right-hand side.

    It demands fewer edges between these cities than there are cities. If all cities are connected, return None.
    """
    reached = {0}
    for _ in range(6):
        reached |= {
            city for edge, used in zip(TOURS.edges, z, strict=True) if used > 0.5 and reached & {*edge} for city in edge
        }
    if len(reached) == 6:
        return None
    return np.array([float({*edge} <= reached) for edge in TOURS.edges]), len(reached) - 1


def test_decisions_are_those_of_all_rows():
    without = pear.solve(WHOLE, COSTS).value.numpy()
    expected = (COSTS * TOURS.decide_all(COSTS)).sum(1)
    assert (without < expected - 0.1).any()  # some are two trips through three cities
    lazy = pear.lazy_oracle(WHOLE, subtour)
    found = pear.solve(lazy, COSTS)
    np.testing.assert_allclose(found.value.numpy(), expected, rtol=1e-9)
    rows = len(lazy.function.rows)
    assert 0 < rows <= 10  # one for each way to part six cities in two
    pear.solve(lazy, COSTS[::-1].copy())
    assert len(lazy.function.rows) == rows
    again = pickle.loads(pickle.dumps(lazy.function.rows))
    assert again.shape == (rows, 15)


def test_pear_trains_on_the_problem_without_the_rows():
    lazy = pear.lazy_oracle(WHOLE, subtour)
    loss = pear.PEARLoss(lazy)
    assert not loss.problem.is_integer
    predicted = torch.tensor(COSTS, requires_grad=True)
    loss(predicted, torch.tensor(COSTS[::-1].copy())).backward()
    assert predicted.grad.abs().max() > 0
    assert pear.regret(lazy, COSTS, COSTS).abs().max() <= 1e-9


def test_what_separate_may_not_return():
    box = pear.Problem(lb=0.0, ub=1.0, n=2, sense="max")
    for separate, message in (
        (lambda z: ([1.0, 1.0], 2.0), "rows that the decision satisfies"),
        (lambda z: ([1.0, 1.0, 1.0], 1.0), r"rows \(r, 2\)"),
        (lambda z: ([np.nan, 1.0], 1.0), "finite rows"),
    ):
        with pytest.raises(pear.ProblemError, match=message):
            pear.solve(pear.lazy_oracle(box, separate), [[1.0, 1.0]])
    stubborn = pear.lazy_oracle(box, lambda z: ([1.0, 1.0], 1.0) if z.sum() >= 1.0 - 1e-6 else None)
    with pytest.raises(pear.ProblemError, match=r"satisfies|added before"):
        pear.solve(stubborn, [[1.0, 1.0]])
    assert pear.solve(pear.lazy_oracle(box, lambda z: ([], [])), [[1.0, 1.0]]).x.tolist() == [[1.0, 1.0]]


def test_a_sample_that_the_rows_leave_nothing_to_is_named():
    box = pear.Problem(A=[[1.0, 1.0]], b=[2.0], lb=0.0, ub=1.0)
    none = pear.lazy_oracle(box, lambda z: ([1.0, 0.0], 0.5) if z[0] > 0.75 else None)
    with pytest.raises(pear.SolveError, match="INFEASIBLE"):
        pear.solve(none, [[1.0, 1.0]])


@pytest.mark.parametrize(
    ("problem", "separate", "message"),
    [
        (pear.Problem(lb=0, ub=[[1.0, 1.0], [2.0, 2.0]]), subtour, "whose fields all samples share"),
        (pear.Oracle(np.sign, n=2), subtour, "takes a pear.Problem"),
        (WHOLE, None, "separate must be a function"),
    ],
)
def test_wrong_arguments(problem, separate, message):
    with pytest.raises(pear.ProblemError, match=message):
        pear.lazy_oracle(problem, separate)


@pytest.mark.parametrize("own", [{}, {"G": sparse.eye_array(500, format="csr")[:5], "h": np.full(5, 0.5)}])
def test_rows_are_added_to_a_sparse_problem(own):
    A = sparse.kron(sparse.eye_array(50), np.ones((1, 10)), format="csr")
    cost = -np.random.default_rng(0).uniform(1, 2, (2, 500))
    common = {"A": A, "b": np.full(50, 3.0), "lb": 0.0, "ub": 1.0}
    base, top = pear.Problem(**common, **own), np.eye(500)[np.argsort(cost[0])[:3]]
    rows = sparse.vstack([*([own["G"]] if own else []), sparse.csr_array(top)])
    sides = np.append(own.get("h", np.zeros(0)), np.full(3, 0.25))
    whole, added = pear.Problem(**common, G=rows, h=sides), problem_with_rows(base, top, np.full(3, 0.25))
    assert base.is_sparse and added.is_sparse and whole.is_sparse  # noqa: PT018
    torch.testing.assert_close(pear.solve(added, cost).value, pear.solve(whole, cost).value)
