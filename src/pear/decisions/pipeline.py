"""The pipeline from a batch of programs to verified solutions.

    screen → warm start → solver → verify → repair → name the failure → ask another solver

Dense and sparse programs, on the CPU and on a GPU, take the same steps. They differ in what a solver's candidate
carries and in the reduced systems behind the repair, which the pipeline does not see. A dense batch is solved as a
whole. Sparse programs are solved one by one, in threads, because the factors of a batch would not fit into memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pear.compile.cuda_graphs import replay_programs
from pear.decisions.failed_guesses import FailedGuesses
from pear.decisions.failures import known_infeasible, name_failures
from pear.decisions.repair import RepairResult, repair, sharpen_points
from pear.optimality.active import guess_active, tight_constraints
from pear.optimality.point import ActiveSet, Duals, Status
from pear.optimality.residual import kkt_residual
from pear.optimality.screen import screen
from pear.optimality.verify import Verification, verify
from pear.problem.canonical import QuadraticProgram
from pear.sensitivity.curvature import is_convex_program
from pear.sensitivity.systems import ReducedSystems, SparseSystems, in_threads, reduced_systems
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.base import Candidate, PartProjector, Projector, Start
from pear.solvers.registry import Backend, in_turn

logger = logging.getLogger("pear")

_FROM_START = 8  # exchanges of constraints that are cheaper than a solver
_OTHERS = 3  # exchanges for the candidate of a further solver, because more solvers can be asked
_AGREED = 2  # candidates with a working set that has failed before, after which no other solver is asked
_DIVERGED = 1e3  # KKT residual from which a candidate's multipliers are ignored
_ON_NONZEROS = 100  # variables from which a dense program of few non-zeros is first solved as a sparse one
_KEPT = 2**26  # numbers in the factors that a batch of sparse programs keeps for its gradient


def solve_programs(
    qp: QuadraticProgram,
    solvers: Iterable[Backend],
    start: Start | None = None,
    check_convexity: bool = False,
    seek_vertex: bool = False,
    known: Tensor | None = None,
    named: bool = False,
) -> VerifiedSolutions:
    """Solve a batch of continuous programs; every returned solution satisfies its optimality conditions.

    Args:
        qp: the programs (B of them, 0 allowed).
        solvers: the solvers to ask, in order.
        start: warm starts; where one still passes the check, no solver is called.
        check_convexity: give samples with an indefinite H the status NOT_CONVEX, instead of trusting them.
        seek_vertex: of a linear program with several solutions find a vertex, where a solver can.
        known: (B,) int8 statuses of samples whose failure has been proven before, which no solver is asked about;
            SOLVED where nothing is known.
        named: whether the user chose the first solver, so that it has to take the programs.

    Raises:
        UnknownSolverError: the user's solver does not take the programs.
    """
    if not qp.is_sparse:
        return _PipelineRun(qp, check_convexity, known).execute(in_turn(solvers, qp, named), start, seek_vertex)
    samples: list[VerifiedSolutions | None] = [None] * qp.batch

    def one(i: int) -> None:
        at = torch.tensor([i])
        run = _PipelineRun(qp[at], check_convexity=True, known=None if known is None else known[at])
        samples[i] = run.execute(in_turn(solvers, run.qp, named), None if start is None else start[at], seek_vertex)

    in_threads(one, qp.batch)
    return _join(qp, [sample for sample in samples if sample is not None])


class _PipelineRun:
    """The state of one batch in the pipeline."""

    def __init__(self, qp: QuadraticProgram, check_convexity: bool, known: Tensor | None = None) -> None:
        B, n, p, m = qp.batch, qp.n, qp.p, qp.m
        self.qp = qp
        self.x = qp.c.new_zeros(B, n)
        self.duals = Duals(qp.c.new_zeros(B, p), qp.c.new_zeros(B, m), qp.c.new_zeros(B, n))
        self.working = ActiveSet.none(B, n, m, qp.c.device)
        self.status = replay_programs("screen", screen, qp)
        self.complete = False  # whether all points of the last solver have been verified, as one batch
        if known is not None:
            self.status = torch.where(self.status == Status.SOLVED, known, self.status)
        infeasible = known_infeasible(qp)
        if infeasible is not None:
            self.status[infeasible & (self.status == Status.SOLVED)] = int(Status.INFEASIBLE)
        if check_convexity and bool((self.status == Status.SOLVED).any()):
            self.status[(self.status == Status.SOLVED) & ~is_convex_program(qp)] = int(Status.NOT_CONVEX)
        self.verified = torch.zeros(B, dtype=torch.bool, device=qp.c.device)
        self.examined = self.verified.clone()  # whether linear programs have looked for the reason of a failure
        self.reused = self.verified.clone()
        self.exchanges = torch.zeros(B, dtype=torch.long, device=qp.c.device)
        self.sharpened = torch.full_like(qp.c[:, 0], torch.nan)
        self.systems: ReducedSystems | None = None
        self.verdict: Verification | None = None
        self.projector: Projector | None = None
        self.projects = self.verified.clone()
        self.guesses = FailedGuesses()
        self.agreed = torch.zeros_like(self.exchanges)  # candidates with a working set that has failed before
        self.solver = ""  # the name of the solver whose candidates are being checked

    def execute(self, solvers: Iterable[Backend], start: Start | None, seek_vertex: bool) -> VerifiedSolutions:
        """Ask solver after solver; samples that are not verified in the end are INACCURATE."""
        seek_vertex = seek_vertex and self.qp.is_linear
        first: Backend | None = None
        for solver in solvers:
            if first is None and start is not None and not solver.starts_afresh:
                self.repair_starts(start)
            left = self.todo()
            wanted = left | self.between_vertices(solver) if seek_vertex and first is not None else left
            if not bool(wanted.any()):
                break
            if first is not None and bool(left.any()):
                message = "%s left %d of %d samples unverified; asking %s"
                logger.debug(message, first.name, int(left.sum()), self.qp.batch, solver.name)
            for some in self.parts(wanted, left, first):
                # small programs are tried as a whole batch first; those that a solver has left deserve the care at once
                if solver.warm_sparse and (first is not None or self.qp.n >= _ON_NONZEROS):
                    self.ask_on_nonzeros(solver, some, start)
                if bool(some.any()):
                    self.ask(solver, some, start, last_only=first is not None)
            if self.complete and not seek_vertex:
                return self.finish()
            first = first or solver
            self.name_failures(self.todo())
        self.status[self.todo()] = int(Status.INACCURATE)
        return self.finish()

    def parts(self, wanted: Tensor, left: Tensor, first: Backend | None) -> list[Tensor]:
        """The parts to solve together, as masks (B,): first the whole batch, then each sample that is ``left``.

        Rounding depends on the shape of a batch. A sample that is hard enough for it to matter is solved alone, so that
        its result does not depend on its neighbours.
        """
        if first is None or self.x.is_cuda:
            return [wanted]
        alone = [torch.zeros_like(left).index_fill(0, i, True) for i in left.nonzero()]
        together = wanted & ~left
        return [*alone, together] if bool(together.any()) else alone

    def name_failures(self, suspects: Tensor) -> None:
        """Find out by linear programs whether samples have a solution at all, before another solver is asked.

        Args:
            suspects: (B,) bool; each sample is looked at once.
        """
        left = (suspects & ~self.examined).nonzero()[:, 0]
        if len(left):
            self.examined[left] = True
            status = name_failures(self.at(left))
            self.status[left] = torch.where(status == Status.INACCURATE, int(Status.SOLVED), status).to(torch.int8)

    def at(self, index: Tensor) -> QuadraticProgram:
        """The programs at ``index``; all of them without a copy."""
        return self.qp if len(index) == self.qp.batch else self.qp[index]

    def todo(self) -> Tensor:
        """(B,) bool: samples that are neither verified nor known to fail."""
        return (self.status == Status.SOLVED) & ~self.verified

    def between_vertices(self, solver: Backend) -> Tensor:
        """(B,) bool: verified samples on an edge between equally good vertices, where ``solver`` finds a vertex."""
        if not solver.vertex or not bool(self.verified.any()):
            return torch.zeros_like(self.verified)
        systems = reduced_systems(self.qp, self.working) if self.systems is None else self.systems
        error = torch.ones_like(self.x)
        return self.verified & ~systems.project(error)[3]

    def repair_starts(self, start: Start) -> None:
        """Repair warm starts; one that needs no exchange is reused."""
        where = (self.todo() & start.has_start).nonzero()[:, 0]
        self._repair(where, start.x[where], start.duals[where], start.working[where], _FROM_START)
        self.reused = self.verified & (self.exchanges == 0)
        self.exchanges.zero_()

    def ask(self, solver: Backend, wanted: Tensor, start: Start | None, last_only: bool) -> None:
        """Let one solver propose points, ever more accurate, for the samples ``wanted``."""
        self.solver, self.complete = solver.name, False
        rounds, takes_start = solver.rounds_for(self.qp), solver.takes_start(self.qp)
        rounds = rounds[-1:] if last_only and not takes_start else rounds
        for warm in (start, None) if takes_start and start is not None else (None,):
            left = wanted.nonzero()[:, 0]
            begun: Start | Candidate | None = None if warm is None else warm[left]
            for tol, exchanges in rounds:
                candidate = solver.solve(self.at(left), tol, begun)
                most = rounds[-1][1] if candidate.exhausted else exchanges
                good = self.check_candidate(left, candidate, min(most, _OTHERS) if last_only else most)
                if self.complete:
                    wanted.fill_(False)
                    return
                wanted[left[good]] = False
                self.examine_claims(left, good, candidate)
                left = left[~good & (self.status[left] == Status.SOLVED)]
                if not len(left):
                    return
                if candidate.exhausted:
                    break
                begun = candidate if candidate.resume is not None else None

    def examine_claims(self, index: Tensor, good: Tensor, candidate: Candidate) -> None:
        """Examine samples that a solver calls infeasible or unbounded before any solver is asked about them again."""
        claimed = (candidate.status == Status.INFEASIBLE) | (candidate.status == Status.UNBOUNDED)
        suspects = torch.zeros_like(self.verified)
        suspects[index] = claimed & ~good
        self.name_failures(suspects & self.todo())

    def ask_on_nonzeros(self, solver: Backend, wanted: Tensor, start: Start | None) -> None:
        """Solve dense programs of few non-zeros as sparse ones; samples that are done are cleared in ``wanted``."""
        left = wanted.nonzero()[:, 0]
        programs = None if self.qp.is_sparse else self.at(left).sparse_form()
        if programs is None or not len(left):
            return
        found = solve_programs(programs, (solver,), None if start is None else start[left])
        self._accept(left, found.solved, found.x, found.duals, found.working)
        self.exchanges[left] += found.repaired
        self.status[left] = torch.where(found.status == Status.INACCURATE, int(Status.SOLVED), found.status)
        wanted[left] = self.todo()[left]

    def check_candidate(self, index: Tensor, candidate: Candidate, max_exchanges: int) -> Tensor:
        """Verify a candidate's points for the samples ``index``, and repair those that do not pass.

        Returns:
            (k,) bool: the samples that pass in the end.
        """
        qp, working = self.at(index), candidate.working
        passed = (candidate.status == Status.SOLVED) & candidate.verified
        self.verdict = None
        if working is not None:
            if not candidate.verified:
                verdict = verify(qp, candidate.x, candidate.duals, working)
                passed = verdict.solved
                self.verdict = verdict if len(index) == self.qp.batch and bool(passed.all()) else None
            self._accept(index, passed, candidate.x, candidate.duals, working)
            if candidate.projector is not None and self.projector is None:
                whole = len(index) == self.qp.batch
                self.projector = candidate.projector if whole else PartProjector(index, candidate.projector)
                self.projects[index] = passed
        rest = (~passed & candidate.x.isfinite().all(1)).nonzero()[:, 0]
        if len(rest):
            # few and hard samples are left by a method that verifies: alone, they do not depend on the batch's rounding
            for some in rest.split(1) if candidate.verified and not rest.is_cuda else (rest,):
                if len(some) == len(index):
                    return self._repair_candidate(index, qp, candidate, max_exchanges)
                passed[some] = self._repair_candidate(index[some], qp[some], candidate[some], max_exchanges)
        return passed

    def _repair_candidate(
        self, index: Tensor, qp: QuadraticProgram, candidate: Candidate, max_exchanges: int
    ) -> Tensor:
        """Repair points of a candidate that did not pass; returns the samples that pass now, (k,) bool."""
        x, duals, guess = candidate.x, candidate.duals.map(torch.nan_to_num), candidate.guess
        doubtful = candidate.status != Status.SOLVED
        if bool(doubtful.any()):
            # multipliers of a solver that ran away are worse than none
            diverged = doubtful & (kkt_residual(qp, x, duals) > _DIVERGED)
            duals = duals.map(lambda value: torch.where(diverged[:, None], 0.0, value))
        if candidate.working is not None and candidate.verified:
            # every condition holds by its natural size, and only digits are missing
            passed = self._accept_repair(index, sharpen_points(qp, x, duals, candidate.working))
            left = (~passed).nonzero()[:, 0]
            qp, x, duals = qp[left], x[left], duals[left]
            guess = guess if guess is None else guess[left]
        else:
            passed, left = torch.zeros_like(doubtful), torch.arange(len(index), device=index.device)
        guess = replay_programs("guess", guess_active, qp, x, duals) if guess is None else guess
        if self.guesses:
            new = (~self._failed_before(index[left], guess)).nonzero()[:, 0]
            left, guess, x, duals = left[new], guess[new], x[new], duals[new]
        good = self._repair(index[left], x, duals, guess, max_exchanges)
        if self.complete:
            return self.verified
        self.guesses.keep(index[left[~good]], guess[~good], self.solver)
        passed[left] = good
        return passed

    def _failed_before(self, index: Tensor, guess: ActiveSet) -> Tensor:
        """(k,) bool: samples ``index`` whose guess has already failed; after two of them a sample is INACCURATE.

        Solvers that agree on a working set have found the solution, and float64 cannot show it to be optimal.
        """
        if self.qp.is_sparse:  # without exact refinement, other multipliers are worth a try
            return torch.zeros_like(index, dtype=torch.bool)
        tried = self.guesses.tried(index, guess, self.solver)
        self.agreed[index[tried]] += 1
        self.status[index[self.agreed[index] >= _AGREED]] = int(Status.INACCURATE)
        return tried

    def _repair(self, index: Tensor, x: Tensor, duals: Duals, working: ActiveSet, max_exchanges: int) -> Tensor:
        if not len(index):
            return self.verified[index]
        return self._accept_repair(index, repair(self.at(index), x, duals, working, max_exchanges))

    def _accept_repair(self, index: Tensor, result: RepairResult) -> Tensor:
        """Keep the repaired points of the samples ``index`` that pass; returns which do, (k,) bool."""
        self._accept(index, result.solved, result.x, result.duals, result.working)
        self.exchanges[index] += result.exchanges + ~result.solved
        self.sharpened[index] = result.sharpened
        whole = len(index) == self.qp.batch
        self.systems, self.verdict = (result.systems, result.verdict) if whole else (None, None)
        return result.solved

    def _accept(self, index: Tensor, good: Tensor, x: Tensor, duals: Duals, working: ActiveSet) -> None:
        """Keep the points of the samples ``index`` that are ``good``."""
        if len(index) == self.qp.batch and bool(good.all()):
            self.x, self.duals, self.working = x, duals, working
            self.verified = good.clone()
            self.complete = True
            return
        done = index[good]
        self.x[done] = x[good]
        self.duals.put(done, duals[good])
        self.working.put(done, working[good])
        self.verified[done] = True

    def finish(self) -> VerifiedSolutions:
        """The verified solutions, with active sets and residuals."""
        failed = ~self.verified
        qp = self.qp if self.complete or not bool(failed.any()) else _without_nonfinite(self.qp, failed)
        verdict = verify(qp, self.x, self.duals, self.working) if self.verdict is None else self.verdict
        tight, weak = tight_constraints(qp, verdict.relative, self.working)
        active, weak = tight.only(self.verified), weak.only(self.verified)
        same = self.working.same(active)
        residual = torch.where(self.sharpened.isnan(), verdict.kkt_residual, self.sharpened)
        return VerifiedSolutions(
            qp=qp,
            x=self.x,
            duals=self.duals,
            active=active,
            weak=weak,
            status=self.status,
            kkt_residual=torch.where(failed, torch.nan, residual),
            repaired=(self.exchanges > 0) & self.verified,
            reused=self.reused,
            working=self.working,
            projector=self.projector,
            projects=self.projects & same,
            kept=self.systems if bool(same.all()) else None,
        )


def _without_nonfinite(qp: QuadraticProgram, failed: Tensor) -> QuadraticProgram:
    """The same batch with zeros for non-finite entries of failed samples, so that they do not spread to others."""

    def clean(value: Any, infinite: bool) -> Any:
        if value.is_sparse:  # sparse matrices are finite, which was checked when they were made
            return value
        nonfinite = value.isnan() if infinite else ~value.isfinite()
        where = failed.view(-1, *[1] * (value.dim() - 1))
        return torch.where(where & nonfinite, torch.zeros_like(value), value) if bool(nonfinite.any()) else value

    data: dict[str, Any] = {name: clean(getattr(qp, name), False) for name in ("H", "c", "A", "b", "G")}
    data |= {name: clean(getattr(qp, name), True) for name in ("h", "lb", "ub")}
    return replace(qp, **data)


def _join(qp: QuadraticProgram, samples: list[VerifiedSolutions]) -> VerifiedSolutions:
    """Join the solutions of sparse programs to one batch; factors are kept as far as there is room."""
    if not samples:
        return _PipelineRun(qp, check_convexity=False).finish()
    first = samples[0]
    joined: dict[str, Any] = {
        name: torch.cat([getattr(sample, name) for sample in samples])
        for name in ("x", "status", "kkt_residual", "repaired", "reused", "projects")
    }
    for name in ("duals", "active", "weak", "working"):
        joined[name] = type(getattr(first, name)).cat([getattr(sample, name) for sample in samples])
    failed = joined["status"] != Status.SOLVED
    qp = _without_nonfinite(qp, failed) if bool(failed.any()) else qp
    systems = SparseSystems.joined(qp, joined["active"], [sample.kept for sample in samples], _KEPT)
    return VerifiedSolutions(qp=qp, **joined, projector=None, kept=systems)
