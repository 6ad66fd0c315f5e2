"""The conformance suite of solvers. It judges the candidates, which are the solutions that a solver proposes.

The programs are small. The KKT residual of a candidate must be at most ten times the accuracy that was asked for, and
the pipeline must turn the candidate into a verified solution without another solver. Programs without a solution must
not be called solved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from pear.decisions.pipeline import solve_in_pipeline
from pear.optimality.kkt_residual import kkt_residual
from pear.optimality.rule import INTEGRAL, OPTIMAL
from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.backend_registry import Backend, get_backend
from pear.solvers.candidate import Candidate
from pear.testing.checks import Body, Check, check_that, run_checks
from pear.testing.program_zoo import (
    BOUNDED,
    FLAT_DIRECTION,
    HOPELESS,
    HOPELESS_INTEGERS,
    INF,
    Fields,
    bounded_zoo_program,
    integer_zoo_program,
    packing_zoo_program,
    zoo_optima_by_enumeration,
    zoo_program,
)

ASKED = 1e-7
"""The relative accuracy that solvers are asked for."""

GRANTED = 10 * ASKED
"""The largest KKT residual of a candidate that may be called solved."""

KNOWN = 1e-5
"""The largest difference between an entry of a solution or multiplier, whose size is about 1, and its known value."""

MISSED = 1e-3
"""The largest difference between the known optimum of an integer program and the value or bound of a candidate."""


def solver_checks(solver: str | Backend) -> list[Check]:
    """Return the checks of a solver, on the programs that it supports.

    Args:
        solver: the name of the solver, or its ``Backend``.

    Example:
        >>> [str(check) for check in solver_checks("binary")][:2]
        ['milp: optima are proven', 'milp: rows of their own']
    """
    return _SolverChecks(get_backend(solver) if isinstance(solver, str) else solver).all()


def check_solver(solver: str | Backend) -> tuple[str, ...]:
    """Run all checks of a solver.

    Args:
        solver: the name of the solver, or its ``Backend``.

    Returns:
        The names of the checks, if all of them passed.

    Raises:
        ConformanceError: some checks failed; the message has a line for each of them.

    Example:
        >>> len(check_solver("scipy")) > 20
        True
    """
    return run_checks(solver_checks(solver))


class _SolverChecks:
    """The checks of a solver.

    Args:
        row: the solver.
    """

    def __init__(self, row: Backend) -> None:
        self.row = row

    def all(self) -> list[Check]:
        """Return all checks on programs that the solver supports."""
        bodies: dict[str, Body] = {}
        for kind in [kind for kind in ("lp", "qp") if kind in self.row.kinds]:
            bodies |= self._continuous(kind)
        if "qp" in self.row.kinds:
            for name, (c, fields) in _CURVED.items():
                if self.row.supports(zoo_program(c, **fields)):
                    bodies[f"qp: {name}"] = partial(self.solves, partial(zoo_program, c, **fields))
        if "milp" in self.row.kinds:
            bodies |= self._integer()
        for one in self.row.kinds:
            if self.row.supports(_empty_program(one)):
                bodies[f"{one}: an empty batch"] = partial(self.takes_an_empty_batch, one)
        return [Check(f"the solver '{self.row.name}'", name, body) for name, body in bodies.items()]

    def _continuous(self, kind: str) -> dict[str, Body]:
        """Return the checks of continuous programs of a kind, "lp" or "qp", by name."""
        bodies: dict[str, Body] = {}
        for name in BOUNDED:
            if self.row.supports(bounded_zoo_program(kind, name)):
                bodies[f"{kind}: {name}"] = partial(self.solves, partial(bounded_zoo_program, kind, name))
        for name, (c, fields, status) in HOPELESS.items():
            qp = zoo_program(c, **fields, **(FLAT_DIRECTION if kind == "qp" else {}))
            if self.row.supports(qp):
                bodies[f"{kind}: {name}"] = partial(self.claims_no_solution, qp, status)
        if self.row.supports(_program_with_bad_sample(kind)):
            bodies[f"{kind}: a bad sample among good ones"] = partial(self.isolates_a_bad_sample, kind)
        if self.row.supports(_multiplier_program(kind)[0]):
            bodies[f"{kind}: signs of multipliers"] = partial(self.has_known_multipliers, kind)
        return bodies

    def _integer(self) -> dict[str, Body]:
        """Return the checks of integer programs, by name."""
        bodies: dict[str, Body] = {}
        if self.row.supports(packing_zoo_program()):
            bodies["milp: optima are proven"] = partial(self.proves_integer_optima, packing_zoo_program, 1)
        if not self.row.supports(integer_zoo_program()):
            return bodies
        bodies["milp: rows of their own"] = partial(self.proves_integer_optima, integer_zoo_program, 4, optional=True)
        bodies["milp: integers beside others"] = self.keeps_continuous_variables
        for name, (fields, status) in HOPELESS_INTEGERS.items():
            qp = zoo_program([-1.0, -2.0], **fields, integer=[True, True])
            bodies[f"milp: {name}"] = partial(self.claims_no_solution, qp, status)
        return bodies

    def _propose(self, qp: QuadraticProgram) -> Candidate:
        """Return the solver's candidates for programs ``qp``.

        Check the shapes and dtypes of the candidates, and that ``qp`` is not changed.
        """
        fields = ("H", "c", "A", "b", "G", "h", "lb", "ub")
        before = {name: getattr(qp, name).clone() for name in fields}
        candidate = self.row.solve(qp, ASKED)
        for name, value in before.items():
            check_that(
                torch.equal(getattr(qp, name), value),
                f"it changes the field {name} of the programs; copy what it needs",
            )
        shapes = {
            "x": (candidate.x, (qp.batch, qp.n)),
            "duals.equality": (candidate.duals.equality, (qp.batch, qp.p)),
            "duals.inequality": (candidate.duals.inequality, (qp.batch, qp.m)),
            "duals.bound": (candidate.duals.bound, (qp.batch, qp.n)),
            "status": (candidate.status, (qp.batch,)),
        }
        for name, (value, shape) in shapes.items():
            check_that(value.shape == shape, f"{name} has shape {tuple(value.shape)}; expected {shape}")
            expected = torch.int8 if name == "status" else torch.float64
            check_that(value.dtype == expected, f"{name} has dtype {value.dtype}; expected {expected}")
        return candidate

    def solves(self, make: Callable[[], QuadraticProgram]) -> None:
        """Check that programs are solved in three batches: all samples, the last one alone, and all in reverse order.

        The pipeline must verify the candidates without another solver. ``make`` returns the programs.
        """
        qp = make()
        _check_solved(qp, self._propose(qp))
        last = qp[qp.batch - 1 :]
        _check_solved(last, self._propose(last))
        order = torch.arange(qp.batch).flip(0)
        _check_solved(qp[order], self._propose(qp[order]))
        found = solve_in_pipeline(qp, [self.row], named=True)
        worst = float(found.kkt_residual.max())
        check_that(
            bool(found.solved.all()) and worst <= OPTIMAL,
            f"its candidates are not repaired to exact solutions: {_status_names(found.status)}, KKT "
            f"residual {worst:.1e}",
        )

    def claims_no_solution(self, qp: QuadraticProgram, status: Status) -> None:
        """Check that the solver does not report "solved" for a program without a solution.

        The candidate's status must be ``status`` or INACCURATE. If it is ``status``, x must be NaN. For a program
        without integers, the multipliers of the bounds must then be NaN, too.
        """
        candidate = self._propose(qp)
        said = Status(int(candidate.status[0]))
        check_that(
            said in (status, Status.INACCURATE), f"its status is {said.name}; expected {status.name} or INACCURATE"
        )
        empty = bool(candidate.x.isnan().all() and (qp.integer is not None or candidate.duals.bound.isnan().all()))
        check_that(said == Status.INACCURATE or empty, f"a sample that is {said.name} has a point; it must be NaN")

    def isolates_a_bad_sample(self, kind: str) -> None:
        """Check that an infeasible sample is not called solved, and that the other samples of its batch are solved."""
        qp = _program_with_bad_sample(kind)
        candidate, good = self._propose(qp), torch.tensor([0, 2])
        said = Status(int(candidate.status[1]))
        check_that(said in (Status.INFEASIBLE, Status.INACCURATE), f"the infeasible sample is called {said.name}")
        _check_solved(qp[good], candidate[good])

    def has_known_multipliers(self, kind: str) -> None:
        """Check that solution and multipliers have their known values and signs."""
        qp, known = _multiplier_program(kind)
        candidate = self._propose(qp)
        for name, value in known.items():
            got = (candidate.x if name == "x" else getattr(candidate.duals, name))[0].numpy()
            far = float(np.abs(got - np.array(value)).max(initial=0.0))
            what = "x" if name == "x" else f"the multipliers of duals.{name}"
            check_that(far <= KNOWN, f"{what} are {got.round(6).tolist()}; expected {value}")

    def takes_an_empty_batch(self, kind: str) -> None:
        """Check that the solver returns empty candidates for an empty batch."""
        self._propose(_empty_program(kind))

    def proves_integer_optima(self, make: Callable[[], QuadraticProgram], highest: int, optional: bool = False) -> None:
        """Check that integer decisions are optimal and proven by a bound.

        Args:
            make: a function that returns the programs.
            highest: the largest value of a variable.
            optional: whether the solver may decline these programs, with the status INACCURATE for all of them.
        """
        qp = make()
        candidate = self._propose(qp)
        if optional and bool((candidate.status == Status.INACCURATE).all()):
            return  # the solver could not say beforehand that it does not support these programs
        check_that(
            bool((candidate.status == Status.SOLVED).all()),
            f"its statuses are {_status_names(candidate.status)}, not SOLVED",
        )
        values = (qp.c * candidate.x).sum(1)
        best = torch.tensor(zoo_optima_by_enumeration(qp, highest), dtype=torch.float64)
        worst = float((values - best).abs().max())
        check_that(
            worst <= MISSED, f"a decision misses the best by {worst:g}; a gap of the solver's own must be closed"
        )
        check_that(float((candidate.x - candidate.x.round()).abs().max()) <= INTEGRAL, "a decision is not of integers")
        bound = candidate.bound
        proven = bound is not None and bool(((bound <= best + MISSED) & (bound >= best - MISSED)).all())
        check_that(
            proven, f"its bounds are {None if bound is None else bound.tolist()}; expected the optima {best.tolist()}"
        )
        duals = candidate.duals
        check_that(not bool(duals.inequality.any() or duals.bound.any()), "multipliers of integer programs must be 0")
        order = torch.arange(qp.batch).flip(0)
        again = (qp.c[order] * self._propose(qp[order]).x).sum(1)
        check_that(float((again - best[order]).abs().max()) <= MISSED, "in another order, a decision misses the best")

    def keeps_continuous_variables(self) -> None:
        """Check that only marked variables are integers, and that candidates carry no gradient."""
        qp = zoo_program([-1.0, -1.0], G=[[1, 0], [0, 1]], h=[1.5, 1.5], integer=[True, False])
        candidate = self._propose(qp)
        if int(candidate.status) == Status.INACCURATE:
            return
        x = candidate.x[0].tolist()
        check_that(max(abs(x[0] - 1.0), abs(x[1] - 1.5)) <= KNOWN, f"x is {x}; expected [1.0, 1.5]")
        carrying = replace(qp, c=qp.c.clone().requires_grad_())
        check_that(
            not self.row.solve(carrying, ASKED).x.requires_grad, "its candidate carries a gradient; detach the costs"
        )


_CURVED: dict[str, tuple[Any, Fields]] = {
    "no constraints": ([[1.0, -2.0], [0.0, 3.0]], {"H": [[2.0, 1.0], [1.0, 2.0]]}),
    "singular curvature": (
        [[1.0, -2.0, 0.0], [-0.5, 1.0, 1.0]],
        {"H": np.diag([1.0, 0.0, 0.0]), "lb": -np.ones(3), "ub": np.ones(3)},
    ),
}


def _status_names(status: torch.Tensor) -> str:
    """Return the names of status codes (B,), joined by commas."""
    return ", ".join(Status(code).name for code in status.tolist())


def _check_solved(qp: QuadraticProgram, candidate: Candidate) -> None:
    """Check that every sample of a candidate has the status SOLVED and a small KKT residual.

    Multipliers of inequality rows must not be negative, and must be 0 for rows with an infinite limit.
    """
    check_that(
        bool((candidate.status == Status.SOLVED).all()),
        f"its statuses are {_status_names(candidate.status)}, not SOLVED",
    )
    worst = float(kkt_residual(qp, candidate.x, candidate.duals).max())
    check_that(
        worst <= GRANTED,
        f"a candidate has a KKT residual of {worst:.1e}, above {GRANTED:g}; call it INACCURATE, improve it, or look at "
        "the signs of the multipliers (pear.optimality.duals_and_active_sets.Duals)",
    )
    least = float(candidate.duals.inequality.min()) if qp.m else 0.0
    check_that(least >= 0, f"a multiplier of a row is {least:.1e}, below 0")
    absent = candidate.duals.inequality.masked_fill((qp.h < INF).expand(qp.batch, qp.m), 0.0)
    check_that(not bool(absent.any()), "a row with the limit infinity has a multiplier; it must be 0")


def _program_with_bad_sample(kind: str) -> QuadraticProgram:
    """Return a batch of three programs of a kind, "lp" or "qp". The second program has no solution."""
    fields = {"A": [[1.0, 1.0]], "b": [[1.0], [5.0], [1.5]], "lb": [0, 0], "ub": [1, 1]}
    return zoo_program([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]], H=np.eye(2) if kind == "qp" else None, **fields)


def _multiplier_program(kind: str) -> tuple[QuadraticProgram, Fields]:
    """Return a program of a kind, "lp" or "qp", and its only solution with all multipliers."""
    if kind == "lp":
        qp = zoo_program([-1.0, 2.0, -3.0], G=[[1.0, 0.0, 0.0]], h=[0.5], lb=np.zeros(3), ub=np.ones(3))
        return qp, {"x": [0.5, 0.0, 1.0], "equality": [], "inequality": [1.0], "bound": [0.0, -2.0, 3.0]}
    rows = {"A": [[1.0, 1.0, 0.0, 0.0]], "b": [2.0], "G": [[0.0, 0.0, -1.0, 0.0]], "h": [-3.0]}
    qp = zoo_program([0, 0, 0, -5.0], H=np.eye(4), ub=[INF, INF, INF, 1.0], **rows)
    return qp, {"x": [1.0, 1.0, 3.0, 1.0], "equality": [-1.0], "inequality": [3.0], "bound": [0.0, 0.0, 0.0, 4.0]}


def _empty_program(kind: str) -> QuadraticProgram:
    """Return an empty batch of programs of a kind, "lp", "qp" or "milp"."""
    fields = {"H": np.eye(3) if kind == "qp" else None, "A": np.ones((1, 3)), "b": [1.0], "lb": np.zeros(3)}
    return zoo_program(np.zeros((0, 3)), **fields, integer=[True, False, True] if kind == "milp" else None)
