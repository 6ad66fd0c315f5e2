"""``QuadraticProgram``: a batch of convex quadratic programs, the one form that all solvers work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from pear.problem.matrix import Matrix, SparseMatrix, to_csr

PreparedData = TypeVar("PreparedData")

MIN_SPARSE = 30
"""A dense program with fewer variables has no sparse form: a dense factorisation is faster than a sparse analysis."""
MAX_SPARSE_SHARE = 0.15
"""Largest share of non-zeros among the entries of H, A and G of a dense program that has a sparse form."""

_MATRICES = ("H", "A", "G")
_VECTORS = ("c", "b", "h", "lb", "ub")
_CONSTRAINTS = ("A", "b", "G", "h", "lb", "ub")
_SPARSE_FORM = "sparse form"


@dataclass(frozen=True)
class QuadraticProgram:
    """A batch of ``min ½ zᵀHz + cᵀz  s.t.  Az = b, Gz ≤ h, lb ≤ z ≤ ub``.

    All numbers are float64, on one device. A field with leading dimension 1 is shared by the whole batch. No field is
    ``None``: absent rows have size 0, absent bounds are infinite. H, A and G are either all dense tensors or all
    ``SparseMatrix`` objects, which all samples share; ``pear.problem.matrix`` works on both.

    Attributes:
        H: (B or 1, n, n) curvature, symmetric positive semidefinite (zero for an LP).
        c: (B, n) linear cost; its leading dimension is the batch size.
        A, b: (B or 1, p, n) and (B or 1, p) equalities.
        G, h: (B or 1, m, n) and (B or 1, m) inequalities; ``h = +inf`` means the row is absent for that sample.
        lb, ub: (B or 1, n) bounds, infinite where absent.
        integer: (n,) bool, or None for a continuous problem.
        diagonal: True where every H is known to be diagonal (an LP, smoothed or not).
        plan: data that solvers compute once from the constraints, by name. All programs with the same constraints share
            it. Sparse programs share it where their matrices are the same.
    """

    H: Matrix
    c: Tensor
    A: Matrix
    b: Tensor
    G: Matrix
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
        size: int = self.A.shape[1]
        return size

    @property
    def m(self) -> int:
        """Number of inequality rows."""
        size: int = self.G.shape[1]
        return size

    @property
    def is_sparse(self) -> bool:
        """True where H, A and G are ``SparseMatrix`` objects."""
        sparse: bool = self.H.is_sparse
        return sparse

    @cached_property
    def is_linear(self) -> bool:
        """True where no sample has curvature."""
        return not bool(self.H.any())

    @property
    def shares_matrices(self) -> bool:
        """True where every sample has the same H, A and G."""
        return all(getattr(self, name).shape[0] == 1 for name in _MATRICES)

    @property
    def shares_constraints(self) -> bool:
        """True where one plan serves every sample: all have the same constraints, or the same sparse matrices."""
        return self.is_sparse or all(getattr(self, name).shape[0] == 1 for name in _CONSTRAINTS)

    def __getitem__(self, index: Tensor | slice) -> QuadraticProgram:
        """The samples at ``index``; shared fields stay shared."""
        batch = self.batch

        def select(value: Matrix) -> Matrix:
            return value if value.shape[0] == 1 and batch != 1 else value[index]

        selected: dict[str, Any] = {name: select(getattr(self, name)) for name in (*_MATRICES, *_VECTORS)}
        return replace(self, **selected, plan=self.plan if self.shares_constraints else {})

    def prepare_once(self, name: str, prepare: Callable[[QuadraticProgram], PreparedData]) -> PreparedData:
        """The result of ``prepare(self)``, computed once and kept in the plan under ``name``.

        Args:
            name: the name of the entry in the plan.
            prepare: a function that uses the constraints only, or the matrices only where the programs are sparse.
        """
        if name not in self.plan:
            self.plan[name] = prepare(self)
        found: PreparedData = self.plan[name]
        return found

    def sparse_form(self) -> QuadraticProgram | None:
        """The same programs with sparse matrices, or None where that would not be faster or is not possible.

        It is None for few variables, many non-zeros, data on a GPU, and matrices that differ between samples. The
        converted matrices are kept in the plan until H changes, with everything that solvers prepare for them.
        """
        if self.is_sparse:
            return self
        if self.n < MIN_SPARSE or self.c.is_cuda or not self.shares_matrices:
            return None
        H, form = self.plan.get(_SPARSE_FORM, (None, None))
        if H is None or not torch.equal(H, self.H):
            form = self._to_sparse()
            self.plan[_SPARSE_FORM] = self.H, form
        return None if form is None else replace(form, **{name: getattr(self, name) for name in _VECTORS})

    def _to_sparse(self) -> QuadraticProgram | None:
        matrices = {name: getattr(self, name)[0] for name in _MATRICES}
        entries = sum(M.numel() for M in matrices.values())
        count = sum(int(M.count_nonzero()) for M in matrices.values())
        if count > MAX_SPARSE_SHARE * entries or not all(bool(M.isfinite().all()) for M in matrices.values()):
            return None
        sparse: dict[str, Any] = {name: SparseMatrix(to_csr(M), shared=True) for name, M in matrices.items()}
        return replace(self, **sparse, plan={})
