"""Sparse factors by supernodes: all cases of dense blocks, zero pivots, reused memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.sensitivity.sparse_reduced_systems import SparseReducedSystems
from pear.solvers.linalg.ldl import SymbolicLDL
from pear.solvers.linalg.saddle import SaddlePattern
from pear.tasks import shortest_path

Array = NDArray[Any]


def upper(matrix: Any) -> sparse.csc_array:
    found = sparse.csc_array(sparse.triu(sparse.csc_array(matrix)))
    found.sort_indices()
    return found


def grid(side: int) -> sparse.csc_array:
    """Return the Laplacian of a grid plus 0.02 times the identity."""
    line = sparse.diags_array([-np.ones(side - 1), np.full(side, 2.01), -np.ones(side - 1)], offsets=[-1, 0, 1])
    eye = sparse.eye_array(side)
    return sparse.csc_array(sparse.kron(line, eye) + sparse.kron(eye, line))


def dense(size: int, negative: int) -> Array:
    """Return [H Jᵀ; J −I] with dense H and J, where J has ``negative`` rows."""
    matrix = np.random.default_rng(size).standard_normal((size, size))
    matrix = matrix + matrix.T
    k = size - negative
    matrix[:k, :k] = matrix[:k, :k] @ matrix[:k, :k] / size + np.eye(k)
    matrix[k:, k:] = -np.eye(negative)
    return matrix


MATRICES = {
    "diagonal": sparse.csc_array(np.diag([2.0, -3.0, 4.0])),
    "empty": sparse.csc_array((0, 0)),
    "grid": grid(60),  # blocks of all widths, with rests
    "narrow": dense(9, 3),  # one block without dense products
    "wide": dense(150, 40),  # one block of several tiles
    "bordered": sparse.block_diag([dense(40, 10), dense(70, 0)])
    + sparse.csc_array(np.eye(110)[:, [109]] @ np.ones((1, 110)))
    + sparse.csc_array(np.ones((110, 1)) @ np.eye(110)[[109]])
    + 50 * sparse.csc_array(np.diag(np.arange(110) == 109)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_the_solution_has_no_residual(name: str) -> None:
    matrix = sparse.csc_array(MATRICES[name])
    triangle, rhs = upper(matrix), np.random.default_rng(0).standard_normal(matrix.shape[0])
    factor = SymbolicLDL(triangle, np.inf).factor(triangle.data)
    assert factor.succeeded
    x = factor.solve(rhs)
    size = abs(matrix) @ abs(x) + abs(rhs)
    assert np.all(abs(matrix @ x - rhs) <= 1e-11 * size.max(initial=0.0))


def test_signs_of_pivots_are_those_of_the_matrix() -> None:
    triangle = upper(dense(60, 20))
    assert not SymbolicLDL(triangle, np.inf).factor(triangle.data).is_positive
    triangle = upper(grid(12))
    assert SymbolicLDL(triangle, np.inf).factor(triangle.data).is_positive


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_pivot_of_zero_or_none_is_noticed(value: float) -> None:
    triangle = upper(grid(12))
    triangle.data[triangle.indptr[1:] - 1] = value
    ordering = SymbolicLDL(triangle, np.inf)
    triangle.data[:] = np.where(triangle.data == -1.0, 0.0, triangle.data)
    assert not ordering.factor(triangle.data).succeeded


def test_memory_that_is_used_again_changes_nothing() -> None:
    """A new factor reuses the memory of one that is gone, but not of one that is still referenced."""
    triangle = upper(grid(30))
    ordering, rhs = SymbolicLDL(triangle, np.inf), np.ones(900)
    kept = ordering.factor(triangle.data)
    first = kept.solve(rhs)
    for scale in (2.0, np.nan, 3.0):
        other = ordering.factor(scale * triangle.data)
    assert np.array_equal(kept.solve(rhs), first)
    np.testing.assert_allclose(3.0 * other.solve(rhs), first, rtol=1e-12)


def test_threads_share_an_ordering() -> None:
    triangle = upper(grid(40))
    ordering, rhs = SymbolicLDL(triangle, np.inf), np.ones(1600)
    expected = ordering.factor(triangle.data).solve(rhs)

    def one(k: int) -> Array:
        return k * ordering.factor(k * triangle.data).solve(rhs)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(one, range(1, 25)):
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("coupled", [False, True])
def test_variables_that_join_two_rows_are_eliminated_first(coupled: bool) -> None:
    """Variables with at most two entries are eliminated first; those with three, or with coupled curvature, stay."""
    rng = np.random.default_rng(3)
    n, r = 40, 12
    J = np.zeros((r, n))
    for j in range(n):
        rows = rng.choice(r, j % 4, replace=False)
        J[rows, j] = rng.standard_normal(len(rows))
    H = np.diag(rng.uniform(1, 2, n))
    if coupled:
        H[0, 1] = H[1, 0] = H[2, 9] = H[9, 2] = 0.3
    pattern = SaddlePattern(sparse.csr_array(H), sparse.csr_array(J))
    assert pattern.alone_J.shape[1] == (26 if coupled else 30)
    D, E = rng.uniform(0, 1, n), rng.uniform(0.1, 1, r)
    K = np.block([[H + np.diag(D), J.T], [J, -np.diag(E)]])
    f, v = rng.standard_normal(n), rng.standard_normal(r)
    system = pattern.factor(D, E)
    assert system.succeeded
    assert not system.is_positive
    np.testing.assert_allclose(
        np.concatenate(system.solve(f, v, refinements=0)), np.linalg.solve(K, np.concatenate([f, v])), rtol=1e-10
    )


def test_an_eliminated_variable_may_not_have_a_pivot_of_zero_or_less() -> None:
    pattern = SaddlePattern(sparse.csr_array(np.diag([1.0, 0.0])), sparse.csr_array((0, 2)))
    assert pattern.factor(np.ones(2), np.ones(0)).is_positive
    assert not pattern.factor(np.array([0.0, -1.0]), np.ones(0)).is_positive
    assert not pattern.factor(np.zeros(2), np.ones(0)).succeeded


def test_an_exchange_is_cheap_where_few_variables_are_free() -> None:
    qp = shortest_path((30, 30)).problem.canonical(torch.zeros(1, 1740, dtype=torch.float64), smoothing=0.1)
    few, many = (ActiveSet.none(1, qp.n, qp.m, torch.device("cpu")) for _ in range(2))
    few.lower[:, 60:] = True
    assert SparseReducedSystems(qp, few, [None]).cheap  # type: ignore[arg-type]
    assert not SparseReducedSystems(qp, many, [None]).cheap  # type: ignore[arg-type]
