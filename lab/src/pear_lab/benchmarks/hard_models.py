"""Hard instances: degenerate LPs and QPs in the manner of the netlib models, made from a seed.

Four kinds of model (staircase, transport, blending, flows of several commodities), each with what makes the originals
hard: right-hand sides that a sparse point meets exactly, so that vertices are degenerate; costs in few steps, so that
hundreds of variables tie; rows that are there twice or follow from others; fixed variables; rows and columns in units
that differ by factors of a thousand; and curvature on some dozens of variables only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse

from pear.problem import Problem
from pear_lab.judge.judged_program import Array, JudgedProgram

_CURVED = 40
"""Variables that curvature is put on, at most."""
_RANK = 8
"""Rank of the curvature that couples them."""


class HardModel(NamedTuple):
    """``min ½xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u``; the last n rows of A are the identity and hold the bounds.

    Attributes:
        name: kind, size and kind of curvature.
        P: (n, n) both triangles.
        q: (n,).
        A: (rows + n, n).
        l, u: its limits, infinite where absent.
    """

    name: str
    P: sparse.csc_array
    q: Array
    A: sparse.csc_array
    l: Array  # noqa: E741
    u: Array


class _BareModel(NamedTuple):
    """The first form of a model: rows A (k, n), a mask of its equalities, and a feasible point."""

    A: sparse.csr_array
    equal: NDArray[np.bool_]
    x: Array


def hard_instances(quick: bool = False, seed: int = 0) -> list[HardModel]:
    """A dozen instances of 300 to 2,200 variables, or as many of at most 400; the same for the same seed."""
    return [
        _hard_instance(kind, sizes[quick], curvature, np.random.default_rng([seed, k]))
        for k, (kind, sizes, curvature) in enumerate(_TABLE)
    ]


def small_instances(rng: Generator) -> list[HardModel]:
    """One instance of every kind with some dozens of variables."""
    return [_hard_instance(kind, size, "diagonal", rng) for kind, size in _SMALL]


def as_dense_problem(instance: HardModel) -> tuple[Problem, Array]:
    """The instance as a dense ``Problem`` and its cost (n,)."""
    n = len(instance.q)
    bounds, whole = (instance.l[-n:], instance.u[-n:]), np.zeros(n, bool)
    rows = sparse.csr_array(instance.A)[:-n]
    p = JudgedProgram.from_limits(instance.P, instance.q, rows, instance.l[:-n], instance.u[:-n], *bounds, whole)
    Q, A, G = (M.toarray() if M.nnz else None for M in (p.H, p.A, p.G))
    b, h = None if A is None else p.b, None if G is None else p.h
    return Problem(Q=Q, A=A, b=b, G=G, h=h, lb=p.lb, ub=p.ub, n=n), p.c


def _hard_instance(kind: Callable[..., _BareModel], size: tuple[int, ...], curvature: str, rng: Generator) -> HardModel:
    """Draw a model of this kind: degenerate, with fixed variables, copied rows and mixed units."""
    model = _with_copies(kind(rng, *size), rng)
    n = model.A.shape[1]
    lower, upper, x = np.zeros(n), np.full(n, np.inf), model.x
    met = rng.random(n) < 0.3
    upper[met] = np.where(x[met] > 0, x[met], np.ceil(x.mean()) + 1.0)  # bounds that the point reaches exactly
    fixed = rng.random(n) < 0.03
    lower[fixed] = upper[fixed] = x[fixed]
    reached = model.A @ x
    low = np.where(model.equal, reached, -np.inf)
    q = rng.integers(0, 6, n).astype(float)  # never negative, as the variables are: bounded
    target = x + rng.integers(-1, 3, n)
    P = _hard_curvature(rng, n, curvature)
    # units: of rows (tonnes, pieces, euros) and of columns, in a few steps as people write them
    row = 10.0 ** rng.choice([-1.0, 0.0, 0.0, 1.0], len(reached))
    unit = 10.0 ** rng.choice([-1.0, 0.0, 0.0, 0.0, 1.0, 2.0], n)
    A = sparse.diags_array(row) @ model.A @ sparse.diags_array(unit)
    P = sparse.csc_array(sparse.diags_array(unit) @ P @ sparse.diags_array(unit))
    return HardModel(
        name=f"{kind.__name__.strip('_')}-{n}-{curvature}",
        P=P,
        q=unit * q - P @ (target / unit),
        A=sparse.vstack([A, sparse.eye_array(n)], format="csc"),
        l=np.concatenate([row * low, lower / unit]),
        u=np.concatenate([row * reached, upper / unit]),
    )


def _with_copies(model: _BareModel, rng: Generator) -> _BareModel:
    """Repeat some rows in other units and add sums of equalities, so that the rows are rank deficient."""
    k = model.A.shape[0]
    again = rng.choice(k, max(2, k // 20), replace=False)
    equalities = np.flatnonzero(model.equal)
    sums = sparse.csr_array((2, k))
    if len(equalities) > 4:
        members = [rng.choice(equalities, len(equalities) // 4, replace=False) for _ in range(2)]
        sums = sparse.vstack([sparse.csr_array((np.ones(len(m)), (np.zeros(len(m), int), m)), (1, k)) for m in members])
    A = sparse.vstack([model.A, 2.0 * model.A[again], sums @ model.A], format="csr")
    return _BareModel(A, np.concatenate([model.equal, model.equal[again], [True, True]]), model.x)


def _hard_curvature(rng: Generator, n: int, kind: str) -> sparse.csc_array:
    """Draw a curvature on some dozens of variables: zero ("lp"), diagonal ("diagonal") or of low rank ("coupled")."""
    at = np.sort(rng.choice(n, min(_CURVED, n // 4), replace=False))
    if kind == "lp":
        return sparse.csc_array((n, n))
    F = rng.integers(-2, 3, (len(at), _RANK)) * 0.25
    block = F @ F.T if kind == "coupled" else np.diag(rng.integers(1, 5, len(at)).astype(float))
    rows, columns = np.nonzero(block)
    return sparse.csc_array((block[rows, columns], (at[rows], at[columns])), (n, n))


class _RowWriter:
    """Collects rows one after another into a sparse matrix."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, NDArray[np.int64], Array]] = []
        self.equal: list[bool] = []

    def add(self, columns: object, values: object, equal: bool = True) -> None:
        columns = np.atleast_1d(np.asarray(columns, dtype=np.int64))
        self._parts.append((len(self.equal), columns, np.broadcast_to(np.asarray(values, float), columns.shape)))
        self.equal.append(equal)

    def model(self, x: Array) -> _BareModel:
        where = np.concatenate([np.full(len(columns), k) for k, columns, _ in self._parts])
        columns, values = (np.concatenate([part[i] for part in self._parts]) for i in (1, 2))
        A = sparse.csr_array((values, (where, columns)), (len(self.equal), len(x)))
        return _BareModel(A, np.array(self.equal), x)


