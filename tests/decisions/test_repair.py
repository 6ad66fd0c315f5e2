"""Repair alone: exchanges lead from an empty working set to the solution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor
from zoo import ZOO, arrays

import pear
from pear.decisions.repair import RepairResult, repair
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem.quadratic_program import QuadraticProgram

# block principal pivoting from an empty set need not end where rows of every kind meet; a solver's candidate is near
CURVED = [name for name in ZOO if name not in ("polyhedron", "own everything")]


def from_nothing(qp: QuadraticProgram, x: Tensor, max_exchanges: int = 60) -> RepairResult:
    """Repair from a working set that holds only the variables with equal bounds, and from multipliers of zero."""
    zeros = (torch.zeros(qp.batch, k, dtype=torch.float64) for k in (qp.p, qp.m, qp.n))
    none = ActiveSet.none(qp.batch, qp.n, qp.m, x.device)
    working = ActiveSet(none.rows, none.lower | (qp.lb == qp.ub), none.upper)
    return repair(qp, x, Duals(*zeros), working, max_exchanges)


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("near", [True, False])
def test_the_planted_solution_is_reached(name: str, near: bool) -> None:
    case = ZOO[name]
    qp = case.problem.canonical(case.cost, case.smoothing)
    noise = torch.randn(case.x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = from_nothing(qp, case.x + 0.1 * case.size * noise if near else torch.zeros_like(case.x))
    assert bool(found.solved.all())
    np.testing.assert_allclose(found.x, case.x, rtol=0, atol=1e-12 * case.size)
    held = (found.working.rows.sum(1) + found.working.fixed.sum(1)) > (qp.lb == qp.ub).sum(1)
    assert bool(((found.exchanges > 0) == held).all())
    # without an exchange the samples that need one are left
    none = from_nothing(qp, torch.zeros_like(case.x), max_exchanges=0)
    assert none.solved.tolist() == (found.exchanges == 0).tolist()
    assert not bool(none.exchanges.any())


@pytest.mark.parametrize("name", ["box", "transport", "linear vertex", "fixed", "one variable"])
def test_linear_programs_go_downhill_to_a_vertex(name: str) -> None:
    """Without curvature, every step goes as far as the first constraint in its way."""
    case = ZOO[name]
    qp = case.problem.canonical(case.cost, 0.0)
    found = from_nothing(qp, case.x)
    assert bool(found.solved.all())
    for i in range(case.B):
        a = arrays(case.problem, case.cost, 0.0, i)
        rows = {"A_ub": a.G, "b_ub": a.h, "A_eq": a.A, "b_eq": a.b}
        best = linprog(a.c, bounds=np.column_stack([a.lb, a.ub]), **{k: v for k, v in rows.items() if len(v)}).fun
        assert float(a.c @ found.x[i].numpy()) == pytest.approx(best, rel=1e-9, abs=1e-9 * case.size * case.force)


def test_a_step_ends_at_the_first_row_in_its_way() -> None:
    """From (0.1, 0.1) along (1, 2), the row x₀ + x₁ ≤ ½ blocks first; along this row the method reaches a vertex."""
    for h, expected in ((0.5, [0.0, 0.5]), (1.5, [0.5, 1.0]), (9.0, [1.0, 1.0])):
        problem = pear.Problem(G=[[1.0, 1.0], [-1.0, -1.0]], h=[h, 3.0], lb=0.0, ub=1.0)
        qp = problem.canonical(torch.tensor([[-1.0, -2.0]]))
        found = from_nothing(qp, torch.full((1, 2), 0.1, dtype=torch.float64))
        assert found.solved.tolist() == [True]
        np.testing.assert_allclose(found.x[0], expected, rtol=0, atol=1e-14)
        assert float(found.duals.inequality.min()) >= 0
