"""Proofs that a failed sample is infeasible or unbounded.

Multipliers of the constraints prove that a sample is infeasible, and a direction proves that it is unbounded. Such a
proof is called a certificate. Linear programs compute candidates for certificates, and ``optimality.certificate``
checks them. A solver's own claim is never trusted. Samples with the same constraints are tested for feasibility once.
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

from pear.optimality.certificate import is_infeasibility_certificate, is_unboundedness_certificate
from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.rule import RANK, ROUNDOFF
from pear.optimality.status import Status
from pear.problem.matrix import matrix_of_sample
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.convexity import nearly_lacks_strict_convexity
from pear.solvers import time_limit
from pear.solvers.adapters.batch_arrays import stack_matrices
from pear.solvers.adapters.scipy import solve_with_linprog
from pear.solvers.linalg.saddle import SaddlePattern

Array = NDArray[Any]

_FEASIBILITY = ("A", "b", "G", "h", "lb", "ub")  # the fields that feasibility depends on
_BOUNDEDNESS = ("H", "c", "A", "G", "h", "lb", "ub")  # the fields that boundedness depends on
_KEPT = "feasibility"  # the name, in a program's plan, of known statuses by digest of the constraints
_STRICT = 1e-10  # the tightest tolerance that linprog accepts
_MET = 1e-7  # the largest total violation of the scaled rows of a point that counts as feasible
_SHIFT = 1e-10  # regularisation of the least-squares system; its effect falls with every solve
_SOLVES = 3  # solves of the least-squares system


def prove_failures(qp: QuadraticProgram) -> Tensor:
    """Return why each sample of a batch was not solved.

    A sample is INFEASIBLE if a Farkas certificate proves it. Multipliers of a linear program that minimises the total
    violation of the rows are tried as certificates. A feasible sample is UNBOUNDED if a direction d proves it, with
    Hd = 0, Ad = 0, Gd ≤ 0, cᵀd < 0 and no bound that limits d. A sample is INACCURATE if neither is proven.

    Returns:
        (B,) int8 of ``Status``.
    """
    kept: dict[bytes, Status] = qp.prepare_once(_KEPT, lambda _: {}) if qp.shares_constraints else {}
    status = _prove_by_distinct_data(qp, _FEASIBILITY, range(qp.batch), _prove_infeasible, kept)
    flat = nearly_lacks_strict_convexity(qp)
    endless = flat & ~(qp.lb.isfinite() & qp.ub.isfinite()).all(1)
    rest = [i for i, flat in enumerate(endless.expand(qp.batch).tolist()) if flat and status[i] == Status.SOLVED]
    for i, name in zip(rest, _prove_by_distinct_data(qp, _BOUNDEDNESS, rest, _prove_unbounded, {}), strict=True):
        status[i] = name
    named = [int(Status.INACCURATE if name == Status.SOLVED else name) for name in status]
    return torch.tensor(named, dtype=torch.int8, device=qp.c.device)


def known_infeasibility_proofs(qp: QuadraticProgram) -> Tensor | None:
    """Return which samples have constraints that ``prove_failures`` has already proven infeasible.

    The results of ``prove_failures`` are kept in ``qp.plan``, which all programs of one problem share.

    Returns:
        (B,) bool, whether a sample is proven infeasible; None if no sample is.
    """
    kept = qp.plan.get(_KEPT) if qp.shares_constraints else None
    if not kept or Status.INFEASIBLE not in kept.values():
        return None
    known = [kept.get(_digest_failure_data(qp, _FEASIBILITY, i)) == Status.INFEASIBLE for i in range(qp.batch)]
    return torch.tensor(known, dtype=torch.bool, device=qp.c.device) if any(known) else None


def _prove_by_distinct_data(
    qp: QuadraticProgram,
    names: tuple[str, ...],
    samples: Iterable[int],
    prove: Callable[[QuadraticProgram, int], Status],
    known: dict[bytes, Status],
) -> list[Status]:
    """Return the status of each sample. ``prove`` is called only once for all samples with the same data.

    Args:
        qp: the programs.
        names: the fields that the status depends on.
        samples: the numbers of the samples.
        prove: computes the status of one sample.
        known: the known statuses by digest of the fields. New statuses are added to it.
    """
    result = []
    for i in samples:
        key = _digest_failure_data(qp, names, i)
        if key not in known:
            known[key] = prove(qp, i)
        result.append(known[key])
    return result


def _digest_failure_data(qp: QuadraticProgram, names: tuple[str, ...], i: int) -> bytes:
    """Return a digest of the fields ``names`` of sample i, without sparse matrices, which all samples share."""
    digest = blake2b(digest_size=20)
    for name in names:
        field = getattr(qp, name)
        if not field.is_sparse:
            digest.update(matrix_of_sample(field, i).tobytes())
    return digest.digest()


class _FailureConstraints(NamedTuple):
    """The constraints of one failed sample as NumPy or SciPy arrays, without rows whose right-hand side is infinite.

    Attributes:
        A: (p, n) equality rows.
        b: (p,) right-hand sides of A.
        G: (k, n) the inequality rows whose right-hand side is finite.
        h: (k,) right-hand sides of G.
        lb: (n,) lower bounds.
        ub: (n,) upper bounds.
        present: (m,) bool, marks the k rows of G among all m inequality rows.
    """

    A: Any
    b: Array
    G: Any
    h: Array
    lb: Array
    ub: Array
    present: Array

    @classmethod
    def of_sample(cls, qp: QuadraticProgram, i: int) -> _FailureConstraints:
        """Return the constraints of sample i of the programs."""
        A, b, G, h, lb, ub = (matrix_of_sample(getattr(qp, name), i) for name in _FEASIBILITY)
        present = np.isfinite(h)
        return cls(A, b, G[present], h[present], lb, ub, present)


def _prove_infeasible(qp: QuadraticProgram, i: int) -> Status:
    """Return INFEASIBLE if this is proven for sample i, SOLVED if a feasible point is found, otherwise INACCURATE."""
    s, one = _FailureConstraints.of_sample(qp, i), qp[i : i + 1] if qp.batch > 1 else qp

    def proven(y: Array, u: Array) -> bool:
        rows = np.zeros(len(s.present))
        rows[s.present] = u
        duals = (torch.from_numpy(np.ascontiguousarray(v)).to(qp.c.device)[None] for v in (y, rows, np.zeros(qp.n)))
        return bool(is_infeasibility_certificate(one, Duals(*duals)).any())

    if sparse.issparse(s.A):  # contradicting equalities are found by a factorisation, which is cheaper than an LP
        y = _find_infeasible_equalities(s.A, s.b)
        if y is not None and proven(y, np.zeros(len(s.h))):
            return Status.INFEASIBLE
    return _prove_infeasible_by_least_violation(s, proven)


def _find_infeasible_equalities(A: sparse.csr_array, b: Array) -> Array | None:
    """Find multipliers y (p,) with Aᵀy = 0 and bᵀy < 0, which prove that Az = b has no solution.

    The result is None if none are found. If every row is scaled to a largest entry of 1, y is a multiple of the part of
    b that is orthogonal to the range of A. Regularised least-squares systems compute this part.
    """
    weight = _proof_row_weights(A)
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


def _prove_infeasible_by_least_violation(s: _FailureConstraints, proven: Callable[[Array, Array], bool]) -> Status:
    """Minimise the total violation of the scaled rows, and test the multipliers of the minimum as a certificate.

    Args:
        s: the constraints of one sample.
        proven: returns whether multipliers of A (p,) and G (k,) prove that the sample is infeasible.

    Returns:
        INFEASIBLE if this is proven, SOLVED if a feasible point is found, otherwise INACCURATE.
    """
    (p, n), m = s.A.shape, s.G.shape[0]
    weight_a, weight_g = _proof_row_weights(s.A), _proof_row_weights(s.G)
    b, h = weight_a * s.b, weight_g * s.h
    sides = np.abs(np.concatenate([b, h]))
    unit = float(np.median(sides[sides > 0])) if sides.any() else 1.0
    spare, none = sparse.eye_array(p), sparse.csr_array((m, 2 * p))
    A = sparse.hstack([_scale_proof_rows(weight_a, s.A), spare, -spare, sparse.csr_array((p, m))], format="csr")
    G = sparse.hstack([_scale_proof_rows(weight_g, s.G), none, -sparse.eye_array(m)], format="csr")
    extra = 2 * p + m
    cost = np.concatenate([np.zeros(n), np.ones(extra)])
    lower, upper = np.append(s.lb / unit, np.zeros(extra)), np.append(s.ub / unit, np.full(extra, np.inf))
    b, h, met = b / unit, h / unit, False
    for _ in range(2):
        found = solve_with_linprog(cost, A, b, G, h, lower, upper, **_proof_options(n, p + m))
        if found.status != 0:
            return Status.SOLVED if met else Status.INACCURATE
        y = -weight_a * found.eqlin.marginals if p else np.zeros(0)
        u = -weight_g * found.ineqlin.marginals if m else np.zeros(0)
        if proven(y, u) or (not sparse.issparse(s.A) and proven(*_refine_infeasibility_proof(s, y, u))):
            return Status.INFEASIBLE
        if met or found.fun > _MET or sparse.issparse(s.A):
            break
        # magnify the problem around its point, because a violation may be smaller than the tolerances of linprog
        met = True
        x = np.concatenate([np.clip(found.x[:n], lower[:n], upper[:n]), np.zeros(extra)])
        b, h, lower, upper = ((v - w) / _MET for v, w in ((b, A @ x), (h, G @ x), (lower, x), (upper, x)))
    return Status.SOLVED if met or found.fun <= _MET else Status.INACCURATE


def _refine_infeasibility_proof(s: _FailureConstraints, y: Array, u: Array) -> tuple[Array, Array]:
    """Return multipliers near y (p,) and u (k,) that satisfy the equations of a certificate to rounding.

    In a certificate, entry j of Aᵀy + Gᵀu may be positive only if variable j has a lower bound, and negative only if it
    has an upper bound. y and u change so that the entries that violate this become zero.
    """
    if not (y.any() or u.any()):
        return y, u
    rows = np.vstack([s.A, s.G])
    pull = y @ s.A + u @ s.G
    endless = np.where(pull > 0, ~np.isfinite(s.lb), ~np.isfinite(s.ub))
    refined_y, refined_u = np.split(_refine_proof_vector(np.append(y, u), rows.T[endless]), [len(y)])
    return refined_y, refined_u


def _prove_unbounded(qp: QuadraticProgram, i: int) -> Status:
    """Return UNBOUNDED if a direction proves that sample i is unbounded, otherwise INACCURATE."""
    s, one = _FailureConstraints.of_sample(qp, i), qp[i : i + 1] if qp.batch > 1 else qp
    c, flat = qp.c[i].cpu().numpy(), stack_matrices(s.A, matrix_of_sample(qp.H, i))
    flat, rows = (_scale_proof_rows(_proof_row_weights(matrix), matrix) for matrix in (flat, s.G))
    lower, upper = np.where(np.isfinite(s.lb), 0.0, -1.0), np.where(np.isfinite(s.ub), 0.0, 1.0)
    cost, zeros = c / (np.abs(c).max() or 1.0), (np.zeros(flat.shape[0]), np.zeros(rows.shape[0]))
    options = _proof_options(qp.n, flat.shape[0] + rows.shape[0])
    steepest = solve_with_linprog(cost, flat, zeros[0], rows, zeros[1], lower, upper, **options)
    if steepest.status != 0:
        return Status.INACCURATE
    d = steepest.x
    tries = (
        [d]
        if sparse.issparse(flat)
        else [d, _refine_proof_vector(d, np.vstack([flat, rows[np.abs(rows @ d) <= _MET]]))]
    )
    for d in tries:
        d = np.where(np.abs(d) <= ROUNDOFF * np.abs(d).max(), 0.0, np.clip(d, lower, upper))
        if bool(is_unboundedness_certificate(one, torch.from_numpy(d).to(qp.c.device)[None]).any()):
            return Status.UNBOUNDED
    return Status.INACCURATE


def _proof_options(n: int, rows: int) -> dict[str, float]:
    """Return the options of linprog: the highest accuracy, and a time limit for n variables and this many rows."""
    tolerances = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), _STRICT)
    return {**tolerances, "time_limit": time_limit.time_per_sample(n, rows)}


def _refine_proof_vector(d: Array, rows: Array) -> Array:
    """Set tiny entries of d (n,) to zero, and return the nearest vector for which ``rows @ d`` is 0 to rounding."""
    moves = np.abs(d) > _MET * np.abs(d).max()
    J, refined = rows[:, moves], np.where(moves, d, 0.0)
    for _ in range(2):
        refined[moves] -= np.linalg.lstsq(J, J @ refined[moves], rcond=RANK)[0]
    return refined


def _proof_row_weights(matrix: Any) -> Array:
    """Return the reciprocal of the largest absolute entry of every row, (r,); 1 for rows of zeros."""
    if 0 in matrix.shape:
        return np.ones(matrix.shape[0])
    top: Any = abs(matrix).max(axis=1)
    top = top.toarray().ravel() if sparse.issparse(top) else top
    return 1.0 / np.where(top > 0, top, 1.0)


def _scale_proof_rows(weight: Array, matrix: Any) -> Any:
    """Multiply each row of a dense or sparse matrix (r, n) by its weight (r,)."""
    return (
        sparse.csr_array(sparse.diags_array(weight) @ matrix) if sparse.issparse(matrix) else weight[:, None] * matrix
    )
