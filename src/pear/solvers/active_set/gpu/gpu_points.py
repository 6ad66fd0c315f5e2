"""The data of the fused pass on a GPU: programs without costs, verified points, tangent spaces, regrets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.optimality.active_set_rule import exact_active_set
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.kkt_residual import optimality_residuals
from pear.optimality.natural_sizes import Sizes
from pear.optimality.rule import LARGEST, ROUNDOFF, TIGHT
from pear.optimality.verification import Verification, verify
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers.active_set.gpu.gpu_method import GPUSolution


@dataclass(frozen=True)
class GPUPrograms:
    """The programs of a batch without their costs.

    Attributes:
        qp: the programs; their cost is not used. H has shape (B or 1, n, n).
        sizes: the part of their natural sizes that is computed from the data.
        definite: whether every H is positive definite, except where ``usable`` is False.
        usable: (B or 1,) bool, where H is symmetric, definite and of moderate size; None where all are.
        factor: (B or 1, n, n) Cholesky factor of H, where it has been computed.
    """

    qp: QuadraticProgram
    sizes: Sizes
    definite: bool
    usable: Tensor | None = None
    factor: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> GPUPrograms:
        """Select the programs of some samples, where every sample has a curvature of its own."""
        sizes = self.sizes
        some = replace(sizes, top=sizes.top[rows], root=sizes.root[rows], root_top=sizes.root_top[rows])
        return replace(self, qp=replace(self.qp, H=self.qp.H[rows]), sizes=some)

    @cached_property
    def inverse(self) -> Tensor:
        """(B or 1, n, n) H⁻¹, computed by operations that a CUDA graph can capture."""
        one = torch.eye(self.qp.n, dtype=self.qp.H.dtype, device=self.qp.H.device)
        half = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(self.qp.H).L, one, upper=False)
        return half.mT @ half

    def inverse_times(self, e: Tensor) -> Tensor:
        """Return (B, n) H⁻¹e for e (B, n).

        The Cholesky factor is used where it is known, otherwise the inverse and one round of refinement.
        """
        if self.qp.diagonal:
            return e / self.sizes.top
        if self.factor is not None:
            half = torch.linalg.solve_triangular(self.factor, e[:, :, None], upper=False)
            return torch.linalg.solve_triangular(self.factor.mT, half, upper=True)[:, :, 0]
        first = matvec(self.inverse, e)
        return first + matvec(self.inverse, e - matvec(self.qp.H, first))

    @cached_property
    def twice(self) -> GPUPrograms:
        """The constraints and sizes of the batch, each twice, for the verification of 2B points. H is not repeated."""
        sizes = Sizes(**_doubled(self.sizes, (one.name for one in fields(self.sizes))))
        return replace(self, qp=replace(self.qp, **_doubled(self.qp, _CONSTRAINTS)), sizes=sizes)

    def joined(self, other: GPUPrograms, B: int) -> GPUPrograms:
        """Like ``twice``, but the second half has the sizes of ``other``, B programs with the same constraints."""

        def both(name: str) -> Tensor:
            rows = (getattr(one.sizes, name) for one in (self, other))
            return torch.cat([row.expand(B, -1) for row in rows])

        twice = self.twice
        return replace(twice, sizes=replace(twice.sizes, **{name: both(name) for name in _CURVATURE}))


_CONSTRAINTS = ("A", "b", "G", "h", "lb", "ub")
_CURVATURE = ("top", "root", "root_top")


def _doubled(fields: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the named fields of an object for twice the batch: fields that differ by sample are repeated."""
    values = ((name, getattr(fields, name)) for name in names)
    return {name: v if v is None or len(v) == 1 else torch.cat([v, v]) for name, v in values}


class GPURegrets(NamedTuple):
    """RegretCallResults of a batch on the device, before anything has been read back.

    Attributes:
        value, exact, injected, x, best, kkt_residual: as in ``RegretCallResults``.
        good: (B,) bool, True where they can be trusted.
        solution: the kernel's solutions.
    """

    value: Tensor
    exact: Tensor
    injected: Tensor
    x: Tensor
    best: Tensor
    kkt_residual: Tensor
    good: Tensor
    solution: GPUSolution

    def copied(self) -> GPURegrets:
        """Copy the tensors out of the memory of a CUDA graph; ``good`` is copied to the CPU."""
        value, residual = torch.stack([self.value, self.kkt_residual])
        exact, injected, x, best = torch.stack(self[1:5])
        return GPURegrets(value, exact, injected, x, best, residual, self.good.cpu(), self.solution)


