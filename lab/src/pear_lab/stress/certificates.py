"""Is a program infeasible, unbounded or indefinite? Linear programs of HiGHS propose, extended precision proves.

HiGHS works in the program's own units (``kkt.Units``) and with tolerances of 1e-10; what it returns is only a
proposal. A point proves that a program is feasible, a Farkas certificate that it is not, a direction that it is
unbounded, each checked in extended precision. What is neither proven nor refuted is an edge only where its margin is
below EDGE.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from scipy.optimize import linprog

from pear_lab.stress.extended import Wide, factor, wide
from pear_lab.stress.kkt import LEAST, SHARE, TOLERANCE, Multipliers, Units, judge_point, largest_decision, slacks
from pear_lab.stress.sample import Array, Sample

EDGE = 1e-9
"""Relative margin below which float64 data does not settle a status: either answer is right."""
MET = 1e-13
"""Relative violation up to which a point satisfies the constraints."""
FLAT = 1e-13
"""Relative curvature along a direction up to which there is none."""
FALLS = 1e-7
"""Relative fall of the objective along a direction that is no rounding."""

_INSIDE = 1e-3  # how far inside the inequalities a feasible point should be
_RANK = 1e-14
REFERENCE = 1e-13
"""Largest violation of a point whose objective another one must reach."""
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Answer(Enum):
    """What could be proven."""

    YES = "yes"
    NO = "no"
    EDGE = "edge"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Scaled:
    """A program in its own units, in float64; powers of two change no digit.

    Attributes:
        s: the scaled program.
        units: what it was scaled by.
    """

    s: Sample
    units: Units

    @classmethod
    def of(cls, s: Sample) -> Scaled:
        """Scale rows, variables and the objective."""
        units = Units.of(s)
        d, r = units.column.astype(float), units.row.astype(float)
        p = len(s.b)
        c, H = d * s.c, d[:, None] * s.H * d
        unit = 2.0 ** np.round(np.log2(max(np.abs(c).max(initial=0.0), np.abs(H).max(initial=0.0)) or 1.0))
        scaled = Sample(
            H / unit,
            c / unit,
            r[:p, None] * s.A * d,
            r[:p] * s.b,
            r[p:, None] * s.G * d,
            r[p:] * s.h,
            s.lb / d,
            s.ub / d,
            s.integer,
        )
        return cls(scaled, Units(np.ones(s.n, np.longdouble), np.ones(len(r), np.longdouble)))


def is_feasible(s: Sample) -> Answer:
    """Whether any point satisfies the constraints."""
    if bool((s.lb > s.ub).any()):
        worst = ((s.lb - s.ub) / (np.abs(s.lb) + np.abs(s.ub)))[s.lb > s.ub].max()
        return Answer.EDGE if worst < FLAT else Answer.NO
    if (s.h == -np.inf).any():
        return Answer.NO
    scaled = Scaled.of(s).s
    keep = np.isfinite(scaled.h)
    G, h = scaled.G[keep], scaled.h[keep]
    rhs = np.concatenate([scaled.b, h])
    empty = ~np.vstack([scaled.A, G]).any(1)
    missed = np.concatenate([np.abs(scaled.b), -h])[empty]
    if (missed > 0).any():
        return Answer.NO
    size = _size_of(np.concatenate([rhs, scaled.lb, scaled.ub]))
    found = _least_violation(scaled, G, h, size)
    if found is None:
        return Answer.UNKNOWN
    x, y = found
    violated = min(_violation(scaled, _onto(scaled, x, met)) for met in (0.0, EDGE))
    margin = _farkas(scaled, G, h, wide(y), np.abs(wide(x)).max())
    if margin <= FLAT and violated > MET:
        margin = _farkas(scaled, G, h, wide(_magnified(scaled, keep, x, size)), np.abs(wide(x)).max())
    if margin <= FLAT and violated <= MET:
        return Answer.YES
    if margin >= EDGE and violated > MET:
        return Answer.NO
    # it is proven that there is no point, and yet one satisfies every row to rounding, or the margin is that small
    return Answer.EDGE if margin > FLAT else Answer.UNKNOWN


def _size_of(values: Array) -> float:
    found = np.abs(values[np.isfinite(values)])
    found = found[found > 0]
    return float(np.median(found)) if len(found) else 1.0


def _least_violation(s: Sample, G: Array, h: Array, size: float) -> tuple[Array, Array] | None:
    """The point with the least violation of any row, and its multipliers; bounds hold.

    Among points without violation it prefers one that is a little inside every inequality.
    """
    n, p, m = s.n, len(s.b), len(h)
    rows = np.vstack([s.A, -s.A, G])
    inside = np.concatenate([np.zeros(2 * p), np.ones(m)])
    solved = linprog(
        np.concatenate([np.zeros(n), [1.0, -_INSIDE]]),
        A_ub=np.column_stack([rows, -np.ones(len(rows)), inside]) if len(rows) else None,
        b_ub=np.concatenate([s.b, -s.b, h]) / size if len(rows) else None,
        bounds=[*zip(s.lb / size, s.ub / size, strict=True), (0.0, None), (0.0, _INSIDE)],
        options=_OPTIONS,
    )
    if solved.x is None:
        return None
    y = -np.asarray(solved.ineqlin.marginals) if len(rows) else np.zeros(0)
    return size * solved.x[:n], np.concatenate([y[:p] - y[p : 2 * p], y[2 * p : 2 * p + m]])


def _magnified(s: Sample, keep: Any, x: Array, size: float) -> Array:
    """Multipliers of the least violation around x, in units of 1e-7: HiGHS does not see a contradiction of 1e-11."""
    z, unit = np.clip(wide(x), wide(s.lb), wide(s.ub)), 1e-7 * size
    near = {"b": wide(s.b) - wide(s.A) @ z, "h": wide(s.h) - wide(s.G) @ z, "lb": wide(s.lb) - z, "ub": wide(s.ub) - z}
    moved = replace(s, **{name: value.astype(float) for name, value in near.items()})
    found = _least_violation(moved, moved.G[keep], moved.h[keep], unit)
    return np.zeros(len(s.b) + int(keep.sum())) if found is None else found[1]


def _onto(s: Sample, x: Array, met: float) -> Wide:
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
        factored = factor(rows[:, free].T)
        z[free] += factored.smallest_norm(rhs - rows @ z, factored.rank(_RANK))
        z = np.clip(z, wide(s.lb), wide(s.ub))
    return z


def _violation(s: Sample, x: Wide) -> float:
    """The largest relative violation of any constraint at x."""
    units = Units(np.ones(s.n, np.longdouble), np.ones(len(s.b) + len(s.h), np.longdouble))
    size = np.abs(x) + SHARE * largest_decision(s, x, units)
    slack, equality = slacks(s, x, size)
    return float(max(np.max(np.abs(equality), initial=0.0), np.max(-slack, initial=0.0)))


def _farkas(s: Sample, G: Array, h: Array, y: Wide, reach: Any) -> float:
    """How clearly multipliers y (p + m,) prove that there is no point; at most 0 where they do not.

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


