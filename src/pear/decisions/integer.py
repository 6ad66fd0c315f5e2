"""Integer programs: whoever can solves them, and what comes back is rounded and verified like everything else."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pear.decisions.solution import Solution
from pear.errors import ProblemError
from pear.optimality.point import ActiveSet, Batched, Status
from pear.optimality.rule import GAP, INTEGRAL, OPTIMAL, ROUNDOFF, TIGHT
from pear.optimality.scale import finite_abs, positive
from pear.optimality.screen import screen
from pear.problem import Problem
from pear.problem.canonical import QuadraticProgram, matvec
from pear.problem.sparse import SparseProgram
from pear.solvers.base import Candidate
from pear.solvers.registry import in_turn, resolve

logger = logging.getLogger("pear")


def solve_integer(problem: Problem, qp: QuadraticProgram, solver: str) -> Solution:
    """Solve a batch of integer programs; every returned solution is feasible and proven optimal.

    Samples that a solver leaves without a verified solution go to the next one that takes integer programs.

    Args:
        problem: whose programs they are.
        qp: the programs (B of them, 0 allowed).
        solver: "auto" or a name of the registry.
    """
    status = screen(qp)
    status[status == Status.SOLVED] = int(Status.INACCURATE)
    found = CheckedIntegers(
        x=torch.full_like(qp.c, torch.nan),
        residual=torch.full_like(qp.c[:, 0], torch.nan),
        status=status,
        active=ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device),
    )
    for backend in in_turn(resolve(solver, "milp", isinstance(qp, SparseProgram)), qp):
        index = (status == Status.INACCURATE).nonzero()[:, 0]
        if len(index):
            logger.debug("%d integer programs go to %s", len(index), backend.name)
            part = qp if len(index) == qp.batch else qp[index]
            found.put(index, verify_integers(part, backend.solve(part, OPTIMAL)))
        if not bool((status == Status.INACCURATE).any()):
            break
    solved = status == Status.SOLVED
    x = torch.where(solved[:, None], found.x, torch.nan)
    return Solution(
        x=x,
        value=problem.sign * (x * qp.c).sum(1),
        status=status,
        active=found.active,
        weak=ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device),
        duals=None,
        kkt_residual=found.residual,
        repaired=torch.zeros_like(solved),
    )


@dataclass(frozen=True)
class CheckedIntegers(Batched):
    """Candidates rounded to integers, and what is true of them.

    Attributes:
        x: (B, n) rounded points.
        residual: (B,) the largest of scaled violation, relative gap and, where it is too large to be rounded away,
            distance to integers; NaN without a point.
        status: (B,) SOLVED where all of this holds, INACCURATE where the solver claims it and it does not, else what
            the solver says.
        active: constraints that are tight at ``x``.
    """

    x: Tensor
    residual: Tensor
    status: Tensor
    active: ActiveSet


def verify_integers(qp: QuadraticProgram, candidate: Candidate) -> CheckedIntegers:
    """Round a candidate to integers and check what it claims: integrality, feasibility and the proven bound."""
    assert qp.integer is not None
    x = torch.where(qp.integer, candidate.x.round(), candidate.x) + 0.0  # −0.0 is 0.0
    distance = torch.where(qp.integer, (candidate.x - x).abs(), 0.0).amax(1)
    equality, rows, lower, upper = _slacks(qp, x)
    violation = torch.cat([-equality.abs(), rows, lower, upper], 1).amin(1).clamp(max=0).abs()
    gap = _gap(qp, x, candidate.bound)
    holds = (distance <= INTEGRAL) & (violation <= OPTIMAL) & (gap <= GAP)
    claimed = candidate.status == Status.SOLVED
    status = torch.where(claimed & ~holds, int(Status.INACCURATE), candidate.status).to(torch.int8)
    too_far = torch.where(distance <= INTEGRAL, 0.0, distance)
    at_lower = lower <= TIGHT
    active = ActiveSet(rows <= TIGHT, at_lower, (upper <= TIGHT) & ~at_lower)
    return CheckedIntegers(x, torch.stack([violation, gap, too_far]).amax(0), status, active)


def as_good_as(qp: QuadraticProgram, best: Tensor) -> Problem:
    """The integer problem of all points that are as good as the solution ``best`` (n,) of the one program ``qp``."""
    value = float(qp.c[0] @ best)
    G = torch.cat([qp.G[0], qp.c])
    h = torch.cat([qp.h[0], qp.h.new_tensor([value + OPTIMAL * (1 + abs(value))])])  # a solver needs some room
    return Problem(A=qp.A[0], b=qp.b[0], G=G, h=h, lb=qp.lb[0], ub=qp.ub[0], integer=qp.integer)


def refuse_curvature(problem: Problem, smoothing: float, overrides: dict[str, Any]) -> None:
    """Raise ProblemError where an integer problem has more than a linear objective."""
    if smoothing > 0 or problem.is_curved or overrides.get("Q") is not None:
        raise ProblemError(
            "an integer problem must have a linear objective: expected smoothing=0, no Q and no phi; "
            "solve problem.relaxed() to smooth the continuous relaxation"
        )


def _slacks(qp: QuadraticProgram, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slacks of equalities, rows, lower and upper bounds, relative to their terms, where an integer counts as 1."""
    assert qp.integer is not None
    size = torch.where(qp.integer, x.abs().clamp(min=1.0), x.abs())
    return (
        (qp.b - matvec(qp.A, x)) / positive(matvec(qp.A.abs(), size) + qp.b.abs()),
        (qp.h - matvec(qp.G, x)) / positive(matvec(qp.G.abs(), size) + finite_abs(qp.h)),
        (x - qp.lb) / positive(size + finite_abs(qp.lb)),
        (qp.ub - x) / positive(size + finite_abs(qp.ub)),
    )


def _gap(qp: QuadraticProgram, x: Tensor, bound: Tensor | None) -> Tensor:
    """(B,) ``|c·x − bound|`` relative to the terms of c·x; infinite without a bound, zero where it is rounding.

    A bound above the objective proves nothing, and counts like one below it.
    """
    if bound is None:
        return torch.full_like(x[:, 0], torch.inf)
    terms = (qp.c * x).abs()
    size = positive(torch.maximum(terms.sum(1), qp.c.abs().amax(1)))
    gap = ((qp.c * x).sum(1) - bound).abs() / size
    return torch.where(gap <= ROUNDOFF, 0.0, gap)
