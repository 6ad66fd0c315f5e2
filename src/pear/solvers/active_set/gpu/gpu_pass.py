"""Decisions, regrets and gradients of a batch on a GPU, in one pass that waits for the device once.

As ``CompiledPass`` on the CPU: the kernel solves, the rule judges, the kernel's factors project. A batch of 64 costs
what its launches cost, so that nothing branches on a value, nothing is read back on the way, and what depends on the
problem alone is computed once. At the end one tensor says of every sample whether all of it may be trusted; what it
says no to goes down the pipeline, which reports a status for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from pear.optimality.curvature import is_singular
from pear.optimality.gap import objective_gap
from pear.optimality.rule import LARGEST
from pear.optimality.scale import Sizes
from pear.problem import Problem
from pear.problem.canonical import matvec
from pear.problem.convert import float_type
from pear.problem.replay import Replayed, Store, captured
from pear.problem.validate import SYMMETRY
from pear.solvers.active_set.gpu import batch as gpu
from pear.solvers.active_set.gpu.dual import Known
from pear.solvers.active_set.gpu.found import Found
from pear.solvers.active_set.gpu.gpu_points import Curved, LentTangent, Tangent, Unread, judge, tangent_of
from pear.solvers.fused import FusedDecisions, RegretCall, Regrets, add_normal

Result = TypeVar("Result")

_TIMES = 16  # numbers that the pass works on for each that comes with a call


class GPUPass:
    """The pass over batch after batch of one problem on a GPU.

    Args:
        problem: what is decided: continuous, dense, on a GPU, without φ.
        solver: the name that the plan of the constraints is kept under, which the pipeline uses, too.
    """

    def __init__(self, problem: Problem, solver: str) -> None:
        self.problem, self._solver = problem, solver
        self._smoothing: float | None = None
        self._own: Curved | None = None
        self._plan: gpu.GPUPlan | None = None
        self._store = Store()
        self._made: dict[Hashable, Known] = {}
        self._probe: Tensor | None = None

    @staticmethod
    def supports(problem: Problem) -> bool:
        """True where the pass takes this problem."""
        return problem.phi is None and problem.device.type == "cuda" and not problem.is_sparse

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedDecisions | None:
        """Decide for a batch; None where it has to go down the pipeline.

        Args:
            cost: (B, n).
            smoothing: λ.
            keys: of the samples, or None.
            fields: what replaces the problem's fields in this call.
        """
        own = None if set(fields) - {"Q"} else self._programs(cost, smoothing, keys, fields.values())
        if own is None:
            return None

        def decide(cost: Tensor, *Q: Tensor) -> tuple[Tensor, Tangent, Tensor]:
            return self.decide_unread(cost, self._with_curvature(own, Q[0], smoothing) if Q else own)

        while True:
            (x, tangent, flags), graph = self._run("decide", own, (cost, *fields.values()), decide)
            lent = LentTangent(replace(tangent, proven=True))
            if graph is not None:
                x = x.clone()
                graph.lend(lent)
            solved, sure = flags.tolist()  # the one wait for the device
            if solved:
                return FusedDecisions(x, lent, doubtful=not sure, proven=True)
            if not self._learn(tangent.found):
                return None

    def decide_unread(self, cost: Tensor, programs: Curved) -> tuple[Tensor, Tangent, Tensor]:
        """The decisions with their tangents, and (2,) bool: whether all may be trusted, and all their derivatives.

        A projection of any error shows whether the factors are good, so that the backward pass need not look again.
        """
        c = cost.double() if self.problem.sign == 1 else -cost.double()
        assert self._plan is not None
        found = self._plan.solve(replace(programs.qp, c=c), self._known(programs))
        judged = judge(programs, c, found)
        tangent, sure = tangent_of(found, judged, programs, len(c))
        probed = tangent.project(self._any_error(c))[1]
        sure = probed if sure is None else probed & sure
        good = judged.good if programs.usable is None else judged.good & programs.usable
        return found.x, tangent, torch.stack([good, sure]).all(1)

    def regret(self, call: RegretCall) -> tuple[Regrets, Tensor] | None:
        """Regrets and gradients of a batch, and the (k,) samples that are left; None where the pass does not apply."""
        function, given, name = self._regret_of(call)
        own = self._programs(call.predicted, call.smoothing, call.keys, given)
        if own is None or (call.injection > 0 and not given and not own.definite):
            return None
        while True:
            unread, graph = self._run(name, own, (call.predicted, call.true, *given), partial(function, own))
            unread = unread if graph is None else unread.copied()
            left = (~unread.good.cpu()).nonzero()[:, 0]  # the one wait for the device
            if not len(left) or not self._learn(unread.found):
                break
        for Q in (call.Q, call.true_Q) if len(left) and call.Q is not None else ():
            self.problem.checked(call.predicted, Q=Q)  # which names a sample whose curvature is not symmetric
        status, true_status, *never = torch.zeros(4, len(unread.value), dtype=torch.int8, device=unread.value.device)
        parts = Regrets(
            value=unread.value,
            exact=unread.exact,
            injected=unread.injected,
            x=unread.x,
            best=unread.best,
            status=status,
            true_status=true_status,
            kkt_residual=unread.kkt_residual,
            reused=never[0].view(torch.bool),
            repaired=never[1].view(torch.bool),
        )
        return parts, left

    def _regret_of(self, call: RegretCall) -> tuple[Callable[..., Unread], tuple[Any, ...], Hashable]:
        """The function of own programs, costs and curvatures that a call is, these curvatures, and its name."""
        injection, smoothing, shared = call.injection, call.smoothing, call.shares_curvature
        own_true = call.true_Q is self.problem.Q
        given = () if call.Q is None else (call.Q,) if shared or own_true else (call.Q, call.true_Q)

        def regret(own: Curved, predicted: Tensor, true: Tensor, *given: Tensor) -> Unread:
            if not given:
                return self.regret_unread(predicted, true, injection, (own, own))
            programs = self._with_curvature(own, given[0], smoothing)
            if shared:
                return self.regret_unread(predicted, true, injection, (programs, programs))
            ideal = own if own_true else self._with_curvature(own, given[1], smoothing)
            true_Q = self.problem.Q if own_true else given[1]
            assert true_Q is not None
            change = given[0].double() - true_Q.double()
            return self.regret_unread(predicted, true, injection, (programs, ideal), change)

        return regret, given, ("regret", injection, shared, own_true)

    def _run(
        self, name: Hashable, own: Curved, tensors: tuple[Tensor, ...], function: Callable[..., Result]
    ) -> tuple[Result, Replayed | None]:
        """``function(*tensors)``, and the graph that it comes from where ``own`` are the problem's own programs."""
        assert self._plan is not None
        given = [tensor.detach() for tensor in tensors]
        graph = None
        if own is self._own:
            self._known(own)  # outside of the graph, which would keep it to itself
            numbers = _TIMES * sum(tensor.numel() for tensor in given) + len(given[0]) * self._plan.numbers
            make = partial(Replayed, lambda given: function(*given), given)
            graph = captured((name, *self._plan.state), given, numbers, make, self._store)
        return (function(*given), None) if graph is None else (graph(given), graph)

    def regret_unread(
        self,
        predicted: Tensor,
        true_cost: Tensor,
        injection: float,
        pair: tuple[Curved, Curved],
        change: Tensor | None = None,
    ) -> Unread:
        """Regrets and gradients of a batch.

        Args:
            predicted, true_cost: (B, n).
            injection: β.
            pair: the programs under the predicted and under the true objective.
            change: (B, n, n) or (n, n) predicted less true curvature, in the user's sense, where they differ.
        """
        (programs, true), B = pair, len(predicted)
        c = torch.cat([predicted, true_cost]).double()
        c = c if self.problem.sign == 1 else -c
        found = self._solve_both(programs, true, c)
        x, best = found.x[:B], found.x[B:]
        d = x - best
        judged = judge(programs.twice if programs is true else programs.above(true, B), c, found)
        verdict = judged.verdict
        tangent, sure = tangent_of(found, judged, programs, B)
        error = c[:B] - c[B:] if self.problem.sign == 1 else c[B:] - c[:B]
        if change is not None:
            error = error + matvec(change if change.dim() == 3 else change[None], x)
        g, converged = tangent.project(error)
        injected = g if injection == 0 else add_normal(programs.inverse_times(error), g, injection)
        good = judged.good.view(2, B).all(0) & converged
        for more in (sure, programs.usable, None if true is programs else true.usable):
            good = good if more is None else good & more
        value = objective_gap(d, matvec(true.qp.H, d), verdict.left.rows[:B], verdict.duals[B:])
        return Unread(value, verdict.kkt_residual[:B], g, injected, x, best, good, found)

    def restore(self) -> None:
        """Nothing to take over: the pass keeps no rows of samples."""

    # -- points ------------------------------------------------------------------------------------------------------

    def _solve_both(self, programs: Curved, true: Curved, c: Tensor) -> Found:
        """The solutions for predicted and true costs (2B, n); only the first B can be projected at."""
        plan, B = self._plan, len(c) // 2
        assert plan is not None
        if programs is true:
            return plan.solve_all(replace(programs.qp, c=c[:B]), c.view(2, B, -1), self._known(programs))
        found, ideal = (
            plan.solve(replace(one.qp, c=part), self._known(one)) for one, part in ((programs, c[:B]), (true, c[B:]))
        )
        names = ("x", "curvature", "y", "lower", "upper", "rows", "ended", "crowded", "unsound")
        both: dict[str, Any] = {name: torch.cat([getattr(found, name), getattr(ideal, name)]) for name in names}
        return replace(found, **both)

    def _known(self, programs: Curved) -> Known | None:
        """What the kernel takes from a curvature that is the problem's own and the same for all samples, made once."""
        plan, qp = self._plan, programs.qp
        if plan is None or not plan.inverts or programs is not self._own or len(qp.H) > 1 or not programs.definite:
            return None
        if plan.state not in self._made:
            self._made = {plan.state: plan.known(qp, programs.inverse)}
        return self._made[plan.state]

    def _learn(self, found: Found) -> bool:
        """Whether room was missing, and there is more now."""
        assert self._plan is not None
        return self._plan.learn(found)

    def _any_error(self, c: Tensor) -> Tensor:
        """(B, n) the same error for every sample."""
        if self._probe is None:
            generator = torch.Generator().manual_seed(0)
            self._probe = torch.randn(c.shape[1], dtype=torch.float64, generator=generator).to(c.device)
        return self._probe.expand_as(c).contiguous()

    # -- programs ----------------------------------------------------------------------------------------------------

    def _programs(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, given: Collection[Any]
    ) -> Curved | None:
        """The problem's own programs for a call, but for their costs; None where the pass does not take it.

        Args:
            cost: (B, n); smoothing: λ; keys: of the samples, or None.
            given: curvatures that come with the call.
        """
        problem, B = self.problem, len(cost)
        if cost.device != problem.device or not B or cost.dim() != 2 or cost.shape[1] != problem.n:
            return None
        shapes = (problem.n, problem.n), (B, problem.n, problem.n)
        for Q in given:
            if not (isinstance(Q, Tensor) and Q.shape in shapes and Q.device == cost.device and Q.is_floating_point()):
                return None
        own = self._own_programs(smoothing)
        if own is None or self._plan is None or not self._plan.fits(B, problem.device):
            return None
        if problem.batch is None or (keys is None and problem.batch == B):
            return own
        if keys is not None and keys == list(range(problem.batch)):
            return own
        shared = own.qp.shares_constraints  # those of some samples would be another problem to the kernel
        return own[torch.tensor(keys, device=problem.device)] if shared and keys is not None else None

    def _own_programs(self, smoothing: float) -> Curved | None:
        """The problem's own programs, brought into form once for each λ; None where the kernel does not take them."""
        if self._smoothing != smoothing:
            problem, self._own, self._smoothing, self._store, self._made = self.problem, None, smoothing, Store(), {}
            nothing = torch.zeros(problem.batch or 1, problem.n, dtype=torch.float64, device=problem.device)
            qp = problem.canonical(nothing, smoothing)
            curved = problem.Q is not None or smoothing > 0
            self._plan = qp.prepared(self._solver, gpu.prepare) if curved and gpu.supports(qp) else None
            if self._plan is not None:
                if problem.Q is not None and problem.sign == 1 and smoothing == 0:
                    qp = replace(qp, H=problem.Q if problem.Q.dim() == 3 else problem.Q[None])  # without the copy
                sizes = Sizes.of(qp)
                sizes = sizes if _any(qp.lb == qp.ub) else replace(sizes, pinned=None)
                self._own = Curved(qp, sizes, definite=not _any(is_singular(qp)))
        return self._own

    def _with_curvature(self, own: Curved, Q: Tensor, smoothing: float) -> Curved:
        """The programs with a curvature that comes with the call: (n, n) or (B, n, n), and any numbers."""
        wide = Q.detach().double()
        wide = wide if wide.dim() == 3 else wide[None]
        H = torch.add(wide, wide.mT).mul_(0.5 * self.problem.sign)
        asymmetry = torch.linalg.vector_norm(wide - wide.mT, torch.inf, dim=(1, 2))
        if smoothing:
            H.diagonal(dim1=1, dim2=2).add_(smoothing)
        sizes = own.sizes.with_curvature(H)
        largest = sizes.top[:, 0] - smoothing  # no entry of a definite matrix exceeds its diagonal
        factor, info = torch.linalg.cholesky_ex(H)
        usable = (info == 0) & (sizes.top[:, 0] <= LARGEST)
        usable = usable & (asymmetry <= SYMMETRY[float_type(Q) or torch.float64] * largest)
        return Curved(replace(own.qp, H=H, diagonal=False), sizes, definite=True, usable=usable, factor=factor)


def _any(flags: Tensor) -> bool:
    """Whether one of them is true: asked once, of a problem's own data."""
    return bool(flags.any())
