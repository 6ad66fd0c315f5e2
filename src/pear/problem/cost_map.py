"""``CostMap``: the costs of a problem as a linear function of the predicted values ŷ, ``cost = M ŷ + known``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.matrix import is_sparse_matrix, to_csr_matrix
from pear.problem.sample_index import sample_index
from pear.problem.tensor_conversion import ArrayLike, tensor_shape, to_float64_tensor, to_tensor

_FEW_NUMBERS = 1 << 14
"""Largest number of entries, zeros included, of a sparse matrix that is multiplied as a dense one, which is faster."""


class CostMap:
    """The linear map ``cost = M ŷ + known`` from predicted values ŷ (k,) to costs (n,).

    For example, 24 predicted prices become the 72 costs of a battery.

    Args:
        M: (n, k) matrix, dense or sparse (scipy or torch). By default the identity: every cost is predicted.
        known: the part of the costs that is not predicted: (n,) for all samples, or (N, n) with a row for each sample.
            With N rows, calls select samples by ``keys``, which are row numbers. By default zero.
        names: the names of the k predicted values.

    Attributes:
        n: the number of costs.
        inputs: the number k of predicted values.
        M: (n, k) float64 tensor, or SciPy's CSR if M was given in sparse form; None for the identity.
        known: (n,) or (N, n) float64 tensor.
        batch: N if ``known`` has a row for each sample, else None.

    Raises:
        ProblemError: neither ``M`` nor ``known`` is passed, shapes do not fit, or an entry is not finite.

    Example:
        >>> import torch
        >>> buy_and_sell = CostMap([[1.0], [-1.0]], known=[0.1, 0.1])
        >>> buy_and_sell(torch.tensor([[2.0], [3.0]]))
        tensor([[ 2.1000, -1.9000],
                [ 3.1000, -2.9000]])
    """

    def __init__(self, M: ArrayLike = None, known: ArrayLike = None, names: Sequence[str] = ()) -> None:
        if M is None and known is None:
            raise ProblemError("a CostMap needs M (n, k), known (n,) or (N, n), or both; got neither")
        self.M = None if M is None else read_cost_map_matrix(M)
        fixed = None
        if known is not None:
            fixed = _check_cost_map_array(
                "known of a cost map", to_float64_tensor("known", known), (1, 2), "(n,) or (N, n)"
            )
        self._factor = _cost_map_factor(self.M)
        self.n = self.M.shape[0] if self.M is not None else fixed.shape[-1]  # type: ignore[union-attr]
        self.inputs = self.n if self.M is None else self.M.shape[1]
        self.known = torch.zeros(self.n, dtype=torch.float64) if fixed is None else fixed
        self.batch = len(self.known) if self.known.ndim == 2 else None
        self.names = tuple(names)
        if self.known.shape[-1] != self.n:
            raise ProblemError(
                f"known must have shape ({self.n},) or (N, {self.n}), a number for each row of M; got "
                f"{tensor_shape(self.known)}"
            )
        if self.names and len(self.names) != self.inputs:
            raise ProblemError(f"names must name the {self.inputs} predicted values; got {len(self.names)} names")

    def __call__(self, predicted: ArrayLike, keys: Sequence[Hashable] | None = None) -> Tensor:
        """Compute the costs under predicted values. The result is differentiable and has the dtype of the values.

        Args:
            predicted: (k,) or (B, k).
            keys: the row numbers of the B samples in ``known``, if ``known`` has a row for each sample. Without
                keys the batch must then be all N samples, in the order of the rows.

        Returns:
            (B, n); or (n,) if ``predicted`` and ``known`` are vectors.
        """
        values = to_tensor("the predicted values", predicted)
        if not values.is_floating_point():
            values = values.double()
        if values.ndim not in (1, 2) or values.shape[-1] != self.inputs:
            raise ProblemError(
                f"the cost map takes {self.inputs} predicted values a sample, shape ({self.inputs},) or (B, "
                f"{self.inputs}); got {tensor_shape(values)}"
            )
        rows = values.double() if values.ndim == 2 else values.double()[None]
        known = self._known(keys).to(values.device)
        if known.ndim == 2 and len(known) != len(rows):
            raise ProblemError(
                f"{len(known)} samples have known costs of their own, and {len(rows)} came; pass keys, the row numbers "
                "of the samples"
            )
        costs = (self._times(rows, self.n, forward=True) + known).to(values.dtype)
        return costs if values.ndim == 2 or self.batch is not None else costs[0]

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Convert a gradient (B, n) with respect to the costs to one (B, k) with respect to the predicted values."""
        return self._times(gradient.double(), self.inputs, forward=False).to(gradient.dtype)

    def _times(self, rows: Tensor, width: int, forward: bool) -> Tensor:
        """Return ``rows Mᵀ`` if ``forward`` is True, else ``rows M``.

        Args:
            rows: (B, k) predicted values if ``forward`` is True, else (B, n) gradients.
            width: the number of columns of the result, n or k.
            forward: True to convert predicted values to costs, without the known part; False to convert gradients.

        Returns:
            (B, width).
        """
        if self._factor is None:
            return rows
        if isinstance(self._factor, Tensor):
            M = self._factor.to(rows.device)
            return rows @ (M.T if forward else M)
        row, column, entries = (part.to(rows.device) for part in self._factor)
        to, source = (row, column) if forward else (column, row)
        return rows.new_zeros(len(rows), width).index_add(1, to, rows[:, source] * entries)

    def __getitem__(self, index: Any) -> CostMap:
        """Return the map with the rows of ``known`` at ``index``, which may be anything that indexes a ``Problem``.

        A map with the same known costs for all samples is returned unchanged.
        """
        if self.batch is None:
            return self
        return CostMap(self.M, self.known[sample_index(index, self.batch, self.known.device)], self.names)

    def _known(self, keys: Sequence[Hashable] | None) -> Tensor:
        """Return the known costs of the samples with these keys, (n,) if all samples share them, else (B, n)."""
        if keys is None or self.batch is None:
            return self.known
        outside = [key for key in keys if not isinstance(key, int) or not 0 <= key < self.batch]
        if outside:
            raise ProblemError(
                f"{self.batch} samples have known costs of their own, so that keys must be their row numbers, 0 to "
                f"{self.batch - 1}; got {outside[0]!r}"
            )
        return self.known[torch.tensor(keys)]

    def __repr__(self) -> str:
        kind = "identity" if self.M is None else "sparse" if is_sparse_matrix(self.M) else "dense"
        own = "" if self.batch is None else f", known costs of {self.batch} samples"
        return f"CostMap({self.inputs} predicted values → {self.n} costs, {kind}{own})"


