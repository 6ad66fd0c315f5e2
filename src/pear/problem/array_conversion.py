"""Conversion of the arrays that users pass (torch, NumPy, SciPy, lists; dense or sparse) to tensors, mostly float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.matrix import SparseMatrix, is_sparse, to_csr

# Torch tensors (dense or sparse), numpy arrays, scipy sparse matrices, nested lists and numbers: no common base.
ArrayLike = Any

MATRICES = ("Q", "A", "G")
SIZE_LIMIT = 2 * 2**30
"""Largest number of bytes of a dense float64 field."""
NO_BOUND = 1e20
"""A bound or right-hand side of this absolute size or more counts as absent."""
_FLOATS = (torch.float32, torch.float64)
_OUTWARD = {"lb": -1.0, "ub": 1.0, "h": 1.0}


def as_batch(cost: ArrayLike, name: str = "cost") -> Tensor:
    """Costs as a (B, n) floating tensor; a single (n,) vector becomes a batch of one.

    Tensors keep their device and their gradient. Values with a floating type of their own keep it (half precision
    becomes float32); lists and integers have none and become float64.

    Args:
        cost: (n,) or (B, n).
        name: the name of the value in error messages.

    Returns:
        (B, n), float32 or float64.

    Example:
        >>> from pear.problem.array_conversion import as_batch
        >>> as_batch([1, 2, 3]).shape
        torch.Size([1, 3])
        >>> as_batch(torch.zeros(4, 3)).dtype
        torch.float32
    """
    if isinstance(cost, Tensor) and cost.ndim == 2 and cost.dtype in _FLOATS and cost.layout == torch.strided:
        return cost
    tensor = to_tensor(name, cost)
    if tensor.ndim not in (1, 2):
        raise ProblemError(f"{name} must have shape (B, n), or (n,) for a single sample; got {shape_of(tensor)}")
    tensor = tensor.to(float_type(cost) or torch.float64)
    return tensor if tensor.ndim == 2 else tensor.unsqueeze(0)


def read_field(name: str, value: ArrayLike, sparse: bool) -> Any:
    """A copy of a field in float64: a ``SparseMatrix`` for a matrix of a sparse problem, else a dense tensor."""
    if not sparse or name not in MATRICES:
        return to_float64(name, value)
    csr = to_csr(value).astype(np.float64, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return SparseMatrix(csr)


def to_float64(name: str, value: ArrayLike, copy: bool = True) -> Tensor:
    """The value as a detached dense float64 tensor, copied where ``copy`` is True."""
    tensor = to_tensor(name, value).detach()
    check_size(name, shape_of(tensor))
    tensor = tensor.to(torch.float64)
    return tensor.clone(memory_format=torch.contiguous_format) if copy else tensor


def to_tensor(name: str, value: ArrayLike) -> Tensor:
    """Convert an array of any accepted type to a dense real tensor, which shares memory and gradient where possible."""
    if isinstance(value, Tensor):
        return _read_tensor(name, value)
    if _is_tensor_list(value):
        shapes = {shape_of(item) for item in value}
        if len(shapes) > 1:
            raise ProblemError(f"{name} is a list of tensors of different shapes: {sorted(shapes)}; make them equal")
        return torch.stack([_read_tensor(name, item) for item in value])
    if sparse.issparse(value):
        if name not in MATRICES:
            raise ProblemError(f"{name} is a scipy sparse matrix; only Q, A and G may be sparse: pass a dense array")
        check_size(name, value.shape)
        value = value.toarray()
    return torch.from_numpy(_read_numpy(name, value))


def float_type(value: ArrayLike) -> torch.dtype | None:
    """The floating type of a value, float32 or float64; None where it has none, as lists and integers do."""
    own = str(getattr(value[0] if _is_tensor_list(value) else value, "dtype", ""))
    if own.endswith(("float16", "float32")):
        return torch.float32
    return torch.float64 if "float" in own else None


def shared_device(given: Mapping[str, ArrayLike], home: tuple[str, torch.device] | None = None) -> torch.device:
    """The device of all given tensors; the CPU where there are none.

    Args:
        given: values by name, some of which may be tensors.
        home: a name and a device that the tensors must be on, or None.

    Raises:
        ProblemError: two are on different devices.
    """
    found = [] if home is None else [home]
    tensors = {name: value[0] if _is_tensor_list(value) else value for name, value in given.items()}
    found += [(name, value.device) for name, value in tensors.items() if isinstance(value, Tensor)]
    for name, device in found[1:]:
        if device != found[0][1]:
            raise ProblemError(
                f"{name} is on {device} but {found[0][0]} is on {found[0][1]}; bring them together: "
                "problem.to(device) moves the problem, tensor.to(device) a tensor"
            )
    return found[0][1] if found else torch.device("cpu")


def check_size(name: str, size: tuple[int, ...]) -> None:
    """Check that a dense float64 field of this shape needs at most SIZE_LIMIT bytes."""
    needed = 8 * int(np.prod(size, dtype=object))
    if needed > SIZE_LIMIT:
        raise ProblemError(
            f"{name} of shape {size} needs {needed / 2**30:.1f} GiB as a dense float64 array; the limit is "
            f"{SIZE_LIMIT / 2**30:.0f} GiB; split the samples into smaller problems, share the field between samples, "
            "remove variables and rows that are fixed, or pass Q, A and G as sparse matrices, which then stay sparse"
        )


def read_integer(integer: ArrayLike) -> bool | Tensor:
    """Convert the argument ``integer`` of a problem to True, False, a bool mask (n,) or int64 indices (k,)."""
    if integer is None or isinstance(integer, (bool, np.bool_)):
        return bool(integer)
    marks = to_tensor("integer", list(integer) if isinstance(integer, (range, set, frozenset)) else integer)
    if marks.numel() == 0:
        return False
    if marks.ndim != 1 or marks.is_floating_point():
        raise ProblemError(
            "integer must be True, a bool mask of shape (n,) or a list of indices; "
            f"got shape {shape_of(marks)} of {str(marks.dtype).removeprefix('torch.')}"
        )
    return marks.detach().clone() if marks.dtype == torch.bool else marks.detach().to(torch.int64, copy=True)


def integer_mask(marks: bool | Tensor, n: int, device: torch.device) -> Tensor | None:
    """The mask (n,) from the result of ``read_integer``; None where no variable is integer."""
    if isinstance(marks, bool):
        return torch.ones(n, dtype=torch.bool, device=device) if marks else None
    if marks.dtype == torch.bool:
        return marks.to(device) if bool(marks.any()) else None
    outside = marks[(marks < 0) | (marks >= n)]
    if len(outside):
        raise ProblemError(f"integer holds the index {int(outside[0])}; the variables are numbered 0 to {n - 1}")
    if len(set(marks.tolist())) < len(marks):
        raise ProblemError("integer holds an index twice; if it is a 0/1 mask, make it one of bools")
    mask = torch.zeros(n, dtype=torch.bool, device=device)
    mask[marks.to(device)] = True
    return mask


def given_fields(**given: ArrayLike) -> dict[str, ArrayLike]:
    """The given fields that are not None."""
    return {name: value for name, value in given.items() if value is not None}


def fill_bounds(fields: Mapping[str, Tensor], n: int) -> dict[str, Tensor]:
    """The fields, with scalar bounds repeated for all n variables."""
    return {name: value if value.ndim else value.repeat(n) for name, value in fields.items()}


def drop_huge_bounds(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with infinity in place of bounds and right-hand sides of 1e20 and more, which count as absent."""
    return {
        name: torch.where(_OUTWARD[name] * value >= NO_BOUND, _OUTWARD[name] * math.inf, value)
        if name in _OUTWARD
        else value
        for name, value in fields.items()
    }


