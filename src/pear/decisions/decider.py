"""``Decider``: decides one problem for batch after batch, from warm starts where samples have keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.decisions.batch_regrets import Statuses, gradient_error, regret_of_program, renumbered
from pear.decisions.solve import fail, solve_verified
from pear.optimality.point import ActiveSet, Duals, Status
from pear.problem import Problem
from pear.sensitivity.projection import inject_normal, project
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.base import Start
from pear.solvers.fused import FusedDecisions, FusedPass, RegretCall, Regrets
from pear.solvers.registry import choose, get
from pear.solvers.warm_starts import SampleTable, WarmStarts, fingerprint

_ROWS = "constraints"


class Decisions:
    """The decisions of a batch, from a fused pass or from the pipeline.

    Args:
        found: what the fused pass or the pipeline has found.
        solve: returns the verified solutions of the same batch, where a fused pass cannot give a derivative.

    Attributes:
        x: (B, n) decisions; zero where a sample failed.
        status: (B,) int8 of ``Status``.
    """

    def __init__(
        self, found: FusedDecisions | VerifiedSolutions, solve: Callable[[], VerifiedSolutions] | None = None
    ) -> None:
        self._fused = found if isinstance(found, FusedDecisions) else None
        self._solve = solve
        if isinstance(found, VerifiedSolutions):
            self.verified = found
            self.x, self.status = torch.where(found.solved[:, None], found.x, 0.0), found.status
        else:
            self.x, self.status = found.x, torch.zeros(len(found.x), dtype=torch.int8, device=found.x.device)

    @property
    def all_solved(self) -> bool:
        """Whether all samples are known to be solved without reading their statuses."""
        return self._fused is not None

    @cached_property
    def verified(self) -> VerifiedSolutions:
        """The solutions with everything that is known about them."""
        assert self._solve is not None
        return self._solve()

    def project(self, w: Tensor) -> Tensor:
        """(B, n) P w at the decisions; zero for failed samples.

        Raises:
            NotUniqueError: a decision is not unique.
        """
        p = None if self._fused is None else self._fused.project(w)
        return project(self.verified, w) if p is None else p


class Decider:
    """A decision problem with its solver and the store of its samples.

    Args:
        problem: the decision problem, continuous.
        solver: "auto" or a name that ``pear solvers`` lists.

    Attributes:
        starts: what is kept of the samples; empty in a copy and after unpickling.
    """

    def __init__(self, problem: Problem, solver: str) -> None:
        self.problem, self.solver = problem, solver
        self.starts = WarmStarts()

    @cached_property
    def fused(self) -> FusedPass | None:
        """The solver's pass over a whole batch, where it has one that takes the problem."""
        row = choose("qp") if self.solver == "auto" else get(self.solver)
        return row.fused_pass(self.problem, self.starts)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with what ``starts.state()`` has saved.

        Raises:
            DataError, KeyError, TypeError, ValueError: it is something else.
        """
        self.starts = WarmStarts.from_state(state)
        self.__dict__.pop("fused", None)  # the old pass holds the old store
        if self.fused is not None:
            self.fused.restore()

    def locked(self, keys: list[Hashable] | None) -> AbstractContextManager[Any]:
        """A lock to hold while samples with keys are decided, so that several threads may share a loss."""
        return nullcontext() if keys is None else self.starts.lock

    def problem_of(self, keys: list[Hashable] | None, rows: Tensor | None = None) -> Problem:
        """The problem of these samples; keys have been checked, and select rows where fields differ by sample."""
        rows = rows if keys is None or self.problem.batch is None else torch.tensor(keys, device=self.problem.device)
        return self.problem if rows is None else self.problem[rows]

    # -- decisions ---------------------------------------------------------------------------------------------------

    def decide(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any], by_rows: bool
    ) -> Decisions:
        """Decide for a batch, by the fused pass where that is possible.

        Args:
            cost: (B, n).
            smoothing: λ.
            keys: sample ids, or None.
            fields: what replaces the problem's fields in this call.
            by_rows: whether derivatives by constraints will be asked for, which no fused pass gives.
        """

        def solve() -> VerifiedSolutions:
            rows = None if keys is None or self.problem.batch is None else torch.tensor(keys)
            again = self.solve(cost, smoothing, None, rows, **fields)
            fail(again.status, "raise", "the derivative of the decision layer")
            return again

        found = None if by_rows or self.fused is None else self.fused.decide(cost, smoothing, keys, fields)
        if found is not None:
            return Decisions(found, solve)
        known = self.known_failures("predicted", cost, smoothing, keys, fields)
        return Decisions(self.solve(cost, smoothing, keys, known=known, **fields))

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
            **fields: what replaces the problem's fields in this call.
        """
        problem = self.problem_of(keys, rows)
        if keys is None:
            return solve_verified(problem, cost, smoothing, self.solver, known=known, **fields)
        table, slots = self._starts("predicted", cost, keys, fields)
        solved = solve_verified(problem, cost, smoothing, self.solver, _rows(table, slots), known, **fields)
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
        """Solve for true costs: a solution is kept for as long as all the data behind it is unchanged.

        Args:
            cost, smoothing, keys, rows, known, fields: as for ``solve``.

        Returns:
            The solutions, and their statuses (B,).
        """
        problem = self.problem_of(keys, rows)
        if keys is None:
            solved = solve_verified(problem, cost, smoothing, self.solver, known=known, **fields)
            return solved.as_start(), solved.status
        table, slots = self._starts("true", cost, keys, fields)
        mark = fingerprint(cost, smoothing, _given(fields))
        status = torch.zeros(len(cost), dtype=torch.int8, device=cost.device) if known is None else known
        if bool((table.known(slots, mark) | (status != Status.SOLVED)).all()):
            return _rows(table, slots), status
        solved = solve_verified(problem, cost, smoothing, self.solver, _rows(table, slots), known, **fields)
        table.put(slots, solved.as_start(), mark, solved.solved)
        self._keep_failures("true", solved.status, cost, smoothing, keys, fields)
        return solved.as_start(), solved.status

    # -- regrets -----------------------------------------------------------------------------------------------------

    def failures_of(self, call: RegretCall) -> Statuses | None:
        """Known failures of the predicted and of the true problems of a call; None where there are none."""
        pairs = ("predicted", call.predicted, call.Q), ("true", call.true, call.true_Q)
        found = [self.known_failures(name, c, call.smoothing, call.keys, {"Q": Q}) for name, c, Q in pairs]
        return both_statuses(*found)

    def no_regrets(self, statuses: Statuses) -> Regrets:
        """The regrets of samples that failed with these statuses."""
        return Regrets.of_failures(*statuses, self.problem.n)

    def regrets(self, call: RegretCall, wanted: bool, seconds: dict[str, float]) -> tuple[Regrets, bool]:
        """Regrets from the fused pass; the pipeline takes the samples that it leaves."""
        found = None
        if self.fused is not None:
            began = time.perf_counter()
            found = self.fused.regret(call)
            seconds["solve"] += time.perf_counter() - began
        if found is None or len(found[1]) == len(call.predicted):
            return self._regrets_by_pipeline(call, wanted, seconds), False
        regrets, left = found
        if len(left):
            with renumbered(left):
                regrets.put(left, self._regrets_by_pipeline(call.only(left), wanted, seconds))
        return regrets, len(left) == 0

    def _regrets_by_pipeline(self, call: RegretCall, wanted: bool, seconds: dict[str, float]) -> Regrets:
        """Solve both problems, compare, project: for every device and solver, with a status for every sample."""
        lam, at = call.smoothing, (call.keys, call.rows)
        problem = self.problem_of(*at)
        began = time.perf_counter()
        solved = self.solve(call.predicted, lam, *at, Q=call.Q)
        # no cost mends constraints that contradict each other
        known = torch.where(solved.status == Status.INFEASIBLE, solved.status, 0)
        ideal, ideal_status = self.solve_true(call.true, lam, *at, known=known, Q=call.true_Q)
        seconds["solve"] += time.perf_counter() - began
        good = (solved.solved & (ideal_status == Status.SOLVED))[:, None]
        true_program = problem.canonical(call.true, lam, Q=call.true_Q)
        value = torch.where(good[:, 0], regret_of_program(problem, solved.x, ideal, true_program), 0.0)
        began = time.perf_counter()
        exact = injected = torch.zeros_like(solved.x)
        if wanted:
            error = torch.where(good, gradient_error(solved, call.predicted, call.true, call.Q, call.true_Q), 0.0)
            exact = torch.where(good, project(solved, error), 0.0)
            injected = torch.where(good, inject_normal(solved.qp, error, exact, call.injection), 0.0)
        seconds["gradient"] += time.perf_counter() - began
        return Regrets(
            value=value,
            exact=exact,
            injected=injected,
            x=torch.where(good, solved.x, 0.0),
            best=torch.where(good, ideal.x, 0.0),
            status=solved.status,
            true_status=ideal_status,
            kkt_residual=solved.kkt_residual,
            reused=solved.reused,
            repaired=solved.repaired,
        )

    def verify(self, call: RegretCall) -> VerifiedSolutions:
        """The verified solutions under the predicted costs; the store stays as it is."""
        at = call.rows if call.keys is None or self.problem.batch is None else torch.tensor(call.keys)
        return self.solve(call.predicted, call.smoothing, None, at, Q=call.Q)

    # -- the store ---------------------------------------------------------------------------------------------------

    def known_failures(
        self, name: str, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> Tensor | None:
        """(B,) int8: the failures of samples whose data is as it was when they failed; None where there are none.

        Where no point satisfies the constraints, these alone have to be unchanged, whatever the cost.

        Args:
            name: of the costs, "predicted" or "true".
            cost: (B, n).
            smoothing: λ.
            keys: sample ids, or None.
            fields: what replaces the problem's fields in this call.
        """
        if keys is None or self.problem.phi is not None:
            return None
        failures, marks = self.starts.failures, self._marks(cost, smoothing, fields)
        found = [failures.status(question, keys, mark) for question, mark in zip((_ROWS, name), marks, strict=True)]
        known = [status.to(cost.device) for status in found if status is not None]
        return torch.stack(known).amax(0) if known else None

    def _keep_failures(
        self, name: str, status: Tensor, cost: Tensor, smoothing: float, keys: list[Hashable], fields: dict[str, Any]
    ) -> None:
        infeasible = status == Status.INFEASIBLE
        by_rows, by_cost = self._marks(cost, smoothing, fields)
        self.starts.failures.put(_ROWS, keys, torch.where(infeasible, status, 0), by_rows)
        self.starts.failures.put(name, keys, torch.where(infeasible, 0, status), by_cost)

    def _marks(
        self, cost: Tensor, smoothing: float, fields: dict[str, Any]
    ) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        """Functions that return the fingerprints of what feasibility depends on, and of everything."""
        given = _given(fields)
        rows = {name: value for name, value in given.items() if name != "Q"}
        return lambda: fingerprint(cost[:, :0], 0.0, rows), lambda: fingerprint(cost, smoothing, given)

    def _starts(
        self, name: str, cost: Tensor, keys: list[Hashable], fields: dict[str, Any]
    ) -> tuple[SampleTable[Start], Any]:
        """The table of starts under costs of that name, and the samples' rows in it."""
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
        """Problem and solver; warm starts are found again."""
        return {"problem": self.problem, "solver": self.solver, "starts": self.starts}


def both_statuses(predicted: Tensor | None, true: Tensor | None) -> Statuses | None:
    """Two statuses (B,), of which one may be missing, as a pair; None where both are."""
    any_of_them = predicted if true is None else true
    if any_of_them is None:
        return None
    nothing = torch.zeros_like(any_of_them)
    return nothing if predicted is None else predicted, nothing if true is None else true


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _rows(table: SampleTable[Start], slots: Any) -> Start:
    rows: Start = table.rows[torch.from_numpy(slots).to(table.rows.x.device)]
    return rows
