"""Products with the rows of a program, and the slope and multipliers that come of them."""

from __future__ import annotations

from pear.solvers.active_set.compile import inner
from pear.solvers.active_set.layout import BASIS, GRAD, REDUCED, Array, C, Data, Work, X, Y


@inner
def subtract_rows(D: Data, x: Array, out: Array) -> None:
    """Subtract J x from ``out``."""
    R, n = D.J.shape
    if D.start.shape[0] == 0:
        for i in range(R):
            s = 0.0
            for j in range(n):
                s += D.J[i, j] * x[j]
            out[i] -= s
        return
    for j in range(n):
        if x[j] != 0.0:
            for k in range(D.start[j], D.start[j + 1]):
                out[D.row[k]] -= D.value[k] * x[j]


@inner
def add_abs_rows(D: Data, x: Array, out: Array) -> None:
    """Add |J| |x| to ``out``."""
    R, n = D.J.shape
    if D.start.shape[0] == 0:
        for i in range(R):
            s = 0.0
            for j in range(n):
                s += abs(D.J[i, j] * x[j])
            out[i] += s
        return
    for j in range(n):
        if x[j] != 0.0:
            for k in range(D.start[j], D.start[j + 1]):
                out[D.row[k]] += abs(D.value[k] * x[j])


@inner
def subtract_columns(D: Data, y: Array, out: Array) -> None:
    """Subtract Jᵀ y from ``out``."""
    R, n = D.J.shape
    if D.start.shape[0] == 0:
        for i in range(R):
            if y[i] != 0.0:
                for j in range(n):
                    out[j] -= D.J[i, j] * y[i]
        return
    for j in range(n):
        s = 0.0
        for k in range(D.start[j], D.start[j + 1]):
            s += D.value[k] * y[D.row[k]]
        out[j] -= s


@inner
def add_abs_columns(D: Data, y: Array, out: Array) -> None:
    """Add |J|ᵀ |y| to ``out``."""
    R, n = D.J.shape
    if D.start.shape[0] == 0:
        for i in range(R):
            if y[i] != 0.0:
                for j in range(n):
                    out[j] += abs(D.J[i, j] * y[i])
        return
    for j in range(n):
        s = 0.0
        for k in range(D.start[j], D.start[j + 1]):
            s += abs(D.value[k] * y[D.row[k]])
        out[j] += s


@inner
def set_slope(D: Data, w: Work) -> None:
    """The slope Hx + c, from the data."""
    n = D.J.shape[1]
    for j in range(n):
        w.v[GRAD, j] = w.v[C, j] + D.smoothing * w.v[X, j]
    if D.Q.shape[0] > 0:
        for j in range(n):
            if w.v[X, j] != 0.0:
                factor = D.sign * w.v[X, j]
                for i in range(n):
                    w.v[GRAD, i] += factor * D.Q[j, i]


@inner
def set_multipliers(D: Data, w: Work) -> None:
    """The multipliers y = B⁻ᵀ grad_B, and the reduced gradient that belongs to them."""
    R, n = D.J.shape
    for k in range(R):
        w.v[Y, k] = 0.0
    for b in range(R):
        if w.k[BASIS, b] < n:
            factor = w.v[GRAD, w.k[BASIS, b]]
            for k in range(R):
                w.v[Y, k] += factor * w.inverse[b, k]
    set_reduced_gradient(D, w)


@inner
def set_reduced_gradient(D: Data, w: Work) -> None:
    """The reduced gradient grad − Jᵀy, which is −y for the slacks."""
    R, n = D.J.shape
    for j in range(n):
        w.v[REDUCED, j] = w.v[GRAD, j]
    subtract_columns(D, w.v[Y], w.v[REDUCED])
    for k in range(R):
        w.v[REDUCED, n + k] = -w.v[Y, k]
