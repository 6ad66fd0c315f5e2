"""The check of integer points: rounded, completed in their continuous variables, and compared with rows and bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.decisions.pipeline import solve_in_pipeline
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import finite_size, mixed_decision_sizes, positive_size
from pear.optimality.rule import GAP, INTEGRAL, OPTIMAL, ROUNDOFF, TIGHT
from pear.optimality.status import Status
from pear.optimality.tensor_record import TensorRecord
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.backend_registry import resolve_backends
from pear.solvers.candidate import Candidate

_LP_SOLVERS = 2  # tried for the continuous variables; where both fail, the integer solver's own values are kept


@dataclass(frozen=True)
class CheckedIntegers(TensorRecord):
    """Candidates rounded to integers, and the result of checking them.

    Attributes:
        x: (B, n) rounded points.
        residual: (B,) the largest of the scaled violation, the relative gap and the distance to integers; a distance
            within the rounding tolerance does not count. NaN without a point.
        gap: (B,) relative distance of the objective from the proven bound; infinite without a bound.
        feasible: (B,) bool, whether the point was integral and satisfies the constraints, optimal or not.
        status: (B,) SOLVED where the point is feasible and proven optimal, INACCURATE where the solver's claim of
            optimality fails the check, otherwise the solver's own status.
        active: the constraints that are tight at ``x``.
    """

    x: Tensor
    residual: Tensor
    gap: Tensor
    feasible: Tensor
    status: Tensor
    active: ActiveSet


def verify_integers(qp: QuadraticProgram, candidate: Candidate) -> CheckedIntegers:
    """Round a candidate to integers and check its integrality, its feasibility and its bound."""
    assert qp.integer is not None
    x = torch.where(qp.integer, candidate.x.round(), candidate.x) + 0.0  # −0.0 is 0.0
    distance = torch.where(qp.integer, (candidate.x - x).abs(), 0.0).amax(1)
    equality, rows, lower, upper = _relative_slacks(qp, x)
    violation = torch.cat([-equality.abs(), rows, lower, upper], 1).amin(1).clamp(max=0).abs()
    gap = _relative_gap(qp, x, candidate.bound)
    feasible = (distance <= INTEGRAL) & (violation <= OPTIMAL)
    proven = feasible & (gap <= GAP)
    status = candidate.status.clone()
    status[(status == Status.SOLVED) & ~proven] = int(Status.INACCURATE)
    status[(status == Status.TIME_LIMIT) & proven] = int(Status.SOLVED)
    too_far = torch.where(distance <= INTEGRAL, 0.0, distance)
    at_lower = lower <= TIGHT
    active = ActiveSet(rows <= TIGHT, at_lower, (upper <= TIGHT) & ~at_lower)
    residual = torch.stack([violation, gap, too_far]).amax(0)
    return CheckedIntegers(x, residual, gap, feasible, status, active)


def complete_continuous(qp: QuadraticProgram, candidate: Candidate) -> Candidate:
    """Replace a candidate's continuous variables by the exact optimum for its rounded integers.

    A solver's own values are only accurate to its tolerance, and they belong to its integers before rounding: beside a
    coefficient of 1e7, an error of 1e-7 matters. They are kept where the linear program has no solution.
    """
    assert qp.integer is not None
    index = candidate.x.isfinite().all(1).nonzero()[:, 0]
    if bool(qp.integer.all()) or not len(index):
        return candidate
    part, x = qp[index], candidate.x[index].clone()
    rest = (~qp.integer).nonzero()[:, 0]
    lp = _programs_with_fixed_integers(part, torch.where(qp.integer, x.round(), 0.0), rest)
    solved = solve_in_pipeline(lp, resolve_backends("auto", "lp", qp.is_sparse)[:_LP_SOLVERS])
    chosen = torch.where(solved.solved[:, None], solved.x, x[:, rest])
    x[:, rest] = chosen.clamp(lp.lb, lp.ub)  # by rounding; a row that this violates is checked with its own terms
    return replace(candidate, x=candidate.x.index_copy(0, index, x))


def _programs_with_fixed_integers(qp: QuadraticProgram, fixed: Tensor, rest: Tensor) -> QuadraticProgram:
    """Make the linear programs in some variables while the others are fixed.

    Args:
        qp: B programs in all n variables.
        fixed: (B, n) values of the fixed variables; zero for the others.
        rest: numbers of the variables that stay variable.
    """
    H, A, G = (matrix.index_select(2, rest) for matrix in (qp.H, qp.A, qp.G))
    ones = fixed.new_ones(qp.batch, len(rest))
    # A row of integers alone does not constrain the other variables; verify_integers checks it.
    b = torch.where(matvec(A.abs(), ones) > 0, qp.b - _multiply_by_sample(qp.A, fixed), 0.0)
    h = torch.where(matvec(G.abs(), ones) > 0, qp.h - _multiply_by_sample(qp.G, fixed), torch.inf)
    H, c, lb, ub = H.index_select(1, rest), qp.c[:, rest], qp.lb[:, rest], qp.ub[:, rest]
    return QuadraticProgram(H=H, c=c, A=A, b=b, G=G, h=h, lb=lb, ub=ub, diagonal=qp.diagonal)


def _multiply_by_sample(matrix: Any, x: Tensor) -> Tensor:
    """Multiply sample by sample, because the rounding of a batched product depends on the size of the batch."""
    rows = [matvec(matrix if matrix.shape[0] == 1 else matrix[i : i + 1], x[i : i + 1]) for i in range(len(x))]
    return torch.cat(rows)


def _relative_slacks(qp: QuadraticProgram, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the slacks of equalities, inequality rows, lower bounds and upper bounds at x (B, n).

    Each slack is divided by the size of the terms that it is computed from. Terms that are zero do not count, however
    large their coefficients: otherwise a violation by 1 would look small compared with a coefficient of 1e9 whose 0–1
        variable
    is 0. The size is at least the smallest coefficient of the row, so that a rounded limit is not a violation. A
    continuous variable near zero has its natural size, so that −1e-115 does not violate a bound of 0.
    """
    assert qp.integer is not None
    terms = mixed_decision_sizes(qp, x)
    size = torch.where(qp.integer, terms.clamp(min=1.0), terms)
    equality = matvec(qp.A.abs(), terms) + qp.b.abs() + _smallest_coefficients(qp.A, qp.integer)
    rows = matvec(qp.G.abs(), terms) + finite_size(qp.h) + _smallest_coefficients(qp.G, qp.integer)
    return (
        (qp.b - matvec(qp.A, x)) / positive_size(equality),
        (qp.h - matvec(qp.G, x)) / positive_size(rows),
        (x - qp.lb) / positive_size(size + finite_size(qp.lb)),
        (qp.ub - x) / positive_size(size + finite_size(qp.ub)),
    )


