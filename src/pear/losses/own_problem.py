"""``OwnProblem``: a user's problem with the methods of a task."""

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
from pear.problem.model import unwrap
from pear.problem.sample_keys import select_rows


class OwnProblem:
    """Decides by ``pear.solve``, and finds the neighbours of a vertex by its edges.

    Args:
        problem: the decision problem; with fields per sample, ``keys`` are its rows.

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
        return unwrap(self.problem)[0]

    def decide(self, cost: Any, keys: list[Hashable] | None = None) -> Tensor:
        """(B, n) best decisions for these costs (B, n)."""
        return solve(select_rows(self._plain, keys), cost).x

    def decide_relaxed(self, cost: Any, keys: list[Hashable] | None = None) -> Tensor:
        """(B, n) best decisions of the continuous relaxation for these costs (B, n)."""
        return solve(select_rows(self._plain, keys).relaxed(), cost).x

    def adjacent(self, z: Tensor, keys: list[Hashable] | None = None) -> list[Tensor]:
        """(k, n) vertices of the relaxation that share an edge with each row of z (B, n), itself a vertex."""
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
