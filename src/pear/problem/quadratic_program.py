"""``QuadraticProgram``: a batch of convex quadratic programs, the form of a problem that all solvers work on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.problem.matrix import MATRICES, Matrix, SparseMatrix, is_sparse_matrix, matvec, to_csr_matrix
from pear.problem.problem_fields import is_field_per_sample

PreparedData = TypeVar("PreparedData")

MIN_VARIABLES = 500
"""A problem with fewer variables is always dense, because that is faster."""
MAX_SHARE = 0.05
"""In a sparse problem, at most this share of the entries of H, A and G together is not zero."""
MAX_DENSE = 16_384
"""Largest number of variables of a dense problem, whose (n, n) curvature must fit in memory."""
_KEPT_PLANS = 3  # number of smoothings that a sparse problem stores a plan for: training, evaluation and one more
MIN_SPARSE = 30
"""A dense program with fewer variables has no sparse form: a dense factorisation is faster than a sparse analysis."""
MAX_SPARSE_SHARE = 0.15
"""A dense program has no sparse form if more than this share of the entries of H, A and G together is not zero."""

_MATRICES = ("H", "A", "G")
_VECTORS = ("c", "b", "h", "lb", "ub")
_CONSTRAINTS = ("A", "b", "G", "h", "lb", "ub")
_SPARSE_FORM = "sparse form"


@dataclass(frozen=True)
class QuadraticProgram:
    """A batch of programs ``min ½ zᵀHz + cᵀz  s.t.  Az = b, Gz ≤ h, lb ≤ z ≤ ub`` with n variables.

    All numbers are float64, on one device. A field with leading dimension 1 is shared by the whole batch. No field is
    ``None``: absent rows have size 0, and absent bounds are infinite. H, A and G are either all dense tensors or all
    ``SparseMatrix`` objects, which all samples share; the functions of ``pear.problem.matrix`` accept both.

    Attributes:
        H: (B or 1, n, n) curvature, symmetric positive semidefinite (zero for an LP).
        c: (B, n) linear costs of the B samples.
        A, b: (B or 1, p, n) and (B or 1, p), the p equalities.
        G, h: (B or 1, m, n) and (B or 1, m), the m inequalities; ``h = +inf`` means that the sample lacks the row.
        lb, ub: (B or 1, n) bounds; infinity means no bound.
        integer: (n,) bool, True for integer variables; None for a continuous problem.
        diagonal: True if every H is known to be diagonal, such as that of a problem without Q.
        plan: data that solvers compute once from the constraints, by name. Programs with the same constraints share one
            plan; sparse programs share one plan if their matrices are the same.
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
        """The number B of samples."""
        return self.c.shape[0]

    @property
    def n(self) -> int:
        """The number n of variables."""
        return self.c.shape[1]

    @property
    def p(self) -> int:
        """The number p of equalities."""
        return int(self.A.shape[1])

    @property
    def m(self) -> int:
        """The number m of inequalities."""
        return int(self.G.shape[1])

    @property
    def is_sparse(self) -> bool:
        """True if H, A and G are ``SparseMatrix`` objects."""
        return bool(self.H.is_sparse)

    @cached_property
    def is_linear(self) -> bool:
        """True if H is zero for every sample."""
        return not bool(self.H.any())

    @property
    def shares_matrices(self) -> bool:
        """True if every sample has the same H, A and G."""
        return all(getattr(self, name).shape[0] == 1 for name in _MATRICES)

    @property
    def shares_constraints(self) -> bool:
        """True if all samples can share one plan: they have the same constraints, or the same sparse matrices."""
        return self.is_sparse or all(getattr(self, name).shape[0] == 1 for name in _CONSTRAINTS)

    def objective(self, x: Tensor) -> Tensor:
        """Compute the objective ``½ xᵀHx + cᵀx`` of each sample at x (B, n). Shape (B,)."""
        return (x * (0.5 * matvec(self.H, x) + self.c)).sum(1)

    def __getitem__(self, index: Tensor | slice) -> QuadraticProgram:
        """Return the programs of the samples at ``index``. Shared fields stay shared."""
        batch = self.batch

        def select(value: Matrix) -> Matrix:
            return value if value.shape[0] == 1 and batch != 1 else value[index]

        selected: dict[str, Any] = {name: select(getattr(self, name)) for name in (*_MATRICES, *_VECTORS)}
        return replace(self, **selected, plan=self.plan if self.shares_constraints else {})

    def prepare_once(self, name: str, prepare: Callable[[QuadraticProgram], PreparedData]) -> PreparedData:
        """Return ``prepare(self)``, which is computed once and stored in the plan under ``name``.

        Args:
            name: the name of the entry in the plan.
            prepare: a function that depends only on the constraints, and for sparse programs only on the matrices.
        """
        if name not in self.plan:
            self.plan[name] = prepare(self)
        found: PreparedData = self.plan[name]
        return found

    def sparse_form(self) -> QuadraticProgram | None:
        """Return the same programs with sparse matrices; None if that is not possible or would not be faster.

        The result is None for few variables, many non-zeros, data on a GPU, matrices that differ between samples, and
        matrices with NaN or infinity. The converted matrices, and what solvers prepare for them, are stored in the plan
        and used again as long as H is the same.
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
        """Return the programs with sparse matrices; None if an entry is not finite or too many are not zero."""
        matrices = {name: getattr(self, name)[0] for name in _MATRICES}
        entries = sum(M.numel() for M in matrices.values())
        count = sum(int(M.count_nonzero()) for M in matrices.values())
        if count > MAX_SPARSE_SHARE * entries or not all(bool(M.isfinite().all()) for M in matrices.values()):
            return None
        converted: dict[str, Any] = {name: SparseMatrix(to_csr_matrix(M), shared=True) for name, M in matrices.items()}
        return replace(self, **converted, plan={})


def keeps_quadratic_program_sparse(given: Mapping[str, Any], n: int | None, smooth: bool) -> bool:
    """Return True if a problem made of these fields is sparse.

    A problem is sparse if a matrix was given in sparse form, n is at least 500, and at most 5 % of the entries of Q, A
    and G together are not zero. A missing Q counts as a diagonal matrix (n, n), because smoothing adds one. A problem
    without matrices is sparse if n > 16384, because a dense curvature would need more than 2 GiB. A problem is always
    dense if it has tensors on a GPU, a smooth term, or a matrix for each sample.

    Args:
        given: the fields that the user passed, by name.
        n: the number of variables, or None if the user did not pass it.
        smooth: True if the problem has a smooth term.
    """
    matrices = {name: given[name] for name in MATRICES if name in given}
    if smooth or any(isinstance(value, Tensor) and value.device.type != "cpu" for value in given.values()):
        return False
    if not matrices:
        sizes = [n or 0, *(len(given[v]) for v in ("lb", "ub") if getattr(given.get(v), "ndim", 0) == 1)]
        return isinstance(n, int | None) and max(sizes) > MAX_DENSE
    if not any(is_sparse_matrix(value) for value in matrices.values()):
        return False
    shapes = {name: np.shape(value) for name, value in matrices.items()}
    if any(len(size) != 2 for size in shapes.values()):
        return False
    columns = next(iter(shapes.values()))[1]
    if columns < MIN_VARIABLES:
        return False
    count = sum(_count_quadratic_program_nonzeros(value) for value in matrices.values()) + (
        0 if "Q" in matrices else columns
    )
    rows = columns + sum(size[0] for name, size in shapes.items() if name != "Q")
    return count <= MAX_SHARE * rows * columns


def build_quadratic_program(
    fields: Mapping[str, Any],
    cost: Tensor,
    sign: int,
    smoothing: float,
    integer: Tensor | None,
    plans: dict[Any, Any],
    sparse_matrices: bool,
) -> QuadraticProgram:
    """Return the batch of programs of a problem. Each is a minimisation with the curvature ``H = sign · Q + λI``.

    Absent rows are empty, and absent bounds are infinite.

    Args:
        fields: the checked fields of the problem, by name, without absent ones, with the signs of the user's problem.
        cost: (B, n) costs, with the signs of the user's problem.
        sign: 1 if the problem minimises, −1 if it maximises.
        smoothing: λ, which is added to the diagonal of H.
        integer: (n,) bool, or None for a continuous problem.
        plans: the plan of a dense problem; for a sparse problem a dictionary of plans by λ, to which this λ is added.
        sparse_matrices: True if the matrices are ``SparseMatrix`` objects.
    """
    cost = sign * cost.detach().to(torch.float64)
    n = cost.shape[1]
    given = {name: v if is_field_per_sample(name, v) else v.unsqueeze(0) for name, v in fields.items()}
    empty: Matrix
    if sparse_matrices:
        plan = _quadratic_program_plan(plans, given.get("Q"), n, sign, smoothing)
        H, empty = plan["H"], SparseMatrix(sparse.csr_array((0, n)), shared=True)
    else:
        plan, empty = plans, cost.new_zeros(1, 0, n)
        H = smoothing * torch.eye(n, dtype=cost.dtype, device=cost.device).unsqueeze(0)
        H = sign * given["Q"] + H if "Q" in given else H
    return QuadraticProgram(
        H=H,
        c=cost,
        A=given.get("A", empty),
        b=given["b"] if "b" in given else cost.new_zeros(1, 0),
        G=given.get("G", empty),
        h=given["h"] if "h" in given else cost.new_zeros(1, 0),
        lb=given["lb"] if "lb" in given else cost.new_full((1, n), -math.inf),
        ub=given["ub"] if "ub" in given else cost.new_full((1, n), math.inf),
        integer=integer,
        diagonal="Q" not in given,
        plan=plan,
    )


def _quadratic_program_plan(plans: dict[Any, Any], Q: Any, n: int, sign: int, smoothing: float) -> dict[str, Any]:
    """Return the plan of a sparse problem for one smoothing λ. It holds the curvature H.

    Args:
        plans: the plans by λ. A new plan is added, and only the newest three stay.
        Q: the Q of the problem, a ``SparseMatrix``, or None.
        n: the number of variables.
        sign: 1 if the problem minimises, −1 if it maximises.
        smoothing: λ, which is added to the diagonal of H.
    """
    plan: dict[str, Any] | None = plans.get(smoothing)
    if plan is None:
        H = sparse.csr_array(sparse.diags_array(np.full(n, smoothing)))
        if Q is not None:
            H = sparse.csr_array(sign * Q.csr + H)
        H.eliminate_zeros()
        plan = {"H": SparseMatrix(H, shared=True)}
        for old in list(plans)[: len(plans) - _KEPT_PLANS + 1]:
            plans.pop(old, None)
        plans[smoothing] = plan
    return plan


def _count_quadratic_program_nonzeros(value: Any) -> int:
    """Count the non-zeros of a matrix of any kind. All stored entries of a sparse matrix count."""
    if sparse.issparse(value):
        return int(value.nnz)
    if isinstance(value, Tensor):
        return int(value._nnz()) if is_sparse_matrix(value) else int(value.count_nonzero())
    return int(np.count_nonzero(value))
