"""The structures of programs of the gradient benchmark: one row each.

A structure is a way to draw programs ``min ½ zᵀQz + cᵀz`` subject to ``Az = b, Gz ≤ h, lb ≤ z ≤ ub``. Every field has a
random stream of its own, so that a smaller batch is the start of a larger one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pear.errors import ProblemError
from pear_lab.benchmarks.random_programs import Rng, flow_balance, random_curvature, random_markets
from pear_lab.judge.judged_program import Array

SHARED_ROWS, OWN_ROWS, KNAPSACK_ROWS = 30, 10, 5
KNAPSACK_SMOOTHING, PATH_SMOOTHING = 1.0, 0.1
"""λ of the linear programs."""


@dataclass(frozen=True)
class Draw:
    """A random batch of B programs of n variables.

    Attributes:
        cost, true: (B, n) predicted and true costs.
        fields: Q, A, b, G, h, lb and ub by the names ``Problem`` has for them, shared or per sample; absent ones are
            left out.
        smoothing: λ, which is added to the diagonal of Q on every side.
        redundant: number of rows at the end of A that are combinations of the others.
    """

    cost: Array
    true: Array
    fields: dict[str, Any]
    smoothing: float = 0.0
    redundant: int = 0


@dataclass(frozen=True)
class Structure:
    """One structure of programs: a row of the table below.

    Attributes:
        name: what users write.
        label: description of the structure, with a place for n.
        draw: takes a random generator, the number of variables and the number of samples.
        size: the default number of variables.
        batches: the default numbers of samples on a GPU; those of at most 512 are the default on a CPU.
        any_size: whether it can have other numbers of variables.
        warm: whether warm starts are measured, too.
    """

    name: str
    label: str
    draw: Callable[[np.random.Generator, int, int], Draw]
    size: int
    batches: tuple[int, ...]
    any_size: bool = True
    warm: bool = False


def _draw_portfolios(rng: Rng, n: int, B: int) -> Draw:
    cost, true, _, Q = random_markets(rng, n, B)
    return Draw(cost, true, {"Q": Q, "A": np.ones((1, n)), "b": np.ones(1), "lb": 0.0})


def _draw_boxes(rng: Rng, n: int, B: int) -> Draw:
    bounds, curvatures, costs = rng.spawn(3)
    fields = {"Q": random_curvature(curvatures, n, B), "lb": -0.5, "ub": bounds.uniform(0.0, 1.0, n)}
    return Draw(*_draw_costs(costs, n, B), fields)


def _draw_shared_rows(rng: Rng, n: int, B: int) -> Draw:
    rows, curvatures, costs = rng.spawn(3)
    fields = {"G": rows.normal(size=(SHARED_ROWS, n)), "h": rows.uniform(0.1, 1.1, SHARED_ROWS), "lb": -1.0, "ub": 1.0}
    return Draw(*_draw_costs(costs, n, B), {"Q": random_curvature(curvatures, n, B), **fields})


def _draw_own_rows(rng: Rng, n: int, B: int) -> Draw:
    rows, limits, curvatures, costs = rng.spawn(4)
    G, h = rows.normal(size=(B, OWN_ROWS, n)), limits.uniform(0.1, 1.1, (B, OWN_ROWS))
    return Draw(
        *_draw_costs(costs, n, B), {"Q": random_curvature(curvatures, n, B), "G": G, "h": h, "lb": -1.0, "ub": 1.0}
    )


def _draw_knapsacks(rng: Rng, n: int, B: int) -> Draw:
    items, values, errors = rng.spawn(3)
    weights = items.uniform(1.0, 9.0, (KNAPSACK_ROWS, n))
    true = -values.uniform(1.0, 6.0, (B, n))
    fields = {"G": weights, "h": 0.3 * weights.sum(1), "lb": 0.0, "ub": 1.0}
    return Draw(true + errors.normal(size=(B, n)), true, fields, KNAPSACK_SMOOTHING)


def _draw_paths(side: int, rng: Rng, n: int, B: int) -> Draw:
    costs, errors = rng.spawn(2)
    A, b = flow_balance(side)
    true = costs.uniform(0.5, 1.5, (B, n))
    fields = {"A": A, "b": b, "lb": 0.0, "ub": 1.0}
    return Draw(true + 0.3 * errors.normal(size=(B, n)), true, fields, PATH_SMOOTHING, redundant=1)


def _draw_costs(rng: Rng, n: int, B: int) -> tuple[Array, Array]:
    """Predicted and true costs, the error half as large as the cost."""
    true, errors = rng.spawn(2)
    c = true.normal(size=(B, n))
    return c + 0.5 * errors.normal(size=(B, n)), c


STRUCTURES: tuple[Structure, ...] = (
    Structure("portfolio", "{n:,} assets", _draw_portfolios, 100, (64, 512, 4096), warm=True),
    Structure("box", "box QP of {n:,} variables", _draw_boxes, 100, (64, 512, 1024)),
    Structure("rows", f"QP of {{n:,}} variables with {SHARED_ROWS} rows", _draw_shared_rows, 100, (64, 512, 1024)),
    Structure(
        "own-rows", f"QP of {{n:,}} variables with {OWN_ROWS} rows of its own", _draw_own_rows, 60, (64, 512, 1024)
    ),
    Structure("knapsack", f"knapsack of {{n:,}} items, {KNAPSACK_ROWS} rows", _draw_knapsacks, 100, (64, 512, 4096)),
    Structure("path-5", "5×5 grid of {n:,} edges", partial(_draw_paths, 5), 40, (64, 512, 4096), any_size=False),
    Structure("path-12", "12×12 grid of {n:,} edges", partial(_draw_paths, 12), 264, (64, 512, 1024), any_size=False),
)


def choose_structures(names: Sequence[str]) -> list[Structure]:
    """The structures of these names; "all" for every one.

    Raises:
        ProblemError: a name that is not in the table, or none.

    Example:
        >>> [structure.size for structure in choose_structures(["box", "path-5"])]
        [100, 40]
    """
    known = {structure.name: structure for structure in STRUCTURES}
    if "all" in names:
        return list(STRUCTURES)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"; did you mean {close[0]}?" if close else ""
            raise ProblemError(f"--structures must be some of {', '.join(known)}, or all; got {name!r}{guess}")
    if not names:
        raise ProblemError(f"--structures must be some of {', '.join(known)}, or all; got none")
    return [known[name] for name in dict.fromkeys(names)]
