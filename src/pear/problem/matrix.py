"""The matrices of a program: dense tensors and sparse matrices with the same operations.

A matrix of a program, with r rows and n columns, is either a tensor (B or 1, r, n) or a ``SparseMatrix`` of shape
(1, r, n); a leading dimension of 1 means that all samples share the matrix. Both kinds have ``shape``, ``is_sparse``,
``abs``, ``any``, ``diagonal``, ``index_select`` and ``mT``. The functions of this module are operations that tensors do
not have as methods. Other modules need to know the kind of a matrix only if they use its non-zeros.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

Matrix = Any
"""A tensor (B or 1, rows, columns), or a ``SparseMatrix``."""
MATRICES = ("Q", "A", "G")
"""The names of the fields of a problem that are matrices."""
_MOST_DENSE = 2**20  # a matrix with more entries is not small


class SparseMatrix:
    """A float64 matrix that all samples share, in SciPy's CSR form, on the CPU.

    It has those methods of a tensor that code for programs calls, with the same meaning.

    Args:
        csr: the matrix, with r rows and n columns, which is not copied.
        shared: True for a matrix of a program, with the shape (1, r, n); False for the shape (r, n).

    Example:
        >>> from scipy import sparse
        >>> from pear.problem.matrix import SparseMatrix
        >>> SparseMatrix(sparse.csr_array([[1.0, 0.0, 2.0]])).shape
        (1, 3)
    """

    is_sparse = True
    dtype = torch.float64
    device = torch.device("cpu")

    def __init__(self, csr: sparse.csr_array, shared: bool = False) -> None:
        self.csr = csr
        self._shared = shared

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (rows, columns), or (1, rows, columns) for a matrix of a program."""
        rows, columns = self.csr.shape
        return (1, rows, columns) if self._shared else (rows, columns)

    @property
    def ndim(self) -> int:
        """The number of dimensions: 2, or 3 for a matrix of a program."""
        return len(self.shape)

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return int(self.csr.nnz)

    @cached_property
    def mT(self) -> SparseMatrix:  # noqa: N802 (the name that tensors have)
        """The transposed matrix."""
        return SparseMatrix(sparse.csr_array(self.csr.T), self._shared)

    @cached_property
    def _abs(self) -> SparseMatrix:
        return SparseMatrix(abs(self.csr), self._shared)

    def abs(self) -> SparseMatrix:
        """Return the matrix of absolute values."""
        return self._abs

    def any(self) -> bool:
        """Return True if some entry is not zero."""
        return bool(self.csr.data.any())

    def isfinite(self) -> Tensor:
        """Return a bool tensor (1, 1), True if every entry is finite."""
        return torch.tensor([[bool(np.isfinite(self.csr.data).all())]])

    def unsqueeze(self, dim: int) -> SparseMatrix:
        """Return the same matrix with the shape (1, rows, columns), as a program needs it."""
        assert dim == 0
        return self._in_program

    @cached_property
    def _in_program(self) -> SparseMatrix:
        return SparseMatrix(self.csr, shared=True)

    def to(self, *args: Any, **kwargs: Any) -> SparseMatrix:
        """Return the matrix itself. A sparse matrix stays on the CPU and in float64."""
        return self

    def __getitem__(self, index: Any) -> SparseMatrix:
        """Return the matrix itself: an index selects samples, and all samples have the same matrix."""
        return self

    def index_select(self, dim: int, index: Tensor) -> SparseMatrix:
        """Return the rows (``dim`` 1) or columns (``dim`` 2) at ``index`` of a matrix with the shape (1, r, n)."""
        chosen = index.numpy()
        return SparseMatrix(self.csr[chosen] if dim == 1 else self.csr[:, chosen], shared=True)

    def __mul__(self, units: Tensor) -> SparseMatrix:
        """Return the matrix with column i multiplied by entry i of ``units`` (n,)."""
        return SparseMatrix(sparse.csr_array(self.csr @ sparse.diags_array(units.double().numpy())), self._shared)

    @cached_property
    def _diagonal(self) -> Tensor:
        return torch.from_numpy(self.csr.diagonal()).unsqueeze(0)

    def diagonal(self, dim1: int = 1, dim2: int = 2) -> Tensor:
        """Return the diagonal (1, n) of a square matrix."""
        return self._diagonal

    @cached_property
    def is_diagonal(self) -> bool:
        """Whether no entry beside the diagonal is stored."""
        rows = np.repeat(np.arange(self.csr.shape[0]), np.diff(self.csr.indptr))
        return bool((self.csr.indices == rows).all())

    @cached_property
    def row_squares(self) -> Tensor:
        """The squared length of each row, (1, rows)."""
        return torch.from_numpy(np.asarray(self.csr.multiply(self.csr).sum(1)).reshape(1, -1).astype(float))

    def __repr__(self) -> str:
        return f"SparseMatrix(shape={self.shape}, nnz={self.nnz})"


