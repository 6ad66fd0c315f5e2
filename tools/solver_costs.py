"""The processor time of linear programs with each solver, for the constants ``lp_seconds`` of the backend registry.

The command draws linear programs of several sizes. It prints the milliseconds of processor time for a sample, beside
those that the registry expects. Run it with ``OMP_NUM_THREADS=1 python tools/solver_costs.py``.
"""

from __future__ import annotations

import time

import numpy as np
import torch

import pear
from pear.solvers.backend_registry import BACKENDS

_SIZES = ((400, 50), (400, 150), (400, 300))  # variables and rows
_SAMPLES = 8


def draw_program(n: int, rows: int, density: float, equalities: bool) -> pear.Problem:
    """Draw a feasible linear program whose variables are between 0 and 1.

    Args:
        n: the number of variables.
        rows: the number of constraints.
        density: the share of their coefficients that are not zero.
        equalities: whether the constraints are equalities; otherwise they are inequalities.
    """
    rng = np.random.default_rng(0)
    matrix = rng.uniform(0.2, 1, (rows, n)) * (rng.uniform(size=(rows, n)) < density)
    inside = matrix @ rng.uniform(0, 1, n)
    if equalities:
        return pear.Problem(A=matrix, b=inside, lb=0.0, ub=1.0)
    return pear.Problem(G=matrix, h=0.8 * inside + 0.05, lb=0.0, ub=1.0)


def measure(problem: pear.Problem, solver: str) -> float:
    """Return the processor time of a solver for one sample, in milliseconds. It is the shorter of two calls."""
    costs = np.random.default_rng(1).normal(size=(_SAMPLES, problem.n)) - 0.3
    spent = []
    for _ in range(3):  # the first call prepares
        began = time.process_time()
        pear.solve(problem, costs, solver=solver)
        spent.append(time.process_time() - began)
    return 1e3 * min(spent[1:]) / _SAMPLES


def main() -> None:
    """Print a row for each size, and a pair of columns for each solver that has constants."""
    solvers = [row for row in BACKENDS if row.lp_seconds is not None and row.installed]
    print("variables rows density equal |", " | ".join(f"{row.name}: ms, expected" for row in solvers))
    for n, rows in _SIZES:
        for density in (0.02, 0.1):
            for equalities in (False, True):
                problem = draw_program(n, rows, density, equalities)
                qp = problem.canonical(torch.ones(1, n, dtype=torch.float64), 0.0)
                found = [
                    f"{measure(problem, row.name):.1f}, {1e3 * row.lp_seconds.of(qp):.1f}"
                    for row in solvers
                    if row.lp_seconds is not None
                ]
                print(n, rows, density, int(equalities), "|", " | ".join(found), flush=True)


if __name__ == "__main__":
    main()
