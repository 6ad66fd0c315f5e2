"""The tasks whose training steps ``pear bench methods`` times: linear programs whose costs are forecast."""

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
"""The numbers of items and of capacities of a knapsack."""
WORKERS = 12
"""The number of workers, and of jobs, of an assignment."""
ASSETS, SECTORS, MOST_WEIGHT, MOST_IN_SECTOR = 50, 5, 0.2, 0.4
"""The numbers of assets and sectors of a portfolio, and the largest weights of an asset and of a sector."""


@dataclass(frozen=True)
class StepTask:
    """A task whose training steps are timed.

    Attributes:
        decider: the task object, which holds the problem and makes the decisions that losses need in training.
        grid: the numbers of rows and columns if the problem is a path through a grid, else None.
        left_out: the methods that are not timed on this task, each with the reason.
    """

    decider: MethodTask
    grid: tuple[int, int] | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """The number of variables."""
        return split_cost_model(self.decider.problem)[0].n

    def draw_costs(self, random: Rng, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Draw true costs of a shape, uniform between 1 and 5."""
        return random.uniform(1.0, 5.0, shape)

    def arrays(self) -> dict[str, Any]:
        """Return the program as arrays for a peer. Absent rows have length zero, and absent bounds are infinite."""
        problem, n = split_cost_model(self.decider.problem)[0], self.n
        empty = {"A": np.zeros((0, n)), "b": np.zeros(0), "G": np.zeros((0, n)), "h": np.zeros(0)}
        given: dict[str, Any] = {**empty, "lb": np.full(n, -np.inf), "ub": np.full(n, np.inf)}
        for name in given:
            value = getattr(problem, name)
            if value is not None:
                given[name] = (
                    np.broadcast_to(value.numpy(), given[name].shape) if name in ("lb", "ub") else value.numpy()
                )
        grid = {} if self.grid is None else {"grid": np.array(self.grid)}
        return {**given, **grid, "integer": problem.is_integer, "sense": problem.sense}


def _path_step_task(size: int, left_out: dict[str, str] | None = None) -> Callable[[Rng], StepTask]:
    """Return a function of a random generator that makes the task of paths through ``size`` × ``size`` nodes."""
    return lambda random: StepTask(shortest_path((size, size)), (size, size), left_out or {})


def _knapsack_step_task(random: Rng) -> StepTask:
    """Make a knapsack task with random weights."""
    return StepTask(random_knapsack(ITEMS, CAPACITIES, seed=int(random.integers(1000))))


def _assignment_step_task(random: Rng) -> StepTask:
    """Make an assignment task, in which every worker has one job and every job has one worker."""
    one = np.eye(WORKERS)
    A = np.vstack([np.kron(one, np.ones(WORKERS)), np.kron(np.ones(WORKERS), one)])
    return StepTask(OwnProblem(Problem(A=A, b=np.ones(2 * WORKERS), lb=0.0)))


def _portfolio_step_task(random: Rng) -> StepTask:
    """Make a portfolio task: the greatest forecast return, without a risk term, with limits for assets and sectors."""
    sectors = np.eye(SECTORS)[random.permutation(np.arange(ASSETS) % SECTORS)].T
    limits = {"A": np.ones((1, ASSETS)), "b": np.ones(1), "G": sectors, "h": np.full(SECTORS, MOST_IN_SECTOR)}
    return StepTask(OwnProblem(Problem(**limits, lb=0.0, ub=MOST_WEIGHT, sense="max")))


_TOO_MANY = {"lava": "because a path through this grid has too many neighbours to list"}

STEP_TASKS: dict[str, Callable[[Rng], StepTask]] = {
    "path-5": _path_step_task(5),
    "path-12": _path_step_task(12, _TOO_MANY),
    "knapsack": _knapsack_step_task,
    "assignment": _assignment_step_task,
    "portfolio": _portfolio_step_task,
}
"""For each task the function that makes it from a random generator."""