def _cost_map_factor(M: Any) -> Tensor | tuple[Tensor, Tensor, Tensor] | None:
    """Return the matrix of a cost map in the form that ``_times`` needs; None for the identity.

    A large sparse matrix becomes the rows, columns and values of its non-zeros, because torch's sparse tensors issue
    warnings. Any other matrix becomes a dense tensor.
    """
    if M is None or isinstance(M, Tensor):
        return M
    if M.shape[0] * M.shape[1] <= _FEW_NUMBERS:
        return torch.from_numpy(M.toarray())
    row, column, entries = (torch.from_numpy(part) for part in sparse.find(M))
    return row.long(), column.long(), entries


def read_cost_map_matrix(M: ArrayLike, name: str = "M of a cost map", expected: str = "(n, k)") -> Any:
    """Convert a matrix to a float64 tensor, or to SciPy's CSR if it is sparse, and check that it is finite.

    Args:
        M: (n, k) matrix, dense or sparse.
        name: the name of the matrix in error messages.
        expected: the expected shape in error messages.
    """
    if not is_sparse_matrix(M):
        return _check_cost_map_array(name, to_float64_tensor(name, M), (2,), expected)
    csr = to_csr_matrix(M).astype(float)
    _check_cost_map_array(name, torch.from_numpy(csr.data), (1,), expected)
    return csr


def _check_cost_map_array(name: str, value: Tensor, dimensions: tuple[int, ...], expected: str) -> Tensor:
    """Return ``value`` after a check that it has one of the allowed numbers of dimensions, and finite entries."""
    if value.ndim not in dimensions:
        raise ProblemError(f"{name} must have shape {expected}; got {tensor_shape(value)}")
    if not bool(value.isfinite().all()):
        raise ProblemError(f"{name} must be finite; it holds NaN or infinity")
    return value
