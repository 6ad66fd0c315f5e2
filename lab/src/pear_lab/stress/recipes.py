"""Random problems from recipes: a few small choices make a batch, so that a failing recipe can be shrunk.

Every family is a function of a recipe and a random generator that returns a ``Case``. Most families draw a point first
and place rows and bounds around it. Some samples are infeasible, unbounded or undecidable on purpose. Nothing here
knows the right answer: the judge finds it from the arrays.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pear_lab.benchmarks.random_programs import (
    Fields,
    Rng,
    append_random_rows,
    random_curvature,
    random_entries,
    random_polytope,
    random_row_values,
)
from pear_lab.judge.judged_program import Array
from pear_lab.stress.stress_case import Case


@dataclass(frozen=True)
class Recipe:
    """The choices that make one batch of problems.

    Attributes:
        family: a name in ``FAMILIES``.
        n: variables.
        equalities, rows: numbers of rows of A and of G.
        batch: samples.
        exponent: difficulty from 0 to 12; every family interprets it in its own way.
        curved: the problem has a curvature of its own; else it is linear.
        smoothed: λ > 0.
        per_sample: every sample has rows and bounds of its own.
        maximise: whether the objective is maximised.
        seed: seed of the random numbers.
    """

    family: str
    n: int = 4
    equalities: int = 1
    rows: int = 3
    batch: int = 8
    exponent: int = 6
    curved: bool = False
    smoothed: bool = True
    per_sample: bool = False
    maximise: bool = False
    seed: int = 0


def batch_shape(r: Recipe) -> tuple[int, ...]:
    """The leading dimension of constraints: B where every sample has its own, none where they are shared."""
    return (r.batch,) if r.per_sample else ()


def polytope_around_point(r: Recipe, rng: Rng, whole: bool = False) -> Fields:
    """Rows and bounds around a random point; with ``whole`` all numbers are small integers."""
    x = random_entries(rng, (*batch_shape(r), r.n), whole)
    return random_polytope(rng, x, r.equalities, r.rows, whole=whole)


def midpoint_of_bounds(fields: Fields) -> Array:
    """The middle between the bounds."""
    return np.asarray((fields["lb"] + fields["ub"]) / 2)


def make_feasible_at(fields: Fields, x: Array) -> None:
    """Change the right-hand sides so that the point x satisfies every row."""
    fields["b"], fields["h"] = (
        random_row_values(fields["A"], x),
        np.maximum(fields["h"], random_row_values(fields["G"], x)),
    )


def case_with_costs(r: Recipe, rng: Rng, fields: Fields, cost: Array | None = None, **more: Any) -> Case:
    """A case with the fields and with costs of size 1, predicted with an error of half their size."""
    true = rng.normal(size=(r.batch, r.n)) if cost is None else cost
    predicted = true + 0.5 * np.abs(true).max(initial=0.0) * rng.normal(size=true.shape) if cost is None else cost
    if r.curved and "Q" not in fields:
        fields = {**fields, "Q": random_curvature(rng, r.n, *batch_shape(r))}
    if r.maximise and "Q" in fields:
        fields = {**fields, "Q": -fields["Q"]}
    more.setdefault("smoothing", float(rng.choice([0.01, 0.1, 1.0])) if r.smoothed else 0.0)
    if cost is not None and r.smoothed:
        true = cost + rng.integers(-1, 2, cost.shape)
    return Case(r.family, predicted, true, fields, sense="max" if r.maximise else "min", **more)


def build_case(recipe: Recipe) -> Case:
    """The problems of a recipe; the same recipe gives the same numbers."""
    rng = np.random.default_rng([recipe.seed, zlib.crc32(recipe.family.encode())])
    return FAMILIES[recipe.family](recipe, rng)


def draw_recipe(rng: Rng, family: str, batch: int = 8) -> Recipe:
    """A random recipe of a family: mostly small, now and then with up to 40 variables."""
    n = int(rng.integers(1, 13)) if rng.random() < 0.93 else int(rng.integers(13, 41))
    return Recipe(
        family=family,
        n=n,
        equalities=int(rng.integers(0, max(1, n // 2) + 1)) if rng.random() < 0.7 else 0,
        rows=int(rng.integers(0, n + 3)),
        batch=batch,
        exponent=int(rng.integers(0, 13)),
        curved=bool(rng.random() < 0.5),
        smoothed=bool(rng.random() < 0.6),
        per_sample=bool(rng.random() < 0.3),
        maximise=bool(rng.random() < 0.2),
        seed=int(rng.integers(2**31)),
    )


def well_scaled_programs(r: Recipe, rng: Rng) -> Case:
    """Everything of size 1."""
    return case_with_costs(r, rng, polytope_around_point(r, rng))


def badly_scaled_programs(r: Recipe, rng: Rng) -> Case:
    """Variables, rows and costs in units of 1e-6 to 1e6."""
    fields, span = polytope_around_point(r, rng), r.exponent / 2
    d, a, g = (10.0 ** rng.uniform(-span, span, k) for k in (r.n, r.equalities, r.rows))
    if r.curved:
        fields["Q"] = random_curvature(rng, r.n, *batch_shape(r)) / d / d[:, None]
    fields |= {"A": a[:, None] * fields["A"] / d, "b": a * fields["b"]}
    fields |= {"G": g[:, None] * fields["G"] / d, "h": g * fields["h"]}
    fields |= {"lb": fields["lb"] * d, "ub": fields["ub"] * d}
    case = case_with_costs(r, rng, fields)
    unit = 10.0 ** rng.uniform(-span, span)
    if "Q" in case.fields:
        case.fields["Q"] = unit * case.fields["Q"]
    # smoothing adds the same λ to every variable, whatever its unit
    lam = case.smoothing * unit / float(np.median(d)) ** 2
    return replace(case, cost=unit * case.cost / d, true=unit * case.true / d, smoothing=lam)


def degenerate_vertices(r: Recipe, rng: Rng) -> Case:
    """Small integers everywhere: many rows through one vertex, ties between costs, costs that are zero."""
    fields = polytope_around_point(r, rng, whole=True)
    return case_with_costs(r, rng, fields, cost=rng.integers(-2, 3, (r.batch, r.n)).astype(float))


def nearly_parallel_rows(r: Recipe, rng: Rng) -> Case:
    """Rows that differ from others by 1e-6 to 1e-10 of their size, and pass near the same point."""
    r = replace(r, rows=max(r.rows, 2), n=max(r.n, 2))
    fields, apart = polytope_around_point(r, rng), 10.0 ** -(6 + 4 * r.exponent / 12)
    x, G, h = midpoint_of_bounds(fields), fields["G"], fields["h"]
    near = G + apart * rng.normal(size=G.shape)
    gap = np.where(rng.random(h.shape) < 0.5, 0.0, apart * rng.uniform(0, 1, h.shape))
    fields |= {"lb": x - 3.0, "ub": x + 3.0}
    append_random_rows(fields, "G", (near, h + random_row_values(near - G, x) + gap))
    if r.equalities and rng.random() < 0.3:
        again = fields["A"][..., :1, :] + apart * rng.normal(size=(*batch_shape(r), 1, r.n))
        append_random_rows(fields, "A", (again, 0.0))
    make_feasible_at(fields, x)
    return case_with_costs(r, rng, fields)


def repeated_rows(r: Recipe, rng: Rng) -> Case:
    """Rows that are there twice, or in other units, equalities as pairs of inequalities, and rows without an entry."""
    f = polytope_around_point(r, rng)
    unit = float(rng.choice([1.0, 2.0, 3.0, 1e-3, -1.0]))
    A, b, G, h = (f[name] for name in ("A", "b", "G", "h"))
    empty = np.zeros((*batch_shape(r), 1, r.n))
    append_random_rows(f, "A", (unit * A, unit * b), (empty, 0.0))
    append_random_rows(f, "G", (abs(unit) * G, abs(unit) * h), (G, h), (empty, 0.0), (empty, 1.0))
    if rng.random() < 0.4:
        A, b = f.pop("A"), f.pop("b")
        append_random_rows(f, "G", (A, b), (-A, -b))
    return case_with_costs(r, rng, f)


def contradictory_rows(r: Recipe, rng: Rng) -> Case:
    """Rows that contradict each other, clearly or by as little as 1e-12; half of the samples do not."""
    r = replace(r, rows=max(r.rows, 1), per_sample=True)
    f, by = polytope_around_point(r, rng), 10.0 ** -float(r.exponent)
    kind = rng.integers(3)
    wrong = by * rng.integers(0, 2, r.batch)
    if kind == 0:  # an equality twice, with another right-hand side
        again = f["G"][:, :1]
        append_random_rows(f, "A", (again, 0.0), (2.0 * again, 0.0))
        make_feasible_at(f, midpoint_of_bounds(f))
        f["b"][:, -1] += wrong
    elif kind == 1:  # two inequalities with nothing between them
        append_random_rows(f, "G", (-f["G"][:, :1], -f["h"][:, :1] - wrong[:, None]))
    else:  # a row that the bounds cannot reach
        lowest = np.where(f["G"] > 0, f["G"] * f["lb"][:, None], f["G"] * f["ub"][:, None]).sum(2)
        f["h"][:, 0] = np.where(wrong > 0, lowest[:, 0] - wrong, f["h"][:, 0])
    return case_with_costs(r, rng, f)


def mixed_bounds(r: Recipe, rng: Rng) -> Case:
    """Variables that are fixed, free, or bounded on one side; rows that are absent."""
    f = polytope_around_point(r, rng)
    x = midpoint_of_bounds(f)
    kind = rng.integers(0, 5, f["lb"].shape)
    f["lb"] = np.where(kind == 0, x, np.where((kind == 1) | (kind == 2), -np.inf, f["lb"]))
    f["ub"] = np.where(kind == 0, x, np.where((kind == 1) | (kind == 3), np.inf, f["ub"]))
    make_feasible_at(f, x)
    f["h"] = np.where(rng.random(f["h"].shape) < 0.2, np.inf, f["h"])
    return case_with_costs(r, rng, f)


def huge_bounds(r: Recipe, rng: Rng) -> Case:
    """Bounds of 1e10 to 1e150 that stand for "none", on some or all variables."""
    f = polytope_around_point(r, rng)
    huge = 10.0 ** rng.choice([10, 12, 15, 19, 20, 30, 100, 150])
    x = midpoint_of_bounds(f)
    make_feasible_at(f, x)
    low, high = rng.random(f["lb"].shape) < 0.7, rng.random(f["lb"].shape) < 0.7
    f["lb"], f["ub"] = np.where(low, -huge, f["lb"]), np.where(high, huge, f["ub"])
    return case_with_costs(r, rng, f)


def low_rank_curvature(r: Recipe, rng: Rng) -> Case:
    """Curvature of low rank, exactly: small integers times their transpose. Zero cost in a part of them."""
    f = polytope_around_point(r, rng, whole=rng.random() < 0.5)
    F = rng.integers(-2, 3, (*batch_shape(r), r.n, max(1, r.n // 2))).astype(float)
    f["Q"] = F @ np.swapaxes(F, -1, -2)
    if r.exponent > 8:
        free = rng.random(f["lb"].shape) < 0.5
        f["lb"], f["ub"] = np.where(free, -np.inf, f["lb"]), np.where(free, np.inf, f["ub"])
    cost = None
    if r.exponent % 3 == 0:
        cost = np.zeros((r.batch, r.n))
    elif r.exponent % 3 == 1:  # in the range of Q, so that it is bounded
        cost = (
            np.einsum("...ij,bj->bi", f["Q"], rng.integers(-2, 3, (r.batch, r.n)).astype(float))
            if not r.per_sample
            else None
        )
    return case_with_costs(replace(r, smoothed=r.smoothed and r.exponent % 2 == 0), rng, f, cost)


def flat_objective(r: Recipe, rng: Rng) -> Case:
    """Zero cost, and a singular curvature whose null space meets the constraints: every gradient vanishes."""
    F = rng.integers(-2, 3, (r.n, max(1, r.n // 2))).astype(float)
    if r.exponent % 2:
        F = F + rng.normal(size=F.shape)
    F[-1] -= F.sum(0)  # so that equal entries are in the null space
    x = np.full(r.n, float(rng.integers(-2, 3)))
    A, G = rng.normal(size=(r.equalities, r.n)), rng.normal(size=(r.rows, r.n))
    room = rng.uniform(0.0, 1.0, r.rows) * (rng.random(r.rows) < 0.7)
    below, above = np.where(rng.random((2, r.n)) < 0.3, np.inf, rng.integers(0, 3, (2, r.n)))
    f: Fields = {"Q": F @ F.T, "A": A, "b": A @ x, "G": G, "h": G @ x + room, "lb": x - below, "ub": x + above}
    return case_with_costs(replace(r, per_sample=False, smoothed=False), rng, f, cost=np.zeros((r.batch, r.n)))


def many_solutions(r: Recipe, rng: Rng) -> Case:
    """Singular curvature, free variables, dependent rows in any order, and a cost that many points minimise."""
    F = rng.integers(-2, 3, (r.n, max(1, r.n // 2))) * (rng.random((r.n, 1)) < 0.7)
    A, G, x = rng.normal(size=(r.equalities, r.n)), rng.normal(size=(r.rows + 1, r.n)), rng.normal(size=r.n)
    A = rng.permutation(np.vstack([A, A[:1], A.sum(0)]))
    G = rng.permutation(np.vstack([G, 2.0 * G[: 1 + r.rows // 3], G[:1] + G[-1:]]))
    room = rng.uniform(0.0, 1.0, len(G)) * (rng.random(len(G)) < 0.5)
    below, above = np.where(rng.random((2, r.n)) < 0.7, np.inf, rng.integers(0, 3, (2, r.n)))
    f: Fields = {"Q": (F @ F.T).astype(float), "A": A, "b": A @ x, "G": G, "h": G @ x + room, "lb": x - below}
    pulls = rng.exponential(size=(r.batch, len(G))) * (rng.random((r.batch, len(G))) < 0.5) * (room == 0.0)
    cost = -(f["Q"] @ x + rng.normal(size=(r.batch, len(A))) @ A + pulls @ G)
    return case_with_costs(replace(r, smoothed=False, maximise=False), rng, {**f, "ub": x + above}, cost)


def ill_conditioned_curvature(r: Recipe, rng: Rng) -> Case:
    """Curvature with eigenvalues from 1 down to 1e-12; bounds on all variables, on some or on none."""
    V = np.linalg.qr(rng.normal(size=(r.n, r.n)))[0]
    values = 10.0 ** -rng.uniform(0.0, r.exponent, r.n)
    values[0] = 1.0
    f: Fields = polytope_around_point(r, rng)
    Q = (V * values) @ V.T
    f["Q"] = (Q + Q.T) / 2
    if rng.random() < 0.6:
        x = midpoint_of_bounds(f)
        make_feasible_at(f, x)
        free = rng.random(f["lb"].shape) < rng.choice([0.5, 1.0])
        f["lb"], f["ub"] = np.where(free, -np.inf, f["lb"]), np.where(free, np.inf, f["ub"])
    return case_with_costs(replace(r, smoothed=False), rng, f)


def hilbert_equalities(r: Recipe, rng: Rng) -> Case:
    """Equalities whose rows are those of a Hilbert matrix."""
    n = min(r.n, 12)
    r = replace(r, n=n, equalities=max(1, min(n, r.exponent)), rows=0, per_sample=False)
    i = np.arange(n)
    A = (1.0 / (1.0 + i[:, None] + i))[: r.equalities]
    x = rng.integers(-2, 3, n).astype(float)
    return case_with_costs(r, rng, {"A": A, "b": A @ x, "lb": x - 2.0, "ub": x + 2.0})


def unbounded_programs(r: Recipe, rng: Rng) -> Case:
    """Linear costs along variables without bounds; some samples are held by a row or by the sign of their cost."""
    r = replace(r, smoothed=False, curved=False)
    f = polytope_around_point(r, rng)
    free = rng.random(r.n) < 0.5
    f["ub"] = np.where(free, np.inf, f["ub"])
    f["lb"] = np.where(free & (rng.random(r.n) < 0.3), -np.inf, f["lb"])
    if r.rows and rng.random() < 0.5:
        f["G"] = np.abs(f["G"])
        f["h"] = np.abs(f["h"]) + random_row_values(f["G"], np.where(np.isfinite(f["lb"]), f["lb"], 0.0))
    return case_with_costs(r, rng, f)


def mixed_statuses(r: Recipe, rng: Rng) -> Case:
    """Good, infeasible, unbounded, not finite and not convex samples in one batch, by fields of the call."""
    r = replace(r, per_sample=True, smoothed=False, rows=max(r.rows, 1))
    f = polytope_around_point(r, rng)
    free = rng.random((r.batch, r.n)) < 0.2
    f["ub"] = np.where(free, np.inf, f["ub"])
    case = case_with_costs(r, rng, f)
    kind = rng.integers(0, 8, r.batch)
    lb, ub, h = f["lb"].copy(), f["ub"].copy(), f["h"].copy()
    lb[kind == 0, 0] = 3.0 + np.where(np.isfinite(ub[kind == 0, 0]), ub[kind == 0, 0], 0.0)
    ub[kind == 0, 0] = lb[kind == 0, 0] - 1.0
    h[kind == 1, 0] = -np.inf
    h[kind == 2, 0] = -1e3
    case.cost[kind == 3, 0] = rng.choice([np.nan, np.inf, -np.inf])
    lb[kind == 4, -1] = np.nan
    overrides = {"lb": lb, "ub": ub, "h": h}
    if r.curved:
        Q = case.fields["Q"].copy()
        Q[kind == 5] -= (1.0 if case.sense == "min" else -1.0) * 3.0 * np.eye(r.n)
        overrides["Q"] = Q
    return replace(case, overrides=overrides)


def sparse_matrices(r: Recipe, rng: Rng) -> Case:
    """Matrices in SciPy's sparse form; one in forty large enough to stay sparse."""
    large = r.seed % 40 == 0
    r = replace(r, per_sample=False, n=520 if large else r.n, batch=min(r.batch, 4) if large else r.batch)
    r = replace(r, rows=60 if large else max(1, r.rows), equalities=20 if large else r.equalities)
    f = polytope_around_point(r, rng)
    density = 0.01 if large else 0.3
    x = midpoint_of_bounds(f)
    for rows, rhs, room in (("A", "b", 0.0), ("G", "h", 1.0)):
        f[rows] = np.where(rng.random(f[rows].shape) < density, f[rows], 0.0)
        f[rhs] = f[rows] @ x + room * rng.uniform(0, 1, len(f[rhs]))
    if r.curved:
        f["Q"] = np.diag(rng.uniform(0.1, 2.0, r.n))
    return case_with_costs(r, rng, f, sparse=True)


