"""Verified solutions of a batch, and where the projection at them comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pear.optimality.point import ActiveSet, Batched, Duals, Status
from pear.problem.canonical import QuadraticProgram
from pear.sensitivity.reduced import ReducedKKT
from pear.solvers.active_set import batch as compiled
from pear.solvers.active_set.gpu import batch as gpu


@dataclass(frozen=True)
class Start(Batched):
    """A point to start from without a solver: what a sample's solution was the last time.

    Attributes:
        x: (B, n); duals; active: as in ``Solution``.
        known: (B,) bool, where there is anything to start from.
    """

    x: Tensor
    duals: Duals
    active: ActiveSet
    known: Tensor


@dataclass(frozen=True)
class CompiledPart:
    """Samples that the compiled method solved.

    Attributes:
        done: (B,) bool.
        programs, states: all B of them, in its form.
    """

    done: Tensor
    programs: compiled.Programs
    states: compiled.States

    def project(self, error: Tensor) -> tuple[Tensor, Tensor]:
        """(B, n) projected errors, and (B,) bool where they are unique; both mean something where ``done`` only."""
        rows = np.arange(len(error))
        g, unique = compiled.project(self.programs, np.ascontiguousarray(error.numpy()), rows, self.states, rows)
        return torch.from_numpy(g), torch.from_numpy(unique)


@dataclass(frozen=True)
class GPUPart:
    """Samples that the GPU's kernel solved.

    Attributes:
        done: (B,) bool.
        descent: where it left them, the inverses of their reduced systems included.
        working: the constraints that are held there; where more are tight, its inverse is of no use.
    """

    done: Tensor
    descent: gpu.Descent
    working: ActiveSet

    def narrowed(self, active: ActiveSet) -> GPUPart:
        """Without the samples in which more is active than was held."""
        return replace(self, done=self.done & self.working.same(active))

    def project(self, error: Tensor) -> tuple[Tensor, Tensor]:
        """As for ``CompiledPart``."""
        return self.descent.project(error)


@dataclass
class Verified:
    """Exact solutions of a batch of programs, with what the gradient needs.

    Attributes:
        qp: the programs; rows that failed are still in it.
        x, duals, active, weak, status, kkt_residual, repaired: as in ``Solution``; failed rows of x are zero here.
        reused: (B,) bool, where a remembered active set passed the check unchanged and no solver was called.
        working: the constraints that x was computed with; at a degenerate vertex fewer than are tight, so that their
            multipliers have the right signs. This is the set to start from the next time.
        compiled: the samples that the compiled method solved, for it to project at; None where there are none.
    """

    qp: QuadraticProgram
    x: Tensor
    duals: Duals
    active: ActiveSet
    weak: ActiveSet
    status: Tensor
    kkt_residual: Tensor
    repaired: Tensor
    reused: Tensor
    working: ActiveSet
    compiled: CompiledPart | GPUPart | None = None
    _reduced: ReducedKKT | None = None

    @property
    def solved(self) -> Tensor:
        """(B,) bool."""
        return self.status == Status.SOLVED

    @property
    def reduced(self) -> ReducedKKT:
        """The factorised reduced systems on the active sets; failed rows are programs without constraints or cost."""
        if self._reduced is None:
            self._reduced = ReducedKKT(self.qp, self.active)
        return self._reduced

    def as_start(self) -> Start:
        """Remember these solutions."""
        return Start(self.x, self.duals, self.working, self.solved)
