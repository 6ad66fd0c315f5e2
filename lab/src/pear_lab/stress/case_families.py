"""Families of random problems. A family is a function that makes a ``StressCase`` from a recipe and a random generator.

Most families draw a point, and place rows and bounds around it. Some samples are infeasible or unbounded on purpose.
Some are so close to being infeasible or unbounded that the data in float64 does not settle their status. The families
do not know the solutions; the judge finds them from the arrays.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pear_lab.benchmarks.random_programs import Fields, Rng, append_random_rows, random_curvature, random_row_values
from pear_lab.judge.judged_program import Array
from pear_lab.stress.recipes import Recipe
from pear_lab.stress.stress_case import StressCase


def build_family_case(recipe: Recipe) -> StressCase:
    """Build the problems of a recipe. Equal recipes give equal numbers."""
    rng = np.random.default_rng([recipe.seed, zlib.crc32(recipe.family.encode())])
    return FAMILIES[recipe.family](recipe, rng)


def _family_midpoint(fields: Fields) -> Array:
    """Return the point halfway between the bounds."""
    return np.asarray((fields["lb"] + fields["ub"]) / 2)


def _make_family_feasible(fields: Fields, x: Array) -> None:
    """Change the right-hand sides so that the point x, (n,) or (B, n), satisfies every row."""
    fields["b"], fields["h"] = (
        random_row_values(fields["A"], x),
        np.maximum(fields["h"], random_row_values(fields["G"], x)),
    )


def well_scaled_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs whose numbers are all of size 1."""
    return r.make_case(rng, r.draw_polytope(rng))


def badly_scaled_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs with variables, rows and costs in units of 1e-6 to 1e6."""
    fields, span = r.draw_polytope(rng), r.exponent / 2
    d, a, g = (10.0 ** rng.uniform(-span, span, k) for k in (r.n, r.equalities, r.rows))
    if r.curved:
        fields["Q"] = random_curvature(rng, r.n, *r.batch_shape) / d / d[:, None]
    fields |= {"A": a[:, None] * fields["A"] / d, "b": a * fields["b"]}
    fields |= {"G": g[:, None] * fields["G"] / d, "h": g * fields["h"]}
    fields |= {"lb": fields["lb"] * d, "ub": fields["ub"] * d}
    case = r.make_case(rng, fields)
    unit = 10.0 ** rng.uniform(-span, span)
    if "Q" in case.fields:
        case.fields["Q"] = unit * case.fields["Q"]
    # smoothing adds the same λ to every variable, whatever its unit
    lam = case.smoothing * unit / float(np.median(d)) ** 2
    return replace(case, cost=unit * case.cost / d, true=unit * case.true / d, smoothing=lam)


def degenerate_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs of small integers, with many rows through one vertex, ties between costs, and costs of zero."""
    fields = r.draw_polytope(rng, whole=True)
    return r.make_case(rng, fields, cost=rng.integers(-2, 3, (r.batch, r.n)).astype(float))


