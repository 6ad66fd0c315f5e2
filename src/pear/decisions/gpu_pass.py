"""Decisions, regrets and gradients of a batch on a GPU, in one pass that waits for the device once.

What ``OnePass`` is on the CPU: the kernel solves, the rule judges, the kernel's factors project. A batch of 64 costs
what its launches cost, so that nothing branches on a value, nothing is read back on the way, and what depends on the
problem alone is computed once. At the end one tensor says of every sample whether all of it may be trusted; what it
says no to goes down the pipeline, which reports a status for each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions.regrets import Decided, RegretCall, Regrets
from pear.optimality.active import tight_constraints
from pear.optimality.gap import objective_gap
from pear.optimality.point import ActiveSet, Duals
from pear.optimality.residual import residuals
from pear.optimality.rule import LARGEST, ROUNDOFF, TIGHT
from pear.optimality.scale import Sizes
from pear.optimality.verify import Verdict, verify
from pear.problem import Problem
from pear.problem.canonical import QuadraticProgram, matvec
from pear.problem.convert import float_type
from pear.problem.validate import SYMMETRY
from pear.sensitivity.curvature import singular
from pear.sensitivity.projection import add_normal
from pear.solvers.active_set.gpu import batch as gpu


@dataclass(frozen=True)
class Curved:
    """Programs of a batch but for their costs, and what is known of them.

    Attributes:
        qp: the programs, with a cost that is not looked at; H (B or 1, n, n).
        sizes: what their natural sizes take from the data.
        definite: whether every H is positive definite; a sample that is an exception is marked in ``usable``.
        usable: (B or 1,) bool, where H is as it should be; None where it is known to be.
    """

    qp: QuadraticProgram
    sizes: Sizes
    definite: bool
    usable: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> Curved:
        """The programs of some samples, of a problem that has a curvature for each."""
        sizes = self.sizes
        some = replace(sizes, top=sizes.top[rows], root=sizes.root[rows], root_top=sizes.root_top[rows])
        return replace(self, qp=replace(self.qp, H=self.qp.H[rows]), sizes=some)

    @cached_property
    def inverse(self) -> Tensor:
        """(B or 1, n, n) H⁻¹."""
        return torch.cholesky_inverse(torch.linalg.cholesky_ex(self.qp.H).L)

    def inverse_times(self, e: Tensor) -> Tensor:
        """(B, n) H⁻¹e, refined to rounding."""
        if self.qp.diagonal:
            return e / self.sizes.top
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
        descent: the kernel's own projector, with the working sets held.
        tight: (B, n) bool, free variables at a bound; tight_rows: (B, m) bool, rows that are tight and not held.
        G, norms: (B or 1, m, n) the rows, and (B or 1, m) their lengths.
        proven: True where an earlier projection has shown that every one is right.
    """

    descent: gpu.Descent
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
        g, converged = self.descent.project(e)
        if self.proven:
            return g.masked_fill(self.tight, 0.0), converged
        off = torch.where(self.tight, g, 0.0)
        if self.tight_rows.shape[1]:
            off = torch.cat([off, torch.where(self.tight_rows, matvec(self.G, g) / self.norms, 0.0)], 1)
        most_off, most = (torch.linalg.vector_norm(part, torch.inf, dim=1) for part in (off, g))
        return g.masked_fill(self.tight, 0.0), converged & (most_off <= ROUNDOFF * most)