def is_unbounded(s: Sample) -> Answer:
    """Whether the objective falls without end along some direction; the program must be feasible for that to matter."""
    scaled = Scaled.of(s).s
    keep = np.isfinite(scaled.h)
    G = scaled.G[keep]
    unit = np.abs(scaled.c).max()
    if unit == 0:
        return Answer.NO
    c = scaled.c / unit
    lower, upper = np.where(np.isfinite(scaled.lb), 0.0, -1.0), np.where(np.isfinite(scaled.ub), 0.0, 1.0)
    curvature = scaled.H / (np.abs(scaled.H).max() or 1.0)
    level = np.vstack([scaled.A, curvature])
    solved = linprog(
        c,
        A_ub=G if len(G) else None,
        b_ub=np.zeros(len(G)) if len(G) else None,
        A_eq=level,
        b_eq=np.zeros(len(level)),
        bounds=list(zip(lower, upper, strict=True)),
        options=_OPTIONS,
    )
    if solved.x is None:
        return Answer.UNKNOWN
    if solved.fun > -FALLS * LEAST:
        return Answer.NO
    return _falls(wide(solved.x), c, G, level, (lower, upper))


def _falls(d: Wide, c: Array, G: Array, level: Array, box: tuple[Array, Array]) -> Answer:
    """Whether a direction, moved exactly onto what must not change along it, is one of descent."""
    lower, upper = box
    d = np.clip(d, lower, upper)
    d[np.abs(d) < EDGE] = 0
    tight = np.abs(G @ d.astype(float)) <= EDGE
    free = (d != 0) & (lower < upper)
    rows = np.vstack([level, G[tight]])[:, free]
    if not free.any():
        return Answer.NO
    factored = factor(rows.T)
    basis = factored.null(factored.rank(FLAT))
    d[~free] = 0
    d[free] = basis @ (basis.T @ d[free])
    terms = (np.abs(wide(c)) * np.abs(d)).sum()
    slope = float(wide(c) @ d)
    stays = bool((wide(G) @ d <= FLAT * np.abs(wide(G)) @ np.abs(d)).all()) if len(G) else True
    inside = bool(((d >= 0) | (lower < 0)).all() and ((d <= 0) | (upper > 0)).all())
    if terms == 0 or slope > -FLAT * float(terms):
        return Answer.NO
    if not (stays and inside):
        return Answer.UNKNOWN
    return Answer.YES if slope < -FALLS * float(terms) else Answer.EDGE


