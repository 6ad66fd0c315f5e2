"""``Decider``: solves one problem for many batches of costs.

It stores the solution of each sample that has an id (key), and starts from it when the sample comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.decided_batch import DecidedBatch
from pear.decisions.failures import report_failures
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status
from pear.problem import Problem
from pear.problem.problem_fields import given_fields, is_field_per_sample
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.backend_registry import choose_backend, get_backend
from pear.solvers.candidate import Start
from pear.solvers.fingerprints import fingerprint
from pear.solvers.fused_pass import FusedPass, FusedPassDecisions, FusedRowPass
from pear.solvers.warm_starts import WarmStarts, WarmStartTable

_BY_CONSTRAINTS = "constraints"  # the name under which failures are stored that do not depend on the cost
_UNLOCKED = nullcontext()


class Decider:
    """A decision problem with its solver, and with stored solutions and failures of samples.

    Args:
        problem: the decision problem, without integers.
        solver: "auto" or a name that ``pear solvers`` lists.

    Attributes:
        starts: the stored failures and solutions. The solutions serve as warm starts. A deep copy or a pickle of the
            ``Decider`` has empty ``starts``.
    """

    def __init__(self, problem: Problem, solver: str) -> None:
        self.problem, self.solver = problem, solver
        self.starts = WarmStarts()

    @cached_property
    def fused(self) -> FusedPass | None:
        """The solver's fused pass, which solves and verifies a whole batch, and computes gradients, in one call.

        It is None if the solver has no fused pass for this problem.
        """
        row = choose_backend("qp") if self.solver == "auto" else get_backend(self.solver)
        return row.fused_pass(self.problem, self.starts)

    @cached_property
    def fused_with_rows(self) -> FusedRowPass | None:
        """The fused pass if it also gives derivatives with respect to constraints, otherwise None."""
        return self.fused if isinstance(self.fused, FusedRowPass) else None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the stored solutions and failures from a result of ``starts.state()``.

        Raises:
            DataError, KeyError, TypeError, ValueError: ``state`` does not come from ``starts.state()``.
        """
        self.starts = WarmStarts.from_state(state)
        for name in ("fused", "fused_with_rows"):
            self.__dict__.pop(name, None)  # the old fused pass refers to the old store
        if self.fused is not None:
            self.fused.restore()

    def locked(self, keys: list[Hashable] | None) -> AbstractContextManager[Any]:
        """Return the lock that protects ``starts``; if there are no keys, return a context that does nothing."""
        return _UNLOCKED if keys is None else self.starts.lock

    def row_numbers(self, keys: list[Hashable] | None, rows: Tensor | None = None) -> Tensor | None:
        """Return the row numbers (B,) of samples in the problem's fields per sample; None for all rows, in order.

        Args:
            keys: sample ids, or None. In a problem with fields per sample they are the row numbers.
            rows: the result without keys, or if all samples share the fields.
        """
        return rows if keys is None or self.problem.batch is None else torch.tensor(keys, device=self.problem.device)

    def problem_of(self, keys: list[Hashable] | None, rows: Tensor | None = None) -> Problem:
        """Return the problem with only the rows of these samples in its fields per sample.

        The arguments are those of ``row_numbers``.
        """
        rows = self.row_numbers(keys, rows)
        return self.problem if rows is None else self.problem[rows]

    def decide(
        self,
        cost: Tensor,
        smoothing: float,
        keys: list[Hashable] | None,
        fields: dict[str, Any],
        by_rows: bool,
        by_matrices: bool = False,
    ) -> DecidedBatch:
        """Return the decisions for a batch, from the fused pass if possible and otherwise from the pipeline.

        Args:
            cost: (B, n) costs.
            smoothing: λ, the curvature that is added to the objective.
            keys: sample ids, or None.
            fields: fields that replace those of the problem in this call.
            by_rows: whether the caller needs derivatives with respect to constraints.
            by_matrices: whether the caller needs derivatives with respect to A or G. If so, the pipeline decides. If
                rows are linearly dependent, these derivatives depend on the choice of multipliers, and the pipeline
                always makes the same choice.
        """
        found = None if by_matrices else self._decide_in_pass(cost, smoothing, keys, fields, by_rows)
        if by_rows and found is not None and not found.gives_rows:
            found = None
        left = None if found is None else found.left

        def solve(some: Tensor | None) -> VerifiedSolutions:
            rows, own, costs = self.row_numbers(keys), fields, cost
            if some is not None:
                costs, own = cost[some], self._fields_of_samples(fields, some)
                rows = some if rows is None and self.problem.batch is not None else None if rows is None else rows[some]
            again = self.solve(costs, smoothing, None, rows, **own)
            if left is None:
                report_failures(again.status, "raise", "the derivative of the decision layer")
            return again

        problem = self.problem_of(keys)

        def program() -> QuadraticProgram:
            return problem.canonical(cost, smoothing, **fields)

        if found is not None and left is None:
            return DecidedBatch(found, solve, program=program)
        if found is not None and left is not None:
            some = None if keys is None else [keys[i] for i in left.tolist()]
            own = self._fields_of_samples(fields, left)
            known = self.known_failures("predicted", cost[left], smoothing, some, own)
            rows = None if self.problem.batch is None else left
            return DecidedBatch(found, solve, self.solve(cost[left], smoothing, some, rows, known, **own), program)
        known = self.known_failures("predicted", cost, smoothing, keys, fields)
        return DecidedBatch(self.solve(cost, smoothing, keys, known=known, **fields))

    @staticmethod
    def _fields_of_samples(fields: dict[str, Any], index: Tensor) -> dict[str, Any]:
        """Return the fields of a call for the samples at ``index`` (k,); shared fields stay the same."""
        return {
            name: value[index] if isinstance(value, Tensor) and is_field_per_sample(name, value) else value
            for name, value in fields.items()
        }

    def _decide_in_pass(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any], by_rows: bool
    ) -> FusedPassDecisions | None:
        """Decide by the fused pass; return None if there is none, or if it cannot give what the caller needs.

        The arguments are those of ``decide``.
        """
        if not by_rows:
            return None if self.fused is None else self.fused.decide(cost, smoothing, keys, fields)
        one = self.fused_with_rows
        return None if one is None else one.decide_with_rows(cost, smoothing, keys, fields)

    def solve(
        self,
        cost: Tensor,
        smoothing: float,
        keys: list[Hashable] | None,
        rows: Tensor | None = None,
        known: Tensor | None = None,
        near: Start | None = None,
        **fields: Any,
    ) -> VerifiedSolutions:
        """Solve a batch in the pipeline; samples with keys start from their stored solutions.

        Args:
            cost: (B, n) costs.
            smoothing: λ, the curvature that is added to the objective.
            keys: sample ids, or None.
            rows: for samples without keys, their row numbers in a problem with fields per sample; None for all rows.
            known: (B,) int8 of ``Status``, the statuses of samples that are known to fail and SOLVED for all other
                samples; None if no sample is known to fail.
            near: solutions of similar programs, from which samples without a stored solution start if the problem is
                sparse; None for no such solutions.
            **fields: fields that replace those of the problem in this call.
        """
        problem = self.problem_of(keys, rows)
        near = near if problem.is_sparse else None
        if keys is None:
            return solve_continuous_programs(problem, cost, smoothing, self.solver, near, known, **fields)
        table, slots = self._start_table("predicted", cost, keys, fields)
        starts = self._stored_starts(table, slots)
        if near is not None and not bool(starts.has_start.all()):
            new = (~starts.has_start).nonzero()[:, 0]
            starts.put(new, near[new])
        solved = solve_continuous_programs(problem, cost, smoothing, self.solver, starts, known, **fields)
        table.put(slots, solved.as_start())
        self._keep_failures("predicted", solved.status, cost, smoothing, keys, fields)
        return solved

    def solve_true(
        self,
        cost: Tensor,
        smoothing: float,
        keys: list[Hashable] | None,
        rows: Tensor | None = None,
        known: Tensor | None = None,
        **fields: Any,
    ) -> tuple[Start, Tensor]:
        """Return the solutions under true costs, which are stored and reused for samples with keys.

        If the cost, λ and the fields of every sample are the same as before, nothing is solved.

        Args:
            cost, smoothing, keys, rows, known, fields: as for ``solve``.

        Returns:
            The solutions, and their statuses (B,).
        """
        problem = self.problem_of(keys, rows)
        if keys is None:
            solved = solve_continuous_programs(problem, cost, smoothing, self.solver, known=known, **fields)
            return solved.as_start(), solved.status
        table, slots = self._start_table("true", cost, keys, fields)
        mark = fingerprint(cost, smoothing, given_fields(**fields))
        status = torch.zeros(len(cost), dtype=torch.int8, device=cost.device) if known is None else known
        starts = self._stored_starts(table, slots)
        if bool((table.holds_exact(slots, mark) | (status != Status.SOLVED)).all()):
            return starts, status
        solved = solve_continuous_programs(problem, cost, smoothing, self.solver, starts, known, **fields)
        table.put(slots, solved.as_start(), mark, solved.solved)
        self._keep_failures("true", solved.status, cost, smoothing, keys, fields)
        return solved.as_start(), solved.status

    def known_failures(
        self, name: str, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> Tensor | None:
        """Return the statuses of samples that failed before with the same data.

        An infeasible sample fails again if its constraints are the same, whatever its cost. Other failures count only
        if cost, λ and fields are all the same.

        Args:
            name: the kind of costs, "predicted" or "true".
            cost: (B, n) costs.
            smoothing: λ, the curvature that is added to the objective.
            keys: sample ids, or None.
            fields: fields that replace those of the problem in this call.

        Returns:
            (B,) int8 of ``Status``, SOLVED for samples without a stored failure. None if no sample has a stored
            failure, if there are no keys, or if the objective has a smooth term φ.
        """
        if keys is None or self.problem.phi is not None:
            return None
        failures, marks = self.starts.failures, self._fingerprints(cost, smoothing, fields)
        found = [
            failures.status(question, keys, mark) for question, mark in zip((_BY_CONSTRAINTS, name), marks, strict=True)
        ]
        known = [status.to(cost.device) for status in found if status is not None]
        return torch.stack(known).amax(0) if known else None

    def _keep_failures(
        self, name: str, status: Tensor, cost: Tensor, smoothing: float, keys: list[Hashable], fields: dict[str, Any]
    ) -> None:
        """Replace the stored failures of these samples by new ones; ``known_failures`` returns them later.

        ``status`` (B,) int8 has the status of each sample. The other arguments are those of ``known_failures``.
        """
        infeasible = status == Status.INFEASIBLE
        by_rows, by_cost = self._fingerprints(cost, smoothing, fields)
        self.starts.failures.put(_BY_CONSTRAINTS, keys, torch.where(infeasible, status, 0), by_rows)
        self.starts.failures.put(name, keys, torch.where(infeasible, 0, status), by_cost)

    def _fingerprints(
        self, cost: Tensor, smoothing: float, fields: dict[str, Any]
    ) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        """Return two functions, each of which computes a fingerprint of every sample, (B,).

        Samples with the same data have the same fingerprint. The first function covers the constraints in ``fields``,
        the second all of ``fields``, the cost and λ.
        """
        given = given_fields(**fields)
        rows = {name: value for name, value in given.items() if name != "Q"}
        return lambda: fingerprint(cost[:, :0], 0.0, rows), lambda: fingerprint(cost, smoothing, given)

    def _start_table(
        self, name: str, cost: Tensor, keys: list[Hashable], fields: dict[str, Any]
    ) -> tuple[WarmStartTable[Start], Any]:
        """Return the table of stored solutions, and the samples' row numbers in it.

        Args:
            name: the kind of costs, "predicted" or "true".
            cost: (B, n) costs, whose device is that of the solutions.
            keys: sample ids.
            fields: fields that replace those of the problem in this call.
        """
        slots, n = self.starts.slots(keys), self.problem.n
        sides = (getattr(self.problem, side) if fields.get(side) is None else fields[side] for side in ("b", "h"))
        p, m = (0 if side is None else torch.as_tensor(side).shape[-1] for side in sides)

        def make(size: int) -> Start:
            x, equality, inequality, bound = (
                torch.zeros(size, k, dtype=torch.float64, device=cost.device) for k in (n, p, m, n)
            )
            working = ActiveSet.none(size, n, m, cost.device)
            return Start(x, Duals(equality, inequality, bound), working, working.lower.new_zeros(size))

        return self.starts.table(f"{name}, {p} + {m} rows, {cost.device}", make), slots

    @staticmethod
    def _stored_starts(table: WarmStartTable[Start], slots: Any) -> Start:
        """Return the solutions at the row numbers ``slots`` (B,) of a table."""
        rows: Start = table.rows[torch.from_numpy(slots).to(table.rows.x.device)]
        return rows

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle. The stored solutions are left out: ``WarmStarts`` pickles as empty."""
        return {"problem": self.problem, "solver": self.solver, "starts": self.starts}
