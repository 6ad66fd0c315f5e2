"""Proofs about an instance: that no point satisfies it, that its objective falls without end, that it is convex.

SciPy's linear programs look for multipliers or a ray; what they find is checked with the arrays before it is believed.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.sparse.linalg import splu

from pear_lab.benchmarks.files.instance import Instance
from pear_lab.benchmarks.program import Array

PROOF = 1e-8
"""How negative a certificate must be, relative to the limits and costs it is made of."""
_ERROR = 1e-3  # share of it that the certificate's own residual may reach
_ROUNDING = 1e-9  # relative size of a negative eigenvalue that passes
_DENSE = 1500  # variables up to which eigenvalues are computed
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def is_infeasible(p: Instance, time_limit: float) -> bool:
    """Farkas: w ≥ 0 with Cᵀw = 0 and dᵀw < 0, where Cx ≤ d are all limits and bounds as unit rows."""
    C, d = _unit_rows(p)
    if not len(d):
        return False
    scale = float(np.abs(d).max()) or 1.0
    found = linprog(
        d / scale, A_eq=sp.csc_array(C.T), b_eq=np.zeros(C.shape[1]), bounds=(0, 1), options=_limited(time_limit)
    )
    if found.x is None:
        return False
    w = np.maximum(found.x, 0.0)
    against = -float(d @ w) / scale
    return against > PROOF and float(np.abs(C.T @ w).max()) <= _ERROR * against


def is_unbounded(p: Instance, time_limit: float) -> bool:
    """A ray r with Pr = 0, Cr ≤ 0 and qᵀr < 0, from a feasible point of the relaxation."""
    C, d = _unit_rows(p)
    scale = float(np.abs(p.q).max()) or 1.0
    curved = sp.csr_array(p.P)[np.diff(sp.csr_array(p.P).indptr) > 0]
    found = linprog(
        p.q / scale,
        A_ub=C if len(d) else None,
        b_ub=np.zeros(len(d)) if len(d) else None,
        A_eq=curved if curved.shape[0] else None,
        b_eq=np.zeros(curved.shape[0]) if curved.shape[0] else None,
        bounds=(-1, 1),
        options=_limited(time_limit),
    )
    if found.x is None:
        return False
    falls = -float(p.q @ found.x) / scale
    missed = max(float((C @ found.x).max(initial=0.0)), float(np.abs(curved @ found.x).max(initial=0.0)))
    if falls <= PROOF or missed > _ERROR * falls:
        return False
    point = linprog(np.zeros(len(p.q)), A_ub=C, b_ub=d, bounds=(None, None), options=_limited(time_limit))
    return bool(point.status == 0) if len(d) else True


def is_convex(P: sp.csc_array) -> bool:
    """Whether P (n, n) has no negative eigenvalue beyond rounding; without it a stationary point proves nothing."""
    if not P.nnz:
        return True
    if P.shape[0] <= _DENSE:
        eigenvalues = np.linalg.eigvalsh(P.toarray())
        return bool(eigenvalues[0] >= -_ROUNDING * np.abs(eigenvalues).max())
    shifted = sp.csc_matrix(P + _ROUNDING * float(abs(P).max()) * sp.eye_array(P.shape[0]))
    try:
        pivots = splu(shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}).U.diagonal()
    except RuntimeError:  # a pivot is exactly zero
        return False
    return bool((pivots > 0).all())


def _limited(seconds: float) -> dict[str, float]:
    return {**_OPTIONS, "time_limit": seconds}


def _unit_rows(p: Instance) -> tuple[sp.csr_array, Array]:
    """Cx ≤ d: every finite limit and bound, each row divided by its largest entry."""
    norm = abs(p.A).max(axis=1).todense() if p.A.shape[0] else np.zeros(0)
    norm = np.asarray(norm, dtype=float).reshape(-1)
    norm = np.where(norm > 0, norm, 1.0)
    A, one = sp.csr_array(sp.diags_array(1 / norm) @ p.A), sp.csr_array(sp.eye_array(len(p.q)))
    above, below, upper, lower = (np.isfinite(v) for v in (p.u, p.l, p.ub, p.lb))
    C = sp.vstack([A[above], -A[below], one[upper], -one[lower]])
    d = np.concatenate([(p.u / norm)[above], -(p.l / norm)[below], p.ub[upper], -p.lb[lower]])
    return sp.csr_array(C), d
