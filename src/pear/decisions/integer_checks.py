"""The check of a solver's integer points: are they integral and feasible, and is no better point possible?"""

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

_LP_SOLVERS = 2  # tried for the continuous variables; if both fail, the candidate's values are kept


@dataclass(frozen=True)
class CheckedIntegers(TensorRecord):
    """Candidates rounded to integers, and the result of their check.

    Attributes:
        x: (B, n) rounded points.
        residual: (B,) the largest of three numbers: the scaled violation of the constraints, the relative gap, and the
            distance of the candidate to integers if it exceeds the tolerance. NaN without a point.
        gap: (B,) relative distance of the objective from the proven bound; infinite without a bound.
        feasible: (B,) bool, whether the candidate was integral and its rounded point satisfies the constraints.
        status: (B,) the solver's own status, with two exceptions. SOLVED becomes INACCURATE if the point is not
            feasible or not proven optimal. TIME_LIMIT becomes SOLVED if the point is feasible and proven optimal.
        active: the constraints that are tight at ``x``.
    """

    x: Tensor
    residual: Tensor
    gap: Tensor
    feasible: Tensor
    status: Tensor
    active: ActiveSet


def check_integers(qp: QuadraticProgram, candidate: Candidate) -> CheckedIntegers:
    """Round the points of a candidate, which a solver has proposed, to integers, and check them.

    A point counts as proven optimal if it was integral within a tolerance, the rounded point satisfies the constraints,
    and its objective reaches the proven bound ``candidate.bound``. ``CheckedIntegers.status`` has the consequences.
    """
    assert qp.integer is not None
    x = torch.where(qp.integer, candidate.x.round(), candidate.x) + 0.0  # turns −0.0 into 0.0
    distance = torch.where(qp.integer, (candidate.x - x).abs(), 0.0).amax(1)
    equality, rows, lower, upper = _integer_slacks_to_check(qp, x)
    violation = torch.cat([-equality.abs(), rows, lower, upper], 1).amin(1).clamp(max=0).abs()
    gap = _integer_gap_to_check(qp, x, candidate.bound)
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


def complete_integers(qp: QuadraticProgram, candidate: Candidate) -> Candidate:
    """Replace a candidate's continuous variables by the exact optimum for its rounded integers.

    The candidate's own continuous values are only as accurate as the solver's tolerance, and belong to integers that
    are not rounded. With a coefficient of 1e7, an error of 1e-7 matters. If no solver solves the linear program of the
    continuous variables, the candidate's own values are kept.
    """
    assert qp.integer is not None
    index = candidate.x.isfinite().all(1).nonzero()[:, 0]
    if bool(qp.integer.all()) or not len(index):
        return candidate
    part, x = qp[index], candidate.x[index].clone()
    rest = (~qp.integer).nonzero()[:, 0]
    lp = _fix_integers(part, torch.where(qp.integer, x.round(), 0.0), rest)
    solved = solve_in_pipeline(lp, resolve_backends("auto", "lp", qp.is_sparse)[:_LP_SOLVERS])
    chosen = torch.where(solved.solved[:, None], solved.x, x[:, rest])
    x[:, rest] = chosen.clamp(lp.lb, lp.ub)  # only rounding; check_integers checks the rows again
    return replace(candidate, x=candidate.x.index_copy(0, index, x))


def _fix_integers(qp: QuadraticProgram, fixed: Tensor, rest: Tensor) -> QuadraticProgram:
    """Return the linear programs of the continuous variables alone, with the integers fixed.

    Args:
        qp: B programs in all n variables.
        fixed: (B, n) values of the integers; zero for continuous variables.
        rest: (k,) the positions of the continuous variables.
    """
    H, A, G = (matrix.index_select(2, rest) for matrix in (qp.H, qp.A, qp.G))
    ones = fixed.new_ones(qp.batch, len(rest))
    # a row without continuous variables does not constrain them; check_integers checks it
    b = torch.where(matvec(A.abs(), ones) > 0, qp.b - _multiply_integers(qp.A, fixed), 0.0)
    h = torch.where(matvec(G.abs(), ones) > 0, qp.h - _multiply_integers(qp.G, fixed), torch.inf)
    H, c, lb, ub = H.index_select(1, rest), qp.c[:, rest], qp.lb[:, rest], qp.ub[:, rest]
    return QuadraticProgram(H=H, c=c, A=A, b=b, G=G, h=h, lb=lb, ub=ub, diagonal=qp.diagonal)


