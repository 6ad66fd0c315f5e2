"""The tasks of ``pear bench methods``: linear programs whose costs are forecast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pear.losses.methods import MethodTask
from pear.losses.own_problem import OwnProblem
from pear.problem import Problem
from pear.problem.model import split_cost_model
from pear.tasks import random_knapsack, shortest_path
from pear_lab.benchmarks.random_programs import Rng

ITEMS, CAPACITIES = 32, 2
"""Items and capacities of a knapsack."""
WORKERS = 12
"""Workers, and as many jobs, of an assignment."""
ASSETS, SECTORS, MOST_WEIGHT, MOST_IN_SECTOR = 50, 5, 0.2, 0.4
"""Assets and sectors of a portfolio, with at most a fifth in each asset and two fifths in each sector."""

_FIELDS = {"A": 2, "b": 1, "G": 2, "h": 1, "lb": 1, "ub": 1}


@dataclass(frozen=True)
class StepTask:
    """A task whose steps are timed.

    Attributes:
        decider: its problem, with the decisions that methods train on.
        grid: rows and columns where it is a grid.
        left_out: methods that are not timed on it, with the reason.
    """

    decider: MethodTask
    grid: tuple[int, int] | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """The number of variables."""
        return split_cost_model(self.decider.problem)[0].n

    def draw_costs(self, random: Rng, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Draw true costs of this shape, uniform between 1 and 5."""
        return random.uniform(1.0, 5.0, shape)

    def arrays(self) -> dict[str, Any]:
        """Return the program as arrays for a peer; absent rows have length zero, absent bounds are infinite."""
        problem, n = split_cost_model(self.decider.problem)[0], self.n
        empty = {"A": np.zeros((0, n)), "b": np.zeros(0), "G": np.zeros((0, n)), "h": np.zeros(0)}
        given: dict[str, Any] = {**empty, "lb": np.full(n, -np.inf), "ub": np.full(n, np.inf)}
        for name in _FIELDS:
            value = getattr(problem, name)
            if value is not None:
                given[name] = (
                    np.broadcast_to(value.numpy(), given[name].shape) if name in ("lb", "ub") else value.numpy()
                )
        grid = {} if self.grid is None else {"grid": np.array(self.grid)}
        return {**given, **grid, "integer": problem.is_integer, "sense": problem.sense}


def _path(size: int, left_out: dict[str, str] | None = None) -> Callable[[Rng], StepTask]:
    return lambda random: StepTask(shortest_path((size, size)), (size, size), left_out or {})


def _knapsack(random: Rng) -> StepTask:
    return StepTask(random_knapsack(ITEMS, CAPACITIES, seed=int(random.integers(1000))))


def _assignment(random: Rng) -> StepTask:
    """Workers and jobs, each with one partner."""
    one = np.eye(WORKERS)
    A = np.vstack([np.kron(one, np.ones(WORKERS)), np.kron(np.ones(WORKERS), one)])
    return StepTask(OwnProblem(Problem(A=A, b=np.ones(2 * WORKERS), lb=0.0)))


def _portfolio(random: Rng) -> StepTask:
    """The greatest forecast return of a portfolio with limits for assets and for sectors, without a risk term."""
    sectors = np.eye(SECTORS)[random.permutation(np.arange(ASSETS) % SECTORS)].T
    limits = {"A": np.ones((1, ASSETS)), "b": np.ones(1), "G": sectors, "h": np.full(SECTORS, MOST_IN_SECTOR)}
    return StepTask(OwnProblem(Problem(**limits, lb=0.0, ub=MOST_WEIGHT, sense="max")))


_TOO_MANY = {"lava": "because a path through this grid has too many neighbours to list"}

STEP_TASKS: dict[str, Callable[[Rng], StepTask]] = {
    "path-5": _path(5),
    "path-12": _path(12, _TOO_MANY),
    "knapsack": _knapsack,
    "assignment": _assignment,
    "portfolio": _portfolio,
}
"""Each task, made from a random generator."""
