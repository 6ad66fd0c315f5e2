"""Choose the items of greatest forecast value that fit."""

from __future__ import annotations

from dataclasses import dataclass

from pear.errors import ProblemError
from pear.problem import Problem
from pear.problem.convert import ArrayLike, to_float64
from pear.tasks.task import Task


@dataclass(frozen=True)
class Knapsack(Task):
    """A knapsack with one or several capacities; the values of its items are forecast."""


def knapsack(weights: ArrayLike, capacity: ArrayLike) -> Knapsack:
    """Maximise the value of the chosen items, ``weights z ≤ capacity``, every item taken or left.

    Costs are values here: the problem has sense "max". ``PEARLoss`` trains on its relaxation, 0 ≤ z ≤ 1;
    ``normalized_regret`` is judged on the integer problem.

    Args:
        weights: (k, n), or (n,) for a single dimension; not negative.
        capacity: (k,), or a number for all dimensions.

    Example:
        >>> import pear
        >>> task = pear.tasks.knapsack([[3.0, 4.0, 2.0]], capacity=6.0)
        >>> task.problem
        Problem(max, n=3, 1 inequality, bounds, 3 integer)
        >>> pear.solve(task.problem, [[5.0, 6.0, 3.0]]).x
        tensor([[0., 1., 1.]], dtype=torch.float64)
    """
    G = to_float64("weights", weights)
    G = G[None] if G.ndim == 1 else G
    if G.ndim != 2:
        raise ProblemError(f"weights must have shape (k, n), or (n,) for one dimension; got {tuple(G.shape)}")
    h = to_float64("capacity", capacity)
    if h.ndim > 1 or h.numel() not in (1, len(G)):
        raise ProblemError(
            f"capacity must be a number or have shape ({len(G)},), one for each row of weights; got {tuple(h.shape)}"
        )
    if not bool((G >= 0).all()) or not bool((h >= 0).all()):
        raise ProblemError("weights and capacity must be numbers of at least 0, so that leaving every item is allowed")
    problem = Problem(G=G, h=h.reshape(-1).expand(len(G)), lb=0.0, ub=1.0, sense="max", integer=True)
    return Knapsack(f"knapsack_{G.shape[1]}_items", problem)