class GPUPass:
    """The pass over batch after batch of one problem on a GPU.

    Args:
        problem: what is decided: continuous, dense, on a GPU, without φ, with constraints that all samples share.
        solver: the name that the plan of the constraints is kept under, which the pipeline uses, too.
    """

    def __init__(self, problem: Problem, solver: str) -> None:
        self.problem, self._solver = problem, solver
        self._smoothing: float | None = None
        self._own: Curved | None = None
        self._probe: Tensor | None = None

    @staticmethod
    def supports(problem: Problem) -> bool:
        """True where the pass takes this problem."""
        return problem.phi is None and problem.device.type == "cuda" and not problem.is_sparse

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> Decided | None:
        """Decide for a batch; None where it has to go down the pipeline.

        Args:
            cost: (B, n).
            smoothing: λ.
            keys: of the samples, or None.
            fields: what replaces the problem's fields in this call.
        """
        programs = None if set(fields) - {"Q"} else self._programs(cost, smoothing, keys, fields.get("Q"))
        if programs is None:
            return None
        while True:
            decided, flags, found = self.decide_unread(cost, programs)
            solved, sure = flags.tolist()  # the one wait for the device
            if solved:
                return replace(decided, doubtful=not sure)
            if not self._learn(found):
                return None

    def decide_unread(self, cost: Tensor, programs: Curved) -> tuple[Decided, Tensor, gpu.Descent]:
        """The decisions, (2,) bool on the device: whether all may be trusted, and all their derivatives; the points.

        A projection of any error shows whether the factors are good, so that the backward pass need not look again.
        """
        c = cost.double() if self.problem.sign == 1 else -cost.double()
        assert self._plan is not None
        found = self._plan.solve(replace(programs.qp, c=c))
        judged = _judge(programs, c, found)
        tangent, sure = _tangent(found, judged, programs, len(c))
        probed = tangent.project(self._any_error(c))[1]
        sure = probed if sure is None else probed & sure
        good = judged.good if programs.usable is None else judged.good & programs.usable
        decided = Decided(found.x, replace(tangent, proven=True), doubtful=False, proven=True)
        return decided, torch.stack([good, sure]).all(1), found

    def regret(self, call: RegretCall) -> tuple[Regrets, Tensor] | None:
        """Regrets and gradients of a batch, and the (k,) samples that are left; None where the pass does not apply."""
        pair = self._pair(call)
        if pair is None:
            return None
        while True:
            parts, good, found = self.regret_unread(call, *pair)
            left = (~good.cpu()).nonzero()[:, 0]  # the one wait for the device
            if not len(left) or not self._learn(found):
                break
        for Q in (call.Q, call.true_Q) if len(left) and call.Q is not None else ():
            self.problem.checked(call.predicted, Q=Q)  # which names a sample whose curvature is not symmetric
        return parts, left

    def regret_unread(self, call: RegretCall, programs: Curved, true: Curved) -> tuple[Regrets, Tensor, gpu.Descent]:
        """Regrets and gradients of a batch, (B,) bool on the device where they may be trusted, and the points."""
        B = len(call.predicted)
        c = torch.cat([call.predicted, call.true]).double()
        c = c if self.problem.sign == 1 else -c
        found = self._solve_both(programs, true, c)
        x, best = found.x[:B], found.x[B:]
        d = x - best
        judged = _judge(programs.twice if programs is true else programs.above(true, B), c, found)
        verdict = judged.verdict
        tangent, sure = _tangent(found, judged, programs, B)
        error = self._error(call, c, x, programs is true)
        g, converged = tangent.project(error)
        injected = g
        if call.injection > 0:
            injected = add_normal(programs.inverse_times(error), g, call.injection)
        good = judged.good.view(2, B).all(0) & converged
        for more in (sure, programs.usable, None if true is programs else true.usable):
            good = good if more is None else good & more
        status, true_status, *never = torch.zeros(4, B, dtype=torch.int8, device=c.device)
        parts = Regrets(
            value=objective_gap(d, matvec(true.qp.H, d), verdict.left.rows[:B], verdict.duals[B:]),
            exact=g,
            injected=injected,
            x=x,
            best=best,
            status=status,
            true_status=true_status,
            kkt_residual=verdict.kkt_residual[:B],
            reused=never[0].view(torch.bool),
            repaired=never[1].view(torch.bool),
        )
        return parts, good, found

    def time_phases(self, call: RegretCall) -> tuple[float, float] | None:
        """Nothing: the parts of the pass are not told apart."""
        return None

    # -- points ------------------------------------------------------------------------------------------------------

    def _solve_both(self, programs: Curved, true: Curved, c: Tensor) -> gpu.Descent:
        """The solutions for predicted and true costs (2B, n); only the first B can be projected at."""
        plan, B = self._plan, len(c) // 2
        assert plan is not None
        if programs is true:
            return plan.solve_all(replace(programs.qp, c=c[:B]), c.view(2, B, -1))
        found, ideal = (plan.solve(replace(one.qp, c=part)) for one, part in ((programs, c[:B]), (true, c[B:])))
        names = ("x", "curvature", "y", "lower", "upper", "rows", "ended", "crowded")
        both: dict[str, Any] = {name: torch.cat([getattr(found, name), getattr(ideal, name)]) for name in names}
        return replace(found, **both)

    def _learn(self, found: gpu.Descent) -> bool:
        """Whether room was missing, and there is more now."""
        assert self._plan is not None
        return self._plan.learn(found)

    def _error(self, call: RegretCall, c: Tensor, x: Tensor, same: bool) -> Tensor:
        """(B, n) error of the objective's gradient at the decisions x, (ĉ − c) + (Q̂ − Q) x, in the user's sense."""
        B = len(x)
        error = c[:B] - c[B:] if self.problem.sign == 1 else c[B:] - c[:B]
        if same or call.Q is None:
            return error
        change = call.Q.double() - torch.as_tensor(call.true_Q).double()
        return error + matvec(change if change.dim() == 3 else change[None], x)

    def _any_error(self, c: Tensor) -> Tensor:
        """(B, n) the same error for every sample."""
        if self._probe is None:
            generator = torch.Generator().manual_seed(0)
            self._probe = torch.randn(c.shape[1], dtype=torch.float64, generator=generator).to(c.device)
        return self._probe.expand_as(c).contiguous()

    # -- programs ----------------------------------------------------------------------------------------------------

    def _pair(self, call: RegretCall) -> tuple[Curved, Curved] | None:
        """The programs of a call under the predicted and the true objective."""
        programs = self._programs(call.predicted, call.smoothing, call.keys, call.Q)
        if programs is None or (call.injection > 0 and not programs.definite):
            return None
        if call.Q is None or call.true_Q is call.Q:
            return programs, programs
        own = call.true_Q is self.problem.Q
        true = self._programs(call.true, call.smoothing, call.keys, None if own else call.true_Q)
        return None if true is None else (programs, true)

    def _programs(self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, Q: Any) -> Curved | None:
        """The programs of a call, but for their costs; None where the pass does not take them."""
        problem = self.problem
        if cost.device != problem.device or not len(cost) or cost.dim() != 2 or cost.shape[1] != problem.n:
            return None
        if self._plan is None:
            return None
        own = self._own_programs(smoothing)
        if Q is not None:
            return self._given_programs(own, Q, len(cost), smoothing)
        if problem.batch is None or (keys is None and len(cost) == problem.batch):
            return own
        if keys is not None and keys == list(range(problem.batch)):
            return own
        shared = own.qp.shares_constraints  # those of some samples would be another problem to the kernel
        return own[torch.tensor(keys, device=problem.device)] if shared and keys is not None else None

    def _own_programs(self, smoothing: float) -> Curved:
        """The problem's own programs, brought into form once for each λ."""
        if self._own is None or self._smoothing != smoothing:
            problem = self.problem
            nothing = torch.zeros(problem.batch or 1, problem.n, dtype=torch.float64, device=problem.device)
            qp = problem.canonical(nothing, smoothing)
            if problem.Q is not None and problem.sign == 1 and smoothing == 0:
                qp = replace(qp, H=problem.Q if problem.Q.dim() == 3 else problem.Q[None])  # without the copy
            sizes = Sizes.of(qp)
            sizes = sizes if _any(qp.lb == qp.ub) else replace(sizes, pinned=None)
            self._own = Curved(qp, sizes, definite=not _any(singular(qp)))
            self._smoothing = smoothing
        return self._own

    def _given_programs(self, own: Curved, Q: Any, B: int, smoothing: float) -> Curved | None:
        """The programs with a curvature that comes with the call: (n, n) or (B, n, n), and any numbers."""
        n, problem = self.problem.n, self.problem
        if not (isinstance(Q, Tensor) and Q.shape in ((n, n), (B, n, n)) and Q.device == problem.device):
            return None
        if not Q.is_floating_point() or not (own.qp.shares_constraints or problem.batch == B):
            return None
        wide = Q.detach().double()
        wide = wide if wide.dim() == 3 else wide[None]
        H = torch.add(wide, wide.mT).mul_(0.5 * problem.sign)
        asymmetry = torch.linalg.vector_norm(wide - wide.mT, torch.inf, dim=(1, 2))
        if smoothing:
            H.diagonal(dim1=1, dim2=2).add_(smoothing)
        sizes = own.sizes.with_curvature(H)
        largest = sizes.top[:, 0] - smoothing  # no entry of a definite matrix exceeds its diagonal
        usable = (torch.linalg.cholesky_ex(H).info == 0) & (sizes.top[:, 0] <= LARGEST)
        usable = usable & (asymmetry <= SYMMETRY[float_type(Q) or torch.float64] * largest)
        return Curved(replace(own.qp, H=H, diagonal=False), sizes, definite=True, usable=usable)

    @cached_property
    def _plan(self) -> gpu.GPUPlan | None:
        """What the kernel needs to know of the constraints; None where it does not take them."""
        qp = self._own_programs(self._smoothing or 0.0).qp
        return qp.prepared(self._solver, gpu.prepare) if gpu.supports(qp) else None


def _judge(programs: Curved, c: Tensor, found: gpu.Descent) -> Judged:
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


def _tangent(found: gpu.Descent, judged: Judged, programs: Curved, B: int) -> tuple[Tangent, Tensor | None]:
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


def _any(flags: Tensor) -> bool:
    """Whether one of them is true: asked once, of a problem's own data."""
    return bool(flags.any())
