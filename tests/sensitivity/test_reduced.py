"""The reduced KKT systems alone: every result against numpy's, on working sets that need not be favourable."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

import pear
from pear.compile.thread_pools import map_in_threads
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.problem.matrix import SparseMatrix
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.dense_reduced_systems import DenseReducedSystems
from pear.sensitivity.sparse_reduced_systems import (
    SparseReducedSystem,
    SparseReducedSystems,
    SparseThenDenseReducedSystems,
)

B, n, m = 4, 6, 4
KINDS = ["dense", "diagonal", "own rows", "dependent rows", "no equalities", "units"]


def programs(kind: str) -> tuple[QuadraticProgram, ActiveSet]:
    """Return curved programs with working sets of different sizes; that of the last sample holds every variable."""
    rng = np.random.default_rng(3)
    L = rng.standard_normal((n, n))
    Q = np.diag(rng.uniform(0.5, 2.0, n)) if kind == "diagonal" else L @ L.T + 0.1 * np.eye(n)
    A, G = rng.standard_normal((1, n)), rng.standard_normal((B, m, n) if kind == "own rows" else (m, n))
    if kind == "dependent rows":
        G[1], G[2] = A[0] - G[0], 2 * G[0]
    if kind == "units":
        Q, A, G = 1e6 * Q, 1e3 * A, G * np.array([[1e-3], [1.0], [1e3], [1.0]])
    fields = {} if kind == "no equalities" else {"A": A, "b": [0.0]}
    problem = pear.Problem(Q=Q, G=G, h=np.zeros(m), lb=-1.0, ub=1.0, **fields)
    rows = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 1]], dtype=torch.bool)
    lower = torch.tensor([[1, 0, 0, 0, 0, 0], [0] * 6, [0, 0, 1, 0, 0, 0], [1, 0, 1, 0, 1, 0]], dtype=torch.bool)
    upper = torch.tensor([[0] * 6, [0] * 6, [0, 1, 0, 1, 0, 0], [0, 1, 0, 1, 0, 1]], dtype=torch.bool)
    qp = problem.canonical(torch.zeros(B, n))
    return replace(qp, diagonal=True) if kind == "diagonal" else qp, ActiveSet(rows, lower, upper)


def blocks(qp: QuadraticProgram, active: ActiveSet, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return H_FF, J_F, and the masks of the free variables F and of the active rows, in numpy."""
    free, rows = (~active.fixed[i]).numpy(), active.rows[i].numpy()
    H, A, G = (v[i if len(v) > 1 else 0].numpy() for v in (qp.H, qp.A, qp.G))
    return H[np.ix_(free, free)], np.vstack([A, G[rows]])[:, free], free, rows


def null_space(M: np.ndarray, columns: int) -> np.ndarray:
    """Return an orthonormal basis of the null space of M."""
    if not len(M):
        return np.eye(columns)
    _, S, Vh = np.linalg.svd(M)
    return Vh[int((1e-10 * max(S.max(initial=0.0), 1e-300) < S).sum()) :].T


