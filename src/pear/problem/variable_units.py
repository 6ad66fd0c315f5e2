"""Conversion of a problem to other units of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pear.problem.matrix import is_sparse
from pear.problem.problem import Problem


def in_units(problem: Problem, units: Tensor) -> Problem:
    """The same problem in the variables ``z / units``. Its costs are the original costs times the units.

    Args:
        problem: a continuous problem without a smooth term.
        units: (n,) positive.

    Example:
        >>> import torch
        >>> from pear.problem.variable_units import in_units
        >>> in_units(Problem(A=[[1.0, 2.0]], b=[4.0], ub=[4.0, 2.0]), torch.tensor([2.0, 1.0])).A
        tensor([[2., 2.]], dtype=torch.float64)
    """
    assert problem.phi is None
    assert not problem.is_integer
    fields = {name: value for name in _RULES if (value := getattr(problem, name)) is not None}
    return problem._with(**fields_in_units(fields, units), _plans={})


def fields_in_units(fields: Mapping[str, Any], units: Tensor) -> dict[str, Any]:
    """Fields of a problem in the variables ``z / units``: AU, GU, UQU and bounds / units, with U = diag(units).

    The result is differentiable. Right-hand sides stay as they are.
    """
    return {name: _RULES[name](value, units) if name in _RULES else value for name, value in fields.items()}


def _columns(matrix: Any, units: Tensor) -> Any:
    value = matrix if is_sparse(matrix) else torch.as_tensor(matrix)
    return value * units.to(value.device, value.dtype)


def _both_sides(matrix: Any, units: Tensor) -> Any:
    value = matrix if is_sparse(matrix) else torch.as_tensor(matrix)
    return _columns(_columns(value.mT, units).mT, units)


def _divided(bound: Any, units: Tensor) -> Tensor:
    value = torch.as_tensor(bound, dtype=None if isinstance(bound, Tensor) else torch.float64)
    return value / units.to(value)


_RULES = {"Q": _both_sides, "A": _columns, "G": _columns, "lb": _divided, "ub": _divided}
