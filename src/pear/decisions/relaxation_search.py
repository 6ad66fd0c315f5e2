"""A check of integer solutions by our own relaxations: branch and bound with verified linear programs, and few nodes.

A solver of another package claims that no point is better than its own, or that there is none. Here each node is a
continuous program whose optimum satisfies the optimality conditions, or whose infeasibility has a certificate. The
solver's point is given, so that a node ends where its optimum is no better. A sample that needs more than its share of
nodes is left undecided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.decisions.pipeline import solve_in_pipeline
from pear.optimality.natural_sizes import finite_size
from pear.optimality.rule import GAP, INTEGRAL, ROUNDOFF
from pear.optimality.status import Status
from pear.optimality.tensor_record import TensorRecord
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.solvers import time_limit
from pear.solvers.backend_registry import Backend, resolve_backends

NODES = 8
"""Largest number of linear programs that the search solves for one sample, unless its caller allows for more."""
_AT_ONCE, _ONE_BY_ONE = 256, 8  # samples that are searched together: with shared matrices, and with their own
_HALF = 0.5
_LP_SOLVERS = 2  # tried for a node; where both fail, the sample is left undecided


@dataclass(frozen=True)
class SearchedIntegers(TensorRecord):
    """What the search says about each sample.

    Attributes:
        complete: (B,) bool, whether every branch was closed.
        x: (B, n) the best point with whole integers that the search itself met; NaN where it met none that is better
            than the given value.
        bound: (B,) a proven lower bound of the objective; −inf where the search is not complete, inf where no point is
            feasible.
        ray: (B,) bool, whether the objective of the relaxation falls without end, along a direction that was checked.
        bounded: (B,) bool, whether the relaxation has a solution.
    """

    complete: Tensor
    x: Tensor
    bound: Tensor
    ray: Tensor
    bounded: Tensor


class _Node(NamedTuple):
    """A node of the search: a relaxation that is solved, with an integer variable that is fractional at its optimum.

    Attributes:
        objective: its optimum.
        terms: the sum of the absolute terms of the optimum, to which tolerances are relative.
        lb: (n,) lower bounds of its variables.
        ub: (n,) upper bounds of its variables.
        at: the variable at which it is split, and ``value``, its value.
    """

    objective: float
    terms: float
    lb: Tensor
    ub: Tensor
    at: int
    value: float

    def halves(self) -> list[tuple[Tensor, Tensor]]:
        """The bounds of the two halves, the one nearer to the optimum last, because the last node is taken first."""
        # rounding may leave a bound: a half without any whole number would not be a smaller node
        middle = min(max(math.floor(self.value), float(self.lb[self.at])), float(self.ub[self.at]) - 1.0)
        upper, lower = self.ub.clone(), self.lb.clone()
        upper[self.at], lower[self.at] = middle, middle + 1.0
        below, above = (self.lb, upper), (lower, self.ub)
        return [below, above] if self.value - middle > _HALF else [above, below]


def search_relaxations(qp: QuadraticProgram, value: Tensor, nodes: int = NODES) -> SearchedIntegers:
    """Search for points that are better than ``value``, and close every branch that has none.

    Args:
        qp: B integer programs.
        value: (B,) objectives of feasible points; infinite where none is known.
        nodes: the number of linear programs per sample.
    """
    size = _AT_ONCE if qp.shares_matrices else _ONE_BY_ONE
    parts = torch.arange(qp.batch, device=qp.c.device).split(size)
    searched: SearchedIntegers = SearchedIntegers.cat(
        [_Search(qp[part] if qp.batch > size else qp, value[part], nodes).run() for part in parts]
    )
    return searched


class _Search:
    """The search for one batch. It goes depth first in every sample, and all samples take a step at the same time.

    Attributes:
        qp: B integer programs.
        nodes: the number of linear programs per sample.
        best: the objective of each sample's best point so far.
        x: (B, n) the best point that the search has met.
        bound: the least optimum of each sample's closed branches.
        spent: the number of linear programs of each sample so far.
        open: the open nodes of each sample; None where the sample is undecided.
    """

    def __init__(self, qp: QuadraticProgram, value: Tensor, nodes: int) -> None:
        self.qp, self.nodes, self.best = qp, nodes, value.tolist()
        self.x = torch.full_like(qp.c, torch.nan)
        self.bound, self.spent = [math.inf] * qp.batch, [0] * qp.batch
        self.open: list[list[_Node] | None] = [[] for _ in range(qp.batch)]

    def run(self) -> SearchedIntegers:
        """Search until every sample is complete or undecided."""
        qp = self.qp
        assert qp.integer is not None
        lb = torch.where(qp.integer, (qp.lb - INTEGRAL).ceil(), qp.lb).expand(qp.batch, qp.n)
        ub = torch.where(qp.integer, (qp.ub + INTEGRAL).floor(), qp.ub).expand(qp.batch, qp.n)
        root = self._solve(list(range(qp.batch)), lb, ub)
        while halves := [(i, *half) for i in range(qp.batch) for half in self._next_halves(i)]:
            samples, lower, upper = zip(*halves, strict=True)
            self._solve(list(samples), torch.stack(lower), torch.stack(upper))
        decided = [stack is not None for stack in self.open]
        bound = [min(*pair) if done else -math.inf for *pair, done in zip(self.bound, self.best, decided, strict=True)]
        return SearchedIntegers(
            complete=torch.tensor(decided, device=qp.c.device),
            x=self.x,
            bound=torch.tensor(bound, dtype=qp.c.dtype, device=qp.c.device),
            ray=root == Status.UNBOUNDED,
            bounded=root == Status.SOLVED,
        )

    def _next_halves(self, i: int) -> list[tuple[Tensor, Tensor]]:
        """The halves of the next node of sample i that may hold a better point; none where there is no such node."""
        stack = self.open[i]
        while stack:
            node = stack.pop()
            if self._is_no_better(i, node.objective, node.terms):
                self.bound[i] = min(self.bound[i], node.objective)
            elif self.spent[i] + 2 > self.nodes or time_limit.time_left() == 0:
                self.open[i] = None
                return []
            else:
                return node.halves()
        return []

    def _is_no_better(self, i: int, objective: float, terms: float) -> bool:
        return objective >= self.best[i] - 0.5 * GAP * terms

    def _solve(self, samples: list[int], lb: Tensor, ub: Tensor) -> Tensor:
        """Solve the relaxations of nodes with the bounds lb and ub (K, n), and keep what is open; return statuses."""
        part = self.qp[torch.tensor(samples, dtype=torch.int64, device=self.qp.c.device)]
        lp = replace(part, lb=lb, ub=ub, integer=None, plan={})
        solved = solve_in_pipeline(lp, _vertex_solvers(lp))
        assert part.integer is not None
        point = solved.x.clamp(lb, ub)  # by rounding only
        fraction = torch.where(part.integer, (point - point.round()).abs(), 0.0)
        # a switch of 1e-7 beside a big M is no whole number: rounding counts as whole, nothing more
        rounded, fits = round_within_rows(part, point, fraction > ROUNDOFF)
        columns = (
            solved.status.tolist(),
            (part.c * point).sum(1).tolist(),
            (part.c * point).abs().sum(1).tolist(),
            (fraction > ROUNDOFF).sum(1).tolist(),
            (part.c * rounded).sum(1).tolist(),
            fits.tolist(),
            fraction.argmax(1).tolist(),
        )
        for k, (i, status, objective, terms, fractional, whole, fit, at) in enumerate(
            zip(samples, *columns, strict=True)
        ):
            self.spent[i] += 1
            stack = self.open[i]
            if stack is None or status == Status.INFEASIBLE:
                continue
            if status != Status.SOLVED:
                self.open[i] = None
                continue
            if (fit or not fractional) and whole < self.best[i] - GAP * terms:
                self.best[i], self.x[i] = whole, rounded[k]
            if not fractional or self._is_no_better(i, objective, terms):
                self.bound[i] = min(self.bound[i], objective)
            else:
                node = _Node(objective, terms, lb[k], ub[k], at, float(point[k, at]))
                self.open[i] = None if 2 * fractional > self.nodes else [*stack, node]
        return solved.status


def _vertex_solvers(lp: QuadraticProgram) -> list[Backend]:
    """The solvers of the nodes: those that end at a vertex, where integers are more often whole than inside a face."""
    rows = [row for row in resolve_backends("auto", "lp", lp.is_sparse) if row.vertex]
    # the first solver must be installed; a dense program's own is, and a search for packages takes long
    return [row for row in rows if not lp.is_sparse or row.installed][:_LP_SOLVERS]


_MOST_ENTRIES = 10_000_000  # entries of the columns that are looked at together


def round_within_rows(qp: QuadraticProgram, x: Tensor, fractional: Tensor) -> tuple[Tensor, Tensor]:
    """Round every fractional integer up or down, to where no row is violated while the other variables stay.

    A switch that costs nothing often ends between two whole numbers, and both or one of them are as good. Where both
    are possible, the cheaper one is taken, and the lower one among equals.

    Args:
        qp: B programs.
        x: (B, n) points that satisfy the rows.
        fractional: (B, n) bool, the integers to round.

    Returns:
        (B, n) rounded points, and (B,) bool, whether all integers of a point could be rounded together.
    """
    sample, at = fractional.nonzero(as_tuple=True)
    rounded = x.clone()
    if not len(at) or len(at) * max(qp.m + qp.p, 1) > _MOST_ENTRIES:
        return rounded, torch.zeros(len(x), dtype=torch.bool, device=x.device)
    slack, moves = _slacks(qp, x), (_columns(qp.A, sample, at) == 0).all(1)
    columns, value = _columns(qp.G, sample, at), x[sample, at]
    possible = [
        moves & (columns * (target - value)[:, None] <= slack[sample]).all(1)
        for target in (value.floor(), value.ceil())
    ]
    up = possible[1] & (~possible[0] | (qp.c[sample, at] < 0))
    rounded[sample, at] = torch.where(up, value.ceil(), value.floor())
    stuck = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    stuck[sample[~(possible[0] | possible[1])]] = True
    return rounded, ~stuck & (_slacks(qp, rounded) >= 0).all(1)


def _slacks(qp: QuadraticProgram, x: Tensor) -> Tensor:
    """The slacks of the inequality rows at x, with room for rounding, (B, m)."""
    terms = matvec(qp.G.abs(), x.abs()) + finite_size(qp.h)
    return qp.h - matvec(qp.G, x) + ROUNDOFF * terms


def _columns(matrix: Any, sample: Tensor, at: Tensor) -> Tensor:
    """The columns ``at`` (K,) of the matrices of ``sample`` (K,), shape (K, r)."""
    if matrix.is_sparse:
        return torch.from_numpy(matrix.csr[:, at.numpy()].toarray().T)
    shared: Tensor = matrix[0][:, at].T if matrix.shape[0] == 1 else matrix[sample, :, at]
    return shared
