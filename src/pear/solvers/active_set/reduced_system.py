"""The reduced system: the curvature along the superbasic variables, whose factor grows as they enter."""

from __future__ import annotations

import math

from pear.compile.jit import inner, span
from pear.optimality.rule import FLAT, ROUNDOFF
from pear.solvers.active_set import compiled_arrays as ix
from pear.solvers.active_set.compiled_arrays import ProgramData, Workspace


@inner
def factorise(D: ProgramData, w: Workspace) -> int:
    """Extend the Cholesky factor of ZᵀHZ to all superbasic variables.

    Returns:
        The first superbasic variable along which the objective is flat, or −1.
    """
    R, n = D.J.shape
    L = w.L
    has_q = len(D.Q) > 0
    for t in span(w.tally[ix.FACTORED], w.tally[ix.SUPERS]):
        s = w.sup[t]
        # H z for z = e_s − Σ W[t, b] e_basis[b], first on the basic variables
        for b in span(R):
            i = w.basis[b]
            h = 0.0
            if i < n:
                h = -D.smoothing * w.W[t, b]
                if has_q:
                    h += D.sign * (D.Q[i, s] if s < n else 0.0)
                    for a in span(R):
                        if w.basis[a] < n:
                            h -= D.sign * D.Q[i, w.basis[a]] * w.W[t, a]
            w.column[b] = h
        top = 0.0
        for a in span(t + 1):
            i = w.sup[a]
            h = 0.0
            if i < n:
                h = D.smoothing if a == t else 0.0
                if has_q:
                    h += D.sign * (D.Q[i, s] if s < n else 0.0)
                    for b in span(R):
                        if w.basis[b] < n:
                            h -= D.sign * D.Q[i, w.basis[b]] * w.W[t, b]
            size = abs(h)
            for b in span(R):
                term = w.W[a, b] * w.column[b]
                h -= term
                size += abs(term)
            if a == t:
                top = size
            for k in span(a):
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
def solve_reduced(w: Workspace, count: int) -> None:
    """Solve the reduced system in place: ``w.along`` ← (LLᵀ)⁻¹ ``w.along`` for the first ``count`` superbasics."""
    for t in span(count):
        s = w.along[t]
        for a in span(t):
            s -= w.L[t, a] * w.along[a]
        w.along[t] = s / w.L[t, t]
    for t in range(count - 1, -1, -1):
        s = w.along[t]
        for a in span(t + 1, count):
            s -= w.L[a, t] * w.along[a]
        w.along[t] = s / w.L[t, t]


@inner
def search_direction(D: ProgramData, w: Workspace) -> float:
    """Write the search direction to ``w.along`` and ``w.column``.

    Returns:
        The longest useful step: 1 to the minimum of a curved objective; infinite where the objective is flat and falls;
        −inf where it is flat and constant.
    """
    R = len(D.J)
    supers = w.tally[ix.SUPERS]
    flat = factorise(D, w)
    longest = 1.0
    if flat < 0:
        for t in span(supers):
            w.along[t] = -w.reduced[w.sup[t]]
        solve_reduced(w, supers)
    else:
        # L[flat, :flat] holds L⁻¹ of the column, so that the flat direction needs the second half of the solve only
        for t in range(flat - 1, -1, -1):
            s = -w.L[flat, t]
            for a in span(t + 1, flat):
                s -= w.L[a, t] * w.along[a]
            w.along[t] = s / w.L[t, t]
        w.along[flat] = 1.0
        rise = size = 0.0
        for t in span(flat + 1):
            rise += w.reduced[w.sup[t]] * w.along[t]
            size += abs(w.reduced[w.sup[t]] * w.along[t])
        for t in span(flat + 1, supers):
            w.along[t] = 0.0
        if rise > 0.0:
            for t in span(flat + 1):
                w.along[t] = -w.along[t]
        longest = math.inf if abs(rise) > ROUNDOFF * size else -math.inf
    for b in span(R):
        s = 0.0
        for t in span(supers):
            s -= w.W[t, b] * w.along[t]
        w.column[b] = s
    return longest
