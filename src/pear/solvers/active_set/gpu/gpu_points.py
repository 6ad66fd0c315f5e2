"""``GPUPoints``: verified solutions of a GPU's kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pear.optimality.active_set_rule import exact_active_set
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.kkt_residual import optimality_residuals
from pear.optimality.rule import LARGEST, TIGHT
from pear.optimality.verification import Verification, verify
from pear.solvers.active_set.gpu.gpu_programs import GPUPrograms
from pear.solvers.active_set.gpu.gpu_solution import GPUSolution
from pear.solvers.active_set.gpu.gpu_tangent_space import GPUTangentSpace


@dataclass(frozen=True)
class GPUPoints:
    """Solutions of a kernel, with the result of their verification.

    Attributes:
        solution: K solutions of the kernel.
        verdict: the verification of all K points.
        good: (K,) bool, True if the kernel reports an optimum, the cost is not too large and the verdict is "solved".
        fixed: (K, n) bool, True if a variable is held at a bound.
    """

    solution: GPUSolution
    verdict: Verification
    good: Tensor
    fixed: Tensor

    @classmethod
    def verified(cls, programs: GPUPrograms, c: Tensor, solution: GPUSolution) -> GPUPoints:
        """Verify the solutions of a kernel for costs c (K, n), and return them with the result."""
        qp, x = replace(programs.qp, c=c), solution.x
        working = ActiveSet(solution.rows, solution.lower, solution.upper)
        fixed = working.fixed
        duals = Duals(solution.y[:, : qp.p], solution.y[:, qp.p :], x)
        left = optimality_residuals(qp, x, duals, solution.curvature)
        # the multiplier of a held bound is what is left of the gradient of its variable
        duals = replace(duals, bound=left.gradient.masked_fill(fixed, 0.0) - left.gradient)
        verdict = verify(qp, x, duals, working, left, programs.sizes)
        good = verdict.solved & solution.optimal & (verdict.units.cost[:, 0] <= LARGEST)
        return cls(solution, verdict, good, fixed)

    def tangent_space(self, programs: GPUPrograms, B: int) -> tuple[GPUTangentSpace, Tensor | None]:
        """Return the tangent spaces at the first B points, and whether each decision is known to be unique.

        With a definite H every decision is unique. With another H, a decision counts as unique only if no constraint is
        weakly active.

        Returns:
            The tangent spaces; (B,) bool, True if no constraint is weakly active, or None if H is definite.
        """
        solution, verdict = self.solution, self.verdict
        s, qp = verdict.relative, verdict.qp
        tight = (torch.minimum(s.slack_lower[:B], s.slack_upper[:B]) <= TIGHT) & ~self.fixed[:B]
        tight_rows = (s.slack_rows[:B] <= TIGHT) & ~solution.rows[:B] if qp.m else solution.rows[:B]
        tangent = GPUTangentSpace(solution, tight, tight_rows, programs.qp.G, programs.sizes.norms_G)
        if programs.definite:
            return tangent, None
        _, weak = exact_active_set(qp, s, verdict.working)
        return tangent, weak.count()[:B] == 0
