"""``solve_in_one_pass``: the solutions of a batch from one call of a solver, without the pipeline.

A solver whose pass solves and verifies a whole batch leaves nothing to the pipeline where all samples pass. The pass is
made once for a problem. A call then takes little more time than the solver itself.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import torch
from torch import Tensor

from pear.decisions.solution import Solution
from pear.problem import Problem
from pear.solvers.backend_registry import choose_backend, get_backend
from pear.solvers.fused_pass import FusedSolvingPass
from pear.solvers.warm_starts import WarmStarts


def solve_in_one_pass(problem: Problem, cost: Tensor, smoothing: float, solver: str) -> Solution | None:
    """Solve a batch of a problem's own programs by the pass of its solver.

    Args:
        problem: the decision problem, continuous.
        cost: (B, n) costs.
        smoothing: λ.
        solver: "auto" or a name that ``pear solvers`` lists.

    Returns:
        The solutions; None where there is no such pass, or where it leaves a sample to the pipeline.
    """
    if problem.is_sparse or problem.phi is not None:
        return None
    kind = "qp" if problem.Q is not None or smoothing > 0 else "lp"
    name = f"pass of {solver} for {kind}"
    one, lock = problem.prepare_once(name, lambda _: (_solving_pass(problem, solver, kind), Lock()))
    if one is None:
        return None
    with lock:  # the pass holds the programs of one smoothing
        found = one.solve(cost, float(smoothing))
    if found is None:
        return None
    count = len(found.x)
    return Solution(
        x=found.x,
        value=found.value,
        status=_zeros(count, np.int8),
        active=found.active,
        weak=found.weak,
        duals=found.duals,
        kkt_residual=found.kkt_residual,
        repaired=_zeros(count, np.bool_),
        gap=_zeros(count, np.float64),
        unchecked=_zeros(count, np.bool_),
    )


def _zeros(count: int, kind: type[np.generic]) -> Tensor:
    """Return zeros (count,); torch takes several times as long to make as few."""
    return torch.from_numpy(np.zeros(count, kind))


def _solving_pass(problem: Problem, solver: str, kind: str) -> FusedSolvingPass | None:
    """Return the solver's pass for this problem; None where it has none, or where the pass gives decisions alone."""
    row = choose_backend(kind) if solver == "auto" else get_backend(solver)
    one = row.fused_pass(problem, WarmStarts())
    return one if isinstance(one, FusedSolvingPass) else None
