"""Conversion of the arrays that users pass (torch, NumPy, SciPy, lists; dense or sparse) to real torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.matrix import MATRICES, is_sparse_matrix
from pear.problem.pandas_data import has_pandas_index, pandas_to_numpy

ArrayLike = Any
"""A torch tensor (dense or sparse), a NumPy array, a SciPy sparse matrix, a nested list, or a number."""

SIZE_LIMIT = 2 * 2**30
"""Largest number of bytes of a dense float64 tensor that is made from a user's array."""
_OUTPUTS = ", or, if these are the outputs of a network (an LSTM also returns its state), the one with the values"
"""The end of messages about tuples of tensors that make no array."""
_FLOATS = (torch.float32, torch.float64)


def to_batch_tensor(cost: ArrayLike, name: str = "cost") -> Tensor:
    """Convert the costs of a batch to a floating-point tensor. A vector (n,) becomes a batch of one sample.

    Float32 and float64 are kept, half precision becomes float32, and integers and lists become float64. A tensor stays
    on its device, and the result is differentiable with respect to it.

    Args:
        cost: (n,) or (B, n).
        name: the name of the value in error messages.

    Returns:
        (B, n), float32 or float64.

    Example:
        >>> from pear.problem.tensor_conversion import to_batch_tensor
        >>> to_batch_tensor([1, 2, 3]).shape
        torch.Size([1, 3])
        >>> to_batch_tensor(torch.zeros(4, 3)).dtype
        torch.float32
    """
    if isinstance(cost, Tensor) and cost.ndim == 2 and cost.dtype in _FLOATS and cost.layout == torch.strided:
        return cost
    tensor = to_tensor(name, cost)
    if tensor.ndim not in (1, 2):
        raise ProblemError(f"{name} must have shape (B, n), or (n,) for a single sample; got {tensor_shape(tensor)}")
    tensor = tensor.to(float_dtype(cost) or torch.float64)
    return tensor if tensor.ndim == 2 else tensor.unsqueeze(0)


def to_float64_tensor(name: str, value: ArrayLike, copy: bool = True) -> Tensor:
    """Convert an array to a detached dense float64 tensor, after a check of its size by ``check_tensor_size``.

    Args:
        name: the name of the value in error messages.
        value: the array.
        copy: True for a tensor with memory of its own, False to share the memory of ``value`` if possible.
    """
    tensor = to_tensor(name, value).detach()
    check_tensor_size(name, tensor_shape(tensor))
    tensor = tensor.to(torch.float64)
    return tensor.clone(memory_format=torch.contiguous_format) if copy else tensor


def to_tensor(name: str, value: ArrayLike) -> Tensor:
    """Convert an array, dense or sparse, to a dense real tensor, without a copy and differentiably if possible."""
    if isinstance(value, Tensor):
        return _read_tensor(name, value)
    if _is_tensor_list(value):
        shapes = {tensor_shape(item) for item in value}
        if len(shapes) > 1:
            advice = _OUTPUTS if isinstance(value, tuple) else ""
            raise ProblemError(
                f"{name} is a list of tensors of different shapes: {sorted(shapes)}; make them equal{advice}"
            )
        return torch.stack([_read_tensor(name, item) for item in value])
    if sparse.issparse(value):
        if name not in MATRICES:
            raise ProblemError(f"{name} is a scipy sparse matrix; only Q, A and G may be sparse: pass a dense array")
        check_tensor_size(name, value.shape)
        value = value.toarray()
    return torch.from_numpy(_read_numpy_for_tensor(name, value))


def to_numpy(value: ArrayLike, name: str) -> np.ndarray[Any, Any]:
    """Convert an array, a list or a pandas table to a NumPy array.

    Missing entries of a pandas table or of a masked array become NaN.

    Args:
        value: the array, list or table.
        name: the name of the value in error messages.

    Raises:
        ProblemError: a column of a table holds no numbers.

    Example:
        >>> to_numpy(np.ma.masked_greater([1, 2, 30], 9), "cost")
        array([ 1.,  2., nan])
    """
    if has_pandas_index(value):
        return pandas_to_numpy(value, name)
    if np.ma.is_masked(value):
        return np.asarray(value.astype(np.float64).filled(np.nan))
    return np.asarray(value)


