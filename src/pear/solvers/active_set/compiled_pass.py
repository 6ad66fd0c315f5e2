"""The fused pass of the active-set method, and its compiled form for the CPU.

One compiled call solves, verifies and projects all samples of a batch. The results are those of the pipeline and
``project``. Samples that the compiled code cannot finish are left to the pipeline, which gives each of them a status.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pear.optimality.definiteness import is_definite, is_semidefinite
from pear.optimality.dense_inverse import apply_dense_inverse
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.problem import Problem
from pear.problem.problem_fields import FIELDS
from pear.problem.quadratic_program import MIN_VARIABLES
from pear.solvers.active_set import kernel_calls
from pear.solvers.active_set.active_set_solver import CompiledProjector, supports
from pear.solvers.active_set.dual_plan import make_dual_plan, no_dual_plan, replace_rows
from pear.solvers.active_set.gpu.gpu_pass import GPUPass
from pear.solvers.active_set.kernel_arrays import (
    CompiledRegrets,
    CompiledSolutions,
    Programs,
    SampleCosts,
    SolutionTable,
    States,
)
from pear.solvers.active_set.kernel_calls import Array, Index
from pear.solvers.active_set.solution_store import SolutionStore, void_true_solutions
from pear.solvers.fingerprints import curvature_fingerprint
from pear.solvers.fused_pass import FusedDecisions, FusedPass, FusedSolutions
from pear.solvers.normal_component import add_normal_component
from pear.solvers.regret_call import RegretCall, RegretCallResults
from pear.solvers.warm_starts import WarmStarts

_ALWAYS_ANEW = np.zeros((0, 0))  # no fingerprints: the true problems are solved in every call
_MOST_FACTORS = 1 << 28  # bytes of the factors of a problem's own Hessians that are kept
_NOBODY = np.zeros(0, np.int64)  # positions of no samples
_OWN = np.inf  # fingerprint of the problem's own curvature


def fused_pass(problem: Problem, starts: WarmStarts, name: str) -> FusedPass | None:
    """Return the pass for this problem's device; None where the problem is not dense, or too large.

    Args:
        problem: the decision problem, continuous.
        starts: the store of warm starts; the pass on a GPU keeps none.
        name: the name of the solver. The pass and the pipeline share the plan of the constraints under this name.
    """
    if CompiledPass.supports(problem):
        return CompiledPass(problem, starts)
    return GPUPass(problem, name) if GPUPass.supports(problem) else None


class CompiledPass:
    """Solves, verifies and projects many batches of one problem in compiled code.

    Args:
        problem: the decision problem: continuous, dense, on the CPU, without φ.
        starts: the store of warm starts.
    """

    def __init__(self, problem: Problem, starts: WarmStarts) -> None:
        self.problem, self.starts = problem, starts
        self.equalities = 0 if problem.b is None else problem.b.shape[-1]
        self.rows = self.equalities + (0 if problem.h is None else problem.h.shape[-1])
        self.store = SolutionStore(starts, problem.n, self.equalities, self.rows - self.equalities)
        self._smoothing = math.nan  # of the programs in _own
        self._own: tuple[Programs, States] | None = None
        self._own_definite: bool | None = None
        self._own_factor: Tensor | None = None
        self._everybody: Index = np.zeros(0, np.int64)
        self._generation = 0  # of the store, when these row numbers were found
        self._supported: dict[bool, bool] = {}

    @staticmethod
    def supports(problem: Problem) -> bool:
        """True where the pass takes this problem."""
        rows = sum(0 if v is None else v.shape[-1] for v in (problem.b, problem.h))
        plain = problem.phi is None and problem.device.type == "cpu" and not problem.is_sparse
        return plain and kernel_calls.fits_dense_inverse(problem.n, rows)

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedDecisions | None:
        """Decide for a batch; return None where the pass does not apply and the pipeline has to decide.

        Args:
            cost: (B, n) costs.
            smoothing: λ.
            keys: sample ids, or None.
            fields: values that replace fields of the problem in this call.
        """
        prepared = self.prepare(cost, smoothing, keys, fields)
        return None if prepared is None else self._decide(prepared, cost, keys)

    def decide_with_rows(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> FusedDecisions | None:
        """Decide as ``decide`` does, by the primal method, whose bases give derivatives in rows and bounds."""
        prepared = self.prepare(cost, smoothing, keys, fields)
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
    ) -> FusedDecisions | None:
        """Decide for a batch from the result of ``prepare``; ``by_rows``: with multipliers and tight constraints."""
        P, default, at = prepared
        states, slots = self.store.states(keys, len(cost))
        known = self._own is not None and P is self._own[0] and (P.smoothing > 0 or len(P.Q) <= 1)
        unique = known and self._is_definite(P)  # to ask for the curvature of every sample would take too long
        outcome = kernel_calls.solve_batch(P, _float64_array(cost), at, states, slots, default, not unique)
        left = _unsolved(outcome)
        if len(left) == len(cost):
            return None
        # copied, because the table changes before the backward pass
        mine = states if keys is None else States._make(part[slots] for part in states)
        doubtful = not unique and bool(np.count_nonzero(outcome.weak)) and not self._is_definite(P)
        projector = CompiledProjector(P, mine, at)
        if doubtful and len(left):
            return None
        x, rest = torch.from_numpy(outcome.x), torch.from_numpy(left) if len(left) else None
        if not by_rows:
            return FusedDecisions(x, projector, doubtful, left=rest)
        return FusedDecisions(x, projector, doubtful, left=rest, duals=_duals(outcome), active=_active_set(outcome))

    def solve(self, cost: Tensor, smoothing: float) -> FusedSolutions | None:
        """Solve a batch of the problem's own programs; None where the pipeline has to solve it.

        Args:
            cost: (B, n) costs.
            smoothing: λ.
        """
        prepared = self.prepare(cost, smoothing, None, {})
        if prepared is None or not self._supports_own_programs(smoothing):
            return None
        P, default, at = prepared
        c = _float64_array(cost)
        states, slots = self.store.states(None, len(c))
        found = kernel_calls.solve_batch(P, c, at, states, slots, default)
        if len(_unsolved(found)):
            return None
        # arrays as far as possible: an operation on small tensors takes several times as long
        x, value, residual = map(torch.from_numpy, (found.x, _objective_values(P, c, found.x), found.kkt_residual))
        weak = ActiveSet(*map(torch.from_numpy, (found.weak_rows, found.weak_lower, found.weak_upper)))
        return FusedSolutions(x, value, _duals(found), _active_set(found), weak, residual)

    def regret(self, call: RegretCall) -> tuple[RegretCallResults, Tensor] | None:
        """Compute regrets and gradients of a batch.

        Returns:
            The regrets, and (k,) positions of the samples that are left to the pipeline; None where the pass does not
            apply and the pipeline has to compute all of them.
        """
        predicted, Q = call.predicted, call.Q
        prepared = self.prepare(predicted, call.smoothing, call.keys, {} if Q is None else {"Q": Q})
        if prepared is None:
            return None
        P, default, at = prepared
        table, slots = self.store.table(call.keys, len(predicted))
        if call.shares_curvature:  # a predicted curvature is new in every call, so that no true solution can be kept
            void_true_solutions(table, slots)
            table = table._replace(fingerprints=_ALWAYS_ANEW)
        true_Q = P.Q if Q is None or call.shares_curvature else self._true_curvature(P, call, table, slots)
        if true_Q is None:
            return None
        if Q is None:
            self.store.void_changed(table, slots, _OWN, self._smoothing)
        strength = call.injection if call.injection == 0 or self._is_definite(P) else -1.0
        factor = self._factor(P, at).numpy() if strength > 0 and len(P.Q) else np.zeros((0, 0, 0))
        samples = SampleCosts(_float64_array(predicted), _float64_array(call.true), at, slots)
        pair = kernel_calls.program_pair(P, true_Q, factor)
        results = kernel_calls.regret_batch(pair, samples, table, default, strength)
        left, weak = _unsolved(results.outcome), results.outcome.weak
        # a weakly active constraint may hide an ambiguous decision
        if np.count_nonzero(weak) and not self._is_definite(P):
            left = np.union1d(left, np.flatnonzero(weak))
        parts = regrets_of(results, table.best.x[slots] if len(slots) else table.best.x)
        if strength < 0:
            rescaled = self._apply_inverse(P, at, results.outcome, parts.injected)
            parts = replace(parts, injected=add_normal_component(rescaled, parts.exact, call.injection))
        return parts, torch.from_numpy(left)

    def all_samples(self, count: int, smoothing: float) -> tuple[Programs, Index, SolutionTable, States] | None:
        """Return the programs of the first ``count`` samples, their slots, their table, and the default start.

        None where the table would take too much memory, or the solver does not take the programs.
        """
        if not self._is_supported(smoothing):
            return None
        P, default = self._own_programs(smoothing)
        if len(self._everybody) != count or self._generation != self.starts.generation:
            self._everybody = self.starts.slots(range(count))
            self._generation = self.starts.generation
        table = self.store.stored_table()
        if table is None:
            return None
        self.store.void_changed(table, self._everybody, _OWN, self._smoothing)
        return P, self._everybody, table, default

    def shared_factor(self, smoothing: float) -> Tensor | None:
        """Return the lower Cholesky factor (n, n) of the Hessian that all samples share.

        None where samples have Hessians of their own, or the Hessian is not positive definite.
        """
        if not self._is_supported(smoothing):
            return None
        P = self._own_programs(smoothing)[0]
        if len(P.Q) != 1 or not self._is_definite(P):
            return None
        return self._factor(P, np.zeros(1, np.int64))[0]

    def restore(self) -> None:
        """Check and load the rows of a restored store; raise ``DataError`` where they do not belong to the problem."""
        self.store.restore()

    def prepare(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> tuple[Programs, States, Index] | None:
        """Return the programs of a call, their default start, and each sample's row in fields that differ by sample.

        None where the pass does not take the call. Arguments are those of ``decide``.
        """
        if not (cost.is_cpu and len(cost)):
            return None
        by_row = keys is not None and self.problem.batch is not None
        plain = cost.dim() == 2 and cost.shape[1] == self.problem.n
        if by_row and (fields or not plain):
            return None
        at = np.array(keys, np.int64) if by_row else np.arange(len(cost))
        if not fields:
            if not by_row and not (plain and self.problem.batch in (None, len(cost))):
                self.problem.checked(cost)  # raises an error that says what is wrong
            return (*self._own_programs(smoothing), at) if self._is_supported(smoothing) else None
        checked = self.problem.checked(cost, **fields)
        same_rows = sum(checked[name].shape[-1] for name in ("b", "h") if name in checked) == self.rows
        if not same_rows or not self._is_supported(smoothing, cost, fields):
            return None
        P = self._call_programs(checked, smoothing, set(fields))
        if "Q" in fields and not bool(is_semidefinite(torch.from_numpy(P.Q), P.sign, P.smoothing).all()):
            return None
        default = self._own_programs(smoothing)[1] if set(fields) <= {"Q"} else kernel_calls.default_start(P)
        return P, default, at

    def _call_programs(self, checked: dict[str, Tensor], smoothing: float, changed: set[str]) -> Programs:
        """Return the programs of a call with fields of its own; what they share with the problem's is not made again.

        Args:
            checked: all fields of the call.
            smoothing: λ.
            changed: the names of the call's own fields.
        """
        P = kernel_calls.pack_programs(checked, self.problem.n, self.problem.sign, smoothing)
        if changed & {"Q", "A"}:
            return P
        dual = self._own_programs(smoothing)[0].dual
        return P._replace(dual=replace_rows(dual, self.problem.n) if "G" in changed else dual)

    def _is_supported(self, smoothing: float, cost: Tensor | None = None, fields: dict[str, Any] | None = None) -> bool:
        """True where the solver takes the programs of a call. The result for the problem's own fields is kept."""
        if self.problem.n < MIN_VARIABLES:  # always supported; the check would copy Q in every call
            return True
        if cost is not None and fields:
            return supports(self.problem.canonical(cost, smoothing, **fields))
        return self._supports_own_programs(smoothing)

    def _supports_own_programs(self, smoothing: float) -> bool:
        """True where ``active_set_solver.supports`` the problem's programs, as no call replaces their fields."""
        curved = smoothing > 0
        if curved not in self._supported:
            any_cost = torch.zeros(self.problem.batch or 1, self.problem.n, dtype=torch.float64)
            self._supported[curved] = supports(self.problem.canonical(any_cost, smoothing))
        return self._supported[curved]

    def _own_programs(self, smoothing: float) -> tuple[Programs, States]:
        """Return the problem's own programs in compiled form, made once, and their default start."""
        if self._own is None:
            own = {name: v for name in FIELDS if (v := getattr(self.problem, name)) is not None}
            P = kernel_calls.pack_programs(own, self.problem.n, self.problem.sign, smoothing)
            self._own, self._smoothing = (P._replace(dual=make_dual_plan(P)), kernel_calls.default_start(P)), smoothing
        elif self._smoothing != smoothing:
            P, default = self._own[0]._replace(smoothing=smoothing), self._own[1]
            self._own, self._smoothing = (P._replace(dual=make_dual_plan(P)), default), smoothing
            self._own_definite = self._own_factor = None
        return self._own

    def _true_curvature(self, P: Programs, call: RegretCall, table: SolutionTable, slots: Index) -> Array | None:
        """Return Q of the true objective, as in ``Programs``; None where it is not convex.

        A curvature is recognised by its fingerprint, and checked for convexity the first time only.
        """
        Q, n = call.true_Q, self.problem.n
        plain = isinstance(Q, Tensor) and Q.shape == (len(call.true), n, n)
        if not (plain and Q.dtype == torch.float64 and Q.device.type == "cpu" and len(table.fingerprints)):
            void_true_solutions(table, slots)
            return self._check_true_curvature(P, call)
        mark = curvature_fingerprint(Q).numpy()
        unchanged = self.store.is_unchanged(table, slots, mark, self._smoothing).all()
        if not unchanged and self._check_true_curvature(P, call) is None:
            return None
        self.store.void_changed(table, slots, mark, self._smoothing)
        return np.ascontiguousarray(Q.detach().numpy())

    def _check_true_curvature(self, P: Programs, call: RegretCall) -> Array | None:
        Q = self.problem.checked(call.true, Q=call.true_Q)["Q"].reshape(-1, self.problem.n, self.problem.n)
        return np.ascontiguousarray(Q.numpy()) if bool(is_semidefinite(Q, P.sign, P.smoothing).all()) else None

    def _is_definite(self, P: Programs) -> bool:
        """True where the objective is certainly curved in every direction."""
        if self._own is None or P is not self._own[0]:
            return _all_definite(P)
        if self._own_definite is None:  # its own curvature is semidefinite, which was checked when it was made
            self._own_definite = P.smoothing > 0 or _all_definite(P)
        return self._own_definite

    def _apply_inverse(self, P: Programs, at: Index, outcome: CompiledSolutions, e: Tensor) -> Tensor:
        """Compute H⁻¹ e at the solutions of a call (B, n), where H is singular; see ``apply_dense_inverse``."""
        A, G = (torch.from_numpy(J if len(J) == 1 else J[at]) for J in (P.J[:, : P.equalities], P.J[:, P.equalities :]))
        return apply_dense_inverse(_hessians(P, at), A, G, _active_set(outcome), e)

    def _factor(self, P: Programs, at: Index) -> Tensor:
        """Return the Cholesky factors of the Hessians of a call; those of the problem's own Hessians are kept."""
        if self._own is None or P is not self._own[0] or P.Q.nbytes > _MOST_FACTORS:
            return torch.linalg.cholesky(_hessians(P, at)).contiguous()  # LAPACK gives its columns
        if self._own_factor is None:
            self._own_factor = torch.linalg.cholesky(_hessians(P, np.arange(len(P.Q)))).contiguous()
        return self._own_factor if len(P.Q) == 1 else self._own_factor[torch.from_numpy(at)]