def best_point(s: Sample) -> Wide | None:
    """The solution (n,) of a linear program by HiGHS, which solves it in the program's own units.

    None where it finds none, or where its own point does not satisfy the optimality conditions in extended precision:
    its tolerances are absolute, and bounds of 1e15 leave them without a meaning. Where rows nearly depend on each
    other, a violation of 1e-9 buys a better objective: such a point proves nothing either.
    """
    scaled = Scaled.of(s).s
    keep = np.isfinite(scaled.h)
    size = _size_of(np.concatenate([scaled.b, scaled.h, scaled.lb, scaled.ub]))
    solved = linprog(
        scaled.c,
        A_ub=scaled.G[keep] if keep.any() else None,
        b_ub=scaled.h[keep] / size if keep.any() else None,
        A_eq=scaled.A if len(scaled.b) else None,
        b_eq=scaled.b / size if len(scaled.b) else None,
        bounds=list(zip(scaled.lb / size, scaled.ub / size, strict=True)),
        options=_OPTIONS,
    )
    if solved.status != 0:
        return None
    rows = np.zeros(len(keep))
    rows[keep] = -solved.ineqlin.marginals if keep.any() else 0.0
    equality = -solved.eqlin.marginals if len(scaled.b) else np.zeros(0)
    bound = -(solved.lower.marginals + solved.upper.marginals)
    x = size * solved.x
    found = judge_point(scaled, x, Multipliers(wide(equality), wide(rows), wide(bound)))
    if found.worst > TOLERANCE or found.primal > REFERENCE:
        return None
    return np.asarray(wide(x) * Units.of(s).column)


def is_indefinite(H: Array) -> Answer:
    """Whether the curvature has an eigenvalue below zero."""
    d = np.sqrt(np.abs(np.diagonal(H)))
    eigenvalues = np.linalg.eigvalsh(H)
    least, largest = eigenvalues[0], np.abs(eigenvalues).max() or 1.0
    if least < -EDGE * largest or ((d == 0).any() and np.abs(H[d == 0]).max() > EDGE * largest):
        return Answer.YES
    return Answer.EDGE if least < -FLAT * largest else Answer.NO
