"""Hard models: random degenerate LPs and QPs like the models of netlib.

The kinds are staircase, transport, blending, and flows of several commodities. All of them have the features that make
the originals hard. Right-hand sides are met exactly by a sparse point, so that vertices are degenerate. Costs take few
values, so that hundreds of variables tie. Some rows are repeated or follow from others, and some variables are fixed.
The units of rows and columns differ by factors of up to a thousand. In a QP, at most some dozens of variables have
curvature.
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
"""The largest number of variables with curvature."""
_RANK = 8
"""The rank of a curvature that couples variables."""


class HardModel(NamedTuple):
    """The program ``min ½xᵀPx + qᵀx`` subject to ``l ≤ Ax ≤ u``. The last n rows of A are the identity.

    Attributes:
        name: the kind, the number of variables and the kind of curvature.
        P: (n, n) the curvature, with the entries of both triangles.
        q: (n,) the costs.
        A: (rows + n, n) the rows, then the identity for the bounds.
        l, u: (rows + n,) the limits; infinite for an absent one.
    """

    name: str
    P: sparse.csc_array
    q: Array
    A: sparse.csc_array
    l: Array  # noqa: E741
    u: Array

    def as_dense_problem(self) -> tuple[Problem, Array]:
        """Return the model as a dense ``Problem``, and its costs (n,)."""
        n = len(self.q)
        bounds, whole = (self.l[-n:], self.u[-n:]), np.zeros(n, bool)
        rows = sparse.csr_array(self.A)[:-n]
        p = JudgedProgram.from_limits(self.P, self.q, rows, self.l[:-n], self.u[:-n], *bounds, whole)
        Q, A, G = (M.toarray() if M.nnz else None for M in (p.H, p.A, p.G))
        b, h = None if A is None else p.b, None if G is None else p.h
        return Problem(Q=Q, A=A, b=b, G=G, h=h, lb=p.lb, ub=p.ub, n=n), p.c


class _BareHardModel(NamedTuple):
    """The rows of a hard model before units and limits are drawn.

    Attributes:
        A: (k, n) the k rows.
        equal: (k,) mask of the equalities.
        x: (n,) a feasible point.
    """

    A: sparse.csr_array
    equal: NDArray[np.bool_]
    x: Array

    def with_copies(self, rng: Generator) -> _BareHardModel:
        """Return the model with some rows repeated in other units, and with sums of equalities as further rows."""
        k = self.A.shape[0]
        again = rng.choice(k, max(2, k // 20), replace=False)
        equalities = np.flatnonzero(self.equal)
        sums = sparse.csr_array((2, k))
        if len(equalities) > 4:
            members = [rng.choice(equalities, len(equalities) // 4, replace=False) for _ in range(2)]
            sums = sparse.vstack(
                [sparse.csr_array((np.ones(len(m)), (np.zeros(len(m), int), m)), (1, k)) for m in members]
            )
        A = sparse.vstack([self.A, 2.0 * self.A[again], sums @ self.A], format="csr")
        return _BareHardModel(A, np.concatenate([self.equal, self.equal[again], [True, True]]), self.x)


def draw_hard_models(quick: bool = False, seed: int = 0) -> list[HardModel]:
    """Draw a dozen models of 300 to 2,200 variables, or of at most 400 if ``quick``."""
    return [
        _draw_hard_model(kind, sizes[quick], curvature, np.random.default_rng([seed, k]))
        for k, (kind, sizes, curvature) in enumerate(_TABLE)
    ]


def draw_small_hard_models(rng: Generator) -> list[HardModel]:
    """Draw a model of every kind with some dozens of variables."""
    return [_draw_hard_model(kind, size, "diagonal", rng) for kind, size in _SMALL]


def _draw_hard_model(kind: str, size: tuple[int, ...], curvature: str, rng: Generator) -> HardModel:
    """Draw a degenerate model with fixed variables, repeated rows and mixed units.

    Args:
        kind: a key of ``_KINDS``.
        size: the sizes that the function of this kind in ``_KINDS`` takes, such as periods and products.
        curvature: "lp", "diagonal" or "coupled".
        rng: random generator.
    """
    model = _KINDS[kind](rng, *size).with_copies(rng)
    n = model.A.shape[1]
    lower, upper, x = np.zeros(n), np.full(n, np.inf), model.x
    met = rng.random(n) < 0.3
    upper[met] = np.where(x[met] > 0, x[met], np.ceil(x.mean()) + 1.0)  # some bounds are met exactly by the point
    fixed = rng.random(n) < 0.03
    lower[fixed] = upper[fixed] = x[fixed]
    reached = model.A @ x
    low = np.where(model.equal, reached, -np.inf)
    q = rng.integers(0, 6, n).astype(float)  # costs and variables are not negative, so that the model is bounded
    target = x + rng.integers(-1, 3, n)
    P = _draw_hard_curvature(rng, n, curvature)
    # units of rows and of columns, such as tonnes, pieces or euros
    row = 10.0 ** rng.choice([-1.0, 0.0, 0.0, 1.0], len(reached))
    unit = 10.0 ** rng.choice([-1.0, 0.0, 0.0, 0.0, 1.0, 2.0], n)
    A = sparse.diags_array(row) @ model.A @ sparse.diags_array(unit)
    P = sparse.csc_array(sparse.diags_array(unit) @ P @ sparse.diags_array(unit))
    return HardModel(
        name=f"{kind}-{n}-{curvature}",
        P=P,
        q=unit * q - P @ (target / unit),
        A=sparse.vstack([A, sparse.eye_array(n)], format="csc"),
        l=np.concatenate([row * low, lower / unit]),
        u=np.concatenate([row * reached, upper / unit]),
    )


def _draw_hard_curvature(rng: Generator, n: int, kind: str) -> sparse.csc_array:
    """Draw a curvature (n, n) on some dozens of variables: zero ("lp"), "diagonal", or of low rank ("coupled")."""
    at = np.sort(rng.choice(n, min(_CURVED, n // 4), replace=False))
    if kind == "lp":
        return sparse.csc_array((n, n))
    F = rng.integers(-2, 3, (len(at), _RANK)) * 0.25
    block = F @ F.T if kind == "coupled" else np.diag(rng.integers(1, 5, len(at)).astype(float))
    rows, columns = np.nonzero(block)
    return sparse.csc_array((block[rows, columns], (at[rows], at[columns])), (n, n))


class _HardModelRows:
    """The rows of a model that is being made. Rows are added one after another."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, NDArray[np.int64], Array]] = []
        self.equal: list[bool] = []

    def add(self, columns: object, values: object, equal: bool = True) -> None:
        """Add a row with ``values`` in ``columns``, or one value in all of them: an equality or a row with ≤."""
        columns = np.atleast_1d(np.asarray(columns, dtype=np.int64))
        self._parts.append((len(self.equal), columns, np.broadcast_to(np.asarray(values, float), columns.shape)))
        self.equal.append(equal)

    def model(self, x: Array) -> _BareHardModel:
        """Make the model of all rows, with a feasible point x (n,)."""
        where = np.concatenate([np.full(len(columns), k) for k, columns, _ in self._parts])
        columns, values = (np.concatenate([part[i] for part in self._parts]) for i in (1, 2))
        A = sparse.csr_array((values, (where, columns)), (len(self.equal), len(x)))
        return _BareHardModel(A, np.array(self.equal), x)


