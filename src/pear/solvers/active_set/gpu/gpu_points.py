"""What the pass on a GPU works with: programs without their costs, points with their verdict, tangent spaces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.optimality.active import tight_constraints
from pear.optimality.point import ActiveSet, Duals
from pear.optimality.residual import residuals
from pear.optimality.rule import LARGEST, ROUNDOFF, TIGHT
from pear.optimality.scale import Sizes
from pear.optimality.verify import Verdict, verify
from pear.problem.canonical import QuadraticProgram, matvec
from pear.solvers.active_set.gpu.found import Found


@dataclass(frozen=True)
class Curved:
    """Programs of a batch but for their costs, and what is known of them.

    Attributes:
        qp: the programs, with a cost that is not looked at; H (B or 1, n, n).
        sizes: what their natural sizes take from the data.
        definite: whether every H is positive definite; a sample that is an exception is marked in ``usable``.
        usable: (B or 1,) bool, where H is as it should be; None where it is known to be.
        factor: (B or 1, n, n) Cholesky's, where it is known.
    """

    qp: QuadraticProgram
    sizes: Sizes
    definite: bool
    usable: Tensor | None = None
    factor: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> Curved:
        """The programs of some samples, of a problem that has a curvature for each."""
        sizes = self.sizes
        some = replace(sizes, top=sizes.top[rows], root=sizes.root[rows], root_top=sizes.root_top[rows])
        return replace(self, qp=replace(self.qp, H=self.qp.H[rows]), sizes=some)

    @cached_property
    def inverse(self) -> Tensor:
        """(B or 1, n, n) H⁻¹, by operations that a CUDA graph can hold."""
        one = torch.eye(self.qp.n, dtype=self.qp.H.dtype, device=self.qp.H.device)
        half = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(self.qp.H).L, one, upper=False)
        return half.mT @ half

    def inverse_times(self, e: Tensor) -> Tensor:
        """(B, n) H⁻¹e: by the factor, or, where H comes again and again, by the inverse, refined to rounding."""
        if self.qp.diagonal:
            return e / self.sizes.top
        if self.factor is not None:
            half = torch.linalg.solve_triangular(self.factor, e[:, :, None], upper=False)
            return torch.linalg.solve_triangular(self.factor.mT, half, upper=True)[:, :, 0]
        first = matvec(self.inverse, e)
        return first + matvec(self.inverse, e - matvec(self.qp.H, first))

    @cached_property
    def twice(self) -> Curved:
        """The batch below itself, but for H."""
        return replace(self, qp=replace(self.qp, **_doubled(self.qp, _CONSTRAINTS)), sizes=_all_doubled(self.sizes))

    def above(self, other: Curved, B: int) -> Curved:
        """The batch and, below it, another one of B programs with the same constraints, but for H."""

        def both(name: str) -> Tensor:
            rows = (getattr(one.sizes, name) for one in (self, other))
            return torch.cat([row.expand(B, -1) for row in rows])

        twice = self.twice
        return replace(twice, sizes=replace(twice.sizes, **{name: both(name) for name in _CURVATURE}))


_CONSTRAINTS = ("A", "b", "G", "h", "lb", "ub")
_CURVATURE = ("top", "root", "root_top")


def _doubled(fields: Any, names: Iterable[str]) -> dict[str, Any]:
    """What is not shared by all samples, below itself."""
    values = ((name, getattr(fields, name)) for name in names)
    return {name: v if v is None or len(v) == 1 else torch.cat([v, v]) for name, v in values}


def _all_doubled(sizes: Sizes) -> Sizes:
    return Sizes(**_doubled(sizes, (one.name for one in fields(sizes))))


class Unread(NamedTuple):
    """Regrets of a batch on the device, before anyone has looked at them.

    Attributes:
        value, kkt_residual, exact, injected, x, best: as ``Regrets`` has them.
        good: (B,) bool, where they may be trusted.
        found: the points.
    """

    value: Tensor
    kkt_residual: Tensor
    exact: Tensor
    injected: Tensor
    x: Tensor
    best: Tensor
    good: Tensor
    found: Found

    def copied(self) -> Unread:
        """The same in memory of its own; what is good has been read."""
        value, residual = torch.stack(self[:2])
        exact, injected, x, best = torch.stack(self[2:6])
        return Unread(value, residual, exact, injected, x, best, self.good.cpu(), self.found)


class Judged(NamedTuple):
    """Points of the kernel with the verdict on them.

    Attributes:
        verdict: on all points; good: (K,) bool, where the kernel ended, the cost is finite and the verdict holds.
        free: (K, n) bool, variables that are not held at a bound.
    """

    verdict: Verdict
    good: Tensor
    free: Tensor


@dataclass(frozen=True)
class Tangent:
    """Projects at solutions of the kernel, where constraints may be tight that are not in the working set.

    Attributes:
        found: the kernel's own projector, with the working sets held.
        tight: (B, n) bool, free variables at a bound; tight_rows: (B, m) bool, rows that are tight and not held.
        G, norms: (B or 1, m, n) the rows, and (B or 1, m) their lengths.
        proven: True where an earlier projection has shown that every one is right.
    """

    found: Found
    tight: Tensor
    tight_rows: Tensor
    G: Tensor
    norms: Tensor
    proven: bool = False

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """P e (B, n), and (B,) bool where it is right: it has converged, and moves along all tight constraints.

        A projection onto a larger space that lies in the smaller one is the projection onto that one, too. At a
        degenerate vertex, where tight constraints depend on those that are held, it always does.
        """
        g, converged = self.found.project(e)
        if self.proven:
            return g.masked_fill(self.tight, 0.0), converged
        off = torch.where(self.tight, g, 0.0)
        if self.tight_rows.shape[1]:
            off = torch.cat([off, torch.where(self.tight_rows, matvec(self.G, g) / self.norms, 0.0)], 1)
        most_off, most = (torch.linalg.vector_norm(part, torch.inf, dim=1) for part in (off, g))
        return g.masked_fill(self.tight, 0.0), converged & (most_off <= ROUNDOFF * most)

    def copied(self) -> Tangent:
        """The same in memory of its own."""
        tight, tight_rows = self.tight.clone(), self.tight_rows.clone()
        return replace(self, found=self.found.copied(), tight=tight, tight_rows=tight_rows)


class LentTangent:
    """A tangent that may lie in the memory of a CUDA graph, until that is replayed."""

    def __init__(self, tangent: Tangent) -> None:
        self._tangent = tangent

    def project(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Tangent.project``."""
        return self._tangent.project(e)

    def keep(self) -> None:
        """Copy it, because the graph is about to be replayed."""
        self._tangent = self._tangent.copied()


