"""Change of the units of a problem's variables: variable i of the new problem is ``zᵢ / unitᵢ``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pear.problem.matrix import is_sparse_matrix
from pear.problem.problem import Problem


def problem_in_units(problem: Problem, units: Tensor) -> Problem:
    """Return the same problem in the variables ``z / units``. Its costs are the original costs times the units.

    Args:
        problem: a continuous problem without a smooth term.
        units: (n,) positive.

    Example:
        >>> import torch
        >>> from pear.problem.problem_units import problem_in_units
        >>> problem_in_units(Problem(A=[[1.0, 2.0]], b=[4.0], ub=[4.0, 2.0]), torch.tensor([2.0, 1.0])).A
        tensor([[2., 2.]], dtype=torch.float64)
    """
    assert problem.phi is None
    assert not problem.is_integer
    fields = {name: value for name in _RULES if (value := getattr(problem, name)) is not None}
    return problem._with(**fields_in_units(fields, units), _plans={})


def fields_in_units(fields: Mapping[str, Any], units: Tensor) -> dict[str, Any]:
    """Convert the fields of a problem to the variables ``z / units``.

    With U = diag(units), A becomes AU, G becomes GU, Q becomes UQU, and bounds are divided by the units. Right-hand
    sides stay the same. The result is differentiable.
    """
    return {name: _RULES[name](value, units) if name in _RULES else value for name, value in fields.items()}


def _columns_in_units(matrix: Any, units: Tensor) -> Any:
    """Return ``matrix · diag(units)``."""
    value = matrix if is_sparse_matrix(matrix) else torch.as_tensor(matrix)
    return value * units.to(value.device, value.dtype)


def _curvature_in_units(Q: Any, units: Tensor) -> Any:
    """Return ``diag(units) · Q · diag(units)``."""
    value = Q if is_sparse_matrix(Q) else torch.as_tensor(Q)
    return _columns_in_units(_columns_in_units(value.mT, units).mT, units)


def _bound_in_units(bound: Any, units: Tensor) -> Tensor:
    """Return ``bound / units``."""
    value = torch.as_tensor(bound, dtype=None if isinstance(bound, Tensor) else torch.float64)
    return value / units.to(value)


_RULES = {
    "Q": _curvature_in_units,
    "A": _columns_in_units,
    "G": _columns_in_units,
    "lb": _bound_in_units,
    "ub": _bound_in_units,
}
