"""Change of the units of a problem's variables: variable i of the new problem is ``zᵢ / unitsᵢ``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pear.problem.matrix import MATRICES, is_sparse_matrix
from pear.problem.problem import Problem


def problem_in_units(problem: Problem, units: Tensor) -> Problem:
    """Return the same problem in the variables ``z / units``. Its costs are the costs of z times ``units``.

    Args:
        problem: a continuous problem without a smooth term.
        units: (n,) positive numbers.

    Example:
        >>> import torch
        >>> from pear.problem.problem_units import problem_in_units
        >>> problem_in_units(Problem(A=[[1.0, 2.0]], b=[4.0], ub=[4.0, 2.0]), torch.tensor([2.0, 1.0])).A
        tensor([[2., 2.]], dtype=torch.float64)
    """
    assert problem.phi is None
    assert not problem.is_integer
    return problem._with(**fields_in_units(problem._fields(), units), _plans={})


def fields_in_units(fields: Mapping[str, Any], units: Tensor) -> dict[str, Any]:
    """Convert the fields of a problem to the variables ``z / units``.

    With U = diag(units), A becomes AU, G becomes GU, Q becomes UQU, and bounds are divided by the units. Right-hand
    sides stay the same. The result is differentiable.
    """
    return {name: _field_in_units(name, value, units) for name, value in fields.items()}


def _field_in_units(name: str, value: Any, units: Tensor) -> Any:
    """Convert the field ``name`` of a problem to the variables ``z / units``, with ``units`` (n,)."""
    if name in ("lb", "ub"):
        bound = torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.float64)
        return bound / units.to(bound)
    if name not in MATRICES:
        return value
    matrix = value if is_sparse_matrix(value) else torch.as_tensor(value)
    units = units.to(matrix.device, matrix.dtype)
    return ((matrix.mT * units).mT if name == "Q" else matrix) * units
