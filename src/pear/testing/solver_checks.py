"""The conformance suite of solvers: what a ``Backend`` proposes for small programs, judged by its KKT residual.

A candidate must be as close as was asked for, by the KKT residual, and the pipeline must make a verified solution of it
with the help of no other solver. Programs without a solution must not be called solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from pear.testing.checks import Check, require, run_checks
from pear.testing.program_zoo import (
    BOUNDED,
    FLAT_DIRECTION,
    HOPELESS,
    HOPELESS_INTEGERS,
    INF,
    Fields,
    best_by_enumeration,
    bounded_program,
    general_integer_program,
    packing_program,
    program,
)

ASKED = 1e-7
"""The relative accuracy that solvers are asked for."""

GRANTED = 10 * ASKED
"""The largest KKT residual of a candidate that is called solved at this accuracy."""

KNOWN = 1e-5
"""The largest distance of a candidate from a known solution or multiplier, of size one."""

MISSED = 1e-3
"""The largest absolute gap of an integer optimum among whole numbers."""

Body = Callable[[Backend], None]


def solver_checks(solver: str | Backend) -> list[Check]:
    """List the checks of a solver, for programs of the kinds it solves and as far as it takes them.

    Args:
        solver: its name, or its row.

    Example:
        >>> [str(check) for check in solver_checks("binary")][:2]
        ['milp: optima are proven', 'milp: rows of their own']
    """
    row = get_backend(solver) if isinstance(solver, str) else solver
    subject = f"the solver '{row.name}'"
    return [Check(subject, name, partial(body, row)) for name, body in _all_checks(row)]


def check_solver(solver: str | Backend) -> tuple[str, ...]:
    """Run all checks of a solver.

    Args:
        solver: its name, or its row.

    Returns:
        The names of the checks, all of which passed.

    Raises:
        ConformanceError: some failed, with a line for each.

    Example:
        >>> len(check_solver("scipy")) > 20
        True
    """
    return run_checks(solver_checks(solver))


def _all_checks(row: Backend) -> Iterator[tuple[str, Body]]:
    """The names and bodies of the checks that apply to a solver."""
    for kind in [kind for kind in ("lp", "qp") if kind in row.kinds]:
        for name in BOUNDED:
            if row.supports(bounded_program(kind, name)):
                yield f"{kind}: {name}", partial(_solves, make=partial(bounded_program, kind, name))
        for name, (c, fields, status) in HOPELESS.items():
            qp = program(c, **fields, **(FLAT_DIRECTION if kind == "qp" else {}))
            if row.supports(qp):
                yield f"{kind}: {name}", partial(_claims_no_solution, qp=qp, status=status)
        if row.supports(_with_bad_sample(kind)):
            yield f"{kind}: a bad sample among good ones", partial(_bad_sample, kind=kind)
        if row.supports(_multiplier_program(kind)[0]):
            yield f"{kind}: signs of multipliers", partial(_signs, kind=kind)
    if "qp" in row.kinds:
        for name, (c, fields) in _CURVED.items():
            if row.supports(program(c, **fields)):
                yield f"qp: {name}", partial(_solves, make=partial(program, c, **fields))
    if "milp" in row.kinds:
        yield from _integer_checks(row)
    for one in row.kinds:
        if row.supports(_empty_program(one)):
            yield f"{one}: an empty batch", partial(_empty_batch, kind=one)


_CURVED: dict[str, tuple[Any, Fields]] = {
    "no constraints": ([[1.0, -2.0], [0.0, 3.0]], {"H": [[2.0, 1.0], [1.0, 2.0]]}),
    "singular curvature": (
        [[1.0, -2.0, 0.0], [-0.5, 1.0, 1.0]],
        {"H": np.diag([1.0, 0.0, 0.0]), "lb": -np.ones(3), "ub": np.ones(3)},
    ),
}


def _propose(row: Backend, qp: QuadraticProgram) -> Candidate:
    """Ask the solver for candidates, and check their form; it must leave the programs as they are."""
    fields = ("H", "c", "A", "b", "G", "h", "lb", "ub")
    before = {name: getattr(qp, name).clone() for name in fields}
    candidate = row.solve(qp, ASKED)
    for name, value in before.items():
        require(
            torch.equal(getattr(qp, name), value), f"it changes the field {name} of the programs; copy what it needs"
        )
    shapes = {
        "x": (candidate.x, (qp.batch, qp.n)),
        "duals.equality": (candidate.duals.equality, (qp.batch, qp.p)),
        "duals.inequality": (candidate.duals.inequality, (qp.batch, qp.m)),
        "duals.bound": (candidate.duals.bound, (qp.batch, qp.n)),
        "status": (candidate.status, (qp.batch,)),
    }
    for name, (value, shape) in shapes.items():
        require(value.shape == shape, f"{name} has shape {tuple(value.shape)}; expected {shape}")
        expected = torch.int8 if name == "status" else torch.float64
        require(value.dtype == expected, f"{name} has dtype {value.dtype}; expected {expected}")
    return candidate


def _names(status: torch.Tensor) -> str:
    return ", ".join(Status(code).name for code in status.tolist())


def _require_solved(qp: QuadraticProgram, candidate: Candidate) -> None:
    """Check that candidates are called solved, and are as close as was asked for."""
    require(bool((candidate.status == Status.SOLVED).all()), f"its statuses are {_names(candidate.status)}, not SOLVED")
    worst = float(kkt_residual(qp, candidate.x, candidate.duals).max())
    require(
        worst <= GRANTED,
        f"a candidate has a KKT residual of {worst:.1e}, above {GRANTED:g}; call it INACCURATE, improve it, or look at "
        "the signs of the multipliers (pear.optimality.duals_and_active_sets.Duals)",
    )
    least = float(candidate.duals.inequality.min()) if qp.m else 0.0
    require(least >= 0, f"a multiplier of a row is {least:.1e}, below 0")
    absent = candidate.duals.inequality.masked_fill((qp.h < INF).expand(qp.batch, qp.m), 0.0)
    require(not bool(absent.any()), "a row with the limit infinity has a multiplier; it must be 0")


def _solves(row: Backend, make: Callable[[], QuadraticProgram]) -> None:
    """The batch, each sample alone and the reverse batch are solved, and verified without another solver."""
    qp = make()
    _require_solved(qp, _propose(row, qp))
    last = qp[qp.batch - 1 :]
    _require_solved(last, _propose(row, last))
    order = torch.arange(qp.batch).flip(0)
    _require_solved(qp[order], _propose(row, qp[order]))
    found = solve_in_pipeline(qp, [row], named=True)
    worst = float(found.kkt_residual.max())
    require(
        bool(found.solved.all()) and worst <= OPTIMAL,
        f"its candidates are not repaired to exact solutions: {_names(found.status)}, KKT residual {worst:.1e}",
    )


def _claims_no_solution(row: Backend, qp: QuadraticProgram, status: Status) -> None:
    """A program without a solution is named so, or INACCURATE; a named one has no point."""
    candidate = _propose(row, qp)
    said = Status(int(candidate.status[0]))
    require(said in (status, Status.INACCURATE), f"its status is {said.name}; expected {status.name} or INACCURATE")
    empty = bool(candidate.x.isnan().all() and (qp.integer is not None or candidate.duals.bound.isnan().all()))
    require(said == Status.INACCURATE or empty, f"a sample that is {said.name} has a point; it must be NaN")


def _with_bad_sample(kind: str) -> QuadraticProgram:
    fields = {"A": [[1.0, 1.0]], "b": [[1.0], [5.0], [1.5]], "lb": [0, 0], "ub": [1, 1]}
    return program([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]], H=np.eye(2) if kind == "qp" else None, **fields)


def _bad_sample(row: Backend, kind: str) -> None:
    """A sample without a solution leaves its neighbours alone."""
    qp = _with_bad_sample(kind)
    candidate, good = _propose(row, qp), torch.tensor([0, 2])
    said = Status(int(candidate.status[1]))
    require(said in (Status.INFEASIBLE, Status.INACCURATE), f"the infeasible sample is called {said.name}")
    _require_solved(qp[good], candidate[good])


def _multiplier_program(kind: str) -> tuple[QuadraticProgram, Fields]:
    """A program, and its only solution with all multipliers."""
    if kind == "lp":
        qp = program([-1.0, 2.0, -3.0], G=[[1.0, 0.0, 0.0]], h=[0.5], lb=np.zeros(3), ub=np.ones(3))
        return qp, {"x": [0.5, 0.0, 1.0], "equality": [], "inequality": [1.0], "bound": [0.0, -2.0, 3.0]}
    rows = {"A": [[1.0, 1.0, 0.0, 0.0]], "b": [2.0], "G": [[0.0, 0.0, -1.0, 0.0]], "h": [-3.0]}
    qp = program([0, 0, 0, -5.0], H=np.eye(4), ub=[INF, INF, INF, 1.0], **rows)
    return qp, {"x": [1.0, 1.0, 3.0, 1.0], "equality": [-1.0], "inequality": [3.0], "bound": [0.0, 0.0, 0.0, 4.0]}


def _signs(row: Backend, kind: str) -> None:
    """Solution and multipliers are the known ones, with their signs."""
    qp, known = _multiplier_program(kind)
    candidate = _propose(row, qp)
    for name, value in known.items():
        got = (candidate.x if name == "x" else getattr(candidate.duals, name))[0].numpy()
        far = float(np.abs(got - np.array(value)).max(initial=0.0))
        what = "x" if name == "x" else f"the multipliers of duals.{name}"
        require(far <= KNOWN, f"{what} are {got.round(6).tolist()}; expected {value}")


def _empty_program(kind: str) -> QuadraticProgram:
    fields = {"H": np.eye(3) if kind == "qp" else None, "A": np.ones((1, 3)), "b": [1.0], "lb": np.zeros(3)}
    return program(np.zeros((0, 3)), **fields, integer=[True, False, True] if kind == "milp" else None)


def _empty_batch(row: Backend, kind: str) -> None:
    """A batch of no samples gives empty candidates."""
    _propose(row, _empty_program(kind))


def _integer_checks(row: Backend) -> Iterator[tuple[str, Body]]:
    """The names and bodies of the checks of integer programs."""
    if row.supports(packing_program()):
        yield "milp: optima are proven", partial(_integer_optimum, make=packing_program, highest=1)
    if not row.supports(general_integer_program()):
        return
    yield "milp: rows of their own", partial(_integer_optimum, make=general_integer_program, highest=4, optional=True)
    yield "milp: integers beside others", _mixed_integers
    for name, (fields, status) in HOPELESS_INTEGERS.items():
        qp = program([-1.0, -2.0], **fields, integer=[True, True])
        yield f"milp: {name}", partial(_claims_no_solution, qp=qp, status=status)


def _integer_optimum(row: Backend, make: Callable[[], QuadraticProgram], highest: int, optional: bool = False) -> None:
    """Decisions are integers, the best of all, and proven by a bound; multipliers are zero; the order is irrelevant."""
    qp = make()
    candidate = _propose(row, qp)
    if optional and bool((candidate.status == Status.INACCURATE).all()):
        return  # it declines programs that it cannot tell from others beforehand
    require(bool((candidate.status == Status.SOLVED).all()), f"its statuses are {_names(candidate.status)}, not SOLVED")
    values, best = (qp.c * candidate.x).sum(1), torch.tensor(best_by_enumeration(qp, highest), dtype=torch.float64)
    worst = float((values - best).abs().max())
    require(worst <= MISSED, f"a decision misses the best by {worst:g}; a gap of the solver's own must be closed")
    require(float((candidate.x - candidate.x.round()).abs().max()) <= INTEGRAL, "a decision is not of integers")
    bound = candidate.bound
    proven = bound is not None and bool(((bound <= best + MISSED) & (bound >= best - MISSED)).all())
    require(proven, f"its bounds are {None if bound is None else bound.tolist()}; expected the optima {best.tolist()}")
    duals = candidate.duals
    require(not bool(duals.inequality.any() or duals.bound.any()), "multipliers of integer programs must be 0")
    order = torch.arange(qp.batch).flip(0)
    again = (qp.c[order] * _propose(row, qp[order]).x).sum(1)
    require(float((again - best[order]).abs().max()) <= MISSED, "in another order, a decision misses the best")


def _mixed_integers(row: Backend) -> None:
    """Only the variables that are marked are integers."""
    qp = program([-1.0, -1.0], G=[[1, 0], [0, 1]], h=[1.5, 1.5], integer=[True, False])
    candidate = _propose(row, qp)
    if int(candidate.status) == Status.INACCURATE:
        return
    x = candidate.x[0].tolist()
    require(max(abs(x[0] - 1.0), abs(x[1] - 1.5)) <= KNOWN, f"x is {x}; expected [1.0, 1.5]")
    carrying = replace(qp, c=qp.c.clone().requires_grad_())
    require(not row.solve(carrying, ASKED).x.requires_grad, "its candidate carries a gradient; detach the costs")
