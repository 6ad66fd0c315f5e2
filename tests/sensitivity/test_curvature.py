"""Tests for definite, semidefinite and indefinite curvature: at every scale, dense and sparse, by every function."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence
from torch import Tensor

import pear
from pear.optimality.definiteness import is_definite, is_semidefinite
from pear.problem.matrix import SparseMatrix
from pear.sensitivity.convexity import convexity_sign, lacks_strict_convexity
from pear.sensitivity.inverse_curvature import apply_inverse_curvature

SCALES = [1e-6, 1.0, 1e6]
every_scale = pytest.mark.parametrize("scale", SCALES)
n = 5


def spectrum(least: float, count: int = 20, seed: int = 0) -> Tensor:
    """Return (count, n, n) matrices with eigenvalues from ``least`` to 1 in random directions."""
    rng = np.random.default_rng(seed)
    values = np.linspace(least, 1.0, n)
    bases = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(count)]
    return torch.from_numpy(np.stack([(V * values) @ V.T for V in bases]))


@every_scale
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_definite_semidefinite_and_indefinite(scale: float, sign: float) -> None:
    curved, flat, saddle = (sign * scale * spectrum(least) for least in (0.1, 0.0, -1e-6))
    assert bool(is_definite(curved, sign).all())
    assert not bool(is_definite(flat, sign).any())
    assert not bool(is_definite(saddle, sign).any())
    assert bool(is_semidefinite(curved, sign).all())
    assert bool(is_semidefinite(flat, sign).all())
    assert not bool(is_semidefinite(saddle, sign).any())
    # a sample is judged by itself, and smoothing lifts it
    assert is_semidefinite(torch.cat([saddle[:2], flat[:1], curved[:1]]), sign).tolist() == [False, False, True, True]
    assert bool(is_definite(saddle, sign, smoothing=0.1 * scale).all())
    assert bool(is_semidefinite(saddle, sign, smoothing=1e-5 * scale).all())
    assert not bool(is_definite(curved, sign, smoothing=-0.2 * scale).any())


def test_zero_curvature_is_convex_and_not_definite() -> None:
    zero = torch.zeros(1, n, n, dtype=torch.float64)
    assert is_semidefinite(zero).tolist() == [True]
    assert is_definite(zero).tolist() == [False]


def test_a_flat_curvature_that_comes_with_the_call_is_solved() -> None:
    problem = pear.Problem(Q=np.eye(2), lb=0.0, ub=1.0)
    Q = torch.tensor([[1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    found = pear.solve(problem, [[-1.0, -0.5]], Q=Q)
    torch.testing.assert_close(found.x, torch.tensor([[1.0, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("diagonal", [[1.0, 0.0], [2.0, 1.0], [0.0, 0.0]])
@pytest.mark.parametrize("turned", [False, True])
def test_singular_where_one_direction_is_flat(diagonal: list[float], turned: bool) -> None:
    V = np.array([[0.6, -0.8], [0.8, 0.6]]) if turned else np.eye(2)
    qp = pear.Problem(Q=(V * diagonal) @ V.T, n=2).canonical(torch.zeros(1, 2))
    assert bool(lacks_strict_convexity(replace(qp, diagonal=not turned)).all()) == (0.0 in diagonal)


@every_scale
def test_singular_whatever_the_sign_of_the_last_pivot(scale: float) -> None:
    """Rounding makes the last pivot of a singular curvature positive in half of the random directions."""
    for least, flat in ((0.0, True), (1e-9, False)):
        qp = pear.Problem(Q=scale * spectrum(least)).canonical(torch.zeros(20, n))
        assert lacks_strict_convexity(qp).tolist() == [flat] * 20


@pytest.mark.parametrize("diagonal", [True, False])
def test_inverse(diagonal: bool) -> None:
    Q = torch.diag(torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0], dtype=torch.float64)) if diagonal else spectrum(0.1)[0]
    e = torch.arange(10, dtype=torch.float64).view(2, 5) - 3
    qp = replace(pear.Problem(Q=Q).canonical(torch.zeros(2, 5)), diagonal=diagonal)
    torch.testing.assert_close(apply_inverse_curvature(qp, e), torch.linalg.solve(Q, e.T).T, rtol=1e-12, atol=1e-12)


# --------------------------------------------------------------------------------------------------------- sparse


def sign(H: Any) -> int:
    """Return the sign of the least eigenvalue of a sparse curvature H."""
    csr = sparse.csr_array(H)
    size = csr.shape[0]
    matrices = {name: SparseMatrix(one, shared=True) for name, one in zip("HAG", (csr, *2 * [csr[:0]]), strict=True)}
    return convexity_sign(replace(pear.Problem(n=size).canonical(torch.ones(1, size)), **matrices))


@pytest.fixture
def no_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every curvature be too costly to factor."""
    monkeypatch.setattr("pear.sensitivity.convexity.convexity_pattern", lambda H: SimpleNamespace(direct=False))


def chain(shift: float, size: int = 8) -> sparse.csr_array:
    """Return the Laplacian of a path plus ``shift`` times I; the least eigenvalue is ``shift``.

    With a shift of at most 0, no row is strictly diagonally dominant.
    """
    edges = sparse.csr_array(sparse.diags_array([1.0, -1.0], offsets=[0, 1], shape=(size - 1, size)))
    return sparse.csr_array(edges.T @ edges + shift * sparse.eye_array(size))


SIGNS = [(1.0, 1), (1e-3, 1), (1e-12, 0), (0.0, 0), (-1e-12, 0), (-1e-3, -1)]


@every_scale
def test_sign_of_the_least_eigenvalue(scale: float) -> None:
    assert [sign(scale * chain(shift)) for shift, _ in SIGNS] == [expected for _, expected in SIGNS]


@every_scale
@pytest.mark.usefixtures("no_factors")
def test_sign_of_the_least_eigenvalue_without_a_factor(scale: float) -> None:
    assert [sign(scale * chain(shift)) for shift, _ in SIGNS] == [expected for _, expected in SIGNS]


@every_scale
@pytest.mark.parametrize(
    ("diagonal", "expected"),
    [([1.0, 2.0], 1), ([1.0, 0.0], 0), ([0.0, 0.0], 0), ([1.0, -1e-12], 0), ([1.0, -1e-6], -1), ([-1.0, -1.0], -1)],
)
def test_sign_of_a_diagonal(scale: float, diagonal: list[float], expected: int) -> None:
    assert sign(sparse.diags_array(scale * np.array(diagonal))) == expected


def test_sign_where_only_the_coupling_is_there() -> None:
    """[[0, 1], [1, 0]] has the eigenvalues ±1. The sign of the least one is found, though the diagonal is zero."""
    assert sign(np.array([[0.0, 1.0], [1.0, 0.0]])) == -1


@pytest.mark.parametrize(("known", "expected"), [([], 0), ([0.5], 1), ([-0.5], -1)])
@pytest.mark.usefixtures("no_factors")
def test_estimates_that_have_not_settled(monkeypatch: pytest.MonkeyPatch, known: list[float], expected: int) -> None:
    """If Lanczos does not converge, its estimates decide; without any estimate the curvature may be flat."""

    def never(*args: Any, **options: Any) -> Any:
        raise ArpackNoConvergence("no convergence", np.array(known), np.zeros((8, len(known))))

    monkeypatch.setattr("scipy.sparse.linalg.eigsh", never)
    assert sign(chain(0.0)) == expected


def test_a_large_neighbour_makes_nobody_indefinite() -> None:
    both = torch.stack([1e8 * torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)])
    assert is_definite(both).tolist() == [True, True]
