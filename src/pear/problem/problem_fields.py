"""The fields of a problem: reading what the user passed for Q, A, b, G, h, lb, ub and integer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem.matrix import MATRICES, SparseMatrix, to_csr_matrix
from pear.problem.tensor_conversion import ArrayLike, tensor_shape, to_float64_tensor, to_tensor

FIELDS = ("Q", "A", "b", "G", "h", "lb", "ub")
"""The names of the fields that hold numbers. ``integer`` is not among them."""
NO_BOUND = 1e20
"""A bound or right-hand side of this absolute size or more counts as absent."""
_OUTWARD = {"lb": -1.0, "ub": 1.0, "h": 1.0}  # the sign of the infinity that means "no bound"


def read_problem_field(name: str, value: ArrayLike, sparse: bool) -> Any:
    """Return a copy of a field in float64.

    Args:
        name: the name of the field.
        value: the field as the user passed it.
        sparse: True if the problem is sparse. Q, A and G of a sparse problem become ``SparseMatrix`` objects; every
            other field becomes a dense tensor.
    """
    if not sparse or name not in MATRICES:
        return to_float64_tensor(name, value)
    csr = to_csr_matrix(value).astype(np.float64, copy=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return SparseMatrix(csr)


def given_fields(**given: ArrayLike) -> dict[str, ArrayLike]:
    """Return the keyword arguments that are not None, by name."""
    return {name: value for name, value in given.items() if value is not None}


def fill_bound_fields(fields: Mapping[str, Tensor], n: int) -> dict[str, Tensor]:
    """Return the fields with every scalar bound repeated for all n variables."""
    return {name: value if value.ndim else value.repeat(n) for name, value in fields.items()}


def drop_huge_bound_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with infinity in place of every lb ≤ −1e20, ub ≥ 1e20 and h ≥ 1e20."""
    return {
        name: torch.where(_OUTWARD[name] * value >= NO_BOUND, _OUTWARD[name] * math.inf, value)
        if name in _OUTWARD
        else value
        for name, value in fields.items()
    }


def is_field_per_sample(name: str, value: Tensor) -> bool:
    """Return True if a field has a leading dimension N, one entry per sample; False if all samples share the field."""
    return value.ndim == (3 if name in MATRICES else 2)


def read_integer_field(integer: ArrayLike) -> bool | Tensor:
    """Convert the argument ``integer`` of a ``Problem`` to one of four forms.

    Returns:
        True if all variables are integer, False if none is, a bool mask (n,), or a tensor of int64 indices.
    """
    if integer is None or isinstance(integer, (bool, np.bool_)):
        return bool(integer)
    marks = to_tensor("integer", list(integer) if isinstance(integer, (range, set, frozenset)) else integer)
    if marks.numel() == 0:
        return False
    if marks.ndim != 1 or marks.is_floating_point():
        raise ProblemError(
            "integer must be True, a bool mask of shape (n,) or a list of indices; "
            f"got shape {tensor_shape(marks)} of {str(marks.dtype).removeprefix('torch.')}"
        )
    return marks.detach().clone() if marks.dtype == torch.bool else marks.detach().to(torch.int64, copy=True)


def integer_field_mask(marks: bool | Tensor, n: int, device: torch.device) -> Tensor | None:
    """Return the bool mask (n,) of the integer variables; None if every variable is continuous.

    Args:
        marks: the result of ``read_integer_field``.
        n: the number of variables.
        device: the device of the mask.
    """
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