def sample_index(index: ArrayLike, batch: int, device: torch.device) -> slice | Tensor:
    """Convert an int, slice, list, tensor or bool mask to an index that selects rows and keeps the batch dimension."""
    if isinstance(index, slice):
        return index if (index.step or 1) > 0 else torch.tensor(range(batch)[index], dtype=torch.int64, device=device)
    rows = to_tensor("index", index).to(device)
    if rows.dtype == torch.bool and rows.ndim == 1:
        if len(rows) != batch:
            raise IndexError(f"the mask has {len(rows)} entries but the problem has {batch} samples")
        return rows
    if rows.ndim == 1 and len(rows) == 0:
        return slice(0, 0)
    if rows.ndim > 1 or rows.dtype == torch.bool or rows.is_floating_point():
        raise IndexError(
            "samples are selected by an int, a slice, a list of ints or a bool mask; "
            f"got shape {shape_of(rows)} of {str(rows.dtype).removeprefix('torch.')}"
        )
    rows = rows.to(torch.int64).reshape(-1)
    outside = rows[(rows < -batch) | (rows >= batch)]
    if len(outside):
        raise IndexError(f"sample {int(outside[0])} is out of range; the problem has {batch} samples")
    return rows


def all_finite(values: Tensor) -> bool:
    """Whether no number of a tensor is NaN or infinite.

    Example:
        >>> all_finite(torch.tensor([1.0, 2.0])), all_finite(torch.tensor([1.0, math.inf]))
        (True, False)
    """
    if not values.is_cpu:
        return bool(values.isfinite().all())
    return bool(np.isfinite(values.detach().numpy()).all())  # a tenth of the time that torch takes for a small batch


def count_true(marks: Tensor) -> int:
    """Count the marked entries of a bool tensor.

    Example:
        >>> count_true(torch.tensor([True, False, True]))
        2
    """
    return int(marks.sum()) if not marks.is_cpu else int(np.count_nonzero(marks.numpy()))


def is_per_sample(name: str, value: Tensor) -> bool:
    """Whether a field is given per sample, with a leading dimension N, rather than shared by all samples."""
    return value.ndim == (3 if name in MATRICES else 2)


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape as a plain tuple, for messages."""
    return tuple(tensor.shape)


def _is_tensor_list(value: ArrayLike) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(item, Tensor) for item in value)


def _read_tensor(name: str, value: Tensor) -> Tensor:
    if value.dtype.is_complex or value.is_quantized:
        raise ProblemError(_wrong_type(name, str(value.dtype).removeprefix("torch.")))
    if is_sparse(value):
        check_size(name, shape_of(value))
        return value.to_dense()
    return value


def _read_numpy(name: str, value: ArrayLike) -> np.ndarray[Any, Any]:
    """Read the value as a NumPy array of a type and memory layout that torch accepts."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ProblemError(f"{name} cannot be read as an array: {error}; pass rows of equal length") from error
    if array.dtype.kind not in "biuf":
        raise ProblemError(_wrong_type(name, "object" if array.dtype.kind == "O" else str(array.dtype)))
    if array.dtype.kind == "f":
        # Also brings half precision, long doubles and foreign byte orders to a type torch knows.
        array = array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64, copy=False)
    elif array.dtype.kind != "b":
        array = array.astype(np.float64 if array.dtype == np.uint64 else np.int64, copy=False)
    return np.require(array, requirements=["C", "W"])  # torch takes neither negative strides nor read-only memory


def _wrong_type(name: str, kind: str) -> str:
    advice = "; write an absent bound as -inf or inf, not None" if kind == "object" and name in ("lb", "ub") else ""
    return f"{name} must hold real numbers, got type {kind}{advice}"
