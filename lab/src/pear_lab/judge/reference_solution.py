"""Reference solutions: a solver of another package proposes a point, and a last step makes it exact.

The last step solves the program in extended precision on the constraints that are tight at the proposed point. The
result is used only if it satisfies the optimality conditions. No code is shared with the solvers that are measured.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from pear.errors import MissingExtraError, PearError
from pear_lab.judge.exact_tangent import ExactTangent, exact_tangent, exact_tangent_at
from pear_lab.judge.extended_precision import Wide, wide
from pear_lab.judge.judged_program import Array, JudgedProgram
from pear_lab.judge.point_residuals import PointMultipliers, PointResiduals, point_residuals
from pear_lab.judge.program_units import ProgramUnits

BELIEVED = 1e-11
"""The largest relative residual of a point that serves as a reference."""

TOLERANCES: dict[str, tuple[str, ...]] = {
    "piqp": ("eps_abs", "eps_rel", "eps_duality_gap_abs", "eps_duality_gap_rel"),
    "clarabel": ("tol_feas", "tol_gap_abs", "tol_gap_rel"),
    "daqp": ("primal_tol", "dual_tol"),
    "proxqp": ("eps_abs", "eps_rel"),
    "osqp": ("eps_abs", "eps_rel"),
}
"""For some solvers of the qpsolvers package the names of their accuracy settings. Others keep their defaults."""

_OPTIONS: dict[str, dict[str, Any]] = {
    "piqp": dict.fromkeys(TOLERANCES["piqp"], 1e-12),
    "clarabel": dict.fromkeys(TOLERANCES["clarabel"], 1e-12) | {"max_threads": 1},
    "daqp": {"primal_tol": 1e-9, "dual_tol": 1e-12},
}


@dataclass(frozen=True)
class ReferenceSolution:
    """The solution of one program.

    Attributes:
        program: the solved program.
        x: (n,) the decision.
        multipliers: the multipliers that prove x optimal.
        residual: the largest relative residual of the optimality conditions.
        space: the tangent space at x; None if the decision has no derivative, or is too close to a point without one.
    """

    program: JudgedProgram
    x: Wide
    multipliers: PointMultipliers
    residual: float
    space: ExactTangent | None

    @property
    def on_edge(self) -> bool:
        """Whether the decision has no derivative, or is too close to a point without one."""
        return self.space is None

    def project(self, e: Array) -> Array:
        """Compute the gradient (n,) of the regret for the prediction error e (n,); NaN if ``on_edge``."""
        if self.space is None:
            return np.full(self.program.n, np.nan)
        return self.space.project(wide(e)).astype(np.float64)

    def longest_step(self, direction: Array) -> float:
        """Compute the largest t such that a change of the cost by ±t · direction keeps the set of tight constraints.

        The direction has the shape (n,). The result is 0 if ``on_edge``.
        """
        if self.space is None:
            return 0.0
        return self.space.longest_step(self.x, (self.multipliers.inequality, self.multipliers.bound), direction)


def solve_reference(program: JudgedProgram, tested: str) -> ReferenceSolution:
    """Solve a program by a solver other than ``tested``, and verify the solution.

    Raises:
        PearError: no reference solver reached a residual of 1e-11.
        MissingExtraError: no reference solver is installed.
    """
    tried = {}
    for solver in reference_solvers(tested):
        found = attempt_reference(program, solver)
        if found is not None and found.residual <= BELIEVED:
            return found
        tried[solver] = None if found is None else found.residual
    raise PearError(f"no reference for a program with {program.n} variables: residuals {tried}")


def reference_solvers(tested: str) -> list[str]:
    """Return the names of the qpsolvers package's solvers that serve as references for ``tested``, best first.

    Raises:
        MissingExtraError: none is installed.
    """
    try:
        from qpsolvers import available_solvers
    except ImportError:
        available_solvers = []
    names = [name for name in _OPTIONS if name != tested and name in available_solvers]
    if not names:
        raise MissingExtraError(
            f"the exactness benchmark of '{tested}' needs another solver as a reference, one of "
            f"{', '.join(_OPTIONS)}; run pip install 'pear-dfl[qpsolvers]'"
        )
    return names


def attempt_reference(program: JudgedProgram, solver: str) -> ReferenceSolution | None:
    """Solve a program with one solver, make the solution exact, and return it; None if the solver finds no point."""
    solved = _solve_reference_by_qpsolvers(program, solver)
    if solved is None:
        return None
    units = ProgramUnits.of(program)
    x, multipliers, found = _take_exact_reference_step(program, units, *solved)
    return ReferenceSolution(program, x, multipliers, found.worst, exact_tangent_at(program, found, units))


def make_qpsolvers_problem(p: JudgedProgram, solver: str) -> Any:
    """Make the problem of the qpsolvers package, with dense or sparse matrices as the solver needs them.

    Args:
        p: a dense or sparse program in which every row of G has a finite limit.
        solver: the name of the solver in that package.
    """
    import qpsolvers

    def matrix(M: Any) -> Any:
        if solver not in qpsolvers.dense_solvers:
            return sp.csc_matrix(M)
        return M.toarray() if p.is_sparse else np.ascontiguousarray(M)

    limits: dict[str, Any] = {"lb": p.lb, "ub": p.ub}
    limits |= {"G": matrix(p.G), "h": p.h} if len(p.h) else {}
    limits |= {"A": matrix(p.A), "b": p.b} if len(p.b) else {}
    return qpsolvers.Problem(matrix(p.H), p.c, **limits)


def _solve_reference_by_qpsolvers(p: JudgedProgram, solver: str) -> tuple[Array, PointMultipliers] | None:
    """Solve a program by the qpsolvers package, with rows and costs scaled to size 1.

    Returns:
        The point (n,) and its multipliers, or None if the solver finds none.
    """
    import qpsolvers

    present, scale = np.isfinite(p.h), np.abs(p.c).max() or 1.0
    norm_A, norm_G = (np.where(norms > 0, norms, 1.0) for norms in (np.linalg.norm(M, axis=1) for M in (p.A, p.G)))
    rows = {"A": p.A / norm_A[:, None], "b": p.b / norm_A}
    rows |= {"G": (p.G / norm_G[:, None])[present], "h": (p.h / norm_G)[present]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the accuracy is measured afterwards
        try:
            problem = make_qpsolvers_problem(replace(p, H=p.H / scale, c=p.c / scale, **rows), solver)
            solution = qpsolvers.solve_problem(problem, solver, **_OPTIONS[solver])
        except (qpsolvers.exceptions.QPError, ValueError):
            return None
    if solution.x is None or not np.isfinite(solution.x).all():
        return None
    equality, inequality, bound = np.zeros(len(p.b)), np.zeros(len(p.h)), np.zeros(p.n)
    found = (
        (equality, slice(None), solution.y),
        (inequality, present, solution.z),
        (bound, slice(None), solution.z_box),
    )
    for part, where, values in found:
        if values is not None and len(values):
            part[where] = values
    y = PointMultipliers(wide(scale * equality / norm_A), wide(scale * inequality / norm_G), wide(scale * bound))
    return solution.x, y


def _take_exact_reference_step(
    p: JudgedProgram, units: ProgramUnits, x: Array, y: PointMultipliers
) -> tuple[Wide, PointMultipliers, PointResiduals]:
    """Solve a program exactly on the constraints that are active at a proposed point.

    Returns:
        The solution (n,), its multipliers, and its residuals. They are those of the proposed point if ``exact_tangent``
        finds no tangent space of the active constraints.
    """
    z, found = wide(x), point_residuals(p, wide(x), y, units)
    active = found.slack <= np.maximum(found.multiplier, 1e-9)
    space = exact_tangent(p, units, active, active)
    if space is None:
        return z, y, found
    m, n, free = len(p.h), p.n, ~space.fixed
    lower, upper = active[m : m + n], active[m + n :]
    z = np.where(lower, wide(p.lb), np.where(upper, wide(p.ub), z))
    if space.factored is not None:
        missing = np.concatenate([wide(p.b), wide(p.h)[active[:m]]]) - space.rows @ z
        step = space.factored.smallest_norm(missing * space.scale, space.rank)
        z[free] += units.column[free] * step
    z = z - space.project(wide(p.H) @ z + wide(p.c))
    gradient, v = wide(p.H) @ z + wide(p.c), np.concatenate([y.equality, y.inequality[active[:m]]])
    for _ in range(2):
        correction, bound = space.multipliers(gradient + space.rows.T @ v)
        v = v + correction
    rows = np.zeros(m, np.longdouble)
    rows[active[:m]] = v[len(p.b) :]
    y = PointMultipliers(v[: len(p.b)], rows, np.where(free, 0, bound))
    return z, y, point_residuals(p, z, y, units)
