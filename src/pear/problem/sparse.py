"""Large matrices that stay sparse, and the batch form of problems made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.canonical import QuadraticProgram

MATRICES = ("Q", "A", "G")
MIN_VARIABLES = 500
"""Problems with fewer variables are dense whatever they came as: dense is faster there."""
MAX_SHARE = 0.05
"""Largest share of non-zeros among the entries of H, A and G together of a problem that is kept sparse."""
MAX_DENSE = 16_384
"""Variables up to which the (n, n) curvature of a dense problem fits."""
_PLANS = 3  # smoothings that a problem keeps what was worked out for: a loss's, that of its evaluation, and one more


class SparseMatrix:
    """A float64 matrix shared by all samples, in SciPy's CSR form; behaves like a tensor where programs need it to.

    Args:
        csr: (r, n); it is not copied.
        shared: True for the shape (1, r, n) that a field of a program has, False for (r, n).

    Example:
        >>> from scipy import sparse
        >>> from pear.problem.sparse import SparseMatrix
        >>> SparseMatrix(sparse.csr_array([[1.0, 0.0, 2.0]])).shape
        (1, 3)
    """

    def __init__(self, csr: sparse.csr_array, shared: bool = False) -> None:
        self.csr = csr
        self._shared = shared

    @property
    def shape(self) -> tuple[int, ...]:
        """(r, n), or (1, r, n) in a program."""
        rows, columns = self.csr.shape
        return (1, rows, columns) if self._shared else (rows, columns)

    @property
    def ndim(self) -> int:
        """2, or 3 in a program."""
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """float64."""
        return torch.float64

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    @property
    def nnz(self) -> int:
        """Stored entries."""
        return int(self.csr.nnz)

    @cached_property
    def transposed(self) -> sparse.csr_array:
        """(n, r) in CSR form."""
        return sparse.csr_array(self.csr.T)

    @cached_property
    def _abs(self) -> SparseMatrix:
        return SparseMatrix(abs(self.csr), self._shared)

    def abs(self) -> SparseMatrix:
        """Absolute values."""
        return self._abs

    def amax(self, dim: tuple[int, int]) -> Tensor:
        """(1,) the largest entry."""
        return torch.full((1,), float(self.csr.max()) if min(self.csr.shape) else 0.0, dtype=torch.float64)

    def any(self) -> bool:
        """True where some entry is not zero."""
        return bool(self.csr.data.any())

    def isfinite(self) -> Tensor:
        """(1, 1) bool: every entry is a number."""
        return torch.tensor([[bool(np.isfinite(self.csr.data).all())]])

    def unsqueeze(self, dim: int) -> SparseMatrix:
        """The same matrix as a field of a program, (1, r, n)."""
        assert dim == 0
        return SparseMatrix(self.csr, shared=True)

    def to(self, *args: Any, **kwargs: Any) -> SparseMatrix:
        """Itself: there is no other device to go to, which ``Problem.to`` has checked."""
        return self

    def __getitem__(self, index: Any) -> SparseMatrix:
        """Itself: every sample has the same matrix."""
        return self

    @cached_property
    def _diagonal(self) -> Tensor:
        return torch.from_numpy(self.csr.diagonal()).unsqueeze(0)

    def diagonal(self, dim1: int = 1, dim2: int = 2) -> Tensor:
        """(1, n) the diagonal of a square matrix."""
        return self._diagonal

    @cached_property
    def row_squares(self) -> Tensor:
        """(1, r) the squared length of each row."""
        return torch.from_numpy(np.asarray(self.csr.multiply(self.csr).sum(1)).reshape(1, -1).astype(float))

    def matvec(self, vector: Tensor) -> Tensor:
        """M x for every row x of (B, n): (B, r). Differentiable by the vector."""
        result: Tensor = _Product.apply(vector, self.csr, self.transposed)
        return result

    def tmatvec(self, vector: Tensor) -> Tensor:
        """Mᵀ y for every row y of (B, r): (B, n). Differentiable by the vector."""
        result: Tensor = _Product.apply(vector, self.transposed, self.csr)
        return result

    def __repr__(self) -> str:
        return f"SparseMatrix(shape={self.shape}, nnz={self.nnz})"


class _Product(torch.autograd.Function):
    """Sparse matrix times every row of a batch."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, matrix: sparse.csr_array, transposed: sparse.csr_array) -> Tensor:
        ctx.transposed = transposed
        return _rows_times(matrix, vector)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None, None]:
        return _rows_times(ctx.transposed, up), None, None


def _rows_times(matrix: sparse.csr_array, vectors: Tensor) -> Tensor:
    rows = vectors.detach().to(torch.float64).contiguous().numpy()
    result = np.empty((len(rows), matrix.shape[0]))
    for i in range(len(rows)):  # one after another: a block product would first copy the batch in the other order
        result[i] = matrix @ rows[i]
    return torch.from_numpy(result)


@dataclass(frozen=True)
class SparseProgram(QuadraticProgram):
    """A batch of programs whose matrices are ``SparseMatrix`` objects, shared by all samples, on the CPU.

    Attributes:
        plan: what solvers work out about the matrices; shared by all programs of one problem and smoothing.
    """

    @property
    def shares_constraints(self) -> bool:
        """True: the plan is about the matrices alone, which all samples share."""
        return True


