"""Integer programs: a relaxation or a solver proposes a point, which is rounded, completed and checked.

An integer solver proposes the integer variables and a bound on the objective. The continuous variables are then the
solution of a linear program, which the pipeline of continuous programs solves exactly. PEAR does not trust the claims
of other packages' solvers. A short search by branch and bound looks for a better point, or proves that no point is
better. If the search cannot decide, a claim of optimality is marked as unchecked. If a solver claims that a program is
infeasible or unbounded, and the search cannot decide, the next solver gets the program. If the next solver makes the
same claim, the claim becomes the status; if nothing else decides, it becomes the status, too, but marked as unchecked.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pear.decisions.integer_checks import CheckedIntegers, check_integers, complete_integers
from pear.decisions.kept_integers import IntegerResults, solve_unless_kept
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

_FEW = 8 * NODES  # nodes of the search for a point if a solver claims that no point is feasible
_ROOT = 1  # nodes of a search that solves only the relaxation itself
_WITHOUT_POINT = (Status.INFEASIBLE, Status.UNBOUNDED)


def solve_integer_programs(
    problem: Problem, cost: Tensor, smoothing: float | str = 0.0, solver: str = "auto", **overrides: Any
) -> Solution:
    """Solve a batch of integer programs.

    A sample without a checked solution goes to the next solver that supports integer programs. A solution with the
    status SOLVED is feasible, and its objective reaches a lower bound. ``unchecked`` says whether this bound is only
    the claim of a single solver.

    Args:
        problem, smoothing, solver, overrides: as for ``pear.solve``.
        cost: (B, n) costs; B may be 0.

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
        run = _IntegerProgramRun(part)
        run.execute(solver)
        return IntegerResults(run.found, run.unchecked)

    own_matrices = overrides.get("A") is not None or overrides.get("G") is not None
    results = solve_some(qp) if own_matrices else solve_unless_kept(problem, qp, solver, solve_some)
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


class _IntegerProgramRun:
    """The state of one batch of integer programs while it is solved.

    Attributes:
        qp: B integer programs.
        found: the best known point and the status of each sample. A sample with status INACCURATE is open.
        claimed: (B,) int8, INFEASIBLE or UNBOUNDED if one solver claims this of a sample and nothing confirms it;
            SOLVED for all other samples.
        unchecked: (B,) bool, whether the status of a sample rests on the claim of a single solver.
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
        """Try one solver after another until every sample has a status.

        For "auto", a search by branch and bound with few nodes comes before the first solver that does not prove its
        own claims.
        """
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
        """Return the positions (k,) of the samples that have no final status yet."""
        return (self.found.status == Status.INACCURATE).nonzero()[:, 0]

    def _programs_at(self, index: Tensor) -> QuadraticProgram:
        """Return the programs of the samples at ``index`` (k,), without a copy if these are the whole batch."""
        return self.qp if len(index) == self.qp.batch else self.qp[index]

    def _try_relaxation(self) -> None:
        """Search all open samples by branch and bound with few nodes, and store what the search proves."""
        index = self._open()
        if len(index):
            part = self._programs_at(index)
            self._search(index, part, torch.full_like(part.c[:, 0], torch.inf), NODES)

    def _ask(self, backend: Backend, index: Tensor) -> None:
        """Let a solver propose points for the samples at ``index`` (k,); check them and the solver's claims."""
        part = self._programs_at(index)
        checked = check_integers(part, complete_integers(part, backend.solve(part, OPTIMAL)))
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
        self._judge_unbounded(index[said == Status.UNBOUNDED])

    def _search(self, index: Tensor, part: QuadraticProgram, value: Tensor, nodes: int) -> None:
        """Search some samples for better points by branch and bound, and store what the search proves.

        A complete search gives a proven bound. If an incomplete search finds a better point than a solver's point, the
        solver's bound is false, and the sample stays open.

        Args:
            index: (k,) the positions of the samples.
            part: the programs of these samples.
            value: (k,) the objective of the known point of each sample; infinite if no point is known.
            nodes: the largest number of linear programs per sample.
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
        """Check points x (k, n) against proven bounds ``bound`` (k,), and store the points that are optimal.

        A point that is not optimal is completed (``complete_integers``) and checked once more. ``index`` (k,) are the
        positions of the samples, and ``part`` their programs.
        """
        proposal = self._proposal(part, x, bound)
        checked = check_integers(part, proposal)
        rounded = (checked.status != Status.SOLVED).nonzero()[:, 0]
        if len(rounded):
            checked.put(rounded, check_integers(part[rounded], complete_integers(part[rounded], proposal[rounded])))
        good = checked.status == Status.SOLVED
        self.found.put(index[good], checked[good])
        self.unchecked[index[good]] = False

    def _note_claims(self, index: Tensor, said: Tensor) -> None:
        """Store a solver's claims that samples are infeasible or unbounded.

        A claim that a second solver repeats becomes the status. ``index`` (k,) are the positions of the samples, and
        ``said`` (k,) the statuses that the solver claims.
        """
        for name in _WITHOUT_POINT:
            still = index[(said == name) & (self.found.status[index] == Status.INACCURATE)]
            twice = still[self.claimed[still] == name]
            self.found.status[twice] = int(name)
            self.claimed[still] = int(name)

    def _judge_unbounded(self, index: Tensor) -> None:
        """Check a solver's claim that the samples at ``index`` (k,) are unbounded, and store what is proven.

        A feasible integer program with rational numbers is unbounded if and only if its relaxation is. A feasible point
        and an unbounded direction of the relaxation therefore prove the claim.
        """
        costs = self.qp.c[index].any(1)
        self.claimed[index[~costs]] = int(Status.SOLVED)  # an objective of zero is bounded
        index = index[costs & (self.found.status[index] == Status.INACCURATE)]
        if not len(index):
            return
        part = self.qp[index]
        without_cost = _IntegerProgramRun(replace(part, c=torch.zeros_like(part.c)))
        without_cost.execute("auto")
        point, root = without_cost.found.status, search_relaxations(part, torch.zeros_like(part.c[:, 0]), _ROOT)
        self.found.status[index[root.ray & (point == Status.SOLVED)]] = int(Status.UNBOUNDED)
        nowhere = point == Status.INFEASIBLE
        self.found.status[index[nowhere]] = int(Status.INFEASIBLE)
        self.unchecked[index[nowhere]] = without_cost.unchecked[nowhere]
        self.claimed[index[root.bounded]] = int(Status.SOLVED)  # the relaxation is bounded, so that the claim is false

    @staticmethod
    def _proposal(qp: QuadraticProgram, x: Tensor, bound: Tensor) -> Candidate:
        """Return points x (B, n) with proven bounds (B,) as a candidate with the status SOLVED, to be checked."""
        status = torch.zeros(qp.batch, dtype=torch.int8, device=qp.c.device)
        return replace(empty_candidate(qp.batch, qp.n, qp.p, qp.m, like=qp.c), x=x, status=status, bound=bound)