def _smallest_coefficients(matrix: Any, integer: Tensor) -> Tensor:
    """Return the smallest non-zero absolute coefficient of each row, (B or 1, r); 0 for rows without an integer."""
    if matrix.is_sparse:
        csr, whole = matrix.csr, integer.numpy()
        least, row = np.full(csr.shape[0], np.inf), np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
        np.minimum.at(least, row, np.where(csr.data != 0, np.abs(csr.data), np.inf))
        least[abs(csr) @ whole.astype(float) == 0] = 0.0
        return torch.from_numpy(least)[None]
    used = torch.where(matrix != 0, matrix.abs(), torch.inf)
    least_used = torch.cat([used, torch.full_like(used[:, :, :1], torch.inf)], 2).amin(2)
    return torch.where((matrix[:, :, integer] != 0).any(2), least_used, 0.0)


def _relative_gap(qp: QuadraticProgram, x: Tensor, bound: Tensor | None) -> Tensor:
    """Compute the gap ``|c·x − bound|`` relative to the terms of c·x, (B,).

    It is infinite without a bound, and zero where it is within rounding. A bound above the objective proves nothing;
    its gap counts like that of a bound below.
    """
    if bound is None:
        return torch.full_like(x[:, 0], torch.inf)
    assert qp.integer is not None
    # a whole number moves by 1, a continuous variable within a narrow range by less
    unit = torch.where(qp.integer, 1.0, (qp.ub - qp.lb).clamp(max=1.0))
    terms, costs = (qp.c * x).abs().sum(1), qp.c.abs() * unit
    gap = ((qp.c * x).sum(1) - bound).abs()
    least = torch.where(costs > 0, costs, torch.inf).amin(1)
    relative = gap / positive_size(torch.maximum(terms, torch.where(least.isfinite(), least, 0.0)))
    return torch.where(gap <= ROUNDOFF * torch.maximum(terms, costs.amax(1)), 0.0, relative)
