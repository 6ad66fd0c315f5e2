"""Proximal points: starting points for the repair of programs with a singular H that no solver has solved.

Such programs may have many solutions, which have different working sets. A solver may end between them, where no
working set fits, or far out along a direction in which the objective is constant. For a point z₀ and a small number
ρ > 0, the proximal program

    min ½zᵀHz + cᵀz + ½ρ‖z − z₀‖²    over the same constraints

has only one solution, the proximal point. It is nearer to the solutions of the original program than z₀; the smaller ρ,
the nearer it is. The repair starts from the working set of the proximal point, and solves the program without ρ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pear.optimality.status import Status
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.convexity import lacks_strict_convexity
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.candidate import Start

_RHO = 1e-6  # ρ, relative to the largest diagonal entry of H
_POINTS = 5  # the most proximal points of a program


def may_need_proximal_points(qp: QuadraticProgram) -> Tensor:
    """Return whether H is singular but not zero, (B,) bool; False for sparse programs, which are not supported."""
    if qp.is_sparse or qp.is_linear:
        return torch.zeros(qp.batch, dtype=torch.bool, device=qp.c.device)
    return lacks_strict_convexity(qp).expand(qp.batch)


def try_proximal_points(
    qp: QuadraticProgram,
    solve: Callable[[QuadraticProgram], VerifiedSolutions],
    repair: Callable[[Tensor, Start], Tensor],
) -> Tensor:
    """Repair one proximal point after another, until the programs are solved or five points have been tried.

    Args:
        qp: dense programs with a singular H.
        solve: a function that solves proximal programs.
        repair: a function that repairs points of the samples at positions (k,) and returns which samples are solved,
            (k,) bool.

    Returns:
        (B,) bool, whether a program is infeasible. Its proximal program has the same constraints and proves it.
    """
    rho = _RHO * qp.H.diagonal(dim1=1, dim2=2).amax(1)[:, None]
    H = qp.H + torch.diag_embed(rho.expand(-1, qp.n))
    centre = torch.zeros_like(qp.c).clamp(qp.lb, qp.ub)
    infeasible = torch.zeros(qp.batch, dtype=torch.bool, device=qp.c.device)
    todo = torch.arange(qp.batch, device=qp.c.device)
    for _ in range(_POINTS):
        near = solve(replace(qp, H=H, c=qp.c - rho * centre)[todo])
        infeasible[todo] = near.status == Status.INFEASIBLE
        todo, points = todo[near.solved], near.as_start()[near.solved]
        centre[todo] = points.x
        todo = todo[~repair(todo, points)]
        if not len(todo):
            break
    return infeasible
