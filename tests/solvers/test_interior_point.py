"""The batched interior point: the GPU form, which reads no value while it iterates, agrees with the CPU form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from zoo import ZOO, Planted

import pear
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.interior_point import dense_interior_point, dense_iterates
from pear.solvers.interior_point.dense_iterates import DenseIterates
from pear.solvers.interior_point.dense_scaling import (
    _find_scaled_row_pairs,
    scale_programs,
    scaled_normal_matrix,
    scaled_rows,
)
from pear.solvers.linalg.cholesky_factor import factor_cholesky

TOL = 1e-8
CURVED = [name for name, case in ZOO.items() if case.smoothing > 0 or case.problem.Q is not None]


def program(case: Planted) -> QuadraticProgram:
    return case.problem.canonical(case.cost, case.smoothing)


@pytest.mark.parametrize("name", CURVED)
def test_without_looks_the_same_point_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU form runs four iterations at a time, with the inverse of the factor; here it runs on the CPU."""
    case = ZOO[name]
    here = dense_interior_point.solve_dense_interior_point(program(case), TOL)

    on_gpu = dense_interior_point._run_dense_interior_point_on_gpu
    monkeypatch.setattr(dense_interior_point, "_run_dense_interior_point_on_cpu", on_gpu)
    monkeypatch.setattr(dense_iterates, "factor_cholesky", partial(factor_cholesky, invert=True))
    there = dense_interior_point.solve_dense_interior_point(program(case), TOL)
    assert there.status.tolist() == here.status.tolist() == [Status.SOLVED] * case.B
    torch.testing.assert_close(there.x, here.x, rtol=0, atol=1e-6 * case.size)
    torch.testing.assert_close(there.x, case.x, rtol=0, atol=1e-5 * case.size)


def test_samples_that_take_longer_go_on_alone() -> None:
    """Easy samples end early, and the hard ones get the results that they get alone."""
    generator = torch.Generator().manual_seed(0)
    cost = torch.randn(12, 20, generator=generator, dtype=torch.float64)
    cost[:9] = 0.0  # the origin is optimal, and where the method starts
    problem = pear.Problem(A=torch.ones(1, 20), b=[0.0], lb=-1.0, ub=1.0)
    together = dense_interior_point.solve_dense_interior_point(problem.canonical(cost, 0.1), TOL)
    alone = dense_interior_point.solve_dense_interior_point(problem.canonical(cost[9:], 0.1), TOL)
    assert together.status.tolist() == [Status.SOLVED] * 12
    torch.testing.assert_close(together.x[9:], alone.x, rtol=0, atol=1e-7)
    torch.testing.assert_close(together.x[:9], torch.zeros(9, 20, dtype=torch.float64), rtol=0, atol=1e-7)


def test_a_matrix_that_is_not_definite_is_lifted_from_the_next_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    case = ZOO["box"]
    qp = program(case)
    rows = scaled_rows(qp)
    iterates = DenseIterates(scale_programs(qp, rows, rows.size.expand(qp.batch, 1), TOL)[0])
    iterates.begin()
    M = torch.eye(4, dtype=torch.float64).repeat(case.B, 1, 1)
    M[1, 0, 0] = 0.0
    iterates._inverse(M)
    assert iterates._factored.tolist() == [i != 1 for i in range(case.B)]
    assert [float(v) > 1 for v in iterates.lift[:, 0]] == [i == 1 for i in range(case.B)]
    before, left = iterates.state.clone(), iterates.measure()

    def fails(M: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        iterates._factored = torch.arange(case.B) != 1
        return lambda right: right

    monkeypatch.setattr(iterates, "_inverse", fails)
    iterates.move(left)
    still = (iterates.state == before).all(1)
    assert bool(still[1])
    assert not bool(still[0])


def test_products_of_pairs_of_rows_make_up_the_normal_matrix() -> None:
    """Rows of a chain share one variable with their neighbours; dense rows share too many for this method."""
    chain = torch.zeros(30, 60, dtype=torch.float64)
    for i in range(30):
        chain[i, 2 * i : 2 * i + 4] = torch.tensor([1.0, -2.0, 0.5, 3.0])[: 60 - 2 * i]
    by = torch.rand(5, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pairs = _find_scaled_row_pairs(chain)
    assert pairs is not None
    assert pairs.column.shape == (29, 2)
    shift = torch.arange(1.0, 31.0, dtype=torch.float64).expand(5, -1)
    expected = torch.tril(chain @ torch.diag_embed(by) @ chain.T + torch.diag_embed(shift))
    torch.testing.assert_close(pairs.normal_matrix(by, shift), expected)
    torch.testing.assert_close(torch.tril(scaled_normal_matrix(chain[None], by, shift)), expected)
    torch.testing.assert_close(torch.tril(scaled_normal_matrix(chain.repeat(5, 1, 1), by, shift)), expected)
    assert _find_scaled_row_pairs(torch.ones_like(chain)) is None
    assert _find_scaled_row_pairs(torch.eye(30, 60, dtype=torch.float64)) is None


@pytest.mark.parametrize("k", [1, 7, 96, 97, 250])
def test_the_inverse_of_a_factor_solves_as_substitution_does(k: int) -> None:
    generator = torch.Generator().manual_seed(k)
    M = torch.randn(3, k, k, generator=generator, dtype=torch.float64)
    M = M @ M.mT + k * torch.eye(k, dtype=torch.float64)
    right = torch.randn(3, k, generator=generator, dtype=torch.float64)
    L, T = factor_cholesky(M), factor_cholesky(M, invert=True)
    torch.testing.assert_close(T.matrix @ L.matrix, torch.eye(k, dtype=torch.float64).expand_as(M))
    torch.testing.assert_close(T.solve(right), L.solve(right))