def right_hand_sides(qp: QuadraticProgram, active: ActiveSet) -> tuple[Tensor, Tensor, Tensor]:
    """Return a random f, and right-hand sides of the rows that some point of the free variables satisfies."""
    generator = torch.Generator().manual_seed(1)
    f, x = torch.randn(2, B, n, generator=generator, dtype=torch.float64)
    x = torch.where(active.fixed, 0.0, x)
    r_eq, r_in = ((rows.expand(B, -1, -1) @ x[:, :, None])[:, :, 0] for rows in (qp.A, qp.G))
    return float(qp.H.abs().max()) * f, r_eq, torch.where(active.rows, r_in, torch.nan)  # others are ignored


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("carefully", [False, True])
def test_solutions(kind: str, carefully: bool) -> None:
    """x is the unique solution; the multipliers satisfy stationarity, and the careful ones have the least norm."""
    qp, active = programs(kind)
    f, r_eq, r_in = right_hand_sides(qp, active)
    f[active.fixed] = torch.nan  # ignored too
    systems = DenseReducedSystems(qp, active)
    x, v_eq, v_in, good = (systems.solve_carefully if carefully else systems.solve)(f, r_eq, r_in)
    assert good.tolist() == [True] * B
    assert systems.usable.tolist() == [True] * B
    assert not bool(x[active.fixed].any())
    assert not bool(v_in[~active.rows].any())
    for i in range(B):
        H, J, free, rows = blocks(qp, active, i)
        f_i, r_i = f[i].numpy()[free], np.concatenate([r_eq[i], r_in[i][rows]])
        v = np.concatenate([v_eq[i], v_in[i][rows]])
        N = null_space(J, free.sum())
        particular = np.linalg.lstsq(J, r_i, rcond=1e-11)[0] if len(J) else np.zeros(free.sum())
        expected = particular + N @ np.linalg.solve(N.T @ H @ N, N.T @ (f_i - H @ particular))
        np.testing.assert_allclose(x[i].numpy()[free], expected, rtol=0, atol=1e-9)
        rest = f_i - H @ expected
        np.testing.assert_allclose(J.T @ v, rest, rtol=0, atol=1e-8 * np.abs(H).max(initial=1.0))
        if carefully and len(J):
            length = np.linalg.norm(J, axis=1)
            length = np.where(length > 0, length, 1.0)
            least = np.linalg.lstsq((J / length[:, None]).T, rest, rcond=1e-11)[0] / length
            np.testing.assert_allclose(v * length, least * length, rtol=0, atol=1e-8 * np.abs(H).max(initial=1.0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("least", [False, True])
def test_projection_and_dimension(kind: str, least: bool) -> None:
    qp, active = programs(kind)
    e = right_hand_sides(qp, active)[0]
    systems = DenseReducedSystems(qp, active)
    g, _, _, curved = systems.project(e, least_multipliers=least)
    assert curved.tolist() == [True] * B
    dimensions = []
    for i in range(B):
        H, J, free, _ = blocks(qp, active, i)
        N = null_space(J, free.sum())
        dimensions.append(N.shape[1])
        np.testing.assert_allclose(
            g[i].numpy()[free], N @ np.linalg.solve(N.T @ H @ N, N.T @ e[i].numpy()[free]), rtol=0, atol=1e-9
        )
    assert systems.tangent_dim().tolist() == dimensions
    assert not bool(systems.flat(e).any())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_flat_directions(unit: float, seed: int) -> None:
    """``flat`` returns the part of f along tangent directions without curvature; if there are any, x is not unique."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((n, n)))[0]
    Q = unit * (V * [3.0, 2.0, 1.0, 0.0, 0.0, 0.0]) @ V.T
    _, active = programs("dense")
    qp = pear.Problem(Q=Q, G=rng.standard_normal((m, n)), h=np.zeros(m), lb=-1.0, ub=1.0).canonical(torch.zeros(B, n))
    f = torch.randn(B, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    systems = DenseReducedSystems(qp, active)
    flat = systems.flat(f)
    unique = []
    for i in range(B):
        H, J, free, _ = blocks(qp, active, i)
        N = null_space(np.vstack([H / unit, J]), free.sum())
        unique.append(N.shape[1] == 0)
        np.testing.assert_allclose(flat[i].numpy()[free], N @ (N.T @ f[i].numpy()[free]), rtol=0, atol=1e-10)
        assert not bool(flat[i][active.fixed[i]].any())
    assert True in unique
    assert False in unique
    zeros = torch.zeros(B, 0, dtype=torch.float64), torch.zeros(B, m, dtype=torch.float64)
    x, _, v_in, said = systems.solve_carefully(f - flat, *zeros)
    assert said.tolist() == unique
    assert systems.project(f - flat)[3].tolist() == unique
    for i in range(B):  # without what leads nowhere the system has solutions, and the one found is one of them
        H, J, free, rows = blocks(qp, active, i)
        found, v = x[i].numpy()[free], v_in[i].numpy()[rows]
        np.testing.assert_allclose(H @ found + J.T @ v, (f - flat)[i].numpy()[free], rtol=0, atol=1e-10)
        np.testing.assert_allclose(J @ found, 0.0, rtol=0, atol=1e-10 / min(unit, 1.0))


def residual(qp: QuadraticProgram, active: ActiveSet, rng: np.random.Generator) -> tuple[bool, float]:
    """Return whether the fast path calls its solution good, and the residual relative to its terms."""
    f, r, H, G = rng.standard_normal(n), rng.standard_normal(qp.m), qp.H[0].numpy(), qp.G[0].numpy()
    x, _, v, good = DenseReducedSystems(qp, active).solve(
        *(torch.from_numpy(side)[None] for side in (f, np.zeros(0), r))
    )
    x, v = x[0].numpy(), v[0].numpy()
    over_f = np.abs(f - H @ x - G.T @ v).max() / (np.abs(H) @ np.abs(x) + np.abs(G.T) @ np.abs(v) + np.abs(f)).max()
    over_r = np.abs((r - G @ x) / np.linalg.norm(G, axis=1)).max() / (np.abs(x).max() + np.abs(r).max())
    return bool(good), max(over_f, over_r)


def test_what_is_called_good_has_no_residual() -> None:
    """With nearly parallel rows or nearly singular curvature the fast path may be inaccurate, and then reports it."""
    said = []
    for digits, seed in itertools.product(range(19), range(5)):
        rng = np.random.default_rng([digits, seed])
        G, V = rng.standard_normal((3, n)), np.linalg.qr(rng.standard_normal((n, n)))[0]
        problem = pear.Problem(Q=np.diag(rng.uniform(1.0, 3.0, n)), G=G, h=np.zeros(3))
        qp = problem.canonical(torch.zeros(1, n))
        active = replace(ActiveSet.none(1, n, 3, qp.c.device), rows=torch.ones(1, 3, dtype=torch.bool))
        G[1] = G[0] + 10.0**-digits * rng.standard_normal(n)
        parallel = replace(qp, G=torch.from_numpy(G)[None])
        H = torch.from_numpy((V * np.logspace(0, -digits, n)) @ V.T)[None]
        for one in (parallel, replace(parallel, diagonal=True), replace(qp, H=0.5 * (H + H.mT))):
            good, rest = residual(one, active, rng)
            said.append(good)
            assert rest <= 2e-13 if good else not rest < 1e-14
    assert said[:30] == [True] * 30
    assert False in said


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "own rows"])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.usefixtures("keep_small_ones_sparse")
def test_sparse_systems(kind: str, flat: bool) -> None:
    """Sparse systems give the same solutions, and report flat tangent directions."""
    dense, active = programs(kind)
    scale = float(dense.H.abs().max())
    Q = scale * np.diag([1.0, 2.0, 3.0, 0.0, 0.0, 0.0]) if flat else dense.H[0].numpy()
    given = {} if kind == "no equalities" else {"A": sparse.csr_array(dense.A[0].numpy()), "b": np.zeros(dense.p)}
    G = sparse.csr_array(dense.G[0].numpy())
    problem = pear.Problem(Q=sparse.csr_array(Q), G=G, h=np.zeros(m), lb=-1.0, ub=1.0, **given)
    qp = problem.canonical(torch.zeros(B, n))
    f, r_eq, r_in = right_hand_sides(dense, active)
    f = scale * f / f.abs().max()
    seen = []
    for i in range(B):
        _, J, free, rows = blocks(dense, active, i)
        H = Q[np.ix_(free, free)]
        system = SparseReducedSystem(qp, active.fixed[i].numpy(), active.rows[i].numpy())
        N = null_space(J, free.sum())
        reduced = N.T @ H @ N
        seen.append(len(reduced) == 0 or float(np.linalg.eigvalsh(reduced).min()) > 1e-9 * scale)
        assert system.usable
        assert system.is_curved() == seen[-1]
        if not seen[-1]:
            continue
        r = np.concatenate([r_eq[i], np.where(active.rows[i], r_in[i], np.nan)])
        x, v, good = system.solve(f[i].numpy(), r)
        assert good
        particular = np.linalg.lstsq(J, np.concatenate([r_eq[i], r_in[i][rows]]), rcond=1e-11)[0] if len(J) else 0.0
        particular = particular + np.zeros(free.sum())
        expected = particular + N @ np.linalg.solve(reduced, N.T @ (f[i].numpy()[free] - H @ particular))
        np.testing.assert_allclose(x[free], expected, rtol=0, atol=1e-8)
        np.testing.assert_allclose(
            J.T @ np.concatenate([v[: dense.p], v[dense.p :][rows]]), f[i].numpy()[free] - H @ expected,
            rtol=0, atol=1e-8 * scale,
        )  # fmt: skip
        assert not x[~free].any()
    assert True in seen
    assert (False in seen) == flat
    systems = SparseReducedSystems(qp, active, [None] * B)
    assert systems.curved(torch.ones(B, dtype=torch.bool)).tolist() == seen
    assert (systems.kept == [None] * B) == (not flat)  # where H is definite no system is asked


@pytest.mark.parametrize(("threads", "count", "used"), [(1, 5, False), (2, 5, True), (4, 1, False), (4, 2, True)])
def test_threads(threads: int, count: int, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    names: dict[int, str] = {}
    map_in_threads(lambda i: names.update({i: threading.current_thread().name}), count)
    assert sorted(names) == list(range(count))
    assert {name.startswith("pear-sparse") for name in names.values()} == {used}


@pytest.mark.parametrize(
    ("Q", "row", "e", "expected"),
    [
        ([1.0, 1.0], [1.0, 1.0], [1.0, 1.0 + 1e-14], [0.0, 0.0]),  # the rounding of e
        ([1.0, 1.0], [1.0, 1e-14], [1.0, 0.0], [1e-28, -1e-14]),  # variables in two units, as their columns show
        ([1e28, 1.0], [1.0, 0.0], [0.0, 1e-14], [0.0, 1e-14]),  # as their curvatures show
    ],
)
def test_a_small_projection_is_rounding_unless_units_are_mixed(
    Q: list[float], row: list[float], e: list[float], expected: list[float]
) -> None:
    qp = pear.Problem(Q=np.diag(Q), A=[row], b=[0.0]).canonical(torch.ones(1, 2))
    none = torch.zeros(1, 2, dtype=torch.bool)
    found = DenseReducedSystems(qp, ActiveSet(none[:, :0], none, none)).project(torch.tensor([e], dtype=torch.float64))
    assert found[0][0].tolist() == pytest.approx(expected, rel=1e-9, abs=0)


def test_a_rank_is_decided_for_the_samples_that_did_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    qp = pear.Problem(Q=np.eye(2), A=[[1.0, 1.0]], b=[1.0]).canonical(torch.ones(2, 2))
    none = torch.zeros(2, 2, dtype=torch.bool)
    active, e = ActiveSet(none[:, :0], none, none), torch.tensor([[1.0, 0.0], [3.0, 1.0]], dtype=torch.float64)
    fast = torch.zeros_like(e), e.new_zeros(2, 1), e.new_zeros(2, 0), torch.tensor([True, False])
    monkeypatch.setattr(SparseReducedSystems, "project", lambda self, e: fast)
    x, v_eq, _, good = SparseThenDenseReducedSystems(qp, qp, active).project(e)  # type: ignore[arg-type]
    assert good.tolist() == [True, True]
    torch.testing.assert_close(x, torch.tensor([[0.0, 0.0], [1.0, -1.0]], dtype=torch.float64))
    torch.testing.assert_close(v_eq, torch.tensor([[0.0], [2.0]], dtype=torch.float64))


def test_what_a_factor_holds_is_counted_with_its_rows() -> None:
    Q, A, G = (SparseMatrix(sparse.csr_array(rows), shared=True) for rows in (np.eye(9), np.ones((1, 9)), (0, 9)))
    dense = pear.Problem(n=9).canonical(torch.ones(1, 9))
    qp = QuadraticProgram(
        H=Q, c=dense.c, A=A, b=dense.c[:, :1], G=G, h=dense.h, lb=dense.lb, ub=dense.ub, diagonal=True
    )
    nothing = np.zeros(9, dtype=bool)
    assert SparseReducedSystem(qp, nothing, nothing[:0]).fill > 4 * 9