def nearly_parallel_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs with pairs of rows that differ by 1e-6 to 1e-10 of their size and pass near a common point."""
    r = replace(r, rows=max(r.rows, 2), n=max(r.n, 2))
    fields, apart = r.draw_polytope(rng), 10.0 ** -(6 + 4 * r.exponent / 12)
    x, G, h = _family_midpoint(fields), fields["G"], fields["h"]
    near = G + apart * rng.normal(size=G.shape)
    gap = np.where(rng.random(h.shape) < 0.5, 0.0, apart * rng.uniform(0, 1, h.shape))
    fields |= {"lb": x - 3.0, "ub": x + 3.0}
    append_random_rows(fields, "G", (near, h + random_row_values(near - G, x) + gap))
    if r.equalities and rng.random() < 0.3:
        again = fields["A"][..., :1, :] + apart * rng.normal(size=(*r.batch_shape, 1, r.n))
        append_random_rows(fields, "A", (again, 0.0))
    _make_family_feasible(fields, x)
    return r.make_case(rng, fields)


def repeated_rows_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs with rows that occur twice or in other units, equalities as two inequalities, and empty rows."""
    f = r.draw_polytope(rng)
    unit = float(rng.choice([1.0, 2.0, 3.0, 1e-3, -1.0]))
    A, b, G, h = (f[name] for name in ("A", "b", "G", "h"))
    empty = np.zeros((*r.batch_shape, 1, r.n))
    append_random_rows(f, "A", (unit * A, unit * b), (empty, 0.0))
    append_random_rows(f, "G", (abs(unit) * G, abs(unit) * h), (G, h), (empty, 0.0), (empty, 1.0))
    if rng.random() < 0.4:
        A, b = f.pop("A"), f.pop("b")
        append_random_rows(f, "G", (A, b), (-A, -b))
    return r.make_case(rng, f)


def contradictory_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw batches in which rows of about half of the samples contradict each other or the bounds.

    The contradictions have sizes from 1 down to 1e-12.
    """
    r = replace(r, rows=max(r.rows, 1), per_sample=True)
    f, by = r.draw_polytope(rng), 10.0 ** -float(r.exponent)
    kind = rng.integers(3)
    wrong = by * rng.integers(0, 2, r.batch)
    if kind == 0:  # an equality twice, with another right-hand side
        again = f["G"][:, :1]
        append_random_rows(f, "A", (again, 0.0), (2.0 * again, 0.0))
        _make_family_feasible(f, _family_midpoint(f))
        f["b"][:, -1] += wrong
    elif kind == 1:  # two inequalities with nothing between them
        append_random_rows(f, "G", (-f["G"][:, :1], -f["h"][:, :1] - wrong[:, None]))
    else:  # a row that the bounds cannot reach
        lowest = np.where(f["G"] > 0, f["G"] * f["lb"][:, None], f["G"] * f["ub"][:, None]).sum(2)
        f["h"][:, 0] = np.where(wrong > 0, lowest[:, 0] - wrong, f["h"][:, 0])
    return r.make_case(rng, f)


def bounds_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs with fixed, free and one-sided variables, and with rows whose right-hand side is infinite."""
    f = r.draw_polytope(rng)
    x = _family_midpoint(f)
    kind = rng.integers(0, 5, f["lb"].shape)
    f["lb"] = np.where(kind == 0, x, np.where((kind == 1) | (kind == 2), -np.inf, f["lb"]))
    f["ub"] = np.where(kind == 0, x, np.where((kind == 1) | (kind == 3), np.inf, f["ub"]))
    _make_family_feasible(f, x)
    f["h"] = np.where(rng.random(f["h"].shape) < 0.2, np.inf, f["h"])
    return r.make_case(rng, f)


