"""Decides one problem for batch after batch, from warm starts where samples have keys."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pear.decisions.one_pass import OnePass
from pear.decisions.solve import solve_verified
from pear.decisions.warm_starts import Table, WarmStarts, fingerprint, rows_of
from pear.optimality.point import ActiveSet, Duals
from pear.problem import Problem
from pear.sensitivity.verified import Verified
from pear.solvers.base import Start
from pear.solvers.registry import choose, get


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
    def one_pass(self) -> OnePass | None:
        """The compiled pass, where solver and problem allow it."""
        row = choose("qp") if self.solver == "auto" else get(self.solver)
        return OnePass(self.problem, self.starts) if row.one_pass and OnePass.supports(self.problem) else None

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
        solved = solve_verified(problem, cost, smoothing, self.solver, _rows(table, slots), **fields)
        table.put(slots, solved.as_start())
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
        given = {name: value for name, value in fields.items() if value is not None}
        table, slots = self._starts("true", cost, keys, fields)
        mark = fingerprint(cost, smoothing, given)
        answer: Start | None = table.answer(slots, mark)
        if answer is not None:
            return answer, torch.zeros(len(cost), dtype=torch.int8, device=cost.device)
        solved = solve_verified(problem, cost, smoothing, self.solver, _rows(table, slots), **fields)
        table.put(slots, solved.as_start(), mark, solved.solved)
        return solved.as_start(), solved.status

    def problem_of(self, keys: list[Hashable] | None, rows: Tensor | None = None) -> Problem:
        """The problem of these samples."""
        return self.problem[rows] if keys is None and rows is not None else rows_of(self.problem, keys)

    def _starts(
        self, name: str, cost: Tensor, keys: list[Hashable], fields: dict[str, Any]
    ) -> tuple[Table[Start], Any]:
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


def _rows(table: Table[Start], slots: Any) -> Start:
    rows: Start = table.rows[torch.from_numpy(slots).to(table.rows.x.device)]
    return rows