def _draw_hard_staircase(rng: Generator, periods: int, products: int) -> _BareHardModel:
    """Draw a production plan with stock and backlog. Only stock and backlog link a period with the next one."""
    make, stock, late, extra = np.arange(4 * periods * products).reshape(4, periods, products)
    rows, x = _HardModelRows(), np.zeros(4 * periods * products)
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


def _draw_hard_transport(rng: Generator, sources: int, sinks: int) -> _BareHardModel:
    """Draw a transport problem. Its supplies and demands are equalities, and one of them follows from the others."""
    ship = np.arange(sources * sinks).reshape(sources, sinks)
    rows, x = _HardModelRows(), np.zeros(ship.size)
    x[ship[np.arange(sinks) % sources, np.arange(sinks)]] = rng.integers(1, 9, sinks)
    for line in (*ship, *ship.T):
        rows.add(line, 1.0)
    for line in ship[:: max(2, sources // 4)]:
        rows.add(line[: sinks // 2], rng.integers(1, 4, sinks // 2), equal=False)
    return rows.model(x)


def _draw_hard_blending(rng: Generator, materials: int, products: int, periods: int) -> _BareHardModel:
    """Draw a plan that blends materials into products of given quality, with a limit on each material's total use."""
    use = np.arange(periods * materials * products).reshape(periods, materials, products)
    rows, x = _HardModelRows(), np.zeros(use.size)
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


def _draw_hard_flows(rng: Generator, nodes: int, commodities: int) -> _BareHardModel:
    """Draw flows of several commodities, balanced at each node of a network. They share the capacity of some arcs."""
    around = np.column_stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])
    arcs = np.vstack([around, around[:, ::-1], rng.integers(0, nodes, (2 * nodes, 2))])
    arcs = arcs[arcs[:, 0] != arcs[:, 1]]
    flow = np.arange(commodities * len(arcs)).reshape(commodities, len(arcs))
    rows, x = _HardModelRows(), np.zeros(flow.size)
    for own in flow:
        x[own[rng.integers(0, nodes) : nodes : 2]] = rng.integers(1, 4)
        for node in range(nodes):
            out, into = np.flatnonzero(arcs[:, 0] == node), np.flatnonzero(arcs[:, 1] == node)
            rows.add(own[np.concatenate([out, into])], np.repeat([1.0, -1.0], [len(out), len(into)]))
    for arc in range(0, len(arcs), 3):
        rows.add(flow[:, arc], 1.0, equal=False)
    return rows.model(x)


_Sizes = tuple[tuple[int, ...], tuple[int, ...]]
_KINDS: dict[str, Callable[..., _BareHardModel]] = {
    "staircase": _draw_hard_staircase,
    "transport": _draw_hard_transport,
    "blending": _draw_hard_blending,
    "flows": _draw_hard_flows,
}
_TABLE: tuple[tuple[str, _Sizes, str], ...] = (
    ("staircase", ((12, 7), (6, 5)), "lp"),
    ("staircase", ((25, 8), (8, 6)), "diagonal"),
    ("staircase", ((40, 12), (10, 8)), "coupled"),
    ("transport", ((15, 20), (8, 12)), "lp"),
    ("transport", ((25, 40), (10, 14)), "diagonal"),
    ("transport", ((40, 50), (15, 20)), "coupled"),
    ("blending", ((12, 7, 5), (8, 5, 4)), "lp"),
    ("blending", ((15, 8, 9), (9, 5, 5)), "diagonal"),
    ("blending", ((20, 10, 11), (10, 6, 6)), "coupled"),
    ("flows", ((30, 4), (16, 3)), "lp"),
    ("flows", ((50, 5), (20, 4)), "diagonal"),
    ("flows", ((55, 9), (20, 5)), "coupled"),
)
_SMALL: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("staircase", (4, 3)),
    ("transport", (5, 7)),
    ("blending", (5, 3, 2)),
    ("flows", (6, 2)),
)
