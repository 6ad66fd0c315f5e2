"""Small programs for the checks of solvers: with an optimum, without a solution, and with integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram

INF = float("inf")
Array = NDArray[Any]
Fields = dict[str, Any]


def zoo_program(c: Any, **fields: Any) -> QuadraticProgram:
    """Return a batch of programs made from lists.

    Args:
        c: (B, n) or (n,) costs.
        fields: H, A, b, G, h, lb, ub and integer. A field that differs between samples has a batch dimension. An
            omitted field is zero, has no rows, or means no bounds and no integers.

    Example:
        >>> zoo_program([1.0, -1.0], lb=[0, 0], ub=[1, 1]).batch
        1
    """
    costs = torch.as_tensor(np.atleast_2d(c), dtype=torch.float64)
    n = costs.shape[1]
    shapes = {"H": (n, n), "A": (0, n), "b": (0,), "G": (0, n), "h": (0,), "lb": (n,), "ub": (n,)}
    fill = {"lb": -INF, "ub": INF}
    tensors: dict[str, Any] = {}
    for name, shape in shapes.items():
        value = fields.get(name)
        value = np.full(shape, fill.get(name, 0.0)) if value is None else np.asarray(value, dtype=float)
        tensors[name] = torch.as_tensor(value if value.ndim > len(shape) else value[None], dtype=torch.float64)
    integer = fields.get("integer")
    return QuadraticProgram(c=costs, **tensors, integer=None if integer is None else torch.as_tensor(integer))


def zoo_grid(size: int) -> tuple[Array, Array]:
    """Return A and b of the flow balance A z = b of paths from the first to the last node of a square grid.

    The rows of A add up to zero.
    """
    nodes = list(itertools.product(range(size), repeat=2))
    edges = [(a, b) for a in nodes for b in nodes if b in ((a[0], a[1] + 1), (a[0] + 1, a[1]))]
    A = np.zeros((len(nodes), len(edges)))
    for k, (a, b) in enumerate(edges):
        A[nodes.index(a), k], A[nodes.index(b), k] = 1.0, -1.0
    return A, np.eye(len(nodes))[0] - np.eye(len(nodes))[-1]


def bounded_zoo_programs() -> dict[str, tuple[Array, Fields]]:
    """Return batches of programs with an optimum, by name: costs (B, n), and constraints for ``zoo_program``."""
    rng = np.random.default_rng(0)
    A, b = zoo_grid(3)
    weights = rng.integers(1, 11, (2, 8)).astype(float)
    B, n = 4, 6
    rows, inside = rng.normal(size=(B, 5, n)), rng.normal(size=(B, n))
    slack = rng.uniform(0, 1, (B, 3))
    values = np.einsum("brn,bn->br", rows, inside)
    holes = values[:, 2:] + slack
    holes[1, 0] = holes[2, 1:] = INF
    box = {"lb": inside - 1, "ub": inside + rng.uniform(0, 1, (B, n))}
    own = {"A": rows[:, :2], "b": values[:, :2], "G": rows[:, 2:], "h": holes, **box}
    wide = np.maximum(inside, inside[0]) + np.array([INF, 1, 1, 2, 1, 1])
    wide[1] = INF
    shared = {"A": rows[0, :1], "b": values[0, :1], "G": rows[0, 2:], "h": np.minimum(holes[0], 9), "lb": inside[0] - 1}
    return {
        "one variable": (rng.normal(size=(3, 1)), {"lb": [-1.0], "ub": [2.0]}),
        "one variable, one row": (-rng.uniform(1, 2, (3, 1)), {"G": [[2.0]], "h": [1.0]}),
        "box": (rng.normal(size=(5, 4)), {"lb": -np.ones(4), "ub": [1.0, 2.0, 3.0, 4.0]}),
        "simplex": (rng.normal(size=(5, 6)), {"A": np.ones((1, 6)), "b": [1.0], "lb": np.zeros(6)}),
        "redundant equalities": (rng.uniform(0.5, 2, (5, 12)), {"A": A, "b": b, "lb": np.zeros(12)}),
        "knapsack": (
            -rng.uniform(1, 9, (5, 8)),
            {"G": weights, "h": weights.sum(1) / 2, "lb": np.zeros(8), "ub": np.ones(8)},
        ),
        "zero rows": (
            rng.normal(size=(3, 3)),
            {"A": [[1, 1, 1], [0, 0, 0]], "b": [1, 0], "G": [[0, 0, 0], [1, 0, -1]], "h": [1, 2], "lb": np.zeros(3)},
        ),
        "fixed variables": (rng.normal(size=(3, 3)), {"lb": [0.5, -1.0, 2.0], "ub": [0.5, 1.0, 2.0]}),
        "absent rows": (
            rng.normal(size=(3, 2)),
            {"G": [[1, 1], [1, -1], [-1, 0]], "h": [INF, 1, INF], "lb": [-1, -2], "ub": [2, 3]},
        ),
        "all rows absent": (rng.uniform(1, 2, (2, 2)), {"G": np.eye(2), "h": [INF, INF], "lb": [1.0, 2.0]}),
        "free variables": (-np.ones((2, 2)), {"G": [[1, 2], [2, 1], [-1, -1]], "h": [3, 3, 1]}),
        "own right-hand sides": (
            rng.normal(size=(3, 2)),
            {"A": [[1.0, 1.0]], "b": [[1.0], [2.0], [0.5]], "lb": np.zeros(2), "ub": [[1, 1], [2, INF], [INF, 1]]},
        ),
        "own everything": (rng.normal(size=(B, n)), own),
        "own upper bounds": (rng.normal(size=(B, n)), {**shared, "ub": wide}),
        "large units": (1e3 * rng.uniform(1, 2, (3, 3)), {"A": np.ones((1, 3)), "b": [50.0], "lb": np.zeros(3)}),
    }


BOUNDED = bounded_zoo_programs()
"""Costs and constraints of programs with an optimum, by name."""


def bounded_zoo_program(kind: str, name: str) -> QuadraticProgram:
    """Return the batch of ``bounded_zoo_programs`` with this name, as "lp", or as "qp" with a random curvature."""
    c, fields = BOUNDED[name]
    n, rng = c.shape[1], np.random.default_rng(1)
    if kind == "lp":
        return zoo_program(c, **fields)
    factor = rng.normal(size=((len(c), n, n) if "own everything" in name else (n, n)))
    return zoo_program(c, H=factor @ factor.swapaxes(-1, -2) + 0.1 * np.eye(n), **fields)


HOPELESS: dict[str, tuple[list[float], Fields, Status]] = {
    "contradicting rows": ([1.0, -2.0], {"G": [[1, 1], [-1, -1]], "h": [1, -2], "lb": [-9, -9]}, Status.INFEASIBLE),
    "contradicting equalities": ([1.0, 2.0], {"A": [[1, 1], [1, 1]], "b": [1, 2], "lb": [0, 0]}, Status.INFEASIBLE),
    "row against bounds": ([1.0, 2.0], {"A": [[1, 1]], "b": [5], "lb": [0, 0], "ub": [1, 1]}, Status.INFEASIBLE),
    "contradicting zero row": ([1.0, 2.0], {"A": [[0, 0]], "b": [1], "lb": [0, 0]}, Status.INFEASIBLE),
    "open below": ([1.0, -2.0], {"lb": [0, 0]}, Status.UNBOUNDED),
    "open below a row": ([1.0, -2.0], {"G": [[1, -1]], "h": [1], "lb": [0, 0]}, Status.UNBOUNDED),
    "open everywhere": ([1.0, -2.0], {}, Status.UNBOUNDED),
}
"""Programs without a solution, by name: costs, constraints and status."""

FLAT_DIRECTION = {"H": np.diag([1.0, 0.0])}
"""A curvature with which the programs of ``HOPELESS`` still have no solution."""

HOPELESS_INTEGERS: dict[str, tuple[Fields, Status]] = {
    "no integer between the bounds": ({"lb": [0.2, 0.0], "ub": [0.8, 1.0]}, Status.INFEASIBLE),
    "an odd number of even steps": ({"A": [[2, -2]], "b": [1], "lb": [0, 0]}, Status.INFEASIBLE),
    "contradicting rows": ({"G": [[1, -1], [-1, 1]], "h": [-1, -1], "lb": [0, 0]}, Status.INFEASIBLE),
    "open below": ({"lb": [0, 0]}, Status.UNBOUNDED),
    "open below a row": ({"G": [[1, -1]], "h": [1], "lb": [0, 0]}, Status.UNBOUNDED),
}
"""Programs without a solution, in two integers with the costs −1 and −2, by name: constraints and status."""


def packing_zoo_program() -> QuadraticProgram:
    """Return six 0-1 knapsacks with two rows.

    One item is worth a million and is always taken. A solver that stops at a relative gap of 1e-4 may therefore return
    any choice of the other items.
    """
    rng = np.random.default_rng(3)
    weights, values = rng.integers(20, 60, (2, 10)).astype(float), rng.integers(10, 60, (6, 10)).astype(float)
    weights[:, 0], values[:, 0] = 0.0, 1e6
    fields = {"h": weights.sum(1) / 2, "lb": np.eye(10)[0], "ub": np.ones(10), "integer": [True] * 10}
    return zoo_program(-values, G=weights, **fields)


def integer_zoo_program() -> QuadraticProgram:
    """Return four programs in three integers from 0 to 4. Their inequalities differ, and one of them has no limit."""
    rng = np.random.default_rng(4)
    G, h = rng.integers(1, 5, (4, 2, 3)), rng.integers(6, 12, (4, 2)).astype(float)
    h[1, 0] = INF
    box = {"lb": np.zeros(3), "ub": np.full(3, 4.0), "integer": [True] * 3}
    return zoo_program(rng.normal(size=(4, 3)), A=[[1, 1, -1]], b=[[0], [1], [0], [2]], G=G, h=h, **box)


def zoo_optima_by_enumeration(qp: QuadraticProgram, highest: int) -> list[float]:
    """Return the optima of programs in integers from 0 to ``highest``, found by trying all points."""
    points = np.array(list(itertools.product(range(highest + 1), repeat=qp.n)), dtype=float)
    values = []
    for i in range(qp.batch):
        one = qp[i : i + 1]
        feasible = (points @ one.G[0].numpy().T <= one.h[0].numpy()).all(1)
        feasible &= (points @ one.A[0].numpy().T == one.b[0].numpy()).all(1)
        feasible &= (points >= one.lb[0].numpy()).all(1)
        values.append(float((points[feasible] @ one.c[0].numpy()).min()))
    return values
