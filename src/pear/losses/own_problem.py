"""``OwnProblem``: makes a task of a user's problem, with decisions and adjacent vertices."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.vertices import adjacent_vertices
from pear.problem import Model, Problem
from pear.problem.keys_and_columns import select_rows
from pear.problem.model import problem_and_cost_map


class OwnProblem:
    """A task made of a user's problem: decides by ``pear.solve``, and finds the neighbours of a vertex.

    Args:
        problem: the decision problem. Where it has fields per sample, ``keys`` selects its rows.

    Example:
        >>> import torch, pear
        >>> simplex = OwnProblem(pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0))
        >>> simplex.adjacent(simplex.decide([[1.0, 2.0, 3.0]]))[0]
        tensor([[0., 1., 0.],
                [0., 0., 1.]], dtype=torch.float64)
    """

    name = "own problem"

    def __init__(self, problem: Problem | Model) -> None:
        self.problem = problem

    @property
    def _plain(self) -> Problem:
        return problem_and_cost_map(self.problem)[0]

    def decide(self, cost: Any, keys: list[Hashable] | None = None) -> Tensor:
        """Return the best decisions (B, n) for costs (B, n)."""
        return solve(select_rows(self._plain, keys), cost).x

    def decide_relaxed(self, cost: Any, keys: list[Hashable] | None = None) -> Tensor:
        """Return the best decisions (B, n) of the continuous relaxation for costs (B, n)."""
        return solve(select_rows(self._plain, keys).relaxed(), cost).x

    def adjacent(self, z: Tensor, keys: list[Hashable] | None = None) -> list[Tensor]:
        """Find the vertices of the relaxation that share an edge with each vertex in z (B, n).

        Returns:
            B tensors of shape (k, n).
        """
        problem = select_rows(self._plain, keys)
        if problem.is_sparse:
            raise ProblemError("the neighbours of a vertex are found for dense problems; this one is sparse: use PEAR")
        qp = problem.canonical(torch.zeros_like(z, dtype=torch.float64, device=problem.device))
        fields = [getattr(qp, name).cpu().numpy() for name in ("G", "h", "lb", "ub", "A")]
        found = []
        for i, point in enumerate(z.detach().double().cpu().numpy()):
            G, h, lb, ub, A = (field[min(i, len(field) - 1)] for field in fields)
            there = np.isfinite(h)
            found.append(torch.from_numpy(adjacent_vertices(point, G[there], h[there], lb, ub, A)).to(z))
        return found