def regrets_of(results: CompiledRegrets, best: Array) -> RegretCallResults:
    """Convert the results of the compiled pass to ``RegretCallResults``, with every sample marked as solved.

    Args:
        results: the results of the pass.
        best: (B, n) the best decisions under the true costs.
    """
    outcome = results.outcome
    arrays = (*results[1:], outcome.x, best, outcome.kkt_residual, outcome.changes == 0)
    value, exact, injected, x, ideal, residual, reused = map(torch.from_numpy, arrays)
    solved, true_solved, never = map(
        torch.from_numpy, (np.zeros(len(x), kind) for kind in (np.int8, np.int8, np.bool_))
    )
    return RegretCallResults(value, exact, injected, x, ideal, solved, true_solved, residual, reused, never)


def _unsolved(outcome: CompiledSolutions) -> Index:
    """Return the positions of the samples that are not solved."""
    return np.flatnonzero(outcome.code) if np.count_nonzero(outcome.code) else _NOBODY  # SOLVED is 0


def _duals(outcome: CompiledSolutions) -> Duals:
    return Duals(*map(torch.from_numpy, (outcome.equality, outcome.inequality, outcome.bound)))


def _active_set(outcome: CompiledSolutions) -> ActiveSet:
    return ActiveSet(*map(torch.from_numpy, (outcome.rows, outcome.lower, outcome.upper)))