def _staircase(rng: Generator, periods: int, products: int) -> _BareModel:
    """Production, stock and backlog by period; only the stock links a period with the next one."""
    make, stock, late, extra = np.arange(4 * periods * products).reshape(4, periods, products)
    rows, x = _RowWriter(), np.zeros(4 * periods * products)
    x[make] = rng.integers(0, 6, make.shape) * (rng.random(make.shape) < 0.6)
    x[stock] = rng.integers(1, 4, stock.shape) * (rng.random(stock.shape) < 0.3)
    yields = rng.choice([0.5, 0.8, 1.0], products)
    hours = rng.integers(1, 5, (2, products)).astype(float)
    for t in range(periods):
        for k in range(products):
            before = [(stock[t - 1, k], 1.0), (late[t - 1, k], -1.0)] if t else []
            terms = [(make[t, k], yields[k]), (extra[t, k], 1.0), (stock[t, k], -1.0), (late[t, k], 1.0), *before]
            columns, values = zip(*terms, strict=True)
            rows.add(columns, values)
        for machine in hours:
            rows.add(make[t], machine, equal=False)
        rows.add(np.concatenate([stock[t], make[t]]), 1.0, equal=False)
    return rows.model(x)


def _transport(rng: Generator, sources: int, sinks: int) -> _BareModel:
    """All supplies and all demands as equalities, of which one follows from the others."""
    ship = np.arange(sources * sinks).reshape(sources, sinks)
    rows, x = _RowWriter(), np.zeros(ship.size)
    x[ship[np.arange(sinks) % sources, np.arange(sinks)]] = rng.integers(1, 9, sinks)
    for line in (*ship, *ship.T):
        rows.add(line, 1.0)
    for line in ship[:: max(2, sources // 4)]:
        rows.add(line[: sinks // 2], rng.integers(1, 4, sinks // 2), equal=False)
    return rows.model(x)


def _blending(rng: Generator, materials: int, products: int, periods: int) -> _BareModel:
    """Materials into products of given quality, period by period, with shared stocks."""
    use = np.arange(periods * materials * products).reshape(periods, materials, products)
    rows, x = _RowWriter(), np.zeros(use.size)
    x[use] = rng.integers(1, 8, use.shape) * (rng.random(use.shape) < 0.2)
    quality = rng.integers(1, 10, (3, materials)) * np.array([[1.0], [0.1], [10.0]])
    for t in range(periods):
        for j in range(products):
            rows.add(use[t, :, j], 1.0)
            for grade in quality:
                blend = np.average(grade, weights=x[use[t, :, j]] + 1e-12)
                rows.add(use[t, :, j], np.round(grade - blend, 1), equal=False)
        for i in range(materials):
            rows.add(use[t, i], 1.0, equal=bool(i % 2))
    for i in range(materials):
        rows.add(use[:, i].ravel(), 1.0, equal=False)
    return rows.model(x)


def _flows(rng: Generator, nodes: int, commodities: int) -> _BareModel:
    """Several commodities through one network of shared arcs, every balance written out."""
    around = np.column_stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])
    arcs = np.vstack([around, around[:, ::-1], rng.integers(0, nodes, (2 * nodes, 2))])
    arcs = arcs[arcs[:, 0] != arcs[:, 1]]
    flow = np.arange(commodities * len(arcs)).reshape(commodities, len(arcs))
    rows, x = _RowWriter(), np.zeros(flow.size)
    for own in flow:
        x[own[rng.integers(0, nodes) : nodes : 2]] = rng.integers(1, 4)
        for node in range(nodes):
            out, into = np.flatnonzero(arcs[:, 0] == node), np.flatnonzero(arcs[:, 1] == node)
            rows.add(own[np.concatenate([out, into])], np.repeat([1.0, -1.0], [len(out), len(into)]))
    for arc in range(0, len(arcs), 3):
        rows.add(flow[:, arc], 1.0, equal=False)
    return rows.model(x)


_Sizes = tuple[tuple[int, ...], tuple[int, ...]]
_TABLE: tuple[tuple[Callable[..., _BareModel], _Sizes, str], ...] = (
    (_staircase, ((12, 7), (6, 5)), "lp"),
    (_staircase, ((25, 8), (8, 6)), "diagonal"),
    (_staircase, ((40, 12), (10, 8)), "coupled"),
    (_transport, ((15, 20), (8, 12)), "lp"),
    (_transport, ((25, 40), (10, 14)), "diagonal"),
    (_transport, ((40, 50), (15, 20)), "coupled"),
    (_blending, ((12, 7, 5), (8, 5, 4)), "lp"),
    (_blending, ((15, 8, 9), (9, 5, 5)), "diagonal"),
    (_blending, ((20, 10, 11), (10, 6, 6)), "coupled"),
    (_flows, ((30, 4), (16, 3)), "lp"),
    (_flows, ((50, 5), (20, 4)), "diagonal"),
    (_flows, ((55, 9), (20, 5)), "coupled"),
)
_SMALL: tuple[tuple[Callable[..., _BareModel], tuple[int, ...]], ...] = (
    (_staircase, (4, 3)),
    (_transport, (5, 7)),
    (_blending, (5, 3, 2)),
    (_flows, (6, 2)),
)
