"""What decisions and gradients should be, computed by other means: numpy, one sample at a time, nothing eliminated.

A reference point comes from a QP solver at 1e-12 and one null-space step on the constraints it holds tight; its
optimality conditions are checked before it is believed. The gradient is ``Z (ZᵀHZ)⁻¹ Zᵀ e`` with Z an orthonormal basis
of the null space of all tight rows, bounds included. Nothing here is shared with the code that is measured.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import null_space
from scipy.optimize import linprog

from pear.errors import MissingExtraError, PearError
from pear_lab.benchmarks.program import Array, Mask, Program, UnitRows

TIGHT = 1e-7
"""Slack, in the units of ``UnitRows.slack``, up to which a constraint is tight."""
BETWEEN = (1e-9, 1e-6)
"""A slack between these is neither tight nor loose for certain: the sample is on an edge."""
STRICT = 1e-6
"""Multiplier, relative to the terms around it, that every tight inequality must be able to carry, or it is an edge."""
BELIEVED = 1e-11
"""Relative residual up to which a reference is taken for the solution."""

_RANK = 1e-11
_OPTIONS: dict[str, dict[str, Any]] = {
    "piqp": dict.fromkeys(("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"), 1e-12),
    "clarabel": dict.fromkeys(("tol_feas", "tol_gap_abs", "tol_gap_rel"), 1e-12) | {"max_threads": 1},
    "daqp": {"primal_tol": 1e-9, "dual_tol": 1e-12},
}
_REFERENCES = tuple(_OPTIONS)


@dataclass(frozen=True)
class Reference:
    """The solution of one program and what follows from it.

    Attributes:
        program, rows: what was solved.
        x: (n,) the decision.
        residual: its scaled optimality residual.
        tight: (k,) the inequalities that hold with equality.
        multipliers: (k,) of the unit rows, as far from zero as they can be where they are not unique.
        Z: (n, t) orthonormal basis of the tangent space.
        on_edge: whether the decision has no derivative here, or is too close to a point where it has none.
    """

    program: Program
    rows: UnitRows
    x: Array
    residual: float
    tight: Mask
    multipliers: Array
    Z: Array
    on_edge: bool

    def project(self, e: Array) -> Array:
        """Z (ZᵀHZ)⁻¹ Zᵀ e for e (n,)."""
        Z, H = self.Z, self.program.H
        return np.asarray(Z @ np.linalg.solve(Z.T @ H @ Z, Z.T @ e))

    def longest_step(self, direction: Array) -> float:
        """How far the cost may move along ±direction (n,) before a constraint becomes tight or loose.

        Up to there the decision x − tPd is affine in the step t, and so are multipliers that prove it optimal.
        """
        dx = -self.project(direction)
        J = np.vstack([self.rows.E, self.rows.C[self.tight]])
        dv = np.linalg.lstsq(J.T, -(direction + self.program.H @ dx), rcond=_RANK)[0][len(self.rows.E) :]
        loose = ~self.tight
        room = np.concatenate([(self.rows.d - self.rows.C @ self.x)[loose], self.multipliers[self.tight]])
        rate = np.abs(np.concatenate([self.rows.C[loose] @ dx, dv]))
        moving = rate > 0
        return float(np.min(room[moving] / rate[moving], initial=np.inf))


def reference(program: Program, tested: str) -> Reference:
    """The verified solution of a program, by a solver other than ``tested``.

    Raises:
        PearError: no reference solver came to an optimality residual of 1e-11, so that nothing can be compared.
    """
    residuals = {}
    for solver in reference_solvers(tested):
        found = attempt(program, solver)
        if found is not None and found.residual <= BELIEVED:
            return found
        residuals[solver] = None if found is None else found.residual
    raise PearError(f"no reference for a program with {len(program.c)} variables: residuals {residuals}")


def reference_solvers(tested: str) -> list[str]:
    """Those solvers of the qpsolvers package that serve as references for ``tested``, best first."""
    try:
        from qpsolvers import available_solvers
    except ImportError:
        available_solvers = []
    names = [name for name in _REFERENCES if name != tested and name in available_solvers]
    if not names:
        raise MissingExtraError(
            f"the exactness benchmark of '{tested}' needs another solver as a reference, one of "
            f"{', '.join(_REFERENCES)}; run pip install 'pear-dfl[qpsolvers]'"
        )
    return names


def attempt(program: Program, solver: str) -> Reference | None:
    """Solve, take an exact step on the constraints that look active, and measure what came out; None if nothing did."""
    rows = UnitRows.of(program)
    solved = _solve(program, rows, solver)
    if solved is None:
        return None
    x, y, w = solved
    active = rows.slack(x) <= np.maximum(w / _dual_scale(program, rows, x, y, w), BETWEEN[0])
    x, y, w = _step(program, rows, active, x, y, w)
    residual, dual_scale = _residual(program, rows, x, y, w), _dual_scale(program, rows, x, y, w)
    slack = rows.slack(x)
    tight = slack <= TIGHT
    Z = _null(np.vstack([rows.E, rows.C[tight]]), len(x))
    w = _strictest(program, rows, tight, x, w, dual_scale)
    near = (slack > BETWEEN[0]) & (slack < BETWEEN[1])
    on_edge = bool(near.any() or (w <= STRICT * dual_scale)[tight].any())
    return Reference(program, rows, x, residual, tight, w, Z, on_edge)


def _terms(program: Program, rows: UnitRows, x: Array, y: Array, w: Array) -> Array:
    """(n,) magnitudes of the terms that stationarity adds up."""
    row_terms = np.abs(rows.E).T @ np.abs(y) + np.abs(rows.C).T @ np.abs(w)
    return np.asarray(np.abs(program.c) + np.abs(program.H @ x) + row_terms)


def _dual_scale(program: Program, rows: UnitRows, x: Array, y: Array, w: Array) -> Array:
    """(k,) what the multipliers of C are small or large against.

    For a bound these are the terms of stationarity at its variable, and no less than the median of all; for a row those
    at its variables that are not held by a bound. A cost of 1e6 that keeps one variable out says nothing about the
    others.
    """
    terms, single = _terms(program, rows, x, y, w), np.count_nonzero(rows.C, axis=1) == 1
    terms = np.maximum(terms, np.median(terms))
    held = (rows.C[single & (rows.slack(x) <= TIGHT)] != 0).any(0)
    everywhere, elsewhere = np.abs(rows.C) @ terms, np.abs(rows.C) @ np.where(held, 0.0, terms)
    dual_scale = np.where(single | (elsewhere == 0), everywhere, elsewhere)
    return np.where(dual_scale > 0, dual_scale, 1.0)


def _residual(program: Program, rows: UnitRows, x: Array, y: Array, w: Array) -> float:
    """Largest violation of the optimality conditions, each relative to the terms it is made of."""
    terms = _terms(program, rows, x, y, w)
    slack, scaled_multiplier = rows.slack(x), w / _dual_scale(program, rows, x, y, w)
    stationarity = np.abs(program.H @ x + program.c + rows.gradient_of(y, w)) / np.maximum(
        terms, 1e-3 * (terms.max() or 1.0)
    )
    return float(
        np.concatenate(
            [rows.miss(x), stationarity, -slack, -scaled_multiplier, np.abs(slack * scaled_multiplier)]
        ).max()
    )


def _solve(program: Program, rows: UnitRows, solver: str) -> tuple[Array, Array, Array] | None:
    """The point and the multipliers of E and C by a solver of the qpsolvers package; bounds are rows like any other."""
    import qpsolvers

    scale = np.abs(program.c).max() or 1.0  # tolerances are absolute, the size of the costs is not
    matrix = np.ascontiguousarray if solver in qpsolvers.dense_solvers else sp.csc_matrix
    problem = qpsolvers.Problem(
        matrix(program.H / scale),
        program.c / scale,
        *((matrix(rows.C), rows.d) if len(rows.d) else (None, None)),
        *((matrix(rows.E), rows.f) if len(rows.f) else (None, None)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what falls short of 1e-12 is measured below, whatever it says
        try:
            solution = qpsolvers.solve_problem(problem, solver, **_OPTIONS[solver])
        except (qpsolvers.exceptions.QPError, ValueError):
            return None
    x, y, w = (
        np.zeros(k) if v is None or not len(v) else np.asarray(v)
        for v, k in ((solution.x, 0), (solution.y, len(rows.f)), (solution.z, len(rows.d)))
    )
    return (x, scale * y, scale * w) if len(x) and np.isfinite(np.concatenate([x, y, w])).all() else None


def _step(program: Program, rows: UnitRows, active: Mask, x: Array, y: Array, w: Array) -> tuple[Array, Array, Array]:
    """The exact solution on the active rows: onto them, down along their null space, then the nearest multipliers."""
    J = np.vstack([rows.E, rows.C[active]])
    x = x + np.linalg.lstsq(J, np.concatenate([rows.f, rows.d[active]]) - J @ x, rcond=_RANK)[0]
    Z = _null(J, len(x))
    x = x - Z @ np.linalg.solve(Z.T @ program.H @ Z, Z.T @ (program.H @ x + program.c))
    v = np.concatenate([y, w[active]])
    v = v - np.linalg.lstsq(J.T, program.H @ x + program.c + J.T @ v, rcond=_RANK)[0]
    w = np.zeros_like(w)
    w[active] = v[len(y) :]
    return x, v[: len(y)], w


def _strictest(program: Program, rows: UnitRows, tight: Mask, x: Array, w: Array, dual_scale: Array) -> Array:
    """Multipliers that are positive on every tight inequality, if there are any.

    Such multipliers are what makes the decision differentiable. Where they are unique there is nothing to choose, and
    where the ones at hand are positive nothing to prove; else the linear program ``max t, w ≥ t dual_scale`` decides.
    """
    E, C, unit = rows.E, rows.C[tight], dual_scale[tight]
    without, within = _null(E, len(x)).shape[1], _null(np.vstack([E, C]), len(x)).shape[1]
    unique = without - within == len(C)  # every tight inequality takes a dimension of its own
    if unique or (w > STRICT * dual_scale)[tight].all():
        return w
    # with w = (t + u) dual_scale, u ≥ 0: the variables are (y, u, t), and everything is divided by the largest scale
    largest = unit.max()
    columns = C.T * (unit / largest)
    solved = linprog(
        np.concatenate([np.zeros(len(E) + len(C)), [-1.0]]),
        A_eq=np.column_stack([E.T, columns, columns.sum(1)]),
        b_eq=-(program.H @ x + program.c) / largest,
        bounds=[(None, None)] * len(E) + [(0.0, None)] * len(C) + [(None, 1.0)],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solved.status != 0:
        return w
    best = np.zeros_like(w)
    best[tight] = unit * (solved.x[len(E) : -1] + solved.x[-1])
    return best


def _null(rows: Array, n: int) -> Array:
    """(n, t) orthonormal basis of the vectors that all rows are orthogonal to; there may be no rows."""
    return np.asarray(null_space(np.vstack([rows, np.zeros(n)]), rcond=_RANK))
