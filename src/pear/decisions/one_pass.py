"""``solve_in_one_pass``: the solutions of a batch from one call of a solver, without the pipeline.

Some solvers have a fused pass, which solves and verifies a whole batch in one call. If all samples pass the
verification, the pipeline is not needed. The fused pass is made once for a problem, so that a call takes little more
time than the solver itself.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import torch
from torch import Tensor

from pear.decisions.solution import Solution
from pear.problem import Oracle, Problem
from pear.setting_checks import check_smoothing_setting
from pear.solvers.backend_registry import choose_backend, get_backend
from pear.solvers.fused_pass import FusedSolvingPass
from pear.solvers.warm_starts import WarmStarts


def solve_in_one_pass(problem: Problem, cost: Tensor, smoothing: float | str, solver: str) -> Solution | None:
    """Solve a batch by the fused pass of a solver, with the problem's own fields.

    Args:
        problem: the decision problem.
        cost: (B, n) costs.
        smoothing: λ or "auto".
        solver: "auto" or a name that ``pear solvers`` lists.

    Returns:
        The solutions; None if the solver has no fused pass for this problem, if ``smoothing`` is "auto", or if the pass
        does not solve all samples.
    """
    if isinstance(problem, Oracle) or problem.is_integer:
        return None
    check_smoothing_setting(smoothing)
    if smoothing == "auto" or problem.is_sparse or problem.phi is not None:
        return None
    smoothing = float(smoothing)
    kind = "qp" if problem.Q is not None or smoothing > 0 else "lp"
    name = f"pass of {solver} for {kind}"
    one, lock = problem.prepare_once(name, lambda _: (_make_one_pass(problem, solver, kind), Lock()))
    if one is None:
        return None
    with lock:  # the pass contains the programs of one smoothing at a time
        found = one.solve(cost, smoothing)
    if found is None:
        return None
    B = found.x.shape[0]
    # NumPy makes few zeros several times as fast as torch
    zeros = np.zeros(B, np.int8), np.zeros(B, bool), np.zeros(B), np.zeros(B, bool)
    status, repaired, gap, unchecked = map(torch.from_numpy, zeros)
    return Solution(
        x=found.x,
        value=found.value,
        status=status,
        active=found.active,
        weak=found.weak,
        duals=found.duals,
        kkt_residual=found.kkt_residual,
        repaired=repaired,
        gap=gap,
        unchecked=unchecked,
    )


def _make_one_pass(problem: Problem, solver: str, kind: str) -> FusedSolvingPass | None:
    """Return the solver's fused pass for a problem; None if it has none that also gives multipliers.

    ``kind`` is "lp" or "qp".
    """
    row = choose_backend(kind) if solver == "auto" else get_backend(solver)
    one = row.fused_pass(problem, WarmStarts())
    return one if isinstance(one, FusedSolvingPass) else None
