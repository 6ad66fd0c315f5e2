"""``solve_in_one_pass``: the solutions of a batch from one call of a solver, without the pipeline.

A solver whose pass solves and verifies a whole batch leaves nothing to the pipeline where all samples pass. The pass is
made once for a problem. A call then takes little more time than the solver itself.
"""

from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor

from pear.decisions.solution import Solution
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.solvers.fused import SolvingPass
from pear.solvers.registry import Backend, choose, get
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
    row = choose("qp" if problem.Q is not None or smoothing > 0 else "lp") if solver == "auto" else get(solver)
    one, lock = problem.prepare_once(f"pass of {row.name}", lambda _: (_solving_pass(problem, row), Lock()))
    if one is None:
        return None
    with lock:  # the pass holds the programs of one smoothing
        found = one.solve(cost, float(smoothing))
    if found is None:
        return None
    x, sign = found.x, problem.sign
    curvature = sign * smoothing * x if problem.Q is None else matvec(_batched(problem.Q), x) + sign * smoothing * x
    status = torch.zeros(len(x), dtype=torch.int8)
    return Solution(
        x=x,
        value=(x * (0.5 * curvature + cost.detach().to(x))).sum(1),
        status=status,
        active=found.active,
        weak=found.weak,
        duals=found.duals,
        kkt_residual=found.kkt_residual,
        repaired=status.bool(),
        gap=torch.zeros_like(x[:, 0]),
        unchecked=torch.zeros_like(status, dtype=torch.bool),
    )


def _solving_pass(problem: Problem, row: Backend) -> SolvingPass | None:
    """Return the solver's pass for this problem; None where it has none, or where the pass gives decisions alone."""
    one = row.fused_pass(problem, WarmStarts())
    return one if isinstance(one, SolvingPass) else None


def _batched(Q: Tensor) -> Tensor:
    """Return a curvature (B, n, n) or (n, n) with a leading dimension."""
    return Q if Q.dim() == 3 else Q[None]
