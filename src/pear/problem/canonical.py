"""The one form that everything behind ``Problem`` works on: a batch of convex quadratic programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

Matrix = Any
"""A tensor (B or 1, r, n), or a ``SparseMatrix`` that stands for one."""

Prepared = TypeVar("Prepared")

_TENSORS = ("H", "c", "A", "b", "G", "h", "lb", "ub")
_CONSTRAINTS = ("A", "b", "G", "h", "lb", "ub")


@dataclass(frozen=True)
class QuadraticProgram:
    """A batch of ``min ½ zᵀHz + cᵀz  s.t.  Az = b, Gz ≤ h, lb ≤ z ≤ ub``.

    Everything is dense float64 on one device. A field with leading dimension 1 is shared by the whole batch.
    There are no ``None``s: absent rows have size 0, absent bounds are infinite.

    Attributes:
        H: (B or 1, n, n) curvature, symmetric positive semidefinite (zero for an LP).
        c: (B, n) linear cost; its leading dimension is the batch size.
        A, b: (B or 1, p, n) and (B or 1, p) equalities.
        G, h: (B or 1, m, n) and (B or 1, m) inequalities; ``h = +inf`` means the row is absent for that sample.
        lb, ub: (B or 1, n) bounds, infinite where absent.
        integer: (n,) bool, or None for a continuous problem.
        diagonal: True where every H is known to be diagonal (an LP, smoothed or not).
        plan: what solvers work out about the constraints; shared by all programs that have the same ones.
    """

    H: Tensor
    c: Tensor
    A: Tensor
    b: Tensor
    G: Tensor
    h: Tensor
    lb: Tensor
    ub: Tensor
    integer: Tensor | None = None
    diagonal: bool = False
    plan: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def batch(self) -> int:
        """Number of samples B."""
        return self.c.shape[0]

    @property
    def n(self) -> int:
        """Number of variables."""
        return self.c.shape[1]

    @property
    def p(self) -> int:
        """Number of equality rows."""
        return self.A.shape[1]

    @property
    def m(self) -> int:
        """Number of inequality rows."""
        return self.G.shape[1]

    @cached_property
    def is_linear(self) -> bool:
        """True where no sample has curvature."""
        return not bool(self.H.any())

    def __getitem__(self, index: Tensor | slice) -> QuadraticProgram:
        """The samples at ``index``; shared fields stay shared."""
        batch = self.batch

        def take(value: Tensor) -> Tensor:
            return value if value.shape[0] == 1 and batch != 1 else value[index]

        taken: dict[str, Any] = {name: take(getattr(self, name)) for name in _TENSORS}
        return replace(self, **taken, plan=self.plan if self.shares_constraints else {})

    @property
    def shares_constraints(self) -> bool:
        """True where every sample has the same constraints."""
        return all(getattr(self, name).shape[0] == 1 for name in _CONSTRAINTS)

    def prepared(self, name: str, prepare: Callable[[Any], Prepared]) -> Prepared:
        """What ``prepare`` works out about the constraints of these programs; done once and kept under ``name``."""
        if name not in self.plan:
            self.plan[name] = prepare(self)
        found: Prepared = self.plan[name]
        return found


def matvec(matrix: Matrix, vector: Tensor) -> Tensor:
    """Row-wise ``M x``: (B or 1, r, n) times (B, n) gives (B, r), one GEMM where the matrix is shared."""
    if not isinstance(matrix, Tensor):  # a SparseMatrix
        product: Tensor = matrix.matvec(vector)
        return product
    if matrix.shape[0] == 1:
        return vector @ matrix[0].mT
    return torch.bmm(matrix, vector.unsqueeze(-1)).squeeze(-1)


def tmatvec(matrix: Matrix, vector: Tensor) -> Tensor:
    """Row-wise ``Mᵀ y``: (B or 1, r, n) and (B, r) give (B, n)."""
    if not isinstance(matrix, Tensor):
        product: Tensor = matrix.tmatvec(vector)
        return product
    if matrix.shape[0] == 1:
        return vector @ matrix[0]
    return torch.bmm(vector.unsqueeze(1), matrix).squeeze(1)


def row_squares(matrix: Matrix) -> Tensor:
    """(B or 1, r) the squared length of each row of (B or 1, r, n)."""
    if not isinstance(matrix, Tensor):
        squares: Tensor = matrix.row_squares
        return squares
    squared: Tensor = (matrix * matrix).sum(2)
    return squared
