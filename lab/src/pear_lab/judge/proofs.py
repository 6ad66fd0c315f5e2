"""Proofs that a program is feasible, infeasible or unbounded, or that its curvature has a negative eigenvalue.

HiGHS proposes points, multipliers and directions, in the program's own units and with tolerances of 1e-10. They are
checked in extended precision. A point proves that a dense program is feasible, Farkas multipliers prove that it is
infeasible, and a direction of descent proves that it is unbounded. A claim is on the edge if the data in float64 cannot
settle it.

Programs from files are sparse and too large for extended precision. Their certificates are checked in float64.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from pear_lab.judge.extended_precision import Wide, factor_extended, wide
from pear_lab.judge.judged_program import Array, JudgedProgram, judged_row_magnitudes
from pear_lab.judge.linear_programs import median_magnitude, solve_linear_program
from pear_lab.judge.point_residuals import LEAST, SHARE, point_size, point_slacks
from pear_lab.judge.program_units import ProgramUnits, rescale_program

EDGE = 1e-9
"""The relative margin below which data in float64 does not settle a claim, so that either answer is right."""
MET = 1e-13
"""The largest relative violation of constraints that a point satisfies."""
FLAT = 1e-13
"""The largest relative curvature or margin that counts as zero."""
FALLS = 1e-7
"""The smallest relative decrease of the objective along a direction that cannot be rounding."""
PROOF = 1e-8
"""The smallest margin of a certificate of a sparse program, relative to the limits or costs of the program."""

_INSIDE = 1e-3  # the preferred slack of inequalities at a feasible point
_RANK = 1e-14
_DENSE = 1500  # the most variables of a curvature whose eigenvalues are computed
_ERROR = 1e-3  # the largest residual of a sparse certificate, relative to its margin


class Proof(Enum):
    """The outcome of an attempt to prove a claim.

    YES and NO mean that the claim is true or false. EDGE means that the data does not settle it, and UNKNOWN that the
    attempt failed.
    """

    YES = "yes"
    NO = "no"
    EDGE = "edge"
    UNKNOWN = "unknown"


def prove_feasible(s: JudgedProgram) -> Proof:
    """Return whether some point satisfies the constraints of a dense program, as a ``Proof``."""
    if bool((s.lb > s.ub).any()):
        worst = ((s.lb - s.ub) / (np.abs(s.lb) + np.abs(s.ub)))[s.lb > s.ub].max()
        return Proof.EDGE if worst < FLAT else Proof.NO
    if (s.h == -np.inf).any():
        return Proof.NO
    scaled = rescale_program(s)
    keep = np.isfinite(scaled.h)
    empty = ~np.vstack([scaled.A, scaled.G[keep]]).any(1)
    if (np.concatenate([np.abs(scaled.b), -scaled.h[keep]])[empty] > 0).any():
        return Proof.NO
    return _FeasibilityProof(replace(scaled, G=scaled.G[keep], h=scaled.h[keep])).outcome()


class _FeasibilityProof:
    """A proof that a program with consistent bounds has a feasible point, or that it has none.

    Args:
        s: a dense program in its own units; all limits of G are finite.
    """

    def __init__(self, s: JudgedProgram) -> None:
        self.s = s
        self.size = median_magnitude(np.concatenate([s.b, s.h, s.lb, s.ub]))

    def outcome(self) -> Proof:
        """Return YES if a point proves the program feasible, NO if multipliers refute it, and else EDGE or UNKNOWN."""
        found = self._least_violation(self.s, self.size)
        if found is None:
            return Proof.UNKNOWN
        x, y = found
        violated = min(self._violation(self._move_onto_rows(x, met)) for met in (0.0, EDGE))
        margin = self._farkas_margin(wide(y), np.abs(wide(x)).max())
        if margin <= FLAT and violated > MET:
            margin = self._farkas_margin(wide(self._magnified_multipliers(x)), np.abs(wide(x)).max())
        if margin <= FLAT and violated <= MET:
            return Proof.YES
        if margin >= EDGE and violated > MET:
            return Proof.NO
        # multipliers prove infeasibility, but a point satisfies all rows to rounding, or the margin is small
        return Proof.EDGE if margin > FLAT else Proof.UNKNOWN

    def _least_violation(self, s: JudgedProgram, size: float) -> tuple[Array, Array] | None:
        """Return the point within the bounds with the least violation of any row, and its multipliers.

        Among points without violation, one slightly inside every inequality is preferred.

        Args:
            s: the program, which may differ from that of this proof in its limits.
            size: the unit in which HiGHS measures decisions.

        Returns:
            The point (n,) and its multipliers (p + m,), or None if HiGHS finds none.
        """
        n, p, m = s.n, len(s.b), len(s.h)
        rows = np.vstack([s.A, -s.A, s.G])
        inside = np.concatenate([np.zeros(2 * p), np.ones(m)])
        solved = solve_linear_program(
            np.concatenate([np.zeros(n), [1.0, -_INSIDE]]),
            np.concatenate([s.lb / size, [0.0, 0.0]]),
            np.concatenate([s.ub / size, [np.inf, _INSIDE]]),
            G=np.column_stack([rows, -np.ones(len(rows)), inside]),
            h=np.concatenate([s.b, -s.b, s.h]) / size,
        )
        if solved.x is None:
            return None
        y = -np.asarray(solved.ineqlin.marginals) if len(rows) else np.zeros(0)
        return size * solved.x[:n], np.concatenate([y[:p] - y[p : 2 * p], y[2 * p : 2 * p + m]])

    def _magnified_multipliers(self, x: Array) -> Array:
        """Return multipliers (p + m,) of the least violation near x.

        The violation is magnified by 1e7 for HiGHS, which would otherwise ignore a violation of 1e-11.
        """
        s, z = self.s, np.clip(wide(x), wide(self.s.lb), wide(self.s.ub))
        near = {
            "b": wide(s.b) - wide(s.A) @ z,
            "h": wide(s.h) - wide(s.G) @ z,
            "lb": wide(s.lb) - z,
            "ub": wide(s.ub) - z,
        }
        moved = replace(s, **{name: value.astype(float) for name, value in near.items()})
        found = self._least_violation(moved, 1e-7 * self.size)
        return np.zeros(len(s.b) + len(s.h)) if found is None else found[1]

    def _move_onto_rows(self, x: Array, met: float) -> Wide:
        """Return a point moved onto the equalities and onto the rows that it violates or meets, within its bounds.

        Args:
            x: (n,) the point.
            met: the relative slack below which the point meets a row.
        """
        s = self.s
        z = np.clip(wide(x), wide(s.lb), wide(s.ub))
        for _ in range(4):
            size = np.abs(z) + SHARE * np.abs(z).max()
            terms = np.abs(wide(s.G)) @ size + np.abs(s.h)
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

    def _violation(self, x: Wide) -> float:
        """Return the largest relative violation of any constraint at x (n,)."""
        size = np.abs(x) + SHARE * point_size(self.s, x, ProgramUnits.ones(self.s))
        slack, equality = point_slacks(self.s, x, size)
        return float(max(np.max(np.abs(equality), initial=0.0), np.max(-slack, initial=0.0)))

    def _farkas_margin(self, y: Wide, reach: Any) -> float:
        """Return the relative margin by which multipliers prove infeasibility; at most 0 if they do not.

        A feasible z satisfies ``yᵀ[A; G] z ≤ yᵀ[b; h]`` if y ≥ 0 on G. If the smallest value of the left side within
        the bounds is larger than the right side, no point is feasible. The margin is the difference of the two sides,
        divided by the sum of the magnitudes of their terms. In place of an absent bound, 1e8 times the largest limit
        or ``reach``, whichever is larger, is used.

        Args:
            y: (p + m,) multipliers. Negative multipliers of G are set to zero.
            reach: the largest magnitude in a point that HiGHS proposed.
        """
        s, p = self.s, len(self.s.b)
        y = np.concatenate([y[:p], np.maximum(y[p:], 0)])
        if not y.any():
            return 0.0
        rows, rhs = np.vstack([wide(s.A), wide(s.G)]), np.concatenate([wide(s.b), wide(s.h)])
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
    """Return whether the objective of a dense program decreases without end along a direction, as a ``Proof``.

    The program is unbounded only if it is feasible as well, which this function does not check.
    """
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
    """Return whether a direction decreases the objective without end, as a ``Proof``.

    Args:
        d: (n,) the direction, which is first projected onto the rows that must stay constant.
        c: (n,) costs, the largest of which is 1.
        G: (m, n) rows that must not increase.
        level: (k, n) the k rows that must stay constant: equalities and the curvature.
        box: lower and upper bounds (n,) of the entries of the direction. They are 0 where the program has a bound.
    """
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


def prove_indefinite(H: Any) -> Proof:
    """Return whether a curvature (n, n), dense or sparse, has a negative eigenvalue, as a ``Proof``."""
    if sp.issparse(H) and not H.nnz:
        return Proof.NO
    if H.shape[0] > _DENSE:
        return Proof.NO if _prove_semidefinite_by_pivots(H) else Proof.YES
    M = H.toarray() if sp.issparse(H) else H
    eigenvalues = np.linalg.eigvalsh(M)
    least, largest, flat = eigenvalues[0], np.abs(eigenvalues).max() or 1.0, np.diagonal(M) == 0
    if least < -EDGE * largest or (flat.any() and np.abs(M[flat]).max() > EDGE * largest):
        return Proof.YES
    return Proof.EDGE if least < -FLAT * largest else Proof.NO


def _prove_semidefinite_by_pivots(H: Any) -> bool:
    """Return whether H (n, n), with a small number added to its diagonal, has positive pivots only.

    If it has, no eigenvalue of H is clearly negative.
    """
    shifted = sp.csc_matrix(H + EDGE * float(abs(H).max()) * sp.eye_array(H.shape[0]))
    try:
        pivots = splu(shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}).U.diagonal()
    except RuntimeError:  # a pivot is exactly zero
        return False
    return bool((pivots > 0).all())


def prove_sparse_infeasible(p: JudgedProgram, time_limit: float) -> bool:
    """Return whether multipliers prove that no point satisfies the constraints of a sparse program.

    Let Cz ≤ d be all limits and bounds. Multipliers w ≥ 0 with Cᵀw = 0 and dᵀw < 0 are a proof.

    Args:
        p: the program.
        time_limit: seconds for the linear program that finds the multipliers.
    """
    C, d = _all_limits_as_rows(p)
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
    """Return whether a ray proves that a sparse program is unbounded.

    Let Cz ≤ d be all limits and bounds, H the curvature and c the costs. A direction r with Hr = 0, Cr ≤ 0 and
    cᵀr < 0, and a feasible point, are a proof. The direction is checked; the point is that of HiGHS, unchecked.

    Args:
        p: the program.
        time_limit: seconds for each of two linear programs, which find the direction and the point.
    """
    C, d = _all_limits_as_rows(p)
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


def _all_limits_as_rows(p: JudgedProgram) -> tuple[sp.csr_array, Array]:
    """Return C and d of all limits and bounds Cz ≤ d of a sparse program. Each row is divided by its largest entry."""
    one, upper, lower = sp.csr_array(sp.eye_array(p.n)), np.isfinite(p.ub), np.isfinite(p.lb)
    C = sp.csr_array(sp.vstack([p.A, -p.A, p.G, one[upper], -one[lower]]))
    norm = judged_row_magnitudes(C)
    unit = 1.0 / np.where(norm > 0, norm, 1.0)
    return sp.csr_array(sp.diags_array(unit) @ C), unit * np.concatenate([p.b, -p.b, p.h, p.ub[upper], -p.lb[lower]])