def integer_programs(r: Recipe, rng: Rng) -> Case:
    """Integer programs with small integer or real coefficients, some with rows in units down to 1e-10."""
    n = min(r.n, 8)
    r = replace(r, n=n, equalities=min(r.equalities, 1), per_sample=False, smoothed=False, curved=False)
    r = replace(r, rows=max(1, min(r.rows, 4)))
    f = polytope_around_point(r, rng, whole=True)
    if rng.random() < 0.5:
        f["G"] = f["G"] + rng.normal(size=f["G"].shape)
    unit = 10.0 ** -float(r.exponent - 2) if r.exponent > 6 else 1.0
    f["G"], f["h"] = unit * f["G"], unit * f["h"]
    marks = rng.random(n) < (1.0 if rng.random() < 0.7 else 0.6)
    marks[0] = True
    return case_with_costs(r, rng, f, integer=marks)


def big_m_programs(r: Recipe, rng: Rng) -> Case:
    """Flows x ≤ M y that may be opened at a price, M from 1e2 to 1e8 and the demand far below it."""
    k = max(1, min(r.n // 2, 4))
    r = replace(r, n=2 * k, per_sample=False, smoothed=False, curved=False, maximise=False)
    M = 10.0 ** (2 + r.exponent / 2)
    x, y = np.hstack([np.eye(k), -M * np.eye(k)]), np.hstack([np.ones(k), np.zeros(k)])
    demand = rng.uniform(0.5, 5.0) * k
    G = np.vstack([x, -y])
    h = np.concatenate([np.zeros(k), [-demand]])
    ub = np.concatenate([np.full(k, M if rng.random() < 0.5 else 1e9), np.ones(k)])
    costs = np.hstack([rng.uniform(0.1, 2.0, (r.batch, k)), rng.uniform(0.1, 20.0, (r.batch, k))])
    marks = np.arange(2 * k) >= k
    return case_with_costs(r, rng, {"G": G, "h": h, "lb": np.zeros(2 * k), "ub": ub}, cost=costs, integer=marks)


FAMILIES: dict[str, Callable[[Recipe, Rng], Case]] = {
    "well scaled": well_scaled_programs,
    "badly scaled": badly_scaled_programs,
    "degenerate": degenerate_vertices,
    "nearly parallel": nearly_parallel_rows,
    "repeated rows": repeated_rows,
    "contradictory": contradictory_rows,
    "bounds": mixed_bounds,
    "huge bounds": huge_bounds,
    "low rank": low_rank_curvature,
    "flat": flat_objective,
    "many solutions": many_solutions,
    "ill-conditioned": ill_conditioned_curvature,
    "Hilbert": hilbert_equalities,
    "unbounded": unbounded_programs,
    "mixes": mixed_statuses,
    "sparse": sparse_matrices,
    "integer": integer_programs,
    "big M": big_m_programs,
}
