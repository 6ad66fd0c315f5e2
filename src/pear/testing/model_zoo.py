"""Difficult models for the checks of importers, as arrays, with their optima."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pear.decisions.solve import solve
from pear.problem import Problem
from pear.testing.checks import ConformanceError

INF = np.inf
Array = NDArray[np.float64]


@dataclass(frozen=True)
class ModelCase:
    """The model ``½ zᵀQz + cᵀz + offset``, minimised or maximised, under ``low ≤ Az ≤ high`` and ``lb ≤ z ≤ ub``.

    Attributes:
        c: n costs.
        A: (k, n) coefficients of the k rows, or None if there are no rows.
        low: k lower limits of the rows; may be infinite.
        high: k upper limits of the rows; may be infinite.
        lb: n lower bounds, or a number for all variables.
        ub: n upper bounds, or a number for all variables.
        Q: (n, n) symmetric matrix, or None.
        integer: the positions of the integer variables among the n variables.
        sense: "min" or "max".
        offset: the constant of the objective.
    """

    c: list[float]
    A: Any = None
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    lb: Any = 0.0
    ub: Any = INF
    Q: Any = None
    integer: list[int] = field(default_factory=list)
    sense: str = "min"
    offset: float = 0.0

    @property
    def n(self) -> int:
        """The number of variables."""
        return len(self.c)

    @property
    def rows(self) -> Array:
        """(k, n) coefficients of the k rows."""
        return np.zeros((0, self.n)) if self.A is None else np.array(self.A, dtype=float)

    @property
    def bounds(self) -> tuple[Array, Array]:
        """(n,) lower bounds and (n,) upper bounds."""
        return np.array(np.broadcast_to(self.lb, self.n), float), np.array(np.broadcast_to(self.ub, self.n), float)

    @property
    def marks(self) -> NDArray[np.bool_]:
        """(n,) bool, which variables are integers."""
        return np.isin(np.arange(self.n), self.integer)

    @property
    def names(self) -> list[str]:
        """The names of the variables: v0, v1, …."""
        return [f"v{i}" for i in range(self.n)]

    def optimum(self) -> float:
        """Return the optimal value.

        SciPy's ``milp`` finds it if the model is linear, ``pear.solve`` if it is quadratic.
        """
        return self._linear_optimum() if self.Q is None else self._quadratic_optimum()

    def _linear_optimum(self) -> float:
        """Return the optimal value of a model without Q."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        sign = 1 if self.sense == "min" else -1
        rows = [LinearConstraint(self.rows, self.low, self.high)] if len(self.rows) else []
        done = milp(sign * np.array(self.c), constraints=rows, bounds=Bounds(*self.bounds), integrality=self.marks)
        if not done.success:
            raise ConformanceError(f"SciPy does not solve the model: {done.message}")
        return float(sign * done.fun + self.offset)

    def _quadratic_optimum(self) -> float:
        """Return the optimal value of a model with Q and without integers."""
        G = np.vstack([self.rows, -self.rows])
        h = np.concatenate([self.high, -np.array(self.low)])
        lb, ub = self.bounds
        problem = Problem(Q=np.array(self.Q, float), G=G, h=h, lb=lb, ub=ub, sense=self.sense)
        return float(solve(problem, [self.c]).value) + self.offset


_EVERY_KIND = ([0, -INF, -4, -INF, 2.5], [INF, -2, 7, 0, 2.5])
CASES: dict[str, ModelCase] = {
    "free variables": ModelCase(
        [1, 2, -1], [[1, 1, 0], [1, -1, 1], [0, 1, 1]], [1, -INF, -4], [INF, 3, INF], -INF, [INF, 8, 5]
    ),
    "ranges": ModelCase([1, -1, 2], [[1, 1, 1], [1, -1, 0], [0, 1, 2]], [1, -2, 0.5], [4, 2, 3], 0, 3),
    "fixed variables": ModelCase([1, 1, -3], [[1, 1, 1]], [-INF], [5], [2, -1.5, 0], [2, -1.5, 9]),
    "negative upper bounds": ModelCase([-1, 2, 1], [[1, 1, 1]], [-20], [-2], [-INF, -5, -3], [-1, -0.5, INF]),
    "bounds of every kind": ModelCase([1, -1, 1, -1, 1], None, [], [], *_EVERY_KIND),
    "maximisation with a constant": ModelCase(
        [3, 5, -1], [[1, 2, 0], [3, 1, -1]], [-INF] * 2, [6, 9], 0, [4, 4, 2], sense="max", offset=10.5
    ),
    "a constant alone": ModelCase([0, 0], [[1, 1]], [1], [2], 0, 3, offset=-7.25),
    "empty rows and columns": ModelCase(
        [1, -2, 1], [[0, 0, 0], [1, 0, 1], [0, 0, 0]], [-1, 1, 0], [2, INF, 0], 0, [INF, 3, INF]
    ),
    "a row without limits": ModelCase([1, 1], [[1, 2], [1, -1]], [2, -INF], [INF, INF]),
    "dependent equalities": ModelCase([1, 2, 3], [[1, 1, 1], [2, 2, 2], [1, 0, -1]], [2, 4, 0.5], [2, 4, 0.5], 0, 2),
    "integers beside others": ModelCase(
        [-3, -2, -1.5, 0.5],
        [[2, 1, 3, -1], [1, 1, 0, 0]],
        [-INF, 1],
        [7.5, 4],
        [0, 0, 0, 0],
        [1, 3, 2.5, 1],
        integer=[0, 1, 3],
    ),
    "negative integers": ModelCase(
        [1, 1], [[2, 3], [1, -1]], [-17.5, -INF], [INF, 2.5], [-6, -INF], [-1, 4], integer=[0, 1]
    ),
    "binaries to maximise": ModelCase(
        [6, 5, 4, 3],
        [[3, 4, 2, 1], [1, 0, 1, 1]],
        [-INF] * 2,
        [6, 2],
        0,
        1,
        integer=[0, 1, 2, 3],
        sense="max",
        offset=1,
    ),
    "quadratic": ModelCase(
        [-1, -2, 1], [[1.0, 1.0, 1.0]], [1], [1], 0, 1, [[2, 0.5, 0], [0.5, 1, 0], [0, 0, 0]], offset=3
    ),
    "quadratic to maximise": ModelCase([1, 2], [[1, 1]], [-INF], [1.5], -INF, 4, [[-1, 0.25], [0.25, -2]], sense="max"),
    "quadratic with ranges": ModelCase(
        [1, -4, 0], [[1, 1, 1], [1, -1, 0]], [-1, -2], [2, 0.5], [-INF, -INF, 0], 5, np.diag([1.0, 2.0, 4.0])
    ),
    "infinite as 1e30": ModelCase([1, -1], [[1, 1]], [-1e30], [4], [-2, -1e30], 1e30),
}
"""Models with an optimum."""

WITHOUT_OPTIMUM: dict[str, ModelCase] = {
    "infeasible": ModelCase([1, 1], [[1, 1], [1, 1]], [3, -INF], [INF, 2]),
    "unbounded": ModelCase([-1, 1], [[1, -1]], [0], [INF]),
}
"""Models without an optimum, by the status of a solve in lower case."""

WriteModel = Callable[[ModelCase, Any], Any]
"""A function that writes a model to a path. It returns False if the format cannot hold the model."""