def _multiply_integers(matrix: Any, x: Tensor) -> Tensor:
    """Multiply matrices (B or 1, r, n) by x (B, n), one sample after another; return the products (B, r).

    The rounding of a batched product would depend on the size of the batch.
    """
    rows = [matvec(matrix if matrix.shape[0] == 1 else matrix[i : i + 1], x[i : i + 1]) for i in range(len(x))]
    return torch.cat(rows)


def _integer_slacks_to_check(qp: QuadraticProgram, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the relative slacks of equalities, inequality rows, lower bounds and upper bounds at x (B, n).

    Each slack is divided by the size of the terms from which it is computed. Zero terms do not count, however large
    their coefficients: a violation by 1 must not look small because a variable that is 0 has a coefficient of 1e9. For
    a row with an integer, the size is at least the smallest non-zero coefficient of the row, so that a rounding error
    of the right-hand side is not a violation. A continuous variable near zero counts with a typical size, derived from
    the program, so that −1e-115 does not violate a bound of 0.

    Returns:
        The slacks (B, p), (B, m), (B, n) and (B, n). A negative slack is a violation, for an equality any slack but 0.
    """
    assert qp.integer is not None
    terms = mixed_decision_sizes(qp, x)
    size = torch.where(qp.integer, terms.clamp(min=1.0), terms)
    equality = matvec(qp.A.abs(), terms) + qp.b.abs() + _smallest_integer_coefficients(qp.A, qp.integer)
    rows = matvec(qp.G.abs(), terms) + finite_size(qp.h) + _smallest_integer_coefficients(qp.G, qp.integer)
    return (
        (qp.b - matvec(qp.A, x)) / positive_size(equality),
        (qp.h - matvec(qp.G, x)) / positive_size(rows),
        (x - qp.lb) / positive_size(size + finite_size(qp.lb)),
        (qp.ub - x) / positive_size(size + finite_size(qp.ub)),
    )


def _smallest_integer_coefficients(matrix: Any, integer: Tensor) -> Tensor:
    """Return the smallest non-zero absolute coefficient of each row, (B or 1, r); 0 for rows without an integer.

    Args:
        matrix: (B or 1, r, n) coefficients, dense or sparse.
        integer: (n,) bool, which variables are integers.
    """
    if matrix.is_sparse:
        csr, whole = matrix.csr, integer.numpy()
        least, row = np.full(csr.shape[0], np.inf), np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
        np.minimum.at(least, row, np.where(csr.data != 0, np.abs(csr.data), np.inf))
        least[abs(csr) @ whole.astype(float) == 0] = 0.0
        return torch.from_numpy(least)[None]
    used = torch.where(matrix != 0, matrix.abs(), torch.inf)
    least_used = torch.cat([used, torch.full_like(used[:, :, :1], torch.inf)], 2).amin(2)
    return torch.where((matrix[:, :, integer] != 0).any(2), least_used, 0.0)


def _integer_gap_to_check(qp: QuadraticProgram, x: Tensor, bound: Tensor | None) -> Tensor:
    """Compute the relative gap between the objectives c·x of points x (B, n) and their bounds (B,). Shape (B,).

    ``|c·x − bound|`` is divided by the sum of the absolute terms of c·x, but at least by the smallest non-zero cost of
    changing a variable by one unit. The gap is infinite without a bound, and zero if it is within rounding. A bound
    above the objective proves nothing: its distance from the objective counts as a gap, too.
    """
    if bound is None:
        return torch.full_like(x[:, 0], torch.inf)
    assert qp.integer is not None
    # an integer changes by at least 1; a continuous variable with a narrow range changes by less
    unit = torch.where(qp.integer, 1.0, (qp.ub - qp.lb).clamp(max=1.0))
    terms, costs = (qp.c * x).abs().sum(1), qp.c.abs() * unit
    gap = ((qp.c * x).sum(1) - bound).abs()
    least = torch.where(costs > 0, costs, torch.inf).amin(1)
    relative = gap / positive_size(torch.maximum(terms, torch.where(least.isfinite(), least, 0.0)))
    return torch.where(gap <= ROUNDOFF * torch.maximum(terms, costs.amax(1)), 0.0, relative)
