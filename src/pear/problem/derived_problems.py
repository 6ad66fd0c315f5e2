"""Problems derived from a problem: with added curvature, in other units of the variables, and of the nearest point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from pear.problem.matrix import Matrix, SparseMatrix, is_sparse, to_csr
from pear.problem.problem import Problem


def add_curvature(problem: Problem, curvature: Matrix) -> Problem:
    """The problem with ``curvature`` added to Q, or subtracted where the problem maximises.

    Args:
        problem: a problem, dense or sparse.
        curvature: (n,) for the diagonal of Q, (n, n) or (N, n, n); a ``SparseMatrix`` where the problem is sparse.
    """
    if problem.is_sparse:
        more = to_csr(curvature) if curvature.ndim == 2 else sparse.diags_array(curvature.numpy())
        Q: Any = problem.sign * more if problem.Q is None else to_csr(problem.Q) + problem.sign * more
        return problem._with(Q=SparseMatrix(to_csr(Q)), _plans={})
    added = problem.sign * (torch.diag(curvature) if curvature.ndim == 1 else curvature)
    return problem._with(Q=added if problem.Q is None else problem.Q + added, _plans={})


def forget_solutions(problem: Problem) -> Problem:
    """The problem without anything that was computed for it before, so that its solution can be timed."""
    return problem._with(_plans={})


def add_rows(problem: Problem, G: Any, h: Any) -> Problem:
    """The problem with further rows ``Gz ≤ h``.

    Args:
        problem: a problem whose G and h are shared by all samples, dense or sparse.
        G: (r, n) NumPy array.
        h: (r,) NumPy array.

    Example:
        >>> import numpy as np
        >>> add_rows(Problem(G=[[1.0, 2.0]], h=[4.0]), np.eye(2), np.ones(2))
        Problem(min, n=2, 3 inequalities)
    """
    sides = torch.from_numpy(h).to(problem.device)
    more: Any = SparseMatrix(to_csr(G)) if problem.is_sparse else torch.from_numpy(G).to(problem.device)
    if problem.G is None or problem.h is None:
        return problem._with(G=more, h=sides, _plans={})
    if problem.is_sparse:
        stacked: Any = SparseMatrix(sparse.csr_array(sparse.vstack([to_csr(problem.G), more.csr])))
    else:
        stacked = torch.cat([problem.G, more])
    return problem._with(G=stacked, h=torch.cat([problem.h, sides]), _plans={})


def minimised_curvature(problem: Problem) -> Matrix:
    """The Q of a problem with the sign of the minimised objective, (n, n) or (N, n, n), dense or sparse."""
    Q: Any = problem.Q
    return Q if problem.sign == 1 else SparseMatrix(-Q.csr) if Q.is_sparse else -Q


def nearest_point_problem(problem: Problem, weights: Tensor) -> Problem:
    """The problem ``min ½ Σ wᵢxᵢ² + cᵀx`` over the same constraints. For c = −w∘z it projects z onto them."""
    return add_curvature(problem._with(Q=None, sense="min"), weights)


def in_units(problem: Problem, units: Tensor) -> Problem:
    """The same problem in the variables ``z / units``. Its costs are the original costs times the units.

    Args:
        problem: a continuous problem without a smooth term.
        units: (n,) positive.

    Example:
        >>> import torch
        >>> from pear.problem.derived_problems import in_units
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


def _columns_in_units(matrix: Any, units: Tensor) -> Any:
    value = matrix if is_sparse(matrix) else torch.as_tensor(matrix)
    return value * units.to(value.device, value.dtype)


def _hessian_in_units(matrix: Any, units: Tensor) -> Any:
    value = matrix if is_sparse(matrix) else torch.as_tensor(matrix)
    return _columns_in_units(_columns_in_units(value.mT, units).mT, units)


def _bound_in_units(bound: Any, units: Tensor) -> Tensor:
    value = torch.as_tensor(bound, dtype=None if isinstance(bound, Tensor) else torch.float64)
    return value / units.to(value)


_RULES = {
    "Q": _hessian_in_units,
    "A": _columns_in_units,
    "G": _columns_in_units,
    "lb": _bound_in_units,
    "ub": _bound_in_units,
}


def without_bounds(problem: Problem, columns: Tensor) -> Problem:
    """The problem in which the variables ``columns`` have no bounds.

    Example:
        >>> import torch
        >>> without_bounds(Problem(lb=[0.0, 0.0]), torch.tensor([1])).lb
        tensor([0., -inf], dtype=torch.float64)
    """
    at, changes = columns.to(problem.device), {}
    for name, absent in (("lb", -torch.inf), ("ub", torch.inf)):
        bound = getattr(problem, name)
        if bound is not None and len(at):
            changes[name] = bound.clone()
            changes[name][..., at] = absent
    return problem._with(**changes, _plans={}) if changes else problem
