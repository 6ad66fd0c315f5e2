"""``OwnProblem``: a user's problem as a task to train on."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torch import Tensor

from pear.decisions.solve import solve
from pear.losses.adjacent_vertices import adjacent_vertices_in_problem
from pear.problem import Model, Problem
from pear.problem.model import model_with_predicted_rows, split_cost_model
from pear.problem.sample_keys import select_by_keys, select_model_by_keys


class OwnProblem:
    """A task made of a user's problem, which ``pear.solve`` decides. It has the interface of ``MethodTask``.

    Args:
        problem: the decision problem. If it has fields per sample, the ``keys`` of a method select its rows.

    Example:
        >>> import pear
        >>> simplex = OwnProblem(pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0))
        >>> simplex.adjacent(simplex.decide([[1.0, 2.0, 3.0]]))[0]
        tensor([[0., 1., 0.],
                [0., 0., 1.]], dtype=torch.float64)
    """

    name = "own problem"
    decides_problem = True

    def __init__(self, problem: Problem | Model) -> None:
        self.problem = problem

    def _problem_of(self, keys: list[Hashable] | None) -> Problem:
        """Return the plain problem of the samples with these keys, without a cost map."""
        return select_by_keys(split_cost_model(self.problem)[0], keys)

    def decide(self, cost: Any, keys: list[Hashable] | None = None) -> Tensor:
        """Return the best decisions (B, n) for costs (B, n), or for values (B, k) if right-hand sides are predicted."""
        model = model_with_predicted_rows(self.problem)
        return solve(self._problem_of(keys) if model is None else select_model_by_keys(model, keys), cost).x

    def decide_relaxed(self, cost: Any, keys: list[Hashable] | None = None) -> Tensor:
        """Return the best decisions (B, n) of the continuous relaxation under costs (B, n)."""
        return solve(self._problem_of(keys).relaxed(), cost).x

    def adjacent(self, z: Tensor, keys: list[Hashable] | None = None) -> list[Tensor]:
        """Find the vertices adjacent to each vertex z (B, n) of the continuous relaxation; return B tensors (k, n)."""
        return adjacent_vertices_in_problem(self._problem_of(keys).relaxed(), z)
