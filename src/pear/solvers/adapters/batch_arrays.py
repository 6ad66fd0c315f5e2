"""A batch of programs as numpy arrays, and its groups of samples that share one set-up of a solver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pear.problem.matrix import is_sparse_matrix
from pear.problem.quadratic_program import QuadraticProgram

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
    """Yield groups of the samples at the positions ``todo``. The samples of a group share one set-up of a solver.

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
