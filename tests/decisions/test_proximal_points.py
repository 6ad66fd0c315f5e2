"""Programs that may have many optimal points: proximal points find one if the active-set method fails.

Their curvature is singular, some of their variables are free, and some rows depend on others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.decisions.pipeline import solve_in_pipeline
from pear.solvers.backend_registry import get_backend

SEEDS = [*range(24), 44, 148, 156, 184, 207, 290, 294]  # the last ones are given up by the active-set method itself
RELATIVE = 1e-9  # of the objective, to the size of its terms


def random_program(seed: int) -> tuple[dict[str, Any], np.ndarray, float]:
    """Draw a program with an optimal point x; return its fields, its cost (n,), and the objective at x.

    The multipliers of the rows that are tight at x are drawn first, and the cost follows from them. If the seed is
    even, they are all zero.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 31))
    F = rng.normal(size=(n, int(rng.integers(1, n // 2 + 1)))) * (rng.random((n, 1)) < 0.7)
    x = rng.normal(size=n)
    A, G = rng.normal(size=(n // 4, n)), rng.normal(size=(n, n))
    A = rng.permutation(np.vstack([A, A[:1], A.sum(0)]))
    G = rng.permutation(np.vstack([G, 2.0 * G[: n // 3], G[:1] + G[1:2]]))
    room = rng.uniform(0.0, 1.0, len(G)) * (rng.random(len(G)) < 0.5)
    below, above = np.where(rng.random((2, n)) < 0.7, np.inf, rng.integers(0, 3, (2, n)))
    Q = F @ F.T
    pull = rng.exponential(size=len(G)) * (rng.random(len(G)) < 0.3) * (room == 0.0) * (seed % 2)
    c = -Q @ x - pull @ G
    fields = {"Q": Q, "A": A, "b": A @ x, "G": G, "h": G @ x + room, "lb": x - below, "ub": x + above}
    return fields, c, float(0.5 * x @ Q @ x + c @ x)


def terms(fields: dict[str, Any], c: np.ndarray, x: np.ndarray) -> float:
    """Return the sum of the absolute values of the objective's terms, at least 1."""
    return max(1.0, float(np.abs(c) @ np.abs(x) + np.abs(x) @ np.abs(fields["Q"]) @ np.abs(x)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_solver_is_enough(seed: int) -> None:
    """If the active-set method gives up a sample and there is no other solver, proximal points lead to its solution."""
    fields, c, best = random_program(seed)
    qp = pear.Problem(**fields).canonical(torch.from_numpy(c)[None], 0.0)
    found = solve_in_pipeline(qp, [get_backend("active-set")])
    assert found.status.tolist() == [pear.Status.SOLVED]
    x = found.x[0].numpy()
    assert np.all(fields["G"] @ x <= fields["h"] + 1e-9)
    np.testing.assert_allclose(fields["A"] @ x, fields["b"], rtol=0, atol=1e-9)
    assert 0.5 * x @ fields["Q"] @ x + c @ x == pytest.approx(best, rel=0, abs=RELATIVE * terms(fields, c, x))


@pytest.mark.parametrize("seed", SEEDS[-7:])
@pytest.mark.parametrize("order", range(3))
def test_the_order_of_rows_does_not_matter(seed: int, order: int) -> None:
    fields, c, best = random_program(seed)
    rng = np.random.default_rng(order)
    for matrix, side in (("A", "b"), ("G", "h")):
        rows = rng.permutation(len(fields[side]))
        fields[matrix], fields[side] = fields[matrix][rows], fields[side][rows]
    found = pear.solve(pear.Problem(**fields), np.stack([c, c]), on_failure="mask")
    assert found.status.tolist() == [pear.Status.SOLVED] * 2
    room = RELATIVE * terms(fields, c, found.x[0].numpy())
    np.testing.assert_allclose(found.value, [best, best], rtol=0, atol=room)


def test_failures_are_named_as_before() -> None:
    """Proximal programs are always bounded, unlike the program itself; they are infeasible exactly if it is."""
    fields, c, _ = random_program(44)
    contradiction = {"A": np.vstack([fields["A"], fields["A"][:1]]), "b": np.append(fields["b"], fields["b"][0] + 1.0)}
    with pytest.warns(pear.FailedSamplesWarning):
        found = pear.solve(pear.Problem(**{**fields, **contradiction}), c, on_failure="mask")
    assert found.status.tolist() == [pear.Status.INFEASIBLE]
    flat = pear.Problem(Q=np.diag([1.0, 0.0, 0.0]), G=[[0.0, 1.0, -1.0]], h=[1.0])
    costs = [[1.0, 0.0, 0.0], [1.0, -1.0, 0.0], [1.0, -1.0, 1.0]]
    statuses = [pear.Status.SOLVED, pear.Status.UNBOUNDED, pear.Status.SOLVED]
    with pytest.warns(pear.FailedSamplesWarning):
        assert pear.solve(flat, costs, on_failure="mask").status.tolist() == statuses
