"""Problems made from a problem: with more curvature, more rows, fewer bounds, or a distance to minimise."""

from __future__ import annotations

from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from pear.problem.matrix import Matrix, SparseMatrix, to_csr_matrix
from pear.problem.problem import Problem


def problem_with_curvature(problem: Problem, curvature: Matrix) -> Problem:
    """Return the problem with ``curvature`` added to its Q if it minimises, or subtracted from its Q if it maximises.

    Args:
        problem: a problem, dense or sparse.
        curvature: (n,) for the diagonal of Q, (n, n) or (N, n, n); a ``SparseMatrix`` if the problem is sparse.
    """
    if problem.is_sparse:
        more = to_csr_matrix(curvature) if curvature.ndim == 2 else sparse.diags_array(curvature.numpy())
        Q: Any = problem.sign * more if problem.Q is None else to_csr_matrix(problem.Q) + problem.sign * more
        return problem._with(Q=SparseMatrix(to_csr_matrix(Q)), _plans={})
    added = problem.sign * (torch.diag(curvature) if curvature.ndim == 1 else curvature)
    return problem._with(Q=added if problem.Q is None else problem.Q + added, _plans={})


def problem_without_plans(problem: Problem) -> Problem:
    """Return the problem without the data that solvers computed for it, so that a solve can be timed from the start."""
    return problem._with(_plans={})


def problem_with_rows(problem: Problem, G: Any, h: Any) -> Problem:
    """Return the problem with additional inequalities ``Gz ≤ h`` after its own.

    Args:
        problem: a problem whose G and h are shared by all samples, dense or sparse.
        G: (r, n) NumPy array with r rows.
        h: (r,) NumPy array.

    Example:
        >>> import numpy as np
        >>> problem_with_rows(Problem(G=[[1.0, 2.0]], h=[4.0]), np.eye(2), np.ones(2))
        Problem(min, n=2, 3 inequalities)
    """
    sides = torch.from_numpy(h).to(problem.device)
    more: Any = SparseMatrix(to_csr_matrix(G)) if problem.is_sparse else torch.from_numpy(G).to(problem.device)
    if problem.G is None or problem.h is None:
        return problem._with(G=more, h=sides, _plans={})
    if problem.is_sparse:
        stacked: Any = SparseMatrix(sparse.csr_array(sparse.vstack([to_csr_matrix(problem.G), more.csr])))
    else:
        stacked = torch.cat([problem.G, more])
    return problem._with(G=stacked, h=torch.cat([problem.h, sides]), _plans={})


def minimised_problem_curvature(problem: Problem) -> Matrix:
    """Return the curvature of the minimised objective, (n, n) or (N, n, n): Q, or −Q if the problem maximises.

    Args:
        problem: a problem with a Q.
    """
    Q: Any = problem.Q
    return Q if problem.sign == 1 else SparseMatrix(-Q.csr) if Q.is_sparse else -Q


def nearest_point_problem(problem: Problem, weights: Tensor) -> Problem:
    """Return the problem ``min ½ Σ wᵢzᵢ² + cᵀz`` with the constraints of ``problem`` and ``weights`` w (n,).

    If a solve is called with the costs cᵢ = −wᵢaᵢ, the solution is the feasible point nearest to the point a: it
    minimises the distance ``½ Σ wᵢ(zᵢ − aᵢ)²``.
    """
    return problem_with_curvature(problem._with(Q=None, sense="min"), weights)


def problem_without_bounds(problem: Problem, columns: Tensor) -> Problem:
    """Return the problem with infinite bounds on the variables ``columns`` (k,).

    Example:
        >>> import torch
        >>> problem_without_bounds(Problem(lb=[0.0, 0.0]), torch.tensor([1])).lb
        tensor([0., -inf], dtype=torch.float64)
    """
    at, changes = columns.to(problem.device), {}
    for name, absent in (("lb", -torch.inf), ("ub", torch.inf)):
        bound = getattr(problem, name)
        if bound is not None and len(at):
            changes[name] = bound.clone()
            changes[name][..., at] = absent
    return problem._with(**changes, _plans={}) if changes else problem