class _SparseMatrixProduct(torch.autograd.Function):
    """The differentiable product of a sparse matrix with every row of a batch."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return _multiply_sparse_matrix(matrix, vectors)

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None]:
        return _SparseMatrixProduct.apply(up, ctx.matrix.mT), None


def _multiply_sparse_matrix(matrix: SparseMatrix, vectors: Tensor) -> Tensor:
    """Return the products (B, r), in float64, of a matrix (r, n) and every row of ``vectors`` (B, n)."""
    rows = vectors.detach().to(torch.float64).contiguous().numpy()
    if len(rows) == 1:
        return torch.from_numpy((matrix.csr @ rows[0])[None])
    return torch.from_numpy(np.ascontiguousarray((matrix.csr @ rows.T).T))


def matvec(matrix: Matrix, vector: Tensor) -> Tensor:
    """Compute ``M x`` for every sample: M (B or 1, r, n) and x (B, n) give (B, r)."""
    if matrix.is_sparse:
        product: Tensor = _SparseMatrixProduct.apply(vector, matrix)
        return product
    if matrix.shape[0] == 1:
        return vector @ matrix[0].mT
    return torch.bmm(matrix, vector.unsqueeze(-1)).squeeze(-1)


def tmatvec(matrix: Matrix, vector: Tensor) -> Tensor:
    """Compute ``Mᵀ y`` for every sample: M (B or 1, r, n) and y (B, r) give (B, n)."""
    if matrix.is_sparse:
        product: Tensor = _SparseMatrixProduct.apply(vector, matrix.mT)
        return product
    if matrix.shape[0] == 1:
        return vector @ matrix[0]
    return torch.bmm(vector.unsqueeze(1), matrix).squeeze(1)


def plus_matvec(base: Tensor, matrix: Matrix, vector: Tensor, scale: float = 1.0) -> Tensor:
    """Compute ``scale · base + M x`` (B, r) in one operation if M is dense and shared.

    Args:
        base: (B or 1, r).
        matrix: M, (B or 1, r, n).
        vector: x, (B, n).
        scale: the factor of ``base``.
    """
    if matrix.shape[0] == 1 and not matrix.is_sparse:
        return torch.addmm(base, vector, matrix[0].mT, beta=scale)
    return scale * base + matvec(matrix, vector)


def plus_tmatvec(base: Tensor, matrix: Matrix, vector: Tensor) -> Tensor:
    """Compute ``base + Mᵀ y`` (B, n) in one operation if M is dense and shared.

    Args:
        base: (B or 1, n).
        matrix: M, (B or 1, r, n).
        vector: y, (B, r).
    """
    if matrix.shape[0] == 1 and not matrix.is_sparse:
        return torch.addmm(base, vector, matrix[0])
    return base + tmatvec(matrix, vector)


def matrix_row_squares(matrix: Matrix) -> Tensor:
    """Compute the squared length of each row of a matrix (B or 1, r, n). Shape (B or 1, r)."""
    squared: Tensor = matrix.row_squares if matrix.is_sparse else (matrix * matrix).sum(2)
    return squared


def matrix_entries_within(matrix: Matrix, limit: float) -> Tensor:
    """Return a bool mask (B or 1,), True if all entries of a sample's matrix are at most ``limit`` in absolute value.

    For a sample whose matrix holds NaN, the mask is False.
    """
    entries = torch.from_numpy(matrix.csr.data)[None] if matrix.is_sparse else matrix.flatten(1)
    return (entries.abs() <= limit).all(1)


def matrix_of_sample(field: Matrix, i: int) -> Any:
    """Return the matrix or vector of sample ``i`` as a NumPy array, or as SciPy's CSR if it is sparse.

    Args:
        field: a matrix (B or 1, r, n) or a vector (B or 1, r) of a program.
        i: the position of the sample in the batch.
    """
    return field.csr if field.is_sparse else field[0 if field.shape[0] == 1 else i].cpu().numpy()


def is_sparse_matrix(value: Any) -> bool:
    """Return True for a ``SparseMatrix``, a SciPy sparse matrix or a torch sparse tensor."""
    return sparse.issparse(value) or (
        value.layout is not torch.strided if isinstance(value, Tensor) else isinstance(value, SparseMatrix)
    )


def to_csr_matrix(value: Any) -> sparse.csr_array:
    """Convert a matrix (r, n) of any kind, dense or sparse, to SciPy's CSR form, without a copy if possible."""
    if isinstance(value, SparseMatrix):
        return value.csr
    if isinstance(value, Tensor) and is_sparse_matrix(value):
        coo = value.detach().to_sparse_coo().coalesce().cpu()
        value = sparse.coo_array((coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape))
    elif isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    return sparse.csr_array(value)


def densify_small_matrix(matrix: sparse.csr_array) -> Any:
    """Return a matrix of at most 2²⁰ entries as a dense NumPy array, and a larger one unchanged."""
    return matrix if np.prod(matrix.shape) > _MOST_DENSE else matrix.toarray()
