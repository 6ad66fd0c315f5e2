"""A check of integer solutions by branch and bound, with verified linear programs and few nodes.

A solver of another package may claim that no point is better than its own, or that no point is feasible. The search
tests this claim. Each of its nodes is a continuous program. Either the optimum of the node satisfies the optimality
conditions, or a certificate proves that the node is infeasible. The search knows the solver's point, and closes a node
if its optimum is not better than this point. A sample that needs too many nodes stays undecided.
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
"""The largest number of linear programs that a search solves for one sample, unless its caller allows more."""
_AT_ONCE, _ONE_BY_ONE = 256, 8  # samples that are searched together: with shared matrices, and with matrices each
_HALF = 0.5
_LP_SOLVERS = 2  # tried for a node; if both fail, the sample stays undecided
_MOST_ENTRIES = 10_000_000  # the most entries of the columns that are rounded at the same time


@dataclass(frozen=True)
class SearchedRelaxations(TensorRecord):
    """The results of the searches for a batch of samples.

    Attributes:
        complete: (B,) bool, whether every branch was closed.
        x: (B, n) the best integer point that the search found; NaN if it found none with a lower objective than the
            given ``value``.
        bound: (B,) a proven lower bound of the objective; −inf if the search is not complete, inf if no point is
            feasible.
        ray: (B,) bool, whether a checked direction proves that the relaxation is unbounded.
        bounded: (B,) bool, whether the relaxation has a solution.
    """

    complete: Tensor
    x: Tensor
    bound: Tensor
    ray: Tensor
    bounded: Tensor


class _RelaxationNode(NamedTuple):
    """A node of the search: a solved relaxation in which an integer variable is fractional.

    Attributes:
        objective: the optimum of the relaxation.
        terms: ``Σⱼ |cⱼ xⱼ|`` at the optimum, for the cost c and the point x. Tolerances are relative to it.
        lb: (n,) lower bounds of the variables.
        ub: (n,) upper bounds of the variables.
        at: the number of the fractional variable at which the node is split.
        value: the value of this variable.
    """

    objective: float
    terms: float
    lb: Tensor
    ub: Tensor
    at: int
    value: float

    def halves(self) -> list[tuple[Tensor, Tensor]]:
        """Return the bounds (lb, ub) of the two halves of the node, split at the fractional variable.

        The half that is nearer to the fractional value comes last, and is searched first.
        """
        # value may exceed a bound by rounding; each half must contain a whole number
        middle = min(max(math.floor(self.value), float(self.lb[self.at])), float(self.ub[self.at]) - 1.0)
        upper, lower = self.ub.clone(), self.lb.clone()
        upper[self.at], lower[self.at] = middle, middle + 1.0
        below, above = (self.lb, upper), (lower, self.ub)
        return [below, above] if self.value - middle > _HALF else [above, below]


def search_relaxations(qp: QuadraticProgram, value: Tensor, nodes: int = NODES) -> SearchedRelaxations:
    """Search integer programs for points with a lower objective than ``value``, by branch and bound.

    Args:
        qp: B integer programs with a linear objective.
        value: (B,) objectives of feasible points; infinite if none is known.
        nodes: the largest number of linear programs per sample.
    """
    size = _AT_ONCE if qp.shares_matrices else _ONE_BY_ONE
    parts = torch.arange(qp.batch, device=qp.c.device).split(size)
    searched: SearchedRelaxations = SearchedRelaxations.cat(
        [_RelaxationSearch(qp[part] if qp.batch > size else qp, value[part], nodes).run() for part in parts]
    )
    return searched


class _RelaxationSearch:
    """The searches for one batch. Each search goes depth first, and all samples make a step at the same time.

    Attributes:
        qp: B integer programs.
        nodes: the largest number of linear programs per sample.
        best: the objective of each sample's best point so far; at first the given ``value``.
        x: (B, n) the best point that the search has found.
        bound: the least optimum of each sample's closed branches.
        spent: the number of linear programs of each sample so far.
        open: the open nodes of each sample; None if the sample stays undecided.
    """

    def __init__(self, qp: QuadraticProgram, value: Tensor, nodes: int) -> None:
        self.qp, self.nodes, self.best = qp, nodes, value.tolist()
        self.x = torch.full_like(qp.c, torch.nan)
        self.bound, self.spent = [math.inf] * qp.batch, [0] * qp.batch
        self.open: list[list[_RelaxationNode] | None] = [[] for _ in range(qp.batch)]

    def run(self) -> SearchedRelaxations:
        """Search until the search of every sample is complete or gives up; return the results."""
        qp = self.qp
        assert qp.integer is not None
        lb = torch.where(qp.integer, (qp.lb - INTEGRAL).ceil(), qp.lb).expand(qp.batch, qp.n)
        ub = torch.where(qp.integer, (qp.ub + INTEGRAL).floor(), qp.ub).expand(qp.batch, qp.n)
        root = self._solve_nodes(list(range(qp.batch)), lb, ub)
        while halves := [(i, *half) for i in range(qp.batch) for half in self._next_halves(i)]:
            samples, lower, upper = zip(*halves, strict=True)
            self._solve_nodes(list(samples), torch.stack(lower), torch.stack(upper))
        decided = [stack is not None for stack in self.open]
        bound = [min(*pair) if done else -math.inf for *pair, done in zip(self.bound, self.best, decided, strict=True)]
        return SearchedRelaxations(
            complete=torch.tensor(decided, device=qp.c.device),
            x=self.x,
            bound=torch.tensor(bound, dtype=qp.c.dtype, device=qp.c.device),
            ray=root == Status.UNBOUNDED,
            bounded=root == Status.SOLVED,
        )

    def _next_halves(self, i: int) -> list[tuple[Tensor, Tensor]]:
        """Return the bounds of the two halves of sample i's next open node.

        Nodes whose optimum is not better than the sample's best point are closed first. If no open node is left, or if
        the search gives up, the result is [].
        """
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
        """Return whether the optimum of a node of sample i is not better than the best point, within the tolerance."""
        return objective >= self.best[i] - 0.5 * GAP * terms

    def _solve_nodes(self, samples: list[int], lb: Tensor, ub: Tensor) -> Tensor:
        """Solve the relaxations of K nodes, store better integer points, and add nodes that must be split to ``open``.

        The search of a sample gives up if a relaxation cannot be solved, or if too many of its integers are fractional.

        Args:
            samples: the number of the sample of each node.
            lb: (K, n) lower bounds.
            ub: (K, n) upper bounds.

        Returns:
            (K,) statuses of the relaxations.
        """
        part = self.qp[torch.tensor(samples, dtype=torch.int64, device=self.qp.c.device)]
        lp = replace(part, lb=lb, ub=ub, integer=None, plan={})
        solved = solve_in_pipeline(lp, _relaxation_solvers(lp))
        assert part.integer is not None
        point = solved.x.clamp(lb, ub)  # by rounding only
        fraction = torch.where(part.integer, (point - point.round()).abs(), 0.0)
        # a binary variable of 1e-7 with a big M is not whole: only rounding errors are ignored
        rounded, fits = round_relaxation(part, point, fraction > ROUNDOFF)
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
                node = _RelaxationNode(objective, terms, lb[k], ub[k], at, float(point[k, at]))
                self.open[i] = None if 2 * fractional > self.nodes else [*stack, node]
        return solved.status


def _relaxation_solvers(lp: QuadraticProgram) -> list[Backend]:
    """Return the solvers for the nodes: those that end at a vertex, where integer variables are more often whole."""
    rows = [row for row in resolve_backends("auto", "lp", lp.is_sparse) if row.vertex]
    # for sparse programs the first solver must be installed; PEAR's own solver of dense programs always is
    return [row for row in rows if not lp.is_sparse or row.installed][:_LP_SOLVERS]


def round_relaxation(qp: QuadraticProgram, x: Tensor, fractional: Tensor) -> tuple[Tensor, Tensor]:
    """Round integer variables up or down, each in a direction that violates no row if only this variable is rounded.

    A binary variable without a cost is often fractional although 0 or 1 would be as good. If both directions are
    possible, the variable is rounded to the cheaper value, or down if both cost the same.

    Args:
        qp: B programs.
        x: (B, n) points that satisfy the rows.
        fractional: (B, n) bool, the integer variables to round. All other variables stay the same.

    Returns:
        (B, n) rounded points, and (B,) bool, whether a point still satisfies all rows after all its roundings. All are
        False, and no point is rounded, if there is nothing to round or too much.
    """
    sample, at = fractional.nonzero(as_tuple=True)
    rounded = x.clone()
    if not len(at) or len(at) * max(qp.m + qp.p, 1) > _MOST_ENTRIES:
        return rounded, torch.zeros(len(x), dtype=torch.bool, device=x.device)
    slack, moves = _relaxation_row_slacks(qp, x), (_relaxation_columns_to_round(qp.A, sample, at) == 0).all(1)
    columns, value = _relaxation_columns_to_round(qp.G, sample, at), x[sample, at]
    possible = [
        moves & (columns * (target - value)[:, None] <= slack[sample]).all(1)
        for target in (value.floor(), value.ceil())
    ]
    up = possible[1] & (~possible[0] | (qp.c[sample, at] < 0))
    rounded[sample, at] = torch.where(up, value.ceil(), value.floor())
    stuck = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    stuck[sample[~(possible[0] | possible[1])]] = True
    return rounded, ~stuck & (_relaxation_row_slacks(qp, rounded) >= 0).all(1)


def _relaxation_row_slacks(qp: QuadraticProgram, x: Tensor) -> Tensor:
    """Compute the slacks (B, m) of the inequality rows at x (B, n), increased by a tolerance for rounding errors."""
    terms = matvec(qp.G.abs(), x.abs()) + finite_size(qp.h)
    return qp.h - matvec(qp.G, x) + ROUNDOFF * terms


def _relaxation_columns_to_round(matrix: Any, sample: Tensor, at: Tensor) -> Tensor:
    """Return K columns of the matrices (B or 1, r, n) of B samples, as rows of a tensor (K, r).

    Row k of the result is column ``at[k]`` of the matrix of sample ``sample[k]``.
    """
    if matrix.is_sparse:
        return torch.from_numpy(matrix.csr[:, at.numpy()].toarray().T)
    shared: Tensor = matrix[0][:, at].T if matrix.shape[0] == 1 else matrix[sample, :, at]
    return shared
