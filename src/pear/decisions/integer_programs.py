"""Integer programs: a relaxation or a solver proposes a point, which is rounded, completed and verified.

An integer solver supplies the integer variables and a bound on the objective. For these integers, the continuous
variables solve a linear program, which the pipeline of continuous programs solves exactly. No claim of a solver of
another package is trusted: our own relaxations search for a better point, or close every branch. What they
cannot decide is passed to another solver if that costs little, and is otherwise marked as unchecked.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pear.decisions.integer_checks import CheckedIntegers, complete_continuous, verify_integers
from pear.decisions.kept_integers import IntegerResults, solve_distinct
from pear.decisions.relaxation_search import NODES, search_relaxations
from pear.decisions.solution import Solution
from pear.errors import ProblemError
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.program_screen import screen_programs
from pear.optimality.rule import OPTIMAL
from pear.optimality.status import Status
from pear.problem import Problem
from pear.problem.quadratic_program import QuadraticProgram
from pear.setting_checks import check_smoothing_setting
from pear.solvers import time_limit
from pear.solvers.backend_registry import Backend, resolve_backends, usable_backends
from pear.solvers.candidate import Candidate, empty_candidate

logger = logging.getLogger("pear")

_FEW = 8 * NODES  # nodes of the search for a point where a solver says that there is none
_ROOT = 1  # nodes of a search that asks for the relaxation alone
_WITHOUT_POINT = (Status.INFEASIBLE, Status.UNBOUNDED)


def solve_integer_programs(
    problem: Problem, cost: Tensor, smoothing: float | str = 0.0, solver: str = "auto", **overrides: Any
) -> Solution:
    """Solve a batch of integer programs; every returned solution is feasible and proven optimal.

    Samples without a verified solution go to the next solver that takes integer programs.

    Args:
        problem, smoothing, solver, overrides: as for ``pear.solve``.
        cost: (B, n); B may be 0.

    Raises:
        ProblemError: the objective is not linear.
    """
    check_smoothing_setting(smoothing)
    if smoothing != 0 or problem.is_curved or overrides.get("Q") is not None:
        raise ProblemError(
            "an integer problem must have a linear objective: expected smoothing=0, no Q and no phi; "
            "solve problem.relaxed() to smooth the continuous relaxation"
        )
    qp = problem.canonical(cost, 0.0, **overrides)

    def solve_some(part: QuadraticProgram) -> IntegerResults:
        run = _IntegerRun(part)
        run.execute(solver)
        return IntegerResults(run.found, run.unchecked)

    own_matrices = overrides.get("A") is not None or overrides.get("G") is not None
    results = solve_some(qp) if own_matrices else solve_distinct(problem, qp, solver, solve_some)
    found, status = results.found, results.found.status
    solved = status == Status.SOLVED
    usable = solved | ((status == Status.TIME_LIMIT) & found.feasible)
    x = torch.where(usable[:, None], found.x, torch.nan)
    return Solution(
        x=x,
        value=problem.sign * (x * qp.c).sum(1),
        status=status,
        active=found.active.only(usable),
        weak=ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device),
        duals=None,
        kkt_residual=found.residual,
        repaired=torch.zeros_like(solved),
        gap=torch.where(usable, found.gap, torch.nan),
        unchecked=results.unchecked,
    )


class _IntegerRun:
    """The state of one batch: what was found, and which claims nothing has confirmed.

    Attributes:
        qp: B integer programs.
        found: the best that is known of each sample. A sample with status INACCURATE is open.
        claimed: (B,) int8, INFEASIBLE or UNBOUNDED where a solver says so and it is not confirmed; SOLVED elsewhere.
        unchecked: (B,) bool, whether the status of a sample rests on the claim of one solver.
    """

    def __init__(self, qp: QuadraticProgram) -> None:
        self.qp = qp
        status = screen_programs(qp)
        self.claimed = torch.full_like(status, int(Status.SOLVED))
        self.unchecked = torch.zeros_like(status, dtype=torch.bool)
        status[status == Status.SOLVED] = int(Status.INACCURATE)
        self.found = CheckedIntegers(
            x=torch.full_like(qp.c, torch.nan),
            residual=torch.full_like(qp.c[:, 0], torch.nan),
            gap=torch.full_like(qp.c[:, 0], torch.nan),
            feasible=torch.zeros_like(status, dtype=torch.bool),
            status=status,
            active=ActiveSet.none(qp.batch, qp.n, qp.m, qp.c.device),
        )

    def execute(self, solver: str) -> None:
        """Ask the relaxation, then one solver after another, until every sample has a status."""
        status, relaxed = self.found.status, solver != "auto"
        for backend in usable_backends(resolve_backends(solver, "milp", self.qp.is_sparse), self.qp):
            if not relaxed and not backend.own_proofs:
                self._try_relaxation()
                relaxed = True
            index = self._open()
            if not len(index) or time_limit.time_left() == 0:
                break
            logger.debug("%d integer programs go to %s", len(index), backend.name)
            self._ask(backend, index)
        named = (status == Status.INACCURATE) & (self.claimed != Status.SOLVED)
        status[named], self.unchecked[named] = self.claimed[named], True
        if time_limit.time_left() == 0:
            status[status == Status.INACCURATE] = int(Status.TIME_LIMIT)

    def _open(self) -> Tensor:
        """Positions of the samples that have no status yet."""
        return (self.found.status == Status.INACCURATE).nonzero()[:, 0]

    def _part(self, index: Tensor) -> QuadraticProgram:
        return self.qp if len(index) == self.qp.batch else self.qp[index]

    def _try_relaxation(self) -> None:
        """Solve what a relaxation with few fractional integers, split a few times, decides by itself."""
        index = self._open()
        if len(index):
            part = self._part(index)
            self._search(index, part, torch.full_like(part.c[:, 0], torch.inf), NODES)

    def _ask(self, backend: Backend, index: Tensor) -> None:
        """Let a solver propose points for the samples at ``index``, and check what it claims."""
        part = self._part(index)
        checked = verify_integers(part, complete_continuous(part, backend.solve(part, OPTIMAL)))
        if backend.own_proofs:
            self.found.put(index, checked)
            return
        said = checked.status.clone()
        for name in _WITHOUT_POINT:
            checked.status[said == name] = int(Status.INACCURATE)
        self.found.put(index, checked)
        proposed = checked.feasible & ((said == Status.SOLVED) | (said == Status.INACCURATE))
        self.unchecked[index[said == Status.SOLVED]] = True
        value = torch.where(proposed, (part.c * checked.x).sum(1), torch.inf)
        for mask, nodes in ((proposed, NODES), (said == Status.INFEASIBLE, _FEW)):
            where = mask.nonzero()[:, 0]
            if len(where):
                self._search(index[where], part[where], value[where], nodes)
        self._note_claims(index, said)
        self._judge_endless(index[said == Status.UNBOUNDED])

    def _search(self, index: Tensor, part: QuadraticProgram, value: Tensor, nodes: int) -> None:
        """Search the relaxations of some samples for points better than ``value`` (k,), and write what is proven.

        A sample whose search is complete has its own bound. Where the search meets a better point and is not complete,
        the solver's bound is false, and the sample stays open.
        """
        searched = search_relaxations(part, value, nodes)
        better = searched.x.isfinite().all(1)
        empty = searched.complete & (searched.bound == torch.inf)
        for improved in (False, True):
            done = (searched.complete & ~empty & (better == improved)).nonzero()[:, 0]
            if len(done):
                x = searched.x[done] if improved else self.found.x[index[done]]
                self._accept(index[done], part[done], x, searched.bound[done])
        self.found.status[index[empty]] = int(Status.INFEASIBLE)
        self.found.status[index[searched.ray & self.found.feasible[index]]] = int(Status.UNBOUNDED)
        false = index[better & ~searched.complete]
        self.found.status[false] = int(Status.INACCURATE)
        self.unchecked[index[empty | searched.ray]], self.unchecked[false] = False, False

    def _accept(self, index: Tensor, part: QuadraticProgram, x: Tensor, bound: Tensor) -> None:
        """Write the points x (k, n) with their own bounds (k,), where they pass the check."""
        proposal = _proposal(part, x, bound)
        checked = verify_integers(part, proposal)
        rounded = (checked.status != Status.SOLVED).nonzero()[:, 0]
        if len(rounded):
            checked.put(rounded, verify_integers(part[rounded], complete_continuous(part[rounded], proposal[rounded])))
        good = checked.status == Status.SOLVED
        self.found.put(index[good], checked[good])
        self.unchecked[index[good]] = False

    def _note_claims(self, index: Tensor, said: Tensor) -> None:
        """Store which samples have no point; a claim that a second solver repeats is confirmed."""
        for name in _WITHOUT_POINT:
            still = index[(said == name) & (self.found.status[index] == Status.INACCURATE)]
            twice = still[self.claimed[still] == name]
            self.found.status[twice] = int(name)
            self.claimed[still] = int(name)

    def _judge_endless(self, index: Tensor) -> None:
        """Judge the samples that a solver calls unbounded, by a direction of the relaxation and a feasible point.

        In rational numbers, a feasible integer program is unbounded exactly where its relaxation is.
        """
        costs = self.qp.c[index].any(1)
        self.claimed[index[~costs]] = int(Status.SOLVED)  # what costs nothing does not fall
        index = index[costs & (self.found.status[index] == Status.INACCURATE)]
        if not len(index):
            return
        part = self.qp[index]
        without_cost = _IntegerRun(replace(part, c=torch.zeros_like(part.c)))
        without_cost.execute("auto")
        point, root = without_cost.found.status, search_relaxations(part, torch.zeros_like(part.c[:, 0]), _ROOT)
        self.found.status[index[root.ray & (point == Status.SOLVED)]] = int(Status.UNBOUNDED)
        nowhere = point == Status.INFEASIBLE
        self.found.status[index[nowhere]] = int(Status.INFEASIBLE)
        self.unchecked[index[nowhere]] = without_cost.unchecked[nowhere]
        self.claimed[index[root.bounded]] = int(Status.SOLVED)  # there is nothing to fall along: the claim is false


def _proposal(qp: QuadraticProgram, x: Tensor, bound: Tensor) -> Candidate:
    """Points (B, n) with bounds (B,) that are claimed to be optimal."""
    status = torch.zeros(qp.batch, dtype=torch.int8, device=qp.c.device)
    return replace(empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c), x=x, status=status, bound=bound)