def float_dtype(value: ArrayLike) -> torch.dtype | None:
    """Return float32 or float64, the torch type that fits the floating-point numbers of an array.

    Half precision gives float32. Integers, and lists of numbers, which have no type, give None.
    """
    own = str(getattr(value[0] if _is_tensor_list(value) else value, "dtype", ""))
    if own.endswith(("float16", "float32")):
        return torch.float32
    return torch.float64 if "float" in own else None


def shared_tensor_device(given: Mapping[str, ArrayLike], home: tuple[str, torch.device] | None = None) -> torch.device:
    """Return the device that all tensors among the given values share; without tensors, ``home`` or the CPU.

    Args:
        given: values by name. Values that are not tensors have no device.
        home: the name of an object, for the message, and the device of this object, on which all tensors must be;
            None if the tensors may be on any device.

    Raises:
        ProblemError: two tensors are on different devices, or a tensor is not on the device of ``home``.
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


def check_tensor_size(name: str, size: tuple[int, ...]) -> None:
    """Check that a dense float64 tensor of the shape ``size`` needs at most 2 GiB, the limit ``SIZE_LIMIT``."""
    needed = 8 * int(np.prod(size, dtype=object))
    if needed > SIZE_LIMIT:
        raise ProblemError(
            f"{name} of shape {size} needs {needed / 2**30:.1f} GiB as a dense float64 array; the limit is "
            f"{SIZE_LIMIT / 2**30:.0f} GiB; split the samples into smaller problems, share the field between samples, "
            "remove variables and rows that are fixed, or pass Q, A and G as sparse matrices, which then stay sparse"
        )


def is_tensor_finite(values: Tensor) -> bool:
    """Return True if no number of a tensor is NaN or infinite.

    Example:
        >>> is_tensor_finite(torch.tensor([1.0, 2.0])), is_tensor_finite(torch.tensor([1.0, torch.inf]))
        (True, False)
    """
    if not values.is_cpu:
        return bool(values.isfinite().all())
    return bool(np.isfinite(values.detach().numpy()).all())  # a tenth of the time that torch takes for a small batch


def count_true_in_tensor(marks: Tensor) -> int:
    """Count the entries of a bool tensor that are True.

    Example:
        >>> count_true_in_tensor(torch.tensor([True, False, True]))
        2
    """
    return int(marks.sum()) if not marks.is_cpu else int(np.count_nonzero(marks.numpy()))


def tensor_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor as a plain tuple, for messages."""
    return tuple(tensor.shape)


def _is_tensor_list(value: ArrayLike) -> bool:
    """Return True for a list or tuple that holds at least one tensor, and nothing but tensors."""
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(item, Tensor) for item in value)


def _read_tensor(name: str, value: Tensor) -> Tensor:
    """Return a dense or sparse tensor in dense form, after a check that its numbers are real."""
    if value.dtype.is_complex or value.is_quantized:
        raise ProblemError(_wrong_tensor_type(name, str(value.dtype).removeprefix("torch.")))
    if is_sparse_matrix(value):
        check_tensor_size(name, tensor_shape(value))
        return value.to_dense()
    return value


def _read_numpy_for_tensor(name: str, value: ArrayLike) -> np.ndarray[Any, Any]:
    """Convert a value to a NumPy array of a type and memory layout that torch accepts."""
    try:
        array = to_numpy(value, name)
    except ProblemError:
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        advice = _OUTPUTS if isinstance(value, tuple) and isinstance(value[0], Tensor) else ""
        raise ProblemError(f"{name} cannot be read as an array: {error}; pass rows of equal length{advice}") from error
    if array.dtype.kind not in "biuf":
        raise ProblemError(_wrong_tensor_type(name, "object" if array.dtype.kind == "O" else str(array.dtype)))
    if array.dtype.kind == "f":
        # Also brings half precision, long doubles and foreign byte orders to a type torch knows.
        array = array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64, copy=False)
    elif array.dtype.kind != "b":
        array = array.astype(np.float64 if array.dtype == np.uint64 else np.int64, copy=False)
    return np.require(array, requirements=["C", "W"])  # torch takes neither negative strides nor read-only memory


def _wrong_tensor_type(name: str, kind: str) -> str:
    """Return the message about a value whose entries are not real numbers but of type ``kind``."""
    advice = "; write an absent bound as -inf or inf, not None" if kind == "object" and name in ("lb", "ub") else ""
    return f"{name} must hold real numbers, got type {kind}{advice}"
