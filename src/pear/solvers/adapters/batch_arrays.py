"""Helpers of the adapters: a batch of programs as numpy arrays, and the rows of a candidate to fill in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from pear.optimality.program_screen import screen_programs
from pear.optimality.status import Status
from pear.problem.matrix import is_sparse_matrix
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.candidate import Candidate, empty_candidate

Array = NDArray[Any]


@dataclass(frozen=True)
class ProgramArrays:
    """A ``QuadraticProgram`` as numpy arrays, with the same fields and shapes.

    H, A and G of a sparse program stay ``SparseMatrix`` objects, which ``row`` and ``groups`` turn into SciPy matrices.
    """

    H: Any
    c: Array
    A: Any
    b: Array
    G: Any
    h: Array
    lb: Array
    ub: Array
    integer: Array | None

    @classmethod
    def of(cls, qp: QuadraticProgram) -> ProgramArrays:
        """Convert ``qp`` to arrays, without a copy if its tensors are on the CPU."""

        def as_array(value: Any) -> Any:
            return value if value.is_sparse else value.detach().cpu().numpy()

        integer = None if qp.integer is None or not qp.integer.any() else as_array(qp.integer)
        fields = {name: as_array(getattr(qp, name)) for name in ("H", "c", "A", "b", "G", "h", "lb", "ub")}
        return cls(**fields, integer=integer)

    @property
    def shared_matrices(self) -> bool:
        """True if all samples share H, A and G."""
        return self.H.shape[0] == self.A.shape[0] == self.G.shape[0] == 1

    @property
    def shared_limits(self) -> bool:
        """True if all samples share the right-hand sides and bounds."""
        return self.b.shape[0] == self.h.shape[0] == self.lb.shape[0] == self.ub.shape[0] == 1


def row(field: Any, i: int) -> Any:
    """Return the row of a field that belongs to sample ``i``, or the row that all samples share."""
    if is_sparse_matrix(field):
        return field.csr
    return field[0] if field.shape[0] == 1 else field[i]


@dataclass(frozen=True)
class Group:
    """Samples that share one set-up of a solver: their matrices, present rows and bounded variables are the same.

    Attributes:
        members: positions of the samples in the batch.
        H: (n, n) curvature, sparse for a sparse program.
        A: (p, n) equalities, sparse for a sparse program.
        G: (k, n) the inequalities whose right-hand side is finite, sparse for a sparse program.
        rows: (k,) the positions of these inequalities among all m inequalities.
        bounded: (n,) bool, the variables with at least one finite bound.
    """

    members: Array
    H: Any
    A: Any
    G: Any
    rows: Array
    bounded: Array


def groups(batch: ProgramArrays, todo: Array) -> Iterator[Group]:
    """Split the samples at the positions ``todo`` into groups that share one set-up of a solver.

    The set-up for a sample, and with it every bit of the answer, does not depend on the other samples of the batch.
    """
    if not len(todo):
        return
    finite = np.isfinite(batch.lb) | np.isfinite(batch.ub)
    exists = batch.h < np.inf
    leading = max(finite.shape[0], exists.shape[0])
    pattern = np.hstack([np.broadcast_to(v, (leading, v.shape[1])) for v in (exists, finite)])
    if not batch.shared_matrices:
        parts = [todo[k : k + 1] for k in range(len(todo))]
    elif leading == 1:
        parts = [todo]
    else:
        _, label = np.unique(pattern[todo], axis=0, return_inverse=True)
        parts = [todo[label == k] for k in range(label.max() + 1)]
    for members in parts:
        first = int(members[0])
        rows = np.flatnonzero(row(exists, first))
        G = row(batch.G, first)[rows]
        yield Group(members, row(batch.H, first), row(batch.A, first), G, rows, row(finite, first))


def group_row_limits(batch: ProgramArrays, group: Group, i: int) -> tuple[Array, Array]:
    """Return the lower and upper limits of the rows of sample ``i``: p equalities and the k inequalities of its group.

    Each of the two results has the shape (p + k,).
    """
    b, h = row(batch.b, i), row(batch.h, i)[group.rows]
    return np.concatenate([b, np.full(h.shape, -np.inf)]), np.concatenate([b, h])


def stack_matrices(*parts: Any) -> Any:
    """Stack matrices on top of each other. The result is sparse if one of them is."""
    return sparse.csc_array(sparse.vstack(parts)) if any(map(sparse.issparse, parts)) else np.vstack(parts)


class CandidateRows:
    """The rows of a ``Candidate``, which an adapter fills in sample by sample.

    The numbers of a row that is not filled in are NaN, and its status is INACCURATE.

    Args:
        qp: the programs. A sample gets its final status at once if its data alone shows that it has no solution.
    """

    def __init__(self, qp: QuadraticProgram) -> None:
        self._device = qp.c.device
        self._candidate = empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c.detach().cpu())
        if qp.integer is not None and bool(qp.integer.any()):
            self._candidate = replace(self._candidate, bound=torch.full_like(self._candidate.x[:, 0], torch.nan))
        self._status = self._candidate.status.numpy()
        settled = screen_programs(qp).cpu().numpy()
        self._status[:] = np.where(settled == Status.SOLVED, Status.INACCURATE, settled)

    @property
    def todo(self) -> Array:
        """The positions of the samples that need a solver."""
        return np.flatnonzero(self._status == Status.INACCURATE)

    def fail(self, i: int, status: Status) -> None:
        """Set the status of sample ``i`` without a point."""
        self._status[i] = status

    def put(
        self,
        i: int,
        status: Status,
        x: Array,
        group: Group,
        equality: Array | float = 0.0,
        inequality: Array | float = 0.0,
        bound: Array | float = 0.0,
    ) -> None:
        """Write the point of sample ``i`` and its multipliers.

        Args:
            i: the position of the sample.
            status: the status that the solver claims.
            x: (n,) the point.
            group: the group of the sample.
            equality: (p,) multipliers of the equalities, with the signs of ``Duals``.
            inequality: (k,) multipliers of the k inequalities of the group. Negative numbers, which the tolerance of a
                solver permits, become zero.
            bound: (n,) multipliers of the bounds, with the signs of ``Duals``.
        """
        duals = self._candidate.duals
        self._status[i] = status
        self._candidate.x.numpy()[i] = x
        duals.equality.numpy()[i] = equality
        duals.inequality.numpy()[i] = 0.0
        duals.inequality.numpy()[i, group.rows] = np.maximum(inequality, 0.0)
        duals.bound.numpy()[i] = bound

    def prove(self, i: int, bound: float) -> None:
        """Record that the integer program ``i`` has no point with an objective below ``bound``."""
        assert self._candidate.bound is not None
        self._candidate.bound.numpy()[i] = bound

    def candidate(self) -> Candidate:
        """Return the candidate, on the device of the programs."""
        candidate: Candidate = self._candidate.to(self._device)
        return candidate
