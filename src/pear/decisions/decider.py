"""Decides one problem for batch after batch, from warm starts where samples have keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.decisions.solve import solve_verified
from pear.optimality.point import ActiveSet, Duals, Status
from pear.problem import Problem
from pear.problem.keys import rows_of
from pear.sensitivity.verified import Verified
from pear.solvers.base import Start
from pear.solvers.fused import FusedPass
from pear.solvers.registry import choose, get
from pear.solvers.warm_starts import SampleTable, WarmStarts, fingerprint

_ROWS = "constraints"


class Decider:
    """The problem of a loss or layer with its solver and its store.

    Args:
        problem: what is decided, continuous.
        solver: "auto" or a name that ``pear solvers`` lists.

    Attributes:
        starts: what is kept of the samples; dropped when this is copied or pickled.
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
        """Held while samples with keys are decided, so that several threads may share a loss."""
        return nullcontext() if keys is None else self.starts.lock

    def solve(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, rows: Tensor | None = None, **fields: Any
    ) -> Verified:
        """Go down the pipeline, from warm starts where there are any.

        Args:
            cost: (B, n).
            smoothing: λ.
            keys: of the samples, or None.
            rows: without keys, the samples' numbers in a problem with fields per sample; None for all of them.
            **fields: what replaces the problem's fields in this call.
        """
        problem = self.problem_of(keys, rows)
        if keys is None:
            return solve_verified(problem, cost, smoothing, self.solver, **fields)
        table, slots = self._starts("predicted", cost, keys, fields)
        known = self.known_failures("predicted", cost, smoothing, keys, fields)
        solved = solve_verified(problem, cost, smoothing, self.solver, _rows(table, slots), known, **fields)
        table.put(slots, solved.as_start())
        self._keep_failures("predicted", solved.status, cost, smoothing, keys, fields)
        return solved

    def solve_true(
        self, cost: Tensor, smoothing: float, keys: list[Hashable] | None, rows: Tensor | None = None, **fields: Any
    ) -> tuple[Start, Tensor]:
        """The same for costs that stay: an answer is kept for as long as all the data behind it is the same.

        Returns:
            The solutions, and their statuses (B,).
        """
        problem = self.problem_of(keys, rows)
        if keys is None:
            solved = solve_verified(problem, cost, smoothing, self.solver, **fields)
            return solved.as_start(), solved.status
        table, slots = self._starts("true", cost, keys, fields)
        mark = fingerprint(cost, smoothing, _given(fields))
        known = self.known_failures("true", cost, smoothing, keys, fields)
        status = torch.zeros(len(cost), dtype=torch.int8, device=cost.device) if known is None else known
        if bool((table.known(slots, mark) | (status != Status.SOLVED)).all()):
            return _rows(table, slots), status
        solved = solve_verified(problem, cost, smoothing, self.solver, _rows(table, slots), known, **fields)
        table.put(slots, solved.as_start(), mark, solved.solved)
        self._keep_failures("true", solved.status, cost, smoothing, keys, fields)
        return solved.as_start(), solved.status

    def known_failures(
        self, name: str, cost: Tensor, smoothing: float, keys: list[Hashable] | None, fields: dict[str, Any]
    ) -> Tensor | None:
        """(B,) int8: the failures of samples whose data is as it was when they failed; None where there are none.

        Where no point satisfies the constraints, they alone have to be the same, whatever the cost.

        Args:
            name: of the costs, "predicted" or "true".
            cost: (B, n).
            smoothing: λ.
            keys: of the samples, or None.
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
        """Fingerprints of what feasibility depends on, and of everything."""
        given = _given(fields)
        rows = {name: value for name, value in given.items() if name != "Q"}
        return lambda: fingerprint(cost[:, :0], 0.0, rows), lambda: fingerprint(cost, smoothing, given)

    def problem_of(self, keys: list[Hashable] | None, rows: Tensor | None = None) -> Problem:
        """The problem of these samples."""
        return self.problem[rows] if keys is None and rows is not None else rows_of(self.problem, keys)

    def _starts(
        self, name: str, cost: Tensor, keys: list[Hashable], fields: dict[str, Any]
    ) -> tuple[SampleTable[Start], Any]:
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


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _rows(table: SampleTable[Start], slots: Any) -> Start:
    rows: Start = table.rows[torch.from_numpy(slots).to(table.rows.x.device)]
    return rows
