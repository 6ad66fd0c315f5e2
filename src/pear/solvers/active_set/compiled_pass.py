"""The fused pass of the active-set method: one call solves, verifies and projects all samples of a batch.

``CompiledPass`` is the pass for the CPU. Its results equal those of the pipeline and of
``pear.sensitivity.projection``. Samples that the compiled code cannot finish are left to the pipeline, which gives each
of these samples a status.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.optimality.duals_and_active_sets import ActiveSet
from pear.problem import Problem
from pear.solvers.active_set import kernel_calls
from pear.solvers.active_set.active_set_solver import fits_active_set
from pear.solvers.active_set.compiled_programs import CompiledPrograms
from pear.solvers.active_set.compiled_projector import CompiledProjector
from pear.solvers.active_set.dual_plan import no_dual_plan
from pear.solvers.active_set.gpu.gpu_pass import GPUPass
from pear.solvers.active_set.kernel_arrays import (
    Array,
    CompiledRegrets,
    CompiledSolutions,
    Index,
    Programs,
    SampleCosts,
    SolutionTable,
    States,
)
from pear.solvers.active_set.program_packing import pack_costs, pack_program_pair
from pear.solvers.active_set.solution_store import SolutionStore
from pear.solvers.fingerprints import curvature_fingerprint
from pear.solvers.fused_pass import FusedPass, FusedPassDecisions, FusedSolutions
from pear.solvers.normal_component import add_normal_component
from pear.solvers.regret_call import RegretCall, RegretCallResults
from pear.solvers.warm_starts import WarmStarts

_ALWAYS_ANEW = np.zeros((0, 0))  # no fingerprints: the true problems are solved in every call
_NOBODY = np.zeros(0, np.int64)  # positions of no samples
_ALL_SOLVED = torch.from_numpy(_NOBODY)
_OWN = np.inf  # fingerprint of the problem's own curvature


def fused_pass(problem: Problem, starts: WarmStarts, name: str) -> FusedPass | None:
    """Return the fused pass for the problem's device; None if no pass takes the problem.

    Both passes take dense problems without a smooth term φ. The pass for the CPU takes only small problems.

    Args:
        problem: the decision problem, continuous.
        starts: the store of warm starts; the pass on a GPU keeps none.
        name: the name under which a problem on a GPU keeps its ``GPUPlan``, which pass and pipeline share.
    """
    if CompiledPass.supports(problem):
        return CompiledPass(problem, starts)
    return GPUPass(problem, name) if GPUPass.supports(problem) else None


class CompiledPass:
    """The fused pass of one problem on the CPU: it solves, verifies and projects batches in compiled code.

    Args:
        problem: the decision problem: continuous, dense, on the CPU, without a smooth term φ.
        starts: the store of warm starts.

    Attributes:
        programs: the programs of the problem in compiled form.
        store: warm starts and best decisions of the samples.
    """

    def __init__(self, problem: Problem, starts: WarmStarts) -> None:
        self.problem, self.starts = problem, starts
        self.programs = CompiledPrograms(problem)
        equalities, rows = self.programs.equalities, self.programs.rows
        self.store = SolutionStore(starts, problem.n, equalities, rows - equalities)
        self._all_slots: Index = _NOBODY
        self._generation = 0  # of the store, when these row numbers were found

    @staticmethod
    def supports(problem: Problem) -> bool:
        """Return True if the pass takes this problem."""
        rows = sum(0 if v is None else v.shape[-1] for v in (problem.b, problem.h))
        plain = problem.phi is None and problem.device.type == "cpu" and not problem.is_sparse
        return plain and fits_active_set(problem.n, rows)

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedPassDecisions | None:
        """Return the decisions of a batch; see ``FusedPass.decide``."""
        prepared = self.programs.prepare(cost, smoothing, keys, fields)
        return None if prepared is None else self._decide(prepared, cost, keys)

    def decide_with_rows(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedPassDecisions | None:
        """Return the decisions of a batch as ``decide`` does, with multipliers and tight constraints.

        The primal method alone finds them, because its bases give derivatives with respect to right-hand sides and
        bounds.
        """
        prepared = self.programs.prepare(cost, smoothing, keys, fields)
        if prepared is None:
            return None
        P, default, at = prepared
        return self._decide((P._replace(dual=no_dual_plan()), default, at), cost, keys, by_rows=True)

    def _decide(
        self,
        prepared: tuple[Programs, States, Index],
        cost: Tensor,
        keys: list[Hashable] | None,
        by_rows: bool = False,
    ) -> FusedPassDecisions | None:
        """Return the decisions of a batch; None if the pipeline has to decide.

        Args:
            prepared: the result of ``CompiledPrograms.prepare``.
            cost: (B, n) costs.
            keys: keys of the samples, or None.
            by_rows: whether the result has multipliers and tight constraints.
        """
        P, default, at = prepared
        states, slots = self.store.states(keys, len(at))
        known = self.programs.has_own_matrices(P) and (P.smoothing > 0 or len(P.Q) <= 1)
        unique = known and self.programs.has_unique_decisions(P)  # a test of every sample's curvature takes too long
        outcome = kernel_calls.call_kernel_to_solve(P, pack_costs(cost), at, states, slots, default, not unique)
        left = _positions_left_by_pass(outcome)
        if len(left) == len(at):
            return None
        # copied, because the table changes before the backward pass
        mine = states if keys is None else States._make(part[slots] for part in states)
        doubtful = not unique and bool(np.count_nonzero(outcome.weak)) and not self.programs.has_unique_decisions(P)
        projector = CompiledProjector(P, mine, at)
        if doubtful and len(left):
            return None
        x, rest = torch.from_numpy(outcome.x), torch.from_numpy(left) if len(left) else None
        if not by_rows:
            return FusedPassDecisions(x, projector, doubtful, left=rest)
        duals, active = kernel_calls.kernel_duals(outcome), kernel_calls.kernel_active_set(outcome)
        return FusedPassDecisions(x, projector, doubtful, left=rest, duals=duals, active=active)

    def solve(self, cost: Tensor, smoothing: float) -> FusedSolutions | None:
        """Solve a batch of the problem's own programs; None if the pipeline has to solve it.

        Args:
            cost: (B, n) costs.
            smoothing: the coefficient λ of the quadratic smoothing term.
        """
        prepared = self.programs.prepare(cost, smoothing, None, {})
        if prepared is None or not self.programs.supports_own(smoothing):
            return None
        P, default, at = prepared
        c = pack_costs(cost)
        states, slots = self.store.states(None, len(c))
        found = kernel_calls.call_kernel_to_solve(P, c, at, states, slots, default)
        if len(_positions_left_by_pass(found)):
            return None
        # arrays as far as possible: an operation on small tensors takes several times as long
        value = CompiledPrograms.objective_values(P, c, found.x)
        x, values, residual = map(torch.from_numpy, (found.x, value, found.kkt_residual))
        weak = ActiveSet(*map(torch.from_numpy, (found.weak_rows, found.weak_lower, found.weak_upper)))
        duals, active = kernel_calls.kernel_duals(found), kernel_calls.kernel_active_set(found)
        return FusedSolutions(x, values, duals, active, weak, residual)

    def regret(self, call: RegretCall) -> tuple[RegretCallResults, Tensor] | None:
        """Return regrets and gradients of a batch; see ``FusedPass.regret``."""
        predicted, Q = call.predicted, call.Q
        prepared = self.programs.prepare(predicted, call.smoothing, call.keys, {} if Q is None else {"Q": Q})
        if prepared is None:
            return None
        P, default, at = prepared
        table, slots = self.store.table(call.keys, len(at))
        if call.shares_curvature:  # a predicted curvature is new in every call, so that no true solution can be kept
            SolutionStore.void_solutions(table, slots)
            table = table._replace(fingerprints=_ALWAYS_ANEW)
        true_Q = P.Q if Q is None or call.shares_curvature else self._true_curvature(P, call, table, slots)
        if true_Q is None:
            return None
        if Q is None:
            self.store.void_changed(table, slots, _OWN, call.smoothing)
        strength = call.injection if call.injection == 0 or self.programs.is_definite(P) else -1.0
        factor = self.programs.factor(P, at).numpy() if strength > 0 and len(P.Q) else np.zeros((0, 0, 0))
        samples = SampleCosts(pack_costs(predicted), pack_costs(call.true), at, slots)
        pair = pack_program_pair(P, true_Q, factor)
        results = kernel_calls.call_kernel_for_regrets(pair, samples, table, default, strength)
        left, weak = _positions_left_by_pass(results.outcome), results.outcome.weak
        # a weakly active constraint may hide an ambiguous decision
        if np.count_nonzero(weak) and not self.programs.has_unique_decisions(P):
            left = np.union1d(left, np.flatnonzero(weak))
        parts = regrets_of_compiled_pass(results, table.best.x[slots] if len(slots) else table.best.x)
        if strength < 0:
            active = kernel_calls.kernel_active_set(results.outcome)
            rescaled = self.programs.apply_inverse(P, at, active, parts.injected)
            parts = replace(parts, injected=add_normal_component(rescaled, parts.exact, call.injection))
        return parts, torch.from_numpy(left) if len(left) else _ALL_SOLVED

    def _true_curvature(self, P: Programs, call: RegretCall, table: SolutionTable, slots: Index) -> Array | None:
        """Return Q of the true objective, in the form of ``Programs.Q``; None if the objective is not convex.

        A sample's Q is compared, by its fingerprint, with that of the last call. Convexity is not tested again if no Q
        has changed. If some Q has changed, the kept solution of that sample's problem with true costs is discarded.
        """
        Q, n = call.true_Q, self.problem.n
        plain = isinstance(Q, Tensor) and Q.shape == (len(call.true), n, n)
        if not (plain and Q.dtype == torch.float64 and Q.device.type == "cpu" and len(table.fingerprints)):
            SolutionStore.void_solutions(table, slots)
            return self.programs.true_curvature(P, call)
        mark = curvature_fingerprint(Q).numpy()
        unchanged = self.store.is_unchanged(table, slots, mark, call.smoothing).all()
        if not unchanged and self.programs.true_curvature(P, call) is None:
            return None
        self.store.void_changed(table, slots, mark, call.smoothing)
        return np.ascontiguousarray(Q.detach().numpy())

    def all_samples(self, count: int, smoothing: float) -> tuple[Programs, Index, SolutionTable, States] | None:
        """Return what an epoch of compiled training needs: programs, row numbers in the table, table, default start.

        The row numbers (count,) are those of the samples with keys 0, …, count − 1. The result is None if the table
        would take too much memory, or if the active-set solver does not support the programs.
        """
        if not self.programs.supports_call(smoothing):
            return None
        P, default = self.programs.own(smoothing)
        if len(self._all_slots) != count or self._generation != self.starts.generation:
            self._all_slots = self.starts.slots(range(count))
            self._generation = self.starts.generation
        table = self.store.stored_table()
        if table is None:
            return None
        self.store.void_changed(table, self._all_slots, _OWN, smoothing)
        return P, self._all_slots, table, default

    def shared_factor(self, smoothing: float) -> Tensor | None:
        """Return the lower Cholesky factor (n, n) of the Hessian that all samples share.

        The result is None if the Hessian differs by sample or is not positive definite, or if the active-set solver
        does not support the programs.
        """
        if not self.programs.supports_call(smoothing):
            return None
        P = self.programs.own(smoothing)[0]
        if len(P.Q) != 1 or not self.programs.is_definite(P):
            return None
        return self.programs.factor(P, np.zeros(1, np.int64))[0]

    def restore(self) -> None:
        """Load and check the rows that a saved store of warm starts holds for this pass; see ``FusedPass.restore``."""
        self.store.restore()


def regrets_of_compiled_pass(results: CompiledRegrets, best: Array) -> RegretCallResults:
    """Convert the results of the kernel to ``RegretCallResults``, with every sample marked as solved.

    Args:
        results: the results of the kernel.
        best: (B, n) the best decisions under the true costs.
    """
    outcome = results.outcome
    B = len(best)
    statuses, repaired = (np.zeros(B, np.int8), np.zeros(B, np.int8)), np.zeros(B, bool)
    arrays = (*results[1:], outcome.x, best, *statuses, outcome.kkt_residual, outcome.changes == 0, repaired)
    return RegretCallResults(*map(torch.from_numpy, arrays))


def _positions_left_by_pass(outcome: CompiledSolutions) -> Index:
    """Return the positions (k,) of the samples that the kernel has not solved."""
    return np.flatnonzero(outcome.code) if np.count_nonzero(outcome.code) else _NOBODY  # SOLVED is 0