def _float64_array(value: Tensor) -> Array:
    array: Array = value.detach().numpy()
    return np.ascontiguousarray(array, np.float64)


def _objective_values(P: Programs, cost: Array, x: Array) -> Array:
    """Return the values (B,) of the objective at x (B, n), in the problem's own sense."""
    slope = 0.5 * P.sign * P.smoothing * x + cost
    if len(P.Q) == 1:
        slope += 0.5 * (x @ P.Q[0])
    elif len(P.Q) > 1:
        slope += 0.5 * np.matmul(P.Q, x[..., None])[..., 0]
    values: Array = np.einsum("ij,ij->i", x, slope)
    return values


def _all_definite(P: Programs) -> bool:
    return P.smoothing > 0 if len(P.Q) == 0 else bool(is_definite(torch.from_numpy(P.Q), P.sign, P.smoothing).all())


def _hessians(P: Programs, at: Index) -> Tensor:
    """Return the Hessians H of samples, (1, n, n) or (B, n, n)."""
    n = P.lb.shape[1]
    Q = np.zeros((1, n, n)) if len(P.Q) == 0 else P.Q if len(P.Q) == 1 else P.Q[at]
    H = P.sign * torch.from_numpy(Q)
    H.diagonal(dim1=1, dim2=2).add_(P.smoothing)
    return H