def huge_bounds_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs in which most bounds are ±1e10 to ±1e150, numbers that users write instead of infinity."""
    f = r.draw_polytope(rng)
    huge = 10.0 ** rng.choice([10, 12, 15, 19, 20, 30, 100, 150])
    x = _family_midpoint(f)
    _make_family_feasible(f, x)
    low, high = rng.random(f["lb"].shape) < 0.7, rng.random(f["lb"].shape) < 0.7
    f["lb"], f["ub"] = np.where(low, -huge, f["lb"]), np.where(high, huge, f["ub"])
    return r.make_case(rng, f)


def low_rank_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs with a curvature F Fᵀ of low rank, where F holds small integers. Some cases have zero costs."""
    f = r.draw_polytope(rng, whole=rng.random() < 0.5)
    F = rng.integers(-2, 3, (*r.batch_shape, r.n, max(1, r.n // 2))).astype(float)
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
    return replace(r, smoothed=r.smoothed and r.exponent % 2 == 0).make_case(rng, f, cost)


def flat_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs with zero cost, and a feasible point in the null space of Q, where the objective is flat."""
    F = rng.integers(-2, 3, (r.n, max(1, r.n // 2))).astype(float)
    if r.exponent % 2:
        F = F + rng.normal(size=F.shape)
    F[-1] -= F.sum(0)  # so that equal entries are in the null space
    x = np.full(r.n, float(rng.integers(-2, 3)))
    A, G = rng.normal(size=(r.equalities, r.n)), rng.normal(size=(r.rows, r.n))
    room = rng.uniform(0.0, 1.0, r.rows) * (rng.random(r.rows) < 0.7)
    below, above = np.where(rng.random((2, r.n)) < 0.3, np.inf, rng.integers(0, 3, (2, r.n)))
    f: Fields = {"Q": F @ F.T, "A": A, "b": A @ x, "G": G, "h": G @ x + room, "lb": x - below, "ub": x + above}
    return replace(r, per_sample=False, smoothed=False).make_case(rng, f, cost=np.zeros((r.batch, r.n)))


def many_solutions_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs that have many solutions, with singular curvature, free variables and dependent rows."""
    F = rng.integers(-2, 3, (r.n, max(1, r.n // 2))) * (rng.random((r.n, 1)) < 0.7)
    A, G, x = rng.normal(size=(r.equalities, r.n)), rng.normal(size=(r.rows + 1, r.n)), rng.normal(size=r.n)
    A = rng.permutation(np.vstack([A, A[:1], A.sum(0)]))
    G = rng.permutation(np.vstack([G, 2.0 * G[: 1 + r.rows // 3], G[:1] + G[-1:]]))
    room = rng.uniform(0.0, 1.0, len(G)) * (rng.random(len(G)) < 0.5)
    below, above = np.where(rng.random((2, r.n)) < 0.7, np.inf, rng.integers(0, 3, (2, r.n)))
    f: Fields = {"Q": (F @ F.T).astype(float), "A": A, "b": A @ x, "G": G, "h": G @ x + room, "lb": x - below}
    pulls = rng.exponential(size=(r.batch, len(G))) * (rng.random((r.batch, len(G))) < 0.5) * (room == 0.0)
    cost = -(f["Q"] @ x + rng.normal(size=(r.batch, len(A))) @ A + pulls @ G)
    return replace(r, smoothed=False, maximise=False).make_case(rng, {**f, "ub": x + above}, cost)


def ill_conditioned_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs with eigenvalues of the curvature from 1 down to 1e-12, and bounds on all, some or no variables."""
    V = np.linalg.qr(rng.normal(size=(r.n, r.n)))[0]
    values = 10.0 ** -rng.uniform(0.0, r.exponent, r.n)
    values[0] = 1.0
    f: Fields = r.draw_polytope(rng)
    Q = (V * values) @ V.T
    f["Q"] = (Q + Q.T) / 2
    if rng.random() < 0.6:
        x = _family_midpoint(f)
        _make_family_feasible(f, x)
        free = rng.random(f["lb"].shape) < rng.choice([0.5, 1.0])
        f["lb"], f["ub"] = np.where(free, -np.inf, f["lb"]), np.where(free, np.inf, f["ub"])
    return replace(r, smoothed=False).make_case(rng, f)


def hilbert_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs whose equalities are rows of a Hilbert matrix."""
    n = min(r.n, 12)
    r = replace(r, n=n, equalities=max(1, min(n, r.exponent)), rows=0, per_sample=False)
    i = np.arange(n)
    A = (1.0 / (1.0 + i[:, None] + i))[: r.equalities]
    x = rng.integers(-2, 3, n).astype(float)
    return r.make_case(rng, {"A": A, "b": A @ x, "lb": x - 2.0, "ub": x + 2.0})


def unbounded_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw linear programs in which about half of the variables have no upper bound, and some of them no lower bound.

    Rows, or the signs of the costs, keep some samples bounded.
    """
    r = replace(r, smoothed=False, curved=False)
    f = r.draw_polytope(rng)
    free = rng.random(r.n) < 0.5
    f["ub"] = np.where(free, np.inf, f["ub"])
    f["lb"] = np.where(free & (rng.random(r.n) < 0.3), -np.inf, f["lb"])
    if r.rows and rng.random() < 0.5:
        f["G"] = np.abs(f["G"])
        f["h"] = np.abs(f["h"]) + random_row_values(f["G"], np.where(np.isfinite(f["lb"]), f["lb"], 0.0))
    return r.make_case(rng, f)


def mixes_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw batches of solvable, infeasible, unbounded, non-finite and non-convex samples."""
    r = replace(r, per_sample=True, smoothed=False, rows=max(r.rows, 1))
    f = r.draw_polytope(rng)
    free = rng.random((r.batch, r.n)) < 0.2
    f["ub"] = np.where(free, np.inf, f["ub"])
    case = r.make_case(rng, f)
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


def sparse_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw programs with matrices in SciPy's sparse form. One case in forty is large enough for sparse solvers."""
    large = r.seed % 40 == 0
    r = replace(r, per_sample=False, n=520 if large else r.n, batch=min(r.batch, 4) if large else r.batch)
    r = replace(r, rows=60 if large else max(1, r.rows), equalities=20 if large else r.equalities)
    f = r.draw_polytope(rng)
    density = 0.01 if large else 0.3
    x = _family_midpoint(f)
    for rows, rhs, room in (("A", "b", 0.0), ("G", "h", 1.0)):
        f[rows] = np.where(rng.random(f[rows].shape) < density, f[rows], 0.0)
        f[rhs] = f[rows] @ x + room * rng.uniform(0, 1, len(f[rhs]))
    if r.curved:
        f["Q"] = np.diag(rng.uniform(0.1, 2.0, r.n))
    return r.make_case(rng, f, sparse=True)


def integer_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw integer programs with small integer or real coefficients. Some have rows in units down to 1e-10."""
    n = min(r.n, 8)
    r = replace(r, n=n, equalities=min(r.equalities, 1), per_sample=False, smoothed=False, curved=False)
    r = replace(r, rows=max(1, min(r.rows, 4)))
    f = r.draw_polytope(rng, whole=True)
    if rng.random() < 0.5:
        f["G"] = f["G"] + rng.normal(size=f["G"].shape)
    unit = 10.0 ** -float(r.exponent - 2) if r.exponent > 6 else 1.0
    f["G"], f["h"] = unit * f["G"], unit * f["h"]
    marks = rng.random(n) < (1.0 if rng.random() < 0.7 else 0.6)
    marks[0] = True
    return r.make_case(rng, f, integer=marks)


def big_m_family(r: Recipe, rng: Rng) -> StressCase:
    """Draw integer programs with flows x ≤ M y, where y opens a flow at a price, and M is 1e2 to 1e8."""
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
    return r.make_case(rng, {"G": G, "h": h, "lb": np.zeros(2 * k), "ub": ub}, cost=costs, integer=marks)


FAMILIES: dict[str, Callable[[Recipe, Rng], StressCase]] = {
    "well scaled": well_scaled_family,
    "badly scaled": badly_scaled_family,
    "degenerate": degenerate_family,
    "nearly parallel": nearly_parallel_family,
    "repeated rows": repeated_rows_family,
    "contradictory": contradictory_family,
    "bounds": bounds_family,
    "huge bounds": huge_bounds_family,
    "low rank": low_rank_family,
    "flat": flat_family,
    "many solutions": many_solutions_family,
    "ill-conditioned": ill_conditioned_family,
    "Hilbert": hilbert_family,
    "unbounded": unbounded_family,
    "mixes": mixes_family,
    "sparse": sparse_family,
    "integer": integer_family,
    "big M": big_m_family,
}
