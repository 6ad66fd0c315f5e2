"""Is a program infeasible, unbounded or indefinite? Linear programs of HiGHS propose, extended precision proves.

HiGHS works in the program's own units (``kkt.Units``) and with tolerances of 1e-10; what it returns is only a
proposal. A point proves that a program is feasible, a Farkas certificate that it is not, a direction that it is
unbounded, each checked in extended precision. What is neither proven nor refuted is an edge only where its margin is
below EDGE.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.sparse.linalg import splu

from pear_lab.judge.extended_precision import Wide, factor_extended, wide
from pear_lab.judge.judged_program import Array, JudgedProgram, largest_row_entries
from pear_lab.judge.point_residuals import (
    LEAST,
    SHARE,
    TOLERANCE,
    Multipliers,
    ProgramUnits,
    measure_point,
    point_size,
    point_slacks,
)

EDGE = 1e-9
"""Relative margin below which float64 data does not settle a status: either answer is right."""
MET = 1e-13
"""Relative violation up to which a point satisfies the constraints."""
FLAT = 1e-13
"""Relative curvature along a direction up to which there is none."""
FALLS = 1e-7
"""Relative fall of the objective along a direction that is no rounding."""
REFERENCE = 1e-13
"""Largest violation of a point whose objective another one must reach."""

_INSIDE = 1e-3  # how far inside the inequalities a feasible point should be
_RANK = 1e-14
_DENSE = 1500  # variables up to which eigenvalues are computed
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Proof(Enum):
    """The outcome of an attempt to prove a claim."""

    YES = "yes"
    NO = "no"
    EDGE = "edge"
    UNKNOWN = "unknown"


def rescale_program(s: JudgedProgram) -> JudgedProgram:
    """Return the program in float64 with rows, variables and objective in its own units, which are powers of two."""
    units = ProgramUnits.of(s)
    d, r, p = units.column.astype(float), units.row.astype(float), len(s.b)
    c, H = d * s.c, d[:, None] * s.H * d
    unit = 2.0 ** np.round(np.log2(max(np.abs(c).max(initial=0.0), np.abs(H).max(initial=0.0)) or 1.0))
    rows = {"A": r[:p, None] * s.A * d, "b": r[:p] * s.b, "G": r[p:, None] * s.G * d, "h": r[p:] * s.h}
    return replace(s, H=H / unit, c=c / unit, **rows, lb=s.lb / d, ub=s.ub / d)


def solve_linear_program(
    c: Array, lb: Array, ub: Array, G: Any = None, h: Any = None, A: Any = None, b: Any = None, **options: float
) -> Any:
    """Solve ``min cᵀz`` subject to ``Gz ≤ h, Az = b, lb ≤ z ≤ ub`` by HiGHS in SciPy, at its tightest tolerances.

    Args:
        c, lb, ub: (n,).
        G, h, A, b: rows; None or without a row where there are none.
        options: more of HiGHS's options.
    """
    rows = {"A_ub": G, "b_ub": h} if G is not None and G.shape[0] else {}
    rows |= {"A_eq": A, "b_eq": b} if A is not None and A.shape[0] else {}
    return linprog(c, **rows, bounds=np.column_stack([lb, ub]), options={**_OPTIONS, **options})


def prove_feasible(s: JudgedProgram) -> Proof:
    """Whether any point satisfies the constraints."""
    if bool((s.lb > s.ub).any()):
        worst = ((s.lb - s.ub) / (np.abs(s.lb) + np.abs(s.ub)))[s.lb > s.ub].max()
        return Proof.EDGE if worst < FLAT else Proof.NO
    if (s.h == -np.inf).any():
        return Proof.NO
    scaled = rescale_program(s)
    keep = np.isfinite(scaled.h)
    G, h = scaled.G[keep], scaled.h[keep]
    empty = ~np.vstack([scaled.A, G]).any(1)
    missed = np.concatenate([np.abs(scaled.b), -h])[empty]
    if (missed > 0).any():
        return Proof.NO
    size = _median_size(np.concatenate([scaled.b, h, scaled.lb, scaled.ub]))
    found = _least_violation_point(scaled, G, h, size)
    if found is None:
        return Proof.UNKNOWN
    x, y = found
    violated = min(_violation(scaled, _move_onto_rows(scaled, x, met)) for met in (0.0, EDGE))
    margin = _farkas_margin(scaled, G, h, wide(y), np.abs(wide(x)).max())
    if margin <= FLAT and violated > MET:
        y = _magnified_multipliers(scaled, keep, x, size)
        margin = _farkas_margin(scaled, G, h, wide(y), np.abs(wide(x)).max())
    if margin <= FLAT and violated <= MET:
        return Proof.YES
    if margin >= EDGE and violated > MET:
        return Proof.NO
    # it is proven that there is no point, and yet one satisfies every row to rounding, or the margin is that small
    return Proof.EDGE if margin > FLAT else Proof.UNKNOWN


def _median_size(values: Array) -> float:
    found = np.abs(values[np.isfinite(values)])
    found = found[found > 0]
    return float(np.median(found)) if len(found) else 1.0


def _least_violation_point(s: JudgedProgram, G: Array, h: Array, size: float) -> tuple[Array, Array] | None:
    """The point with the least violation of any row, and its multipliers; bounds hold.

    Among points without violation it prefers one that is a little inside every inequality.
    """
    n, p, m = s.n, len(s.b), len(h)
    rows = np.vstack([s.A, -s.A, G])
    inside = np.concatenate([np.zeros(2 * p), np.ones(m)])
    solved = solve_linear_program(
        np.concatenate([np.zeros(n), [1.0, -_INSIDE]]),
        np.concatenate([s.lb / size, [0.0, 0.0]]),
        np.concatenate([s.ub / size, [np.inf, _INSIDE]]),
        G=np.column_stack([rows, -np.ones(len(rows)), inside]),
        h=np.concatenate([s.b, -s.b, h]) / size,
    )
    if solved.x is None:
        return None
    y = -np.asarray(solved.ineqlin.marginals) if len(rows) else np.zeros(0)
    return size * solved.x[:n], np.concatenate([y[:p] - y[p : 2 * p], y[2 * p : 2 * p + m]])


def _magnified_multipliers(s: JudgedProgram, keep: Any, x: Array, size: float) -> Array:
    """Return multipliers of the least violation around x, measured in units of 1e-7.

    Without these units HiGHS would ignore a violation of 1e-11.
    """
    z, unit = np.clip(wide(x), wide(s.lb), wide(s.ub)), 1e-7 * size
    near = {"b": wide(s.b) - wide(s.A) @ z, "h": wide(s.h) - wide(s.G) @ z, "lb": wide(s.lb) - z, "ub": wide(s.ub) - z}
    moved = replace(s, **{name: value.astype(float) for name, value in near.items()})
    found = _least_violation_point(moved, moved.G[keep], moved.h[keep], unit)
    return np.zeros(len(s.b) + int(keep.sum())) if found is None else found[1]


def _move_onto_rows(s: JudgedProgram, x: Array, met: float) -> Wide:
    """The point moved onto the equalities and the rows that it misses or meets up to ``met``, within its bounds."""
    z = np.clip(wide(x), wide(s.lb), wide(s.ub))
    for _ in range(4):
        size = np.abs(z) + SHARE * np.abs(z).max()
        terms = np.abs(wide(s.G)) @ size + np.abs(np.where(np.isfinite(s.h), s.h, 0))
        close = (wide(s.h) - wide(s.G) @ z) / np.where(terms > 0, terms, 1) < met
        rows = np.vstack([wide(s.A), wide(s.G)[close]])
        rhs = np.concatenate([wide(s.b), wide(s.h)[close]])
        free = (z > s.lb) & (z < s.ub)
        if not len(rows) or not free.any():
            return z
        factored = factor_extended(rows[:, free].T)
        z[free] += factored.smallest_norm(rhs - rows @ z, factored.rank(_RANK))
        z = np.clip(z, wide(s.lb), wide(s.ub))
    return z


def _violation(s: JudgedProgram, x: Wide) -> float:
    """The largest relative violation of any constraint at x."""
    size = np.abs(x) + SHARE * point_size(s, x, ProgramUnits.ones(s))
    slack, equality = point_slacks(s, x, size)
    return float(max(np.max(np.abs(equality), initial=0.0), np.max(-slack, initial=0.0)))


def _farkas_margin(s: JudgedProgram, G: Array, h: Array, y: Wide, reach: Any) -> float:
    """Return the margin by which multipliers y (p + m,) prove infeasibility; at most 0 if they do not.

    Every point satisfies ``yᵀ[A; G] z ≤ yᵀ[b; h]`` (y ≥ 0 on G). Where the smallest value of the left side within the
    bounds is larger, there is none. A variable without the bound that would be needed may reach 1e8 times the size of
    the data.
    """
    p = len(s.b)
    y = np.concatenate([y[:p], np.maximum(y[p:], 0)])
    if not y.any():
        return 0.0
    rows, rhs = np.vstack([wide(s.A), wide(G)]), np.concatenate([wide(s.b), wide(h)])
    v = rows.T @ y
    data = np.concatenate([rhs, wide(s.lb), wide(s.ub)])
    data = np.abs(data[np.isfinite(data)])
    far = 1e8 * np.maximum(data.max(initial=0), np.maximum(reach, 1e-30))
    lb = np.where(np.isfinite(s.lb), wide(s.lb), -far)
    ub = np.where(np.isfinite(s.ub), wide(s.ub), far)
    smallest = np.where(v > 0, v * lb, v * ub)
    terms = np.abs(smallest).sum() + np.abs(y * rhs).sum()
    return float((smallest.sum() - y @ rhs) / terms) if terms > 0 else 0.0


def prove_unbounded(s: JudgedProgram) -> Proof:
    """Whether the objective falls without end along some direction; the program must be feasible for that to matter."""
    scaled = rescale_program(s)
    G = scaled.G[np.isfinite(scaled.h)]
    unit = np.abs(scaled.c).max()
    if unit == 0:
        return Proof.NO
    c = scaled.c / unit
    lower, upper = np.where(np.isfinite(scaled.lb), 0.0, -1.0), np.where(np.isfinite(scaled.ub), 0.0, 1.0)
    curvature = scaled.H / (np.abs(scaled.H).max() or 1.0)
    level = np.vstack([scaled.A, curvature])
    solved = solve_linear_program(c, lower, upper, G, np.zeros(len(G)), level, np.zeros(len(level)))
    if solved.x is None:
        return Proof.UNKNOWN
    if solved.fun > -FALLS * LEAST:
        return Proof.NO
    return _prove_descent(wide(solved.x), c, G, level, (lower, upper))


def _prove_descent(d: Wide, c: Array, G: Array, level: Array, box: tuple[Array, Array]) -> Proof:
    """Whether a direction is a descent direction after its projection onto the rows that must stay constant."""
    lower, upper = box
    d = np.clip(d, lower, upper)
    d[np.abs(d) < EDGE] = 0
    tight = np.abs(G @ d.astype(float)) <= EDGE
    free = (d != 0) & (lower < upper)
    rows = np.vstack([level, G[tight]])[:, free]
    if not free.any():
        return Proof.NO
    factored = factor_extended(rows.T)
    basis = factored.null(factored.rank(FLAT))
    d[~free] = 0
    d[free] = basis @ (basis.T @ d[free])
    terms = (np.abs(wide(c)) * np.abs(d)).sum()
    slope = float(wide(c) @ d)
    stays = bool((wide(G) @ d <= FLAT * np.abs(wide(G)) @ np.abs(d)).all()) if len(G) else True
    inside = bool(((d >= 0) | (lower < 0)).all() and ((d <= 0) | (upper > 0)).all())
    if terms == 0 or slope > -FLAT * float(terms):
        return Proof.NO
    if not (stays and inside):
        return Proof.UNKNOWN
    return Proof.YES if slope < -FALLS * float(terms) else Proof.EDGE


def best_linear_point(s: JudgedProgram) -> Wide | None:
    """The solution (n,) of a linear program by HiGHS, which solves it in the program's own units.

    None where it finds none, or where its own point does not satisfy the optimality conditions in extended precision:
    its tolerances are absolute, and bounds of 1e15 leave them without a meaning. Where rows nearly depend on each
    other, a violation of 1e-9 buys a better objective: such a point proves nothing either.
    """
    scaled = rescale_program(s)
    keep = np.isfinite(scaled.h)
    size = _median_size(np.concatenate([scaled.b, scaled.h, scaled.lb, scaled.ub]))
    limits = (scaled.G[keep], scaled.h[keep] / size, scaled.A, scaled.b / size)
    solved = solve_linear_program(scaled.c, scaled.lb / size, scaled.ub / size, *limits)
    if solved.status != 0:
        return None
    rows = np.zeros(len(keep))
    rows[keep] = -solved.ineqlin.marginals if keep.any() else 0.0
    equality = -solved.eqlin.marginals if len(scaled.b) else np.zeros(0)
    bound = -(solved.lower.marginals + solved.upper.marginals)
    x = size * solved.x
    found = measure_point(scaled, x, Multipliers(wide(equality), wide(rows), wide(bound)))
    if found.worst > TOLERANCE or found.primal > REFERENCE:
        return None
    return np.asarray(wide(x) * ProgramUnits.of(s).column)


def prove_indefinite(H: Any) -> Proof:
    """Whether the curvature (n, n), dense or sparse, has an eigenvalue below zero."""
    if sp.issparse(H) and not H.nnz:
        return Proof.NO
    if H.shape[0] > _DENSE:
        return Proof.NO if _has_positive_pivots(H) else Proof.YES
    M = H.toarray() if sp.issparse(H) else H
    eigenvalues = np.linalg.eigvalsh(M)
    least, largest, flat = eigenvalues[0], np.abs(eigenvalues).max() or 1.0, np.diagonal(M) == 0
    if least < -EDGE * largest or (flat.any() and np.abs(M[flat]).max() > EDGE * largest):
        return Proof.YES
    return Proof.EDGE if least < -FLAT * largest else Proof.NO


def _has_positive_pivots(H: Any) -> bool:
    """Whether H (n, n), shifted by rounding, has positive pivots only: then no eigenvalue is clearly negative."""
    shifted = sp.csc_matrix(H + EDGE * float(abs(H).max()) * sp.eye_array(H.shape[0]))
    try:
        pivots = splu(shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}).U.diagonal()
    except RuntimeError:  # a pivot is exactly zero
        return False
    return bool((pivots > 0).all())


PROOF = 1e-8
"""How negative a certificate of a sparse program must be, relative to the limits and costs it is made of."""
_ERROR = 1e-3  # share of it that the certificate's own residual may reach


def prove_sparse_infeasible(p: JudgedProgram, time_limit: float) -> bool:
    """Whether multipliers prove that no point satisfies a sparse program: w ≥ 0 with Cᵀw = 0 and dᵀw < 0.

    Cz ≤ d are all limits and bounds as unit rows. Factorisations in extended precision are not for large programs: the
    multipliers that a linear program finds are checked with the arrays in float64.
    """
    C, d = _unit_rows(p)
    if not len(d):
        return False
    scale, ends = float(np.abs(d).max()) or 1.0, (np.zeros(len(d)), np.ones(len(d)))
    found = solve_linear_program(d / scale, *ends, A=sp.csc_array(C.T), b=np.zeros(p.n), time_limit=time_limit)
    if found.x is None:
        return False
    w = np.maximum(found.x, 0.0)
    against = -float(d @ w) / scale
    return against > PROOF and float(np.abs(C.T @ w).max()) <= _ERROR * against


def prove_sparse_unbounded(p: JudgedProgram, time_limit: float) -> bool:
    """Whether a ray r with Hr = 0, Cr ≤ 0 and cᵀr < 0 starts at a feasible point of a sparse program."""
    C, d = _unit_rows(p)
    scale, ones = float(np.abs(p.c).max()) or 1.0, np.ones(p.n)
    curved = sp.csr_array(p.H)[np.diff(sp.csr_array(p.H).indptr) > 0]
    level = (curved, np.zeros(curved.shape[0]))
    found = solve_linear_program(p.c / scale, -ones, ones, C, np.zeros(len(d)), *level, time_limit=time_limit)
    if found.x is None:
        return False
    falls = -float(p.c @ found.x) / scale
    missed = max(float((C @ found.x).max(initial=0.0)), float(np.abs(curved @ found.x).max(initial=0.0)))
    if falls <= PROOF or missed > _ERROR * falls:
        return False
    point = solve_linear_program(np.zeros(p.n), -np.inf * ones, np.inf * ones, C, d, time_limit=time_limit)
    return bool(point.status == 0)


def _unit_rows(p: JudgedProgram) -> tuple[sp.csr_array, Array]:
    """Cz ≤ d: every limit and bound of a sparse program, each row divided by its largest entry."""
    one, upper, lower = sp.csr_array(sp.eye_array(p.n)), np.isfinite(p.ub), np.isfinite(p.lb)
    C = sp.csr_array(sp.vstack([p.A, -p.A, p.G, one[upper], -one[lower]]))
    norm = largest_row_entries(C)
    unit = 1.0 / np.where(norm > 0, norm, 1.0)
    return sp.csr_array(sp.diags_array(unit) @ C), unit * np.concatenate([p.b, -p.b, p.h, p.ub[upper], -p.lb[lower]])