class GPUPoints(NamedTuple):
    """Solutions of the kernel with the verdict on them.

    Attributes:
        solution: K solutions of the kernel.
        verdict: the verification of all K points.
        good: (K,) bool, where the kernel reports an optimum, the cost is finite and the verdict is "solved".
        fixed: (K, n) bool, variables held at a bound.
    """

    solution: GPUSolution
    verdict: Verification
    good: Tensor
    fixed: Tensor


@dataclass(eq=False)
class GPUTangentSpace:
    """Projects errors at solutions of the kernel, also where tight constraints are not in the working set.

    Its tensors may lie in the memory of a CUDA graph until ``keep`` is called.

    Attributes:
        solution: projects with the working sets held.
        tight: (B, n) bool, variables at a bound that are not held there.
        tight_rows: (B, m) bool, inequalities that are tight and not held.
        G: (B or 1, m, n) the inequality rows.
        norms: (B or 1, m) the lengths of these rows.
        proven: True where an earlier projection has shown that all projections are right.
    """

    solution: GPUSolution
    tight: Tensor
    tight_rows: Tensor
    G: Tensor
    norms: Tensor
    proven: bool = False

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Project errors e (B, n); return P e (B, n), and (B,) bool, True where P e is correct.

        The kernel projects onto the null space of the constraints in the working set. The projection that is wanted is
        onto the null space of all tight constraints, which is contained in it. The result is correct if it has
        converged and lies in this smaller space. It always does at a degenerate vertex, where the other tight
        constraints depend on those in the working set.
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
        """Copy the tensors out of the memory of a CUDA graph, before the graph is replayed."""
        self.solution, self.tight, self.tight_rows = self.solution.copied(), self.tight.clone(), self.tight_rows.clone()


def verify_gpu_points(programs: GPUPrograms, c: Tensor, solution: GPUSolution) -> GPUPoints:
    """Verify the kernel's solutions and their multipliers for costs c (K, n)."""
    qp, x = replace(programs.qp, c=c), solution.x
    working = ActiveSet(solution.rows, solution.lower, solution.upper)
    fixed = working.fixed
    duals = Duals(solution.y[:, : qp.p], solution.y[:, qp.p :], x)
    left = optimality_residuals(qp, x, duals, solution.curvature)
    # the multiplier of a held bound is what is left of the gradient of its variable
    duals = replace(duals, bound=left.gradient.masked_fill(fixed, 0.0) - left.gradient)
    verdict = verify(qp, x, duals, working, left, programs.sizes)
    good = verdict.solved & solution.optimal & (verdict.units.cost[:, 0] <= LARGEST)
    return GPUPoints(solution, verdict, good, fixed)


def gpu_tangent_space(points: GPUPoints, programs: GPUPrograms, B: int) -> tuple[GPUTangentSpace, Tensor | None]:
    """Return the tangent spaces at the first B points, and where they show whether the decision is unique.

    A weakly active constraint can hide that a decision is not unique. With a definite H every decision is unique.

    Returns:
        The tangent spaces, and (B,) bool, True where no constraint is weakly active; None in place of the latter where
        H is definite.
    """
    solution, verdict = points.solution, points.verdict
    s, qp = verdict.relative, verdict.qp
    tight = (torch.minimum(s.slack_lower[:B], s.slack_upper[:B]) <= TIGHT) & ~points.fixed[:B]
    tight_rows = (s.slack_rows[:B] <= TIGHT) & ~solution.rows[:B] if qp.m else solution.rows[:B]
    tangent = GPUTangentSpace(solution, tight, tight_rows, programs.qp.G, programs.sizes.norms_G)
    if programs.definite:
        return tangent, None
    _, weak = exact_active_set(qp, s, verdict.working)
    return tangent, weak.count()[:B] == 0
