"""``Decider``: decides one problem for many batches and reuses warm starts of samples that have keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.decisions.continuous_programs import solve_continuous_programs
from pear.decisions.failures import report_failures
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.status import Status, solved_status
from pear.problem import Problem
from pear.problem.problem_fields import given_fields, is_field_per_sample
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.derivatives import DecisionPoint, Derivative, all_derivatives, derivatives_at
from pear.sensitivity.projection import project
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.backend_registry import choose_backend, get_backend
from pear.solvers.candidate import Start
from pear.solvers.fingerprints import fingerprint
from pear.solvers.fused_pass import FusedDecisions, FusedPass, FusedRowPass
from pear.solvers.warm_starts import WarmStarts, WarmStartTable

_ROWS = "constraints"


class Decisions:
    """The decisions of a batch, from a fused pass or from the pipeline.

    Args:
        found: the result of the fused pass or of the pipeline.
        solve: solves the samples of the batch that it is given, or all of them, in the pipeline. It is called where a
            fused pass cannot give a derivative.
        rest: the pipeline's solutions of the samples that the fused pass has left; None where there are none.
        program: makes the programs of the batch, which derivatives with respect to constraints are computed with.

    Attributes:
        x: (B, n) decisions; zero where a sample failed.
        status: (B,) int8 of ``Status``.
    """

    def __init__(
        self,
        found: FusedDecisions | VerifiedSolutions,
        solve: Callable[[Tensor | None], VerifiedSolutions] | None = None,
        rest: VerifiedSolutions | None = None,
        program: Callable[[], QuadraticProgram] | None = None,
    ) -> None:
        self._fused = found if isinstance(found, FusedDecisions) else None
        self._solve, self._rest, self._program = solve, rest, program
        if isinstance(found, VerifiedSolutions):
            self.verified = found
            self.x, self.status = torch.where(found.solved[:, None], found.x, 0.0), found.status
        else:
            self.x, self.status = found.x, solved_status(found.x)
            if rest is not None and found.left is not None:
                self.x[found.left] = torch.where(rest.solved[:, None], rest.x, 0.0)
                self.status[found.left] = rest.status

    @property
    def all_solved(self) -> bool:
        """Whether all samples are known to be solved without reading their statuses."""
        return self._fused is not None and self._rest is None

    @cached_property
    def verified(self) -> VerifiedSolutions:
        """The verified solutions; after a fused pass they are computed on first use."""
        assert self._solve is not None
        return self._solve(None)

    def derivatives(self, w: Tensor, sign: int) -> list[Derivative]:
        """Functions that return the derivatives with respect to cost, Q, A, b, G, h, lb and ub, one row per sample.

        Args:
            w: (B, n) upstream gradient.
            sign: 1 for minimisation, −1 for maximisation.

        Raises:
            NotUniqueError: a decision is not unique.
        """
        fused = self._fused
        found = None if fused is None else fused.respond(w)
        if found is None or fused is None or self._program is None or self._solve is None:
            return all_derivatives(self.verified, w, sign)
        assert fused.duals is not None
        assert fused.active is not None
        point = DecisionPoint(self._program(), self.x, fused.duals, fused.active)
        by_pass = derivatives_at(point, w, found.p, found.equality, found.inequality, sign)
        good = found.good.clone()
        if fused.left is not None:
            good[fused.left] = False
        bad = (~good).nonzero()[:, 0]
        if not len(bad):
            return by_pass
        return [
            _replace_rows(*pair, bad)
            for pair in zip(by_pass, all_derivatives(self._solve(bad), w[bad], sign), strict=True)
        ]

    def project(self, w: Tensor) -> Tensor:
        """Apply the projection P at the decisions to w (B, n); rows of failed samples are zero.

        Raises:
            NotUniqueError: a decision is not unique.
        """
        p = None if self._fused is None else self._fused.project(w)
        if p is None:
            return project(self.verified, w)
        if self._rest is not None and self._fused is not None and self._fused.left is not None:
            p[self._fused.left] = project(self._rest, w[self._fused.left])
        return p


class Decider:
    """A decision problem with its solver and the store of its samples.

    Args:
        problem: the decision problem, continuous.
        solver: "auto" or a name that ``pear solvers`` lists.

    Attributes:
        starts: the stored warm starts and failures of the samples; empty in a copy and after unpickling.
    """

    def __init__(self, problem: Problem, solver: str) -> None:
        self.problem, self.solver = problem, solver
        self.starts = WarmStarts()

    @cached_property
    def fused(self) -> FusedPass | None:
        """The pass by which the solver solves, verifies and projects a whole batch in one call.

        It is None where the solver has no such pass for this problem.
        """
        row = choose_backend("qp") if self.solver == "auto" else get_backend(self.solver)
        return row.fused_pass(self.problem, self.starts)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the stored warm starts by those of a saved ``starts.state()``.

        Raises:
            DataError, KeyError, TypeError, ValueError: ``state`` does not come from ``starts.state()``.
        """
        self.starts = WarmStarts.from_state(state)
        self.__dict__.pop("fused", None)  # the old pass holds the old store
        if self.fused is not None:
            self.fused.restore()

    def locked(self, keys: list[Hashable] | None) -> AbstractContextManager[Any]:
        """Return the lock that protects the stored warm starts; without keys a context that does nothing."""
        return nullcontext() if keys is None else self.starts.lock

    def row_numbers(self, keys: list[Hashable] | None, rows: Tensor | None = None) -> Tensor | None:
        """Return the samples' row numbers (B,) in the problem, or None where all samples share its fields.

        Where the problem has fields per sample, keys are row numbers. Without keys, ``rows`` says which rows are meant.
        """
        return rows if keys is None or self.problem.batch is None else torch.tensor(keys, device=self.problem.device)

    def problem_of(self, keys: list[Hashable] | None, rows: Tensor | None = None) -> Problem:
        """Return the problem of these samples, with their rows of the fields that differ by sample."""
        rows = self.row_numbers(keys, rows)
        return self.problem if rows is None else self.problem[rows]

    # -- decisions ---------------------------------------------------------------------------------------------------

    def decide(
        self,
        cost: Tensor,
        smoothing: float,
        keys: list[Hashable] | None,
        fields: dict[str, Any],
        by_rows: bool,
        by_matrices: bool = False,
    ) -> Decisions:
        """Decide for a batch, by the fused pass where that is possible and otherwise by the pipeline.

        Args:
            cost: (B, n) costs.
            smoothing: λ.
            keys: sample ids, or None.
            fields: fields that replace those of the problem in this call.
            by_rows: whether the caller needs derivatives with respect to constraints.
            by_matrices: whether the caller needs derivatives with respect to A or G. Where rows are dependent, these
                derivatives depend on the choice of multipliers. The pipeline then decides, so that the choice is
                always the same.
        """
        found = None if by_matrices else self._decide_in_pass(cost, smoothing, keys, fields, by_rows)
        if by_rows and found is not None and not found.gives_rows:
            found = None
        left = None if found is None else found.left

        def solve(some: Tensor | None) -> VerifiedSolutions:
            rows, own, costs = self.row_numbers(keys), fields, cost
            if some is not None:
                costs, own = cost[some], {name: _select(name, value, some) for name, value in fields.items()}
                rows = some if rows is None and self.problem.batch is not None else None if rows is None else rows[some]
            again = self.solve(costs, smoothing, None, rows, **own)
            if left is None:
                report_failures(again.status, "raise", "the derivative of the decision layer")
            return again

        problem = self.problem_of(keys)

        def program() -> QuadraticProgram:
            return problem.canonical(cost, smoothing, **fields)

        if found is not None and left is None:
            return Decisions(found, solve, program=program)
        if found is not None and left is not None:
            some = None if keys is None else [keys[i] for i in left.tolist()]
            own = {name: _select(name, value, left) for name, value in fields.items()}
            known = self.known_failures("predicted", cost[left], smoothing, some, own)
            rows = None if self.problem.batch is None else left
            return Decisions(found, solve, self.solve(cost[left], smoothing, some, rows, known, **own), program)
        known = self.known_failures("predicted", cost, smoothing, keys, fields)
        return Decisions(self.solve(cost, smoothing, keys, known=known, **fields))

    def _decide_in_pass(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any], by_rows: bool
    ) -> FusedDecisions | None:
        """Decide by the fused pass; None where there is none for this, or where the pipeline has to decide."""
        if not by_rows:
            return None if self.fused is None else self.fused.decide(cost, smoothing, keys, fields)
        one = self.fused
        return one.decide_with_rows(cost, smoothing, keys, fields) if isinstance(one, FusedRowPass) else None

    def solve(
        self,
        cost: Tensor,
        smoothing: float,
        keys: list[Hashable] | None,
        rows: Tensor | None = None,
        known: Tensor | None = None,
        **fields: Any,
    ) -> VerifiedSolutions:
        """Solve a batch in the pipeline, from warm starts where there are any.

        Args:
            cost: (B, n).
            smoothing: λ.
            keys: sample ids, or None.
            rows: without keys, the samples' row numbers in a problem whose fields differ by sample; None for all rows.
            known: (B,) int8 statuses of samples that are known to fail, or None.
            **fields: fields that replace those of the problem in this call.
        """
        problem = self.problem_of(keys, rows)
        if keys is None:
            return solve_continuous_programs(problem, cost, smoothing, self.solver, known=known, **fields)
        table, slots = self._start_table("predicted", cost, keys, fields)
        starts = _stored_starts(table, slots)
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
        """Solve for true costs; a stored solution is returned as long as its cost, λ and fields are unchanged.

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
        starts = _stored_starts(table, slots)
        if bool((table.holds_exact(slots, mark) | (status != Status.SOLVED)).all()):
            return starts, status
        solved = solve_continuous_programs(problem, cost, smoothing, self.solver, starts, known, **fields)
        table.put(slots, solved.as_start(), mark, solved.solved)
        self._keep_failures("true", solved.status, cost, smoothing, keys, fields)
        return solved.as_start(), solved.status

    # -- the store ---------------------------------------------------------------------------------------------------

    def known_failures(
        self, name: str, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> Tensor | None:
        """Return the statuses of samples that failed before with the same data.

        An infeasible sample fails again as long as its constraints are the same, whatever its cost. Other failures
        are repeated only where cost, λ and fields are all the same.

        Args:
            name: the kind of costs, "predicted" or "true".
            cost: (B, n).
            smoothing: λ.
            keys: sample ids, or None.
            fields: fields that replace those of the problem in this call.

        Returns:
            (B,) int8 of ``Status``, 0 where no failure is stored; None where none is stored for any sample.
        """
        if keys is None or self.problem.phi is not None:
            return None
        failures, marks = self.starts.failures, self._fingerprints(cost, smoothing, fields)
        found = [failures.status(question, keys, mark) for question, mark in zip((_ROWS, name), marks, strict=True)]
        known = [status.to(cost.device) for status in found if status is not None]
        return torch.stack(known).amax(0) if known else None

    def _keep_failures(
        self, name: str, status: Tensor, cost: Tensor, smoothing: float, keys: list[Hashable], fields: dict[str, Any]
    ) -> None:
        """Store which samples failed, for ``known_failures``; statuses (B,) replace those stored before."""
        infeasible = status == Status.INFEASIBLE
        by_rows, by_cost = self._fingerprints(cost, smoothing, fields)
        self.starts.failures.put(_ROWS, keys, torch.where(infeasible, status, 0), by_rows)
        self.starts.failures.put(name, keys, torch.where(infeasible, 0, status), by_cost)

    def _fingerprints(
        self, cost: Tensor, smoothing: float, fields: dict[str, Any]
    ) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        """Return two functions: the fingerprints of the constraints (B,), and of constraints, cost and λ (B,)."""
        given = given_fields(**fields)
        rows = {name: value for name, value in given.items() if name != "Q"}
        return lambda: fingerprint(cost[:, :0], 0.0, rows), lambda: fingerprint(cost, smoothing, given)

    def _start_table(
        self, name: str, cost: Tensor, keys: list[Hashable], fields: dict[str, Any]
    ) -> tuple[WarmStartTable[Start], Any]:
        """Return the table of warm starts for costs of this name, and the samples' row numbers in it."""
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

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle; ``WarmStarts`` itself pickles as an empty store."""
        return {"problem": self.problem, "solver": self.solver, "starts": self.starts}


def _select(name: str, field: Any, rows: Tensor) -> Any:
    """The rows of a field of a call; a field that all samples share stays as it is."""
    return field[rows] if isinstance(field, Tensor) and is_field_per_sample(name, field) else field


def _replace_rows(whole: Derivative, part: Derivative, rows: Tensor) -> Derivative:
    """A derivative in which some rows are replaced by those of another."""

    def derivative() -> Tensor:
        found = whole()
        found = found.clone()
        found[rows] = part()
        return found

    return derivative


def _stored_starts(table: WarmStartTable[Start], slots: Any) -> Start:
    """Return the warm starts that a table holds at these row numbers."""
    rows: Start = table.rows[torch.from_numpy(slots).to(table.rows.x.device)]
    return rows
