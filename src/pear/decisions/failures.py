"""Failed samples: why they have no solution (infeasible, unbounded, or too inaccurate to tell), and their report.

The proof is a certificate of infeasibility or unboundedness. Linear programs compute it, and ``optimality.certificate``
checks it. A solver's own claim is never trusted. Samples with the same constraints are tested for feasibility only
once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from hashlib import blake2b
from types import FrameType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.errors import FailedSamplesWarning, ProblemError, SolveError
from pear.optimality.certificate import is_infeasibility_certificate, is_unboundedness_certificate
from pear.optimality.duals_and_active_sets import Duals
from pear.optimality.rule import RANK, ROUNDOFF
from pear.optimality.status import Status, has_decision_status
from pear.problem.matrix import matrix_of_sample
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.convexity import nearly_lacks_strict_convexity
from pear.solvers import time_limit
from pear.solvers.adapters.batch_arrays import stack_matrices
from pear.solvers.adapters.scipy import solve_with_linprog
from pear.solvers.linalg.saddle import SaddlePattern
from pear.wording import list_positions

Array = NDArray[Any]
OnFailure = Literal["raise", "mask"]

_FEASIBILITY = ("A", "b", "G", "h", "lb", "ub")  # the fields that feasibility depends on
_RECESSION = ("H", "c", "A", "G", "h", "lb", "ub")  # the fields that boundedness depends on
_KEPT = "feasibility"  # the entry of a program's plan that holds statuses by digest of the constraints
_STRICT = 1e-10  # the tightest tolerance that linprog takes
_MET = 1e-7  # total violation of the scaled rows up to which a point counts as feasible
_SHIFT = 1e-10  # regularisation of the least-squares system; its effect falls with every solve
_SOLVES = 3  # solves of the least-squares system


def name_failures(qp: QuadraticProgram) -> Tensor:
    """Find out why the samples of a batch were not solved.

    A sample is INFEASIBLE where a Farkas certificate proves it: the multipliers of the least total violation of the
    rows. A feasible sample is UNBOUNDED where a direction d proves it: Hd = 0, Ad = 0, Gd ≤ 0, cᵀd < 0, and no bound
    limits d. A sample is INACCURATE where neither is proven.

    Returns:
        (B,) int8 of ``Status``.
    """
    kept: dict[bytes, Status] = qp.prepare_once(_KEPT, lambda _: {}) if qp.shares_constraints else {}
    status = _status_per_sample(qp, _FEASIBILITY, range(qp.batch), _test_feasibility, kept)
    flat = nearly_lacks_strict_convexity(qp)
    endless = flat & ~(qp.lb.isfinite() & qp.ub.isfinite()).all(1)
    rest = [i for i, flat in enumerate(endless.expand(qp.batch).tolist()) if flat and status[i] == Status.SOLVED]
    for i, name in zip(rest, _status_per_sample(qp, _RECESSION, rest, _test_boundedness, {}), strict=True):
        status[i] = name
    named = [int(Status.INACCURATE if name == Status.SOLVED else name) for name in status]
    return torch.tensor(named, dtype=torch.int8, device=qp.c.device)


def known_infeasible(qp: QuadraticProgram) -> Tensor | None:
    """Look up which samples have constraints that were proven infeasible before, by ``name_failures``.

    Results are kept in ``qp.plan``, which all programs of one problem share.

    Returns:
        (B,) bool; None where no sample is known to be infeasible.
    """
    kept = qp.plan.get(_KEPT) if qp.shares_constraints else None
    if not kept or Status.INFEASIBLE not in kept.values():
        return None
    known = [kept.get(_digest_of_sample(qp, _FEASIBILITY, i)) == Status.INFEASIBLE for i in range(qp.batch)]
    return torch.tensor(known, dtype=torch.bool, device=qp.c.device) if any(known) else None


def _status_per_sample(
    qp: QuadraticProgram,
    names: tuple[str, ...],
    samples: Iterable[int],
    ask: Callable[[QuadraticProgram, int], Status],
    answers: dict[bytes, Status],
) -> list[Status]:
    """Compute the status of each sample by ``ask``, once for all samples whose fields ``names`` are equal.

    Args:
        qp: the programs.
        names: the fields that the status depends on.
        samples: the numbers of the samples.
        ask: computes the status of one sample.
        answers: statuses by digest of the fields; new ones are added.
    """
    result = []
    for i in samples:
        key = _digest_of_sample(qp, names, i)
        if key not in answers:
            answers[key] = ask(qp, i)
        result.append(answers[key])
    return result


def _digest_of_sample(qp: QuadraticProgram, names: tuple[str, ...], i: int) -> bytes:
    """Hash these fields of sample i. Sparse matrices are left out, because all programs of a plan share them."""
    digest = blake2b(digest_size=20)
    for name in names:
        field = getattr(qp, name)
        if not field.is_sparse:
            digest.update(matrix_of_sample(field, i).tobytes())
    return digest.digest()


class _SampleConstraints(NamedTuple):
    """The constraints of one sample as NumPy or SciPy arrays.

    Attributes:
        A: (p, n) equality rows.
        b: (p,) right-hand sides of A.
        G: (k, n) the inequality rows whose right-hand side is finite.
        h: (k,) right-hand sides of G.
        lb: (n,) lower bounds.
        ub: (n,) upper bounds.
        present: (m,) bool, marks the k rows among all m inequality rows.
    """

    A: Any
    b: Array
    G: Any
    h: Array
    lb: Array
    ub: Array
    present: Array


def _read_sample(qp: QuadraticProgram, i: int) -> _SampleConstraints:
    """Return the constraints of sample i, without rows whose right-hand side is infinite."""
    A, b, G, h, lb, ub = (matrix_of_sample(getattr(qp, name), i) for name in _FEASIBILITY)
    present = np.isfinite(h)
    return _SampleConstraints(A, b, G[present], h[present], lb, ub, present)


def _test_feasibility(qp: QuadraticProgram, i: int) -> Status:
    """Test sample i: INFEASIBLE where proven, SOLVED where a feasible point was found, otherwise INACCURATE."""
    s, one = _read_sample(qp, i), qp[i : i + 1] if qp.batch > 1 else qp

    def proven(y: Array, u: Array) -> bool:
        rows = np.zeros(len(s.present))
        rows[s.present] = u
        duals = (torch.from_numpy(np.ascontiguousarray(v)).to(qp.c.device)[None] for v in (y, rows, np.zeros(qp.n)))
        return bool(is_infeasibility_certificate(one, Duals(*duals)).any())

    if sparse.issparse(s.A):  # contradicting equalities are found by a factorisation, which is cheaper than an LP
        y = _find_contradiction(s.A, s.b)
        if y is not None and proven(y, np.zeros(len(s.h))):
            return Status.INFEASIBLE
    return _test_by_least_violation(s, proven)


def _find_contradiction(A: sparse.csr_array, b: Array) -> Array | None:
    """Find y (p,) with Aᵀy = 0 and yᵀb < 0 by regularised least squares; None where none is found.

    y is the part of b outside the range of A.
    """
    weight = 1.0 / _largest_entries(A)
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


def _test_by_least_violation(s: _SampleConstraints, proven: Callable[[Array, Array], bool]) -> Status:
    """Minimise the total violation of the scaled rows and test its multipliers as a certificate.

    Args:
        s: the constraints of one sample.
        proven: whether multipliers of A (p,) and G (k,) prove that the sample is infeasible.

    Returns:
        INFEASIBLE where proven, SOLVED where a feasible point was found, otherwise INACCURATE.
    """
    (p, n), m = s.A.shape, s.G.shape[0]
    weight_a, weight_g = 1.0 / _largest_entries(s.A), 1.0 / _largest_entries(s.G)
    b, h = weight_a * s.b, weight_g * s.h
    sides = np.abs(np.concatenate([b, h]))
    unit = float(np.median(sides[sides > 0])) if sides.any() else 1.0
    spare, none = sparse.eye_array(p), sparse.csr_array((m, 2 * p))
    A = sparse.hstack([_scale_certificate_rows(weight_a, s.A), spare, -spare, sparse.csr_array((p, m))], format="csr")
    G = sparse.hstack([_scale_certificate_rows(weight_g, s.G), none, -sparse.eye_array(m)], format="csr")
    extra = 2 * p + m
    cost = np.concatenate([np.zeros(n), np.ones(extra)])
    lower, upper = np.append(s.lb / unit, np.zeros(extra)), np.append(s.ub / unit, np.full(extra, np.inf))
    b, h, met = b / unit, h / unit, False
    for _ in range(2):
        found = solve_with_linprog(cost, A, b, G, h, lower, upper, **_certificate_options(n, p + m))
        if found.status != 0:
            return Status.SOLVED if met else Status.INACCURATE
        y = -weight_a * found.eqlin.marginals if p else np.zeros(0)
        u = -weight_g * found.ineqlin.marginals if m else np.zeros(0)
        if proven(y, u) or (not sparse.issparse(s.A) and proven(*_refine_certificate(s, y, u))):
            return Status.INFEASIBLE
        if met or found.fun > _MET or sparse.issparse(s.A):
            break
        # a contradiction below the tolerances of linprog shows when the problem is magnified around its point
        met = True
        x = np.concatenate([np.clip(found.x[:n], lower[:n], upper[:n]), np.zeros(extra)])
        b, h, lower, upper = ((v - w) / _MET for v, w in ((b, A @ x), (h, G @ x), (lower, x), (upper, x)))
    return Status.SOLVED if met or found.fun <= _MET else Status.INACCURATE


def _refine_certificate(s: _SampleConstraints, y: Array, u: Array) -> tuple[Array, Array]:
    """Return the multipliers nearest to y (p,) and u (k,) with Aᵀy + Gᵀu = 0 for all variables without bounds."""
    if not (y.any() or u.any()):
        return y, u
    rows = np.vstack([s.A, s.G])
    pull = y @ s.A + u @ s.G
    endless = np.where(pull > 0, ~np.isfinite(s.lb), ~np.isfinite(s.ub))
    refined_y, refined_u = np.split(_refine_direction(np.append(y, u), rows.T[endless]), [len(y)])
    return refined_y, refined_u


def _test_boundedness(qp: QuadraticProgram, i: int) -> Status:
    """Test sample i: UNBOUNDED where a direction proves it, otherwise INACCURATE."""
    s, one = _read_sample(qp, i), qp[i : i + 1] if qp.batch > 1 else qp
    c, flat = qp.c[i].cpu().numpy(), stack_matrices(s.A, matrix_of_sample(qp.H, i))
    flat, rows = (
        _scale_certificate_rows(1.0 / _largest_entries(flat), flat),
        _scale_certificate_rows(1.0 / _largest_entries(s.G), s.G),
    )
    lower, upper = np.where(np.isfinite(s.lb), 0.0, -1.0), np.where(np.isfinite(s.ub), 0.0, 1.0)
    cost, zeros = c / (np.abs(c).max() or 1.0), (np.zeros(flat.shape[0]), np.zeros(rows.shape[0]))
    options = _certificate_options(qp.n, flat.shape[0] + rows.shape[0])
    steepest = solve_with_linprog(cost, flat, zeros[0], rows, zeros[1], lower, upper, **options)
    if steepest.status != 0:
        return Status.INACCURATE
    d = steepest.x
    tries = (
        [d] if sparse.issparse(flat) else [d, _refine_direction(d, np.vstack([flat, rows[np.abs(rows @ d) <= _MET]]))]
    )
    for d in tries:
        d = np.where(np.abs(d) <= ROUNDOFF * np.abs(d).max(), 0.0, np.clip(d, lower, upper))
        if bool(is_unboundedness_certificate(one, torch.from_numpy(d).to(qp.c.device)[None]).any()):
            return Status.UNBOUNDED
    return Status.INACCURATE


def _certificate_options(n: int, rows: int) -> dict[str, float]:
    """Return the options for the highest accuracy of linprog, and a time limit for n variables and these rows."""
    tolerances = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), _STRICT)
    return {**tolerances, "time_limit": time_limit.time_per_sample(n, rows)}


def _refine_direction(d: Array, rows: Array) -> Array:
    """Return the direction nearest to d (n,) with ``rows @ d = 0`` to rounding; zeros of d stay zero."""
    moves = np.abs(d) > _MET * np.abs(d).max()
    J, refined = rows[:, moves], np.where(moves, d, 0.0)
    for _ in range(2):
        refined[moves] -= np.linalg.lstsq(J, J @ refined[moves], rcond=RANK)[0]
    return refined


def _largest_entries(matrix: Any) -> Array:
    """Return the largest absolute entry of every row, (r,); 1 where a row is zero."""
    if 0 in matrix.shape:
        return np.ones(matrix.shape[0])
    top: Any = abs(matrix).max(axis=1)
    top = top.toarray().ravel() if sparse.issparse(top) else top
    return np.where(top > 0, top, 1.0)


def _scale_certificate_rows(weight: Array, matrix: Any) -> Any:
    """Multiply each row of a dense or sparse matrix (r, n) by its weight (r,)."""
    return (
        sparse.csr_array(sparse.diags_array(weight) @ matrix) if sparse.issparse(matrix) else weight[:, None] * matrix
    )


def check_on_failure(on_failure: str) -> None:
    """Raise ProblemError where ``on_failure`` is neither "raise" nor "mask"."""
    if on_failure not in ("raise", "mask"):
        raise ProblemError(f"on_failure must be 'raise' or 'mask'; got {on_failure!r}")


def report_failures(
    status: Tensor,
    on_failure: str,
    what: str,
    spreads: bool = False,
    gap: Tensor | None = None,
    unchecked: Tensor | None = None,
) -> None:
    """Raise an error, or warn, where samples are not solved; the message names each reason with its samples.

    Args:
        status: (B,) int8 of ``Status``.
        on_failure: "raise" or "mask".
        what: the problem that was to be solved, in words.
        spreads: whether the samples come from a model that is being trained. The warning then says that NaN in its
            inputs makes the gradient of its weights NaN.
        gap: (B,) gaps of integer programs; the message names them for samples with TIME_LIMIT.
        unchecked: (B,) bool, samples whose status only one solver claims; the message says so.

    Raises:
        SolveError: a sample is not solved, and ``on_failure`` is "raise".
    """
    if not bool(status.any()):  # all of them SOLVED, which is 0
        return
    bad = (~has_decision_status(status)).nonzero()[:, 0].tolist()
    if not bad:
        return
    statuses = [Status(int(status[i])) for i in bad]
    alike = {one: [i for i, other in zip(bad, statuses, strict=True) if other == one] for one in statuses}
    named = "; ".join(
        f"{list_positions('sample', some)} ({one.name}{_describe_gaps(one, gap, some)}"
        f"{_describe_claims(one, unchecked, some)}): {one.sentence}"
        for one, some in alike.items()
    )
    message = f"{len(bad)} of {len(status)} samples could not be solved for {what}: {named}"
    if on_failure == "raise":
        hint = "leave them out, or pass on_failure='mask' where it is an argument"
        raise SolveError(f"{message}. To go on, {hint}", bad, statuses)
    if spreads and Status.NOT_FINITE in statuses:
        message += (
            ". Behind a prediction that is not finite the gradient of the weights is NaN where a feature is, because "
            "0 × NaN is NaN: leave these rows out before the model sees them, as pear.fit does"
        )
    warnings.warn(message, FailedSamplesWarning, stacklevel=_stack_level_of_user())


def _stack_level_of_user() -> int:
    """Return the ``stacklevel`` with which the caller's warning points to the nearest line of the user's own code."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pear":
        frame, level = frame.f_back, level + 1
    return level


def _describe_gaps(status: Status, gap: Tensor | None, samples: list[int]) -> str:
    """Describe the gaps (B,) of samples that ran out of time; "" for other statuses."""
    if status != Status.TIME_LIMIT or gap is None:
        return ""
    found = [float(gap[i]) for i in samples if not bool(gap[i].isnan())]
    if not found:
        return ", no point"
    without = f", {len(samples) - len(found)} without a point" if len(found) < len(samples) else ""
    return f", {'gap' if len(samples) == 1 else 'gaps up to'} {max(found):.1e}{without}"


def _describe_claims(status: Status, unchecked: Tensor | None, samples: list[int]) -> str:
    """Describe how many of the samples only one solver claims to be INFEASIBLE or UNBOUNDED.

    ``unchecked`` (B,) marks the samples for which nothing else says so. The result is "" for other statuses.
    """
    if status not in (Status.INFEASIBLE, Status.UNBOUNDED) or unchecked is None:
        return ""
    count = sum(bool(unchecked[i]) for i in samples)
    some = "" if count == len(samples) else f"{count} of them "
    return f", {some}on the word of one solver" if count else ""
