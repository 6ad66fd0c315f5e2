"""Why a sample has no solution: linear programs look for a certificate, and ``optimality.certificate`` checks it.

A sample gets a status on a certificate that passes, never on what a solver says. Samples with the same constraints are
examined once for feasibility, whatever their costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.optimality.certificate import proves_infeasible, proves_unbounded
from pear.optimality.duals_and_active_sets import Duals, Status
from pear.optimality.rule import RANK, ROUNDOFF
from pear.problem.matrix import sample_of
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.program_curvature import is_nearly_singular
from pear.sensitivity.uniqueness import solve_linear_program
from pear.solvers import time_limit
from pear.solvers.adapters.batch_arrays import stack
from pear.solvers.linalg.saddle import SaddlePattern

Array = NDArray[Any]

_FEASIBILITY = ("A", "b", "G", "h", "lb", "ub")  # what it depends on
_RECESSION = ("H", "c", "A", "G", "h", "lb", "ub")
_KEPT = "feasibility"  # where the plan of a program keeps statuses, by the digest of the constraints
_STRICT = 1e-10  # the tightest tolerance that linprog takes
_MET = 1e-7  # total violation of the scaled rows up to which a linear program has found a point
_SHIFT = 1e-10  # of the least-squares system, whose effect falls with every solve
_SOLVES = 3


def name_failures(qp: QuadraticProgram) -> Tensor:
    """(B,) int8: INFEASIBLE, UNBOUNDED or INACCURATE for every sample of a batch that is not solved.

    Infeasible: a certificate of Farkas, the multipliers of the least total violation of the rows. Unbounded: a feasible
    sample with a direction d such that Hd = 0, Ad = 0, Gd ≤ 0, no bound is in its way, and cᵀd < 0. INACCURATE where
    neither is proven.
    """
    kept: dict[bytes, Status] = qp.prepare_once(_KEPT, lambda _: {}) if qp.shares_constraints else {}
    status = _once_each(qp, _FEASIBILITY, range(qp.batch), _feasibility, kept)
    flat = is_nearly_singular(qp)
    endless = flat & ~(qp.lb.isfinite() & qp.ub.isfinite()).all(1)
    rest = [i for i, flat in enumerate(endless.expand(qp.batch).tolist()) if flat and status[i] == Status.SOLVED]
    for i, name in zip(rest, _once_each(qp, _RECESSION, rest, _boundedness, {}), strict=True):
        status[i] = name
    named = [int(Status.INACCURATE if name == Status.SOLVED else name) for name in status]
    return torch.tensor(named, dtype=torch.int8, device=qp.c.device)


def known_infeasible(qp: QuadraticProgram) -> Tensor | None:
    """(B,) bool: samples whose constraints are already known to have no feasible point; None where none are.

    Programs with the same plan share this knowledge: those of one problem, or of its sparse matrices.
    """
    kept = qp.plan.get(_KEPT) if qp.shares_constraints else None
    if not kept or Status.INFEASIBLE not in kept.values():
        return None
    known = [kept.get(_digest(qp, _FEASIBILITY, i)) == Status.INFEASIBLE for i in range(qp.batch)]
    return torch.tensor(known, dtype=torch.bool, device=qp.c.device) if any(known) else None


def _once_each(
    qp: QuadraticProgram,
    names: tuple[str, ...],
    samples: Iterable[int],
    ask: Callable[[QuadraticProgram, int], Status],
    answers: dict[bytes, Status],
) -> list[Status]:
    """The status that ``ask`` gives each sample; samples with equal fields ``names`` are asked about once.

    Args:
        qp: the programs.
        names: the fields that the status depends on.
        samples: the samples to ask about.
        ask: returns the status of one sample.
        answers: statuses by digest of the fields, which are read and added to.
    """
    result = []
    for i in samples:
        key = _digest(qp, names, i)
        if key not in answers:
            answers[key] = ask(qp, i)
        result.append(answers[key])
    return result


def _digest(qp: QuadraticProgram, names: tuple[str, ...], i: int) -> bytes:
    """A digest of these fields of sample i, without the sparse matrices, which the plan already stands for."""
    digest = blake2b(digest_size=20)
    for name in names:
        field = getattr(qp, name)
        if not field.is_sparse:
            digest.update(sample_of(field, i).tobytes())
    return digest.digest()


class _Sample(NamedTuple):
    """One sample as NumPy or SciPy arrays; G and h hold the rows with a finite side, which ``present`` (m,) marks."""

    A: Any
    b: Array
    G: Any
    h: Array
    lb: Array
    ub: Array
    present: Array


def _sample(qp: QuadraticProgram, i: int) -> _Sample:
    A, b, G, h, lb, ub = (sample_of(getattr(qp, name), i) for name in _FEASIBILITY)
    present = np.isfinite(h)
    return _Sample(A, b, G[present], h[present], lb, ub, present)


def _feasibility(qp: QuadraticProgram, i: int) -> Status:
    """INFEASIBLE where that is proven, SOLVED where a point was found, INACCURATE where neither is."""
    s, one = _sample(qp, i), qp[i : i + 1] if qp.batch > 1 else qp

    def proven(y: Array, u: Array) -> bool:
        rows = np.zeros(len(s.present))
        rows[s.present] = u
        duals = (torch.from_numpy(np.ascontiguousarray(v)).to(qp.c.device)[None] for v in (y, rows, np.zeros(qp.n)))
        return bool(proves_infeasible(one, Duals(*duals)).any())

    if sparse.issparse(s.A):  # where contradictions among the equalities alone take a factorisation, not an LP
        y = _contradiction(s.A, s.b)
        if y is not None and proven(y, np.zeros(len(s.h))):
            return Status.INFEASIBLE
    return _by_least_violation(s, proven)


def _contradiction(A: sparse.csr_array, b: Array) -> Array | None:
    """(p,) y with Aᵀy = 0 and yᵀb < 0, or None: the part of b outside the range of A, by shifted least squares."""
    weight = 1.0 / _largest(A)
    p, n = A.shape
    pattern = SaddlePattern(sparse.csr_array((n, n)), sparse.csr_array(sparse.diags_array(weight) @ A))
    system = pattern.factor(np.ones(n), np.full(p, _SHIFT)) if pattern.affordable else None
    if system is None or not system.succeeded or not b.any():
        return None
    y = weight * b
    for _ in range(_SOLVES):
        y = system.solve(np.zeros(n), y / np.abs(y).max())[1]
        if not (np.isfinite(y).all() and y.any()):
            return None
    y = weight * y
    return -y if y @ b > 0 else y


def _by_least_violation(s: _Sample, proven: Callable[[Array, Array], bool]) -> Status:
    """Minimise the total violation of the rows, each scaled to 1; its multipliers are the certificate."""
    (p, n), m = s.A.shape, s.G.shape[0]
    weight_a, weight_g = 1.0 / _largest(s.A), 1.0 / _largest(s.G)
    b, h = weight_a * s.b, weight_g * s.h
    sides = np.abs(np.concatenate([b, h]))
    unit = float(np.median(sides[sides > 0])) if sides.any() else 1.0
    spare, none = sparse.eye_array(p), sparse.csr_array((m, 2 * p))
    A = sparse.hstack([_weighted(weight_a, s.A), spare, -spare, sparse.csr_array((p, m))], format="csr")
    G = sparse.hstack([_weighted(weight_g, s.G), none, -sparse.eye_array(m)], format="csr")
    extra = 2 * p + m
    cost = np.concatenate([np.zeros(n), np.ones(extra)])
    lower, upper = np.append(s.lb / unit, np.zeros(extra)), np.append(s.ub / unit, np.full(extra, np.inf))
    b, h, met = b / unit, h / unit, False
    for _ in range(2):
        found = solve_linear_program(cost, A, b, G, h, lower, upper, **_options(n, p + m))
        if found.status != 0:
            return Status.SOLVED if met else Status.INACCURATE
        y = -weight_a * found.eqlin.marginals if p else np.zeros(0)
        u = -weight_g * found.ineqlin.marginals if m else np.zeros(0)
        if proven(y, u):
            return Status.INFEASIBLE
        if met or found.fun > _MET or sparse.issparse(s.A):
            break
        # a contradiction below the tolerances of linprog shows when the problem is magnified around its point
        met = True
        x = np.concatenate([np.clip(found.x[:n], lower[:n], upper[:n]), np.zeros(extra)])
        b, h, lower, upper = ((v - w) / _MET for v, w in ((b, A @ x), (h, G @ x), (lower, x), (upper, x)))
    return Status.SOLVED if met or found.fun <= _MET else Status.INACCURATE


def _boundedness(qp: QuadraticProgram, i: int) -> Status:
    """UNBOUNDED where a direction proves it, INACCURATE elsewhere."""
    s, one = _sample(qp, i), qp[i : i + 1] if qp.batch > 1 else qp
    c, flat = qp.c[i].cpu().numpy(), stack(s.A, sample_of(qp.H, i))
    flat, rows = _weighted(1.0 / _largest(flat), flat), _weighted(1.0 / _largest(s.G), s.G)
    lower, upper = np.where(np.isfinite(s.lb), 0.0, -1.0), np.where(np.isfinite(s.ub), 0.0, 1.0)
    cost, zeros = c / (np.abs(c).max() or 1.0), (np.zeros(flat.shape[0]), np.zeros(rows.shape[0]))
    options = _options(qp.n, flat.shape[0] + rows.shape[0])
    steepest = solve_linear_program(cost, flat, zeros[0], rows, zeros[1], lower, upper, **options)
    if steepest.status != 0:
        return Status.INACCURATE
    d = steepest.x
    tries = [d] if sparse.issparse(flat) else [d, _refined(d, np.vstack([flat, rows[np.abs(rows @ d) <= _MET]]))]
    for d in tries:
        d = np.where(np.abs(d) <= ROUNDOFF * np.abs(d).max(), 0.0, np.clip(d, lower, upper))
        if bool(proves_unbounded(one, torch.from_numpy(d).to(qp.c.device)[None]).any()):
            return Status.UNBOUNDED
    return Status.INACCURATE


def _options(n: int, rows: int) -> dict[str, float]:
    """Options for the highest accuracy of linprog, because its result has to pass a check to rounding."""
    tolerances = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), _STRICT)
    return {**tolerances, "time_limit": time_limit.seconds_per_sample(n, rows)}


def _refined(d: Array, rows: Array) -> Array:
    """The direction nearest to d with rows·d = 0 to rounding; variables that d does not move stay unmoved."""
    moves = np.abs(d) > _MET * np.abs(d).max()
    J, refined = rows[:, moves], np.where(moves, d, 0.0)
    for _ in range(2):
        refined[moves] -= np.linalg.lstsq(J, J @ refined[moves], rcond=RANK)[0]
    return refined


def _largest(matrix: Any) -> Array:
    """(r,) largest entry of every row; 1 where a row is empty."""
    if 0 in matrix.shape:
        return np.ones(matrix.shape[0])
    top: Any = abs(matrix).max(axis=1)
    top = top.toarray().ravel() if sparse.issparse(top) else top
    return np.where(top > 0, top, 1.0)


def _weighted(weight: Array, matrix: Any) -> Any:
    return (
        sparse.csr_array(sparse.diags_array(weight) @ matrix) if sparse.issparse(matrix) else weight[:, None] * matrix
    )
