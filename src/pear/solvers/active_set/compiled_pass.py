"""The fused pass of the compiled active-set method: decisions, regrets and gradients of a batch on the CPU.

One compiled call solves, verifies and projects all samples. The results are those of the pipeline and ``project``.
SampleCosts that the compiled code cannot finish are left to the pipeline, which gives each of them a status.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pear.optimality.definiteness import is_convex, is_definite
from pear.problem import Problem
from pear.problem.problem import FIELDS
from pear.problem.quadratic_program import MIN_VARIABLES
from pear.solvers.active_set import compiled_batch as compiled
from pear.solvers.active_set.active_set_solver import CompiledProjector, supports
from pear.solvers.active_set.compiled_arrays import (
    GIVEN_UP,
    SOLVED,
    CompiledRegrets,
    CompiledSolutions,
    Programs,
    SampleCosts,
    SolutionTable,
    States,
    new_solutions,
    new_states,
)
from pear.solvers.active_set.saved_starts import are_starts, without_large_inverses
from pear.solvers.fused import FusedDecisions, RegretCall, Regrets, add_normal
from pear.solvers.warm_starts import SampleTable, WarmStarts, curvature_fingerprint

_ALWAYS_ANEW = np.zeros((0, 0))  # no fingerprints: the true problems are solved in every call
_TABLE = "compiled"  # its name in the store
_OWN = np.inf  # fingerprint of the problem's own curvature


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
        self._smoothing: float | None = None
        self._own: tuple[Programs, States] | None = None
        self._own_definite: bool | None = None
        self._everybody: compiled.Index = np.zeros(0, np.int64)
        self._taken: dict[bool, bool] = {}

    @staticmethod
    def supports(problem: Problem) -> bool:
        """True where the pass takes this problem."""
        rows = sum(0 if v is None else v.shape[-1] for v in (problem.b, problem.h))
        plain = problem.phi is None and problem.device.type == "cpu" and not problem.is_sparse
        return plain and compiled.supports(problem.n, rows)

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
        if prepared is None:
            return None
        P, default, at = prepared
        states, slots = self.states(keys, len(cost))
        outcome = compiled.solve(P, _array(cost), at, states, slots, default)
        if not (outcome.code == SOLVED).all():
            return None
        # copied, because the table changes before the backward pass
        mine = states if keys is None else States._make(part[slots] for part in states)
        doubtful = bool(outcome.weak.any()) and not self._is_definite(P)
        return FusedDecisions(torch.from_numpy(outcome.x), CompiledProjector(P, mine, at), doubtful)

    def regret(self, call: RegretCall) -> tuple[Regrets, Tensor] | None:
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
        table, slots = self._table(call.keys, len(predicted))
        if call.shares_curvature:  # a predicted curvature is new in every call, so that no true solution can be kept
            self._void_true_solutions(table, slots)
            table = table._replace(fingerprints=_ALWAYS_ANEW)
        true = P if Q is None or call.shares_curvature else self._true_programs(P, call, table, slots)
        if true is None or not (call.injection == 0 or self._is_definite(P)):
            return None
        if Q is None:
            self._void_changed(table, slots, _OWN)
        with_curvature = len(P.Q) > 0
        strength = call.injection if not with_curvature or call.injection == 0 else -1.0
        samples = SampleCosts(_array(predicted), _array(call.true), at, slots)
        results = compiled.regret(compiled.program_pair(P, true), samples, table, default, strength)
        left, weak = results.outcome.code != SOLVED, results.outcome.weak
        if weak.any() and not self._is_definite(
            P
        ):  # a weakly active constraint may hide that the decision is not unique
            left |= weak
        parts = regrets_of(results, table.best.x[slots] if len(slots) else table.best.x)
        if strength < 0:
            rescaled = _inverse_times(P, at, parts.injected)
            parts = replace(parts, injected=add_normal(rescaled, parts.exact, call.injection))
        return parts, torch.from_numpy(np.flatnonzero(left))

    def all_samples(
        self, count: int, smoothing: float
    ) -> tuple[Programs, compiled.Index, SolutionTable, States] | None:
        """Return the programs of the first ``count`` samples, their slots, their table, and the default start.

        None where the table would take too much memory, or the solver does not take the programs.
        """
        if not self._takes(smoothing):
            return None
        P, default = self._own_programs(smoothing)
        if len(self._everybody) != count:
            self._everybody = self.starts.slots(range(count))
        if not compiled.table_fits(len(self.starts), self.problem.n, self.rows):
            return None
        table = self._stored_table()
        self._void_changed(table, self._everybody, _OWN)
        return P, self._everybody, table, default

    # -- programs ----------------------------------------------------------------------------------------------------

    def prepare(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> tuple[Programs, States, compiled.Index] | None:
        """Return the programs of a call, their default start, and each sample's row in fields that differ by sample.

        None where the pass does not take the call. Arguments are those of ``decide``.
        """
        if cost.device.type != "cpu" or not len(cost):
            return None
        by_row = keys is not None and self.problem.batch is not None
        if by_row and fields:
            return None
        at = np.array(keys, np.int64) if by_row else np.arange(len(cost))
        if not fields:
            plain = cost.dim() == 2 and cost.shape[1] == self.problem.n
            if by_row and not plain:
                return None
            if not by_row and not (plain and self.problem.batch in (None, len(cost))):
                self.problem.checked(cost)  # raises an error that says what is wrong
            if not self._takes(smoothing):
                return None
            return *self._own_programs(smoothing), at
        checked = self.problem.checked(cost, **fields)
        if sum(checked[name].shape[-1] for name in ("b", "h") if name in checked) != self.rows:
            return None
        if not self._takes(smoothing, cost, fields):
            return None
        P = self._build(checked, smoothing)
        if "Q" in fields and not bool(is_convex(torch.from_numpy(P.Q), P.sign, P.smoothing).all()):
            return None
        default = self._own_programs(smoothing)[1] if set(fields) <= {"Q"} else compiled.default_start(P)
        return P, default, at

    def _takes(self, smoothing: float, cost: Tensor | None = None, fields: dict[str, Any] | None = None) -> bool:
        """True where the solver takes the programs of a call. The result for the problem's own fields is kept."""
        if self.problem.n < MIN_VARIABLES:  # always supported; the check would copy Q in every call
            return True
        if cost is not None and fields:
            return supports(self.problem.canonical(cost, smoothing, **fields))
        curved = smoothing > 0
        if curved not in self._taken:
            any_cost = torch.zeros(self.problem.batch or 1, self.problem.n, dtype=torch.float64)
            self._taken[curved] = supports(self.problem.canonical(any_cost, smoothing))
        return self._taken[curved]

    def _own_programs(self, smoothing: float) -> tuple[Programs, States]:
        """Return the problem's own programs in compiled form, made once, and their default start."""
        if self._own is None:
            own = {name: v for name in FIELDS if (v := getattr(self.problem, name)) is not None}
            P = self._build(own, smoothing)
            self._own, self._smoothing = (P, compiled.default_start(P)), smoothing
        elif self._smoothing != smoothing:
            P, default = self._own
            self._own, self._smoothing, self._own_definite = (P._replace(smoothing=smoothing), default), smoothing, None
        return self._own

    def _build(self, fields: dict[str, Tensor], smoothing: float) -> Programs:
        Q = fields.get("Q")
        curvature = None if Q is None else (Q if Q.dim() == 3 else Q[None]).numpy()
        rest = {name: value for name, value in fields.items() if name != "Q"}
        return compiled.pack_programs(rest, self.problem.n, self.problem.sign, smoothing, curvature)

    def _true_programs(
        self, P: Programs, call: RegretCall, table: SolutionTable, slots: compiled.Index
    ) -> Programs | None:
        """Return the programs of the true objective; None where its curvature is not convex.

        A curvature is recognised by its fingerprint, and checked for convexity the first time only.
        """
        Q, n = call.true_Q, self.problem.n
        plain = isinstance(Q, Tensor) and Q.shape == (len(call.true), n, n)
        if not (plain and Q.dtype == torch.float64 and Q.device.type == "cpu" and len(table.fingerprints)):
            self._void_true_solutions(table, slots)
            return self._check_true_curvature(P, call)
        mark = curvature_fingerprint(Q).numpy()
        if not self._is_unchanged(table, slots, mark).all() and self._check_true_curvature(P, call) is None:
            return None
        self._void_changed(table, slots, mark)
        return P._replace(Q=np.ascontiguousarray(Q.detach().numpy()))

    def _check_true_curvature(self, P: Programs, call: RegretCall) -> Programs | None:
        Q = self.problem.checked(call.true, Q=call.true_Q)["Q"]
        true = P._replace(Q=np.ascontiguousarray((Q if Q.dim() == 3 else Q[None]).numpy()))
        return true if bool(is_convex(torch.from_numpy(true.Q), P.sign, P.smoothing).all()) else None

    def _is_definite(self, P: Programs) -> bool:
        """True where the objective is certainly curved in every direction."""
        if self._own is None or P is not self._own[0]:
            return _all_definite(P)
        if self._own_definite is None:  # its own curvature is semidefinite, which was checked when it was made
            self._own_definite = P.smoothing > 0 or _all_definite(P)
        return self._own_definite

    # -- the store ---------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Check and load the rows of a restored store, before anything is computed with them.

        Raises:
            DataError: the rows do not belong to the problem.
        """
        if self.starts.has_saved(_TABLE):
            self._stored_table()

    def _stored_table(self) -> SolutionTable:
        table: SampleTable[SolutionTable] = self.starts.table(
            _TABLE, self._new_rows, without_large_inverses, are_starts
        )
        return table.rows

    def _table(self, keys: list[Hashable] | None, B: int) -> tuple[SolutionTable, compiled.Index]:
        """Return the table of the store and the samples' rows in it.

        Without keys, or where the store is full, return a table with room for ``B`` results and no row numbers.
        """
        if keys is not None:
            slots = self.starts.slots(keys)
            if compiled.table_fits(len(self.starts), self.problem.n, self.rows):
                return self._stored_table(), slots
        return compiled.temporary_table(B, self.problem.n, self.equalities, self.rows - self.equalities), np.zeros(
            0, np.int64
        )

    def states(self, keys: list[Hashable] | None, B: int) -> tuple[States, compiled.Index]:
        """Return the starts of the decisions and the samples' rows in them; from the store where samples have keys."""
        table, slots = self._table(keys, 0)
        if len(slots):
            return table.predicted, slots
        return new_states(B, self.problem.n, self.rows), np.arange(B)

    def _new_rows(self, size: int) -> SolutionTable:
        """Make ``size`` empty rows of the table.

        A fingerprint consists of the true cost (n), the fingerprint of the true curvature (n), and λ.
        """
        n = self.problem.n
        predicted, true = (States._make(map(_zeros_like, new_states(size, n, self.rows))) for _ in range(2))
        best = CompiledSolutions._make(
            map(_zeros_like, new_solutions(size, n, self.equalities, self.rows - self.equalities))
        )
        best.code.fill(GIVEN_UP)
        return SolutionTable(predicted, true, best, np.full((size, 2 * n + 1), np.nan))

    def _void_changed(self, table: SolutionTable, slots: compiled.Index, mark: compiled.Array | float) -> None:
        """Mark true problems whose curvature or λ has changed, so that they are solved again."""
        if not len(table.fingerprints):
            return
        n, other = self.problem.n, ~self._is_unchanged(table, slots, mark)
        if other.any():
            table.fingerprints[slots[other], :n] = np.nan
            table.fingerprints[slots, n:-1], table.fingerprints[slots, -1] = mark, self._smoothing

    def _is_unchanged(
        self, table: SolutionTable, slots: compiled.Index, mark: compiled.Array | float
    ) -> NDArray[np.bool_]:
        """Return (B,) bool, True where a row was solved with this λ and a curvature of this fingerprint.

        Args:
            table: the table.
            slots: (B,) row numbers.
            mark: fingerprint of the curvature, (B, n) or one number.
        """
        n, rows = self.problem.n, table.fingerprints
        like = rows[slots, n] == mark if isinstance(mark, float) else (rows[slots, n:-1] == mark).all(1)
        same: NDArray[np.bool_] = like & (rows[slots, -1] == self._smoothing)
        return same

    def _void_true_solutions(self, table: SolutionTable, slots: compiled.Index) -> None:
        """Mark the true problems of these rows, so that they are solved again."""
        if len(table.fingerprints):
            table.fingerprints[slots] = np.nan


