"""The reduced system: the curvature along the superbasic variables, factorised as they come."""

from __future__ import annotations

import math

from pear.optimality.rule import FLAT, ROUNDOFF
from pear.solvers.active_set import layout as ix
from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import Data, Work


@inner
def factorise(D: Data, w: Work) -> int:
    """Extend the Cholesky factor of ZᵀHZ to all superbasics; returns the first along which it is flat, or −1."""
    R, n = D.J.shape
    L = w.L
    has_q = D.Q.shape[0] > 0
    for t in range(w.tally[ix.FACTORED], w.tally[ix.SUPERS]):
        s = w.k[ix.SUP, t]
        # H z for z = e_s − Σ W[t, b] e_basis[b], first on the basic variables
        for b in range(R):
            i = w.k[ix.BASIS, b]
            h = 0.0
            if i < n:
                h = -D.smoothing * w.W[t, b]
                if has_q:
                    h += D.sign * (D.Q[i, s] if s < n else 0.0)
                    for a in range(R):
                        if w.k[ix.BASIS, a] < n:
                            h -= D.sign * D.Q[i, w.k[ix.BASIS, a]] * w.W[t, a]
            w.v[ix.COLUMN, b] = h
        top = 0.0
        for a in range(t + 1):
            i = w.k[ix.SUP, a]
            h = 0.0
            if i < n:
                h = D.smoothing if a == t else 0.0
                if has_q:
                    h += D.sign * (D.Q[i, s] if s < n else 0.0)
                    for b in range(R):
                        if w.k[ix.BASIS, b] < n:
                            h -= D.sign * D.Q[i, w.k[ix.BASIS, b]] * w.W[t, b]
            size = abs(h)
            for b in range(R):
                term = w.W[a, b] * w.v[ix.COLUMN, b]
                h -= term
                size += abs(term)
            if a == t:
                top = size
            for k in range(a):
                h -= L[t, k] * L[a, k]
            if a < t:
                L[t, a] = h / L[a, a]
            elif not h > FLAT * top:
                return t
            else:
                L[t, t] = math.sqrt(h)
        w.tally[ix.FACTORED] = t + 1
    return -1


@inner
def solve_reduced(w: Work, count: int) -> None:
    """ALONG ← (LLᵀ)⁻¹ ALONG on the first ``count`` superbasics."""
    for t in range(count):
        s = w.v[ix.ALONG, t]
        for a in range(t):
            s -= w.L[t, a] * w.v[ix.ALONG, a]
        w.v[ix.ALONG, t] = s / w.L[t, t]
    for t in range(count - 1, -1, -1):
        s = w.v[ix.ALONG, t]
        for a in range(t + 1, count):
            s -= w.L[a, t] * w.v[ix.ALONG, a]
        w.v[ix.ALONG, t] = s / w.L[t, t]


@inner
def search_direction(D: Data, w: Work) -> float:
    """Write the search direction to ALONG and COLUMN; returns the longest step.

    It is 1 to the minimum of a curved objective, infinite down a flat one, and −inf along a direction in which the
    objective is flat and level.
    """
    R = D.J.shape[0]
    supers = w.tally[ix.SUPERS]
    flat = factorise(D, w)
    longest = 1.0
    if flat < 0:
        for t in range(supers):
            w.v[ix.ALONG, t] = -w.v[ix.REDUCED, w.k[ix.SUP, t]]
        solve_reduced(w, supers)
    else:
        # L[flat, :flat] holds L⁻¹ of the column, so that the flat direction needs the second half of the solve only
        for t in range(flat - 1, -1, -1):
            s = -w.L[flat, t]
            for a in range(t + 1, flat):
                s -= w.L[a, t] * w.v[ix.ALONG, a]
            w.v[ix.ALONG, t] = s / w.L[t, t]
        w.v[ix.ALONG, flat] = 1.0
        rise = size = 0.0
        for t in range(flat + 1):
            rise += w.v[ix.REDUCED, w.k[ix.SUP, t]] * w.v[ix.ALONG, t]
            size += abs(w.v[ix.REDUCED, w.k[ix.SUP, t]] * w.v[ix.ALONG, t])
        for t in range(flat + 1, supers):
            w.v[ix.ALONG, t] = 0.0
        if rise > 0.0:
            for t in range(flat + 1):
                w.v[ix.ALONG, t] = -w.v[ix.ALONG, t]
        longest = math.inf if abs(rise) > ROUNDOFF * size else -math.inf
    for b in range(R):
        s = 0.0
        for t in range(supers):
            s -= w.W[t, b] * w.v[ix.ALONG, t]
        w.v[ix.COLUMN, b] = s
    return longest