def keeps_sparse(given: Mapping[str, Any], n: int | None, smooth: bool) -> bool:
    """Whether a problem made of these fields is kept sparse.

    It is where a matrix came in sparse form, n is at least 500, and H, A and G together have at most 5 % non-zeros. A
    problem of bounds alone is sparse where its curvature would not fit densely. Tensors on another device, and a smooth
    term, keep a problem dense.
    """
    matrices = {name: given[name] for name in MATRICES if name in given}
    if smooth or any(isinstance(value, Tensor) and value.device.type != "cpu" for value in given.values()):
        return False
    if not matrices:
        sizes = [n or 0, *(len(given[v]) for v in ("lb", "ub") if getattr(given.get(v), "ndim", 0) == 1)]
        return isinstance(n, int | None) and max(sizes) > MAX_DENSE
    if not any(is_sparse(value) for value in matrices.values()):
        return False
    if any(len(_shape(value)) != 2 for value in matrices.values()):
        return False
    columns = _shape(next(iter(matrices.values())))[1]
    if columns < MIN_VARIABLES:
        return False
    count = sum(_count(value) for value in matrices.values()) + (0 if "Q" in matrices else columns)
    rows = columns + sum(_shape(value)[0] for name, value in matrices.items() if name != "Q")
    return count <= MAX_SHARE * rows * columns


def is_sparse(value: Any) -> bool:
    """True for SciPy's sparse matrices and torch's sparse tensors."""
    return sparse.issparse(value) or (isinstance(value, Tensor) and value.layout is not torch.strided)


def read_sparse(name: str, value: Any) -> SparseMatrix:
    """A matrix in any form as a private float64 ``SparseMatrix``."""
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        coo = value.detach().to_sparse_coo().coalesce()
        value = sparse.coo_array((coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape))
    elif isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    csr = sparse.csr_array(value, dtype=np.float64, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return SparseMatrix(csr)


def check_curvature(Q: SparseMatrix, sense: str) -> SparseMatrix:
    """Symmetric up to rounding, with no diagonal entry of the wrong sign; returned exactly symmetric.

    Definiteness is not decided here: no eigenvalues are computed for a large matrix, and a solve finds out.
    """
    gap = float(abs(Q.csr - Q.csr.T).max()) if Q.nnz else 0.0
    top = float(abs(Q.csr).max()) if Q.nnz else 0.0
    if gap > 1e-8 * top:
        raise ProblemError(
            f"Q must be symmetric: entries differ from their mirror image by up to {gap:.3g}; "
            "pass (Q + Q.T) / 2, which has the same zᵀQz"
        )
    sign = 1.0 if sense == "min" else -1.0
    least = float((sign * Q.csr.diagonal()).min(initial=0.0))
    if least < -1e-9 * top:
        kind = "positive" if sense == "min" else "negative"
        raise ProblemError(
            f"Q must be {kind} semidefinite for sense='{sense}': its diagonal holds {sign * least:.3g}; "
            "check the sign of Q and the sense"
        )
    return SparseMatrix(sparse.csr_array(0.5 * (Q.csr + Q.csr.T)) if gap else Q.csr)


def sparse_program(
    fields: Mapping[str, Any], cost: Tensor, sign: int, smoothing: float, integer: Tensor | None, plans: dict[str, Any]
) -> SparseProgram:
    """The minimisation form of a sparse problem; absent rows have size 0, absent bounds are infinite."""
    cost = sign * cost.detach().to(torch.float64)
    n = cost.shape[1]
    plan = _plan_for(plans, fields, n, sign, smoothing)

    def vector(name: str, size: int, absent: float) -> Tensor:
        value = fields.get(name)
        if value is None:
            return cost.new_full((1, size), absent)
        return value if value.ndim == 2 else value.unsqueeze(0)

    return SparseProgram(
        H=plan["H"],
        c=cost,
        A=plan["A"],
        b=vector("b", 0, 0.0),
        G=plan["G"],
        h=vector("h", 0, 0.0),
        lb=vector("lb", n, -math.inf),
        ub=vector("ub", n, math.inf),
        integer=integer,
        diagonal="Q" not in fields,
        plan=plan,
    )


def _plan_for(plans: dict[Any, Any], fields: Mapping[str, Any], n: int, sign: int, smoothing: float) -> dict[str, Any]:
    """The matrices of the minimised problem, and room for what is worked out about them; kept for a few smoothings."""
    plan: dict[str, Any] | None = plans.get(smoothing)
    if plan is None:
        Q = fields.get("Q")
        H = sparse.csr_array(sparse.diags_array(np.full(n, smoothing)))
        if Q is not None:
            H = sparse.csr_array(sign * Q.csr + H)
        H.eliminate_zeros()
        empty = SparseMatrix(sparse.csr_array((0, n)))
        plan = {"H": SparseMatrix(H, shared=True)}
        plan |= {name: fields.get(name, empty).unsqueeze(0) for name in ("A", "G")}
        for old in list(plans)[: len(plans) - _PLANS + 1]:
            plans.pop(old, None)
        plans[smoothing] = plan
    return plan


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)


def _count(value: Any) -> int:
    if sparse.issparse(value):
        return int(value.nnz)
    if isinstance(value, Tensor):
        return int(value._nnz()) if value.layout is not torch.strided else int(value.count_nonzero())
    return int(np.count_nonzero(value))