def judge(programs: Curved, c: Tensor, found: Found) -> Judged:
    """The verdict on the kernel's points for costs c (K, n), with the multipliers that belong to them."""
    qp = replace(programs.qp, c=c)
    fixed = found.lower | found.upper
    duals = Duals(found.y[:, : qp.p], found.y[:, qp.p :], found.x)
    left = residuals(qp, found.x, duals, found.curvature)
    # the multiplier of a bound takes all that is left of the gradient of its variable
    duals = replace(duals, bound=left.gradient.masked_fill(fixed, 0.0) - left.gradient)
    working = ActiveSet(found.rows, found.lower, found.upper)
    verdict = verify(qp, found.x, duals, working, left, programs.sizes)
    good = verdict.solved & found.ended & (verdict.units.cost[:, 0] <= LARGEST)
    return Judged(verdict, good, ~fixed)


def tangent_of(found: Found, judged: Judged, programs: Curved, B: int) -> tuple[Tangent, Tensor | None]:
    """The tangent spaces of the first B points, and (B,) bool where they are certain; None where they all are.

    A weakly active constraint may hide that the decision is not unique, unless H is definite.
    """
    s, qp = judged.verdict.measured, judged.verdict.qp
    tight = (torch.minimum(s.slack_lower[:B], s.slack_upper[:B]) <= TIGHT) & judged.free[:B]
    tight_rows = (s.slack_rows[:B] <= TIGHT) & ~found.rows[:B] if qp.m else found.rows[:B]
    tangent = Tangent(found, tight, tight_rows, programs.qp.G, programs.sizes.norms_G)
    if programs.definite:
        return tangent, None
    _, weak = tight_constraints(qp, s, judged.verdict.working)
    return tangent, weak.count()[:B] == 0
