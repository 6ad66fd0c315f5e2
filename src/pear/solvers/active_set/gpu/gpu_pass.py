"""The fused pass on a GPU: decisions, regrets and gradients of a batch, with one wait for the device.

One kernel solves the programs, the points are verified on the device, and another kernel projects. A small batch takes
as long as its launches. The host code therefore never branches on a value of a tensor and reads nothing back before the
end, and what depends on the problem alone is computed once. At the end one tensor says for every sample whether its
results can be trusted. The pipeline solves the other samples and reports a status for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from pear.compile.cuda_graphs import CapturedGraph, CudaGraphStore, captured_graph
from pear.optimality.definiteness import has_flat_curvature
from pear.optimality.natural_sizes import Sizes
from pear.optimality.objective_gap import objective_gap
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.solvers.active_set.gpu import gpu_plan as gpu
from pear.solvers.active_set.gpu.dual_method import DualCurvature
from pear.solvers.active_set.gpu.gpu_points import GPUPoints
from pear.solvers.active_set.gpu.gpu_programs import GPUPrograms
from pear.solvers.active_set.gpu.gpu_solution import GPUSolution
from pear.solvers.active_set.gpu.gpu_tangent_space import GPUTangentSpace
from pear.solvers.fused_pass import FusedPassDecisions
from pear.solvers.normal_component import add_normal_component
from pear.solvers.regret_call import RegretCall, RegretCallResults

Result = TypeVar("Result")

_WORK = 16  # how many numbers the pass computes with for each number that comes with a call


class GPUPassRegrets(NamedTuple):
    """Regrets of a batch on the device, before anything has been read back.

    Attributes:
        value, exact, injected, x, best, kkt_residual: as in ``RegretCallResults``.
        good: (B,) bool, True if the results of a sample can be trusted.
        solution: the solutions of the kernel.
    """

    value: Tensor
    exact: Tensor
    injected: Tensor
    x: Tensor
    best: Tensor
    kkt_residual: Tensor
    good: Tensor
    solution: GPUSolution

    def copied(self) -> GPUPassRegrets:
        """Return a copy outside of the memory of a CUDA graph, with ``good`` on the CPU. ``solution`` is not copied."""
        value, residual = torch.stack([self.value, self.kkt_residual])
        exact, injected, x, best = torch.stack(self[1:5])
        return GPUPassRegrets(value, exact, injected, x, best, residual, self.good.cpu(), self.solution)


class GPUPass:
    """The fused pass of one problem on a GPU.

    Args:
        problem: a continuous, dense problem on a GPU, without a smooth term φ.
        solver: the name under which the problem keeps the ``GPUPlan`` of its constraints. The pipeline uses the same
            plan.
    """

    def __init__(self, problem: Problem, solver: str) -> None:
        self.problem, self._solver = problem, solver
        self._smoothing: float | None = None
        self._own: GPUPrograms | None = None
        self._plan: gpu.GPUPlan | None = None
        self._store = CudaGraphStore()
        self._curvatures: dict[Hashable, DualCurvature] = {}
        self._probe: Tensor | None = None

    @staticmethod
    def supports(problem: Problem) -> bool:
        """Return True for dense, continuous problems on a GPU without a smooth term φ."""
        return problem.phi is None and problem.device.type == "cuda" and not problem.is_sparse

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedPassDecisions | None:
        """Return the decisions of a batch; see ``FusedPass.decide``."""
        own = None if set(fields) - {"Q"} else self._programs_for_call(cost, smoothing, keys, fields.values())
        if own is None:
            return None

        def decide(cost: Tensor, *Q: Tensor) -> tuple[Tensor, GPUTangentSpace, Tensor]:
            return self.decide_on_device(cost, own.with_curvature(Q[0], self.problem.sign, smoothing) if Q else own)

        while True:
            (x, tangent, flags), graph = self._run_or_replay("decide", own, (cost, *fields.values()), decide)
            lent = replace(tangent, proven=True)
            if graph is not None:
                x = x.clone()
                graph.lend(lent)
            solved, sure = flags.tolist()  # the one wait for the device
            if solved:
                return FusedPassDecisions(x, lent, doubtful=not sure, proven=True)
            if not self._current_plan.adapt(tangent.solution):
                return None

    def decide_on_device(self, cost: Tensor, programs: GPUPrograms) -> tuple[Tensor, GPUTangentSpace, Tensor]:
        """Solve a batch without reading anything back to the host.

        A fixed vector is projected as a test. If its projection converges, the backward pass need not check its own
        projections.

        Args:
            cost: (B, n) costs.
            programs: the programs of the batch.

        Returns:
            (B, n) decisions; their tangent spaces; (2,) bool. The first flag is True if all decisions can be trusted,
            the second if all derivatives can.
        """
        c = cost.double() if self.problem.sign == 1 else -cost.double()
        solution = self._current_plan.solve(replace(programs.qp, c=c), self._curvature(programs))
        points = GPUPoints.verified(programs, c, solution)
        tangent, sure = points.tangent_space(programs, len(c))
        probed = tangent.project(self._probe_error(c))[1]
        sure = probed if sure is None else probed & sure
        good = points.good if programs.usable is None else points.good & programs.usable
        return solution.x, tangent, torch.stack([good, sure]).all(1)

    def regret(self, call: RegretCall) -> tuple[RegretCallResults, Tensor] | None:
        """Return regrets and gradients of a batch; see ``FusedPass.regret``."""
        function, given, name = self._regret_function(call)
        own = self._programs_for_call(call.predicted, call.smoothing, call.keys, given)
        if own is None or (call.injection > 0 and not given and not own.definite):
            return None
        while True:
            found, graph = self._run_or_replay(name, own, (call.predicted, call.true, *given), partial(function, own))
            found = found if graph is None else found.copied()
            left = (~found.good.cpu()).nonzero()[:, 0]  # the one wait for the device
            if not len(left) or not self._current_plan.adapt(found.solution):
                break
        for Q in (call.Q, call.true_Q) if len(left) and call.Q is not None else ():
            self.problem.checked(call.predicted, Q=Q)  # raises an error where a curvature is not symmetric
        status, true_status, *never = torch.zeros(4, len(found.value), dtype=torch.int8, device=found.value.device)
        reused, repaired = (flags.view(torch.bool) for flags in never)
        return RegretCallResults(*found[:5], status, true_status, found.kkt_residual, reused, repaired), left

    def _regret_function(self, call: RegretCall) -> tuple[Callable[..., GPUPassRegrets], tuple[Any, ...], Hashable]:
        """Return a function that computes the regrets of a call, and what it is called with.

        Returns:
            The function of the result of ``_programs_for_call``, predicted costs, true costs, and the matrices Q that
            come with the call; these matrices; a name under which the function can be captured as a CUDA graph.
        """
        injection, smoothing, shared, sign = call.injection, call.smoothing, call.shares_curvature, self.problem.sign
        own_true = call.true_Q is self.problem.Q
        given = () if call.Q is None else (call.Q,) if shared or own_true else (call.Q, call.true_Q)

        def regret(own: GPUPrograms, predicted: Tensor, true: Tensor, *given: Tensor) -> GPUPassRegrets:
            if not given:
                return self.regret_on_device(predicted, true, injection, (own, own))
            programs = own.with_curvature(given[0], sign, smoothing)
            if shared:
                return self.regret_on_device(predicted, true, injection, (programs, programs))
            ideal = own if own_true else own.with_curvature(given[1], sign, smoothing)
            true_Q = self.problem.Q if own_true else given[1]
            assert true_Q is not None
            change = given[0].double() - true_Q.double()
            return self.regret_on_device(predicted, true, injection, (programs, ideal), change)

        return regret, given, ("regret", injection, shared, own_true)

    def _run_or_replay(
        self, name: Hashable, own: GPUPrograms, tensors: tuple[Tensor, ...], function: Callable[..., Result]
    ) -> tuple[Result, CapturedGraph | None]:
        """Return ``function(*tensors)``, computed by a CUDA graph if that saves time.

        A graph reads fixed memory. It is therefore used only if ``own`` are the programs of the whole problem. The
        programs of a part of the samples are new tensors in every call.

        Args:
            name: identifies the function among all functions that are captured.
            own: the programs of the call, which the function reads.
            tensors: the arguments of the function.
            function: the function to compute.

        Returns:
            The result; the graph that computed it, or None.
        """
        given = [tensor.detach() for tensor in tensors]
        graph = None
        if own is self._own:
            self._curvature(own)  # made outside of the graph, so that other graphs can read it
            numbers = _WORK * sum(tensor.numel() for tensor in given) + len(given[0]) * self._current_plan.numbers
            make = partial(CapturedGraph, lambda given: function(*given), given)
            graph = captured_graph((name, *self._current_plan.state), given, numbers, make, self._store)
        return (function(*given), None) if graph is None else (graph(given), graph)

    def regret_on_device(
        self,
        predicted: Tensor,
        true_cost: Tensor,
        injection: float,
        pair: tuple[GPUPrograms, GPUPrograms],
        change: Tensor | None = None,
    ) -> GPUPassRegrets:
        """Return regrets and gradients of a batch, without reading anything back to the host.

        Args:
            predicted, true_cost: (B, n) costs.
            injection: the strength β of the normal component of the gradient.
            pair: the programs with the predicted and with the true objective.
            change: (B, n, n) or (n, n) predicted minus true Q; None if they are equal.
        """
        (programs, true), B = pair, len(predicted)
        c = torch.cat([predicted, true_cost]).double()
        c = c if self.problem.sign == 1 else -c
        solution = self._solve_both(programs, true, c)
        x, best = solution.x[:B], solution.x[B:]
        d = x - best
        points = GPUPoints.verified(programs.twice if programs is true else programs.joined(true, B), c, solution)
        verdict = points.verdict
        tangent, sure = points.tangent_space(programs, B)
        error = c[:B] - c[B:] if self.problem.sign == 1 else c[B:] - c[:B]
        if change is not None:
            error = error + matvec(change if change.dim() == 3 else change[None], x)
        g, converged = tangent.project(error)
        injected = g if injection == 0 else add_normal_component(programs.inverse_times(error), g, injection)
        good = points.good.view(2, B).all(0) & converged
        for more in (sure, programs.usable, None if true is programs else true.usable):
            good = good if more is None else good & more
        value = objective_gap(d, matvec(true.qp.H, d), verdict.left.rows[:B], verdict.duals[B:])
        return GPUPassRegrets(value, g, injected, x, best, verdict.kkt_residual[:B], good, solution)

    def restore(self) -> None:
        """Do nothing, because the pass keeps no rows of samples."""

    # -- points ------------------------------------------------------------------------------------------------------

    @property
    def _current_plan(self) -> gpu.GPUPlan:
        """The plan of the problem. The caller makes sure that there is one."""
        assert self._plan is not None  # calls without a plan do not come this far
        return self._plan

    def _solve_both(self, programs: GPUPrograms, true: GPUPrograms, c: Tensor) -> GPUSolution:
        """Return the solutions of B programs with the predicted objective and B with the true one, for costs c (2B, n).

        Only the first B solutions keep what a projection needs.
        """
        plan, B = self._current_plan, len(c) // 2
        if programs is true:
            return plan.solve_all(replace(programs.qp, c=c[:B]), c.view(2, B, -1), self._curvature(programs))
        predicted = plan.solve(replace(programs.qp, c=c[:B]), self._curvature(programs))
        return predicted.joined(plan.solve(replace(true.qp, c=c[B:]), self._curvature(true)))

    def _curvature(self, programs: GPUPrograms) -> DualCurvature | None:
        """Return what the dual method computes from H alone. It is kept until λ or the plan changes.

        The result is None if H differs by sample, comes with the call or is not positive definite, or if the method
        does not need the result.
        """
        plan, qp = self._current_plan, programs.qp
        if not plan.needs_inverse or programs is not self._own or len(qp.H) > 1 or not programs.definite:
            return None
        if plan.state not in self._curvatures:
            self._curvatures = {plan.state: plan.curvature(qp, programs.inverse)}
        return self._curvatures[plan.state]

    def _probe_error(self, c: Tensor) -> Tensor:
        """Return the vectors (B, n) that are projected as a test: one fixed random vector, B times."""
        if self._probe is None:
            generator = torch.Generator().manual_seed(0)
            self._probe = torch.randn(c.shape[1], dtype=torch.float64, generator=generator).to(c.device)
        return self._probe.expand_as(c).contiguous()

    # -- programs ----------------------------------------------------------------------------------------------------

    def _programs_for_call(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, given: Collection[Any]
    ) -> GPUPrograms | None:
        """Return the programs of a call, without its costs and without curvatures that come with it.

        Args:
            cost: (B, n) costs.
            smoothing: the coefficient λ of the quadratic smoothing term.
            keys: keys of the samples, or None.
            given: the matrices Q that come with the call.

        Returns:
            The programs; None if the pass cannot take the call.
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
        shared = own.qp.shares_constraints  # a plan is for the constraints of all samples
        return own[torch.tensor(keys, device=problem.device)] if shared and keys is not None else None

    def _own_programs(self, smoothing: float) -> GPUPrograms | None:
        """Return the programs of the whole problem, kept until λ changes; None if no kernel takes them."""
        if self._smoothing != smoothing:
            problem, self._own, self._smoothing = self.problem, None, smoothing
            self._store, self._curvatures = CudaGraphStore(), {}
            nothing = torch.zeros(problem.batch or 1, problem.n, dtype=torch.float64, device=problem.device)
            qp = problem.canonical(nothing, smoothing)
            curved = problem.Q is not None or smoothing > 0
            self._plan = (
                qp.prepare_once(self._solver, gpu.make_gpu_plan) if curved and gpu.supports_gpu_plan(qp) else None
            )
            if self._plan is not None:
                if problem.Q is not None and problem.sign == 1 and smoothing == 0:
                    qp = replace(qp, H=problem.Q if problem.Q.dim() == 3 else problem.Q[None])  # without the copy
                sizes = Sizes.of(qp)
                sizes = sizes if self._read_flag(qp.lb == qp.ub) else replace(sizes, pinned=None)
                self._own = GPUPrograms(qp, sizes, definite=not self._read_flag(has_flat_curvature(qp)))
        return self._own

    @staticmethod
    def _read_flag(flags: Tensor) -> bool:
        """Return True if any flag is True. The call waits for the device; it is made only when λ has changed."""
        return bool(flags.any())
