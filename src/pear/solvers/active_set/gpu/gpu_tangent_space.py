"""``GPUTangentSpace``: the projection of errors at solutions of a GPU's kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.rule import ROUNDOFF
from pear.problem.matrix import matvec
from pear.solvers.active_set.gpu.gpu_solution import GPUSolution


@dataclass(eq=False)
class GPUTangentSpace:
    """A projector of errors at solutions of the kernel, which respects tight constraints outside of the working sets.

    Its tensors may be in the memory of a CUDA graph until ``keep`` is called.

    Attributes:
        solution: projects with the constraints of the working sets held.
        tight: (B, n) bool, variables at a bound that are not held there.
        tight_rows: (B, m) bool, inequalities that are tight and not held.
        G: (B or 1, m, n) the inequality rows.
        norms: (B or 1, m) the lengths of these rows.
        proven: True if an earlier projection has shown that all projections are right.
    """

    solution: GPUSolution
    tight: Tensor
    tight_rows: Tensor
    G: Tensor
    norms: Tensor
    proven: bool = False

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors (B, n); return the projections (B, n), and (B,) bool, True if a projection is correct.

        The kernel projects onto the null space of the constraints in the working set. The null space of all tight
        constraints may be smaller, and the projection onto the smaller space is wanted. The kernel's result is correct
        if it has converged and lies in the smaller space. At a degenerate vertex both spaces are equal, because the
        other tight constraints depend on those in the working set.
        """
        g, converged = self.solution.project(e)
        if self.proven:
            return g.masked_fill(self.tight, 0.0), converged
        off = torch.where(self.tight, g, 0.0)
        if self.tight_rows.shape[1]:
            off = torch.cat([off, torch.where(self.tight_rows, matvec(self.G, g) / self.norms, 0.0)], 1)
        most_off, most = (torch.linalg.vector_norm(part, torch.inf, dim=1) for part in (off, g))
        return g.masked_fill(self.tight, 0.0), converged & (most_off <= ROUNDOFF * most)

    def keep(self) -> None:
        """Copy the tensors to memory of their own, before the CUDA graph that wrote them is replayed."""
        self.solution, self.tight, self.tight_rows = self.solution.copied(), self.tight.clone(), self.tight_rows.clone()