def regrets_of(results: CompiledRegrets, best: compiled.Array) -> Regrets:
    """Convert the results of the compiled pass to ``Regrets``, with every sample marked as solved.

    Args:
        results: the results of the pass.
        best: (B, n) the best decisions under the true costs.
    """
    outcome = results.outcome
    arrays = (*results[1:], outcome.x, best, outcome.kkt_residual, outcome.changes == 0)
    value, exact, injected, x, ideal, residual, reused = (torch.from_numpy(array) for array in arrays)
    solved, never = torch.zeros(len(value), dtype=torch.int8), torch.zeros(len(value), dtype=torch.bool)
    return Regrets(value, exact, injected, x, ideal, solved, solved.clone(), residual, reused, never)


def _zeros_like(part: NDArray[Any]) -> NDArray[Any]:
    """Return zeros like ``part``, so that a saved table does not contain earlier content of the memory."""
    return np.zeros(part.shape, part.dtype)


def _array(value: Tensor) -> compiled.Array:
    array: compiled.Array = value.detach().to(torch.float64).contiguous().numpy()
    return array


def _all_definite(P: Programs) -> bool:
    if len(P.Q) == 0:
        return P.smoothing > 0
    return bool(is_definite(torch.from_numpy(P.Q), P.sign, P.smoothing).all())


def _inverse_times(P: Programs, at: compiled.Index, e: Tensor) -> Tensor:
    """Return (B, n) H⁻¹e for programs with a positive definite H."""
    H = P.sign * torch.from_numpy(P.Q if len(P.Q) == 1 else P.Q[at])
    H.diagonal(dim1=1, dim2=2).add_(P.smoothing)
    return torch.cholesky_solve(e.unsqueeze(-1), torch.linalg.cholesky(H)).squeeze(-1)
