"""The pipeline from a batch of programs to verified solutions.

    screen → warm start → solver → verify → repair → prove the failure → try another solver

The screen drops samples whose data are not finite or contradict each other. Dense and sparse programs, on the CPU and
on a GPU, go through the same steps. A dense batch is solved as a whole; for sparse programs see ``sparse_batches``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from pear.compile.cuda_graphs import run_programs_as_graph
from pear.decisions.failure_proofs import known_infeasibility_proofs, prove_failures
from pear.decisions.proximal_points import may_need_proximal_points, try_proximal_points
from pear.decisions.repair import FailedRepairs, RepairResult, repair, repair_last_digits, repair_sparse
from pear.decisions.sparse_batches import solve_sparse_batch
from pear.optimality.active_set_rule import exact_active_set, guess_active_set
from pear.optimality.duals_and_active_sets import ActiveSet, Duals
from pear.optimality.kkt_residual import kkt_residual
from pear.optimality.program_screen import screen_out_nonfinite, screen_programs
from pear.optimality.status import Status
from pear.optimality.verification import Verification, verify
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.convexity import is_convex_program
from pear.sensitivity.reduced_systems import ReducedSystems, reduced_systems
from pear.sensitivity.sparse_reduced_systems import sparse_system_plan
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.backend_registry import Backend, usable_backends
from pear.solvers.candidate import Candidate, CandidateProjector, PartCandidateProjector, Start

logger = logging.getLogger("pear")

_FROM_START = 8  # the most exchanges of constraints for a warm start; more would take as long as a solver
_FROM_OTHER_SOLVERS = 3  # the most exchanges for a candidate of a second or later solver
_AGREED = 2  # after so many candidates with a working set that failed before, a sample is INACCURATE
_DIVERGED = 1e3  # the KKT residual above which a candidate's multipliers are ignored
_SPARSE_FROM = 100  # variables from which a dense program with few non-zeros is first solved as a sparse one


def solve_in_pipeline(
    qp: QuadraticProgram,
    solvers: Iterable[Backend],
    start: Start | None = None,
    check_convexity: bool = False,
    seek_vertex: bool = False,
    known: Tensor | None = None,
    named: bool = False,
    proximal: bool = True,
) -> VerifiedSolutions:
    """Solve a batch of continuous programs; solutions with the status SOLVED satisfy their optimality conditions.

    Args:
        qp: B programs; B may be 0.
        solvers: the solvers to try, in order.
        start: warm starts. They are repaired first. A sample whose repaired warm start is a solution needs no solver.
        check_convexity: whether to test a dense H; a sparse H is always tested. A negative eigenvalue gives NOT_CONVEX.
        seek_vertex: whether to return a vertex if a linear program has several solutions and a solver can find one.
        known: (B,) int8 of ``Status``; samples with another status than SOLVED are known to fail, and are not solved.
        named: whether the user chose the first solver by name. An error is raised if this solver cannot solve ``qp``.
        proximal: whether to try proximal points (``proximal_points``); False for proximal programs themselves.
    """
    solvers = list(solvers)
    if not qp.is_sparse:
        return _PipelineRun(qp, check_convexity, known, proximal).execute(solvers, named, start, seek_vertex)

    together = start is not None and not (seek_vertex and qp.is_linear) and sparse_system_plan(qp) is not None

    def begin(at: Tensor) -> _PipelineRun:
        return _PipelineRun(qp[at], check_convexity=True, known=None if known is None else known[at])

    def check_starts(at: Tensor) -> VerifiedSolutions:
        assert start is not None
        run = begin(at)
        run.repair_warm_starts(start[at])
        run.status[run.todo()] = int(Status.INACCURATE)
        return run.finish()

    def solve_one(at: Tensor) -> VerifiedSolutions:
        return begin(at).execute(solvers, named, None if start is None else start[at], seek_vertex, not together)

    if not qp.batch:
        return _PipelineRun(qp, check_convexity=False).finish()
    return solve_sparse_batch(qp, check_starts if together else None, solve_one)


class _PipelineRun:
    """The state of one batch in the pipeline; the arguments are those of ``solve_in_pipeline``.

    Attributes:
        status: (B,) int8, SOLVED for samples that are verified or may still be solved.
        complete: whether the last solver got all samples in one batch, and all its points were verified.
        examined: (B,) bool, whether linear programs have tested if the sample is infeasible or unbounded.
        agreed: (B,) how many candidates of a sample led to a working set with which a repair had failed before.
        solver: the name of the solver whose candidates are being checked.
    """

    def __init__(
        self, qp: QuadraticProgram, check_convexity: bool, known: Tensor | None = None, proximal: bool = True
    ) -> None:
        B, n, p, m = qp.batch, qp.n, qp.p, qp.m
        self.qp, self.proximal = qp, proximal
        self.x = qp.c.new_zeros(B, n)
        self.duals = Duals(qp.c.new_zeros(B, p), qp.c.new_zeros(B, m), qp.c.new_zeros(B, n))
        self.working = ActiveSet.none(B, n, m, qp.c.device)
        self.status = run_programs_as_graph("screen", screen_programs, qp)
        self.complete = False
        if known is not None:
            self.status = torch.where(self.status == Status.SOLVED, known, self.status)
        infeasible = known_infeasibility_proofs(qp)
        if infeasible is not None:
            self.status[infeasible & (self.status == Status.SOLVED)] = int(Status.INFEASIBLE)
        if check_convexity and bool((self.status == Status.SOLVED).any()):
            self.status[(self.status == Status.SOLVED) & ~is_convex_program(qp)] = int(Status.NOT_CONVEX)
        self.verified = torch.zeros(B, dtype=torch.bool, device=qp.c.device)
        self.examined = self.verified.clone()
        self.reused = self.verified.clone()
        self.exchanges = torch.zeros(B, dtype=torch.long, device=qp.c.device)
        self.sharpened = torch.full_like(qp.c[:, 0], torch.nan)
        self.systems: ReducedSystems | None = None
        self.verdict: Verification | None = None
        self.projector: CandidateProjector | None = None
        self.projects = self.verified.clone()
        self.guesses = FailedRepairs()
        self.agreed = torch.zeros_like(self.exchanges)
        self.solver = ""

    def execute(
        self, solvers: list[Backend], named: bool, start: Start | None, seek_vertex: bool, check_starts: bool = True
    ) -> VerifiedSolutions:
        """Try one solver after another; samples that are neither solved nor proven to fail become INACCURATE.

        ``check_starts`` is False if the warm starts have been checked already.
        """
        seek_vertex = seek_vertex and self.qp.is_linear
        first: Backend | None = None
        for solver in usable_backends(solvers, self.qp, named):
            if first is None and start is not None and check_starts and not solver.starts_afresh:
                self.repair_warm_starts(start)
            left = self.todo()
            wanted = left | self.between_vertices(solver) if seek_vertex and first is not None else left
            if not bool(wanted.any()):
                break
            if first is not None and bool(left.any()):
                message = "%s left %d of %d samples unverified; asking %s"
                logger.debug(message, first.name, int(left.sum()), self.qp.batch, solver.name)
            for some in self.batches_to_solve(wanted, left, first):
                # small programs first go to a solver as a dense batch, and as sparse programs if this fails
                if solver.warm_sparse and (first is not None or self.qp.n >= _SPARSE_FROM):
                    self.solve_as_sparse(solver, some, start)
                if bool(some.any()):
                    self.solve_with(solver, some, start, last_only=first is not None)
            if self.complete and not seek_vertex:
                return self.finish()
            first = first or solver
            self.prove_failures_of(self.todo())
        self.solve_by_proximal_points(solvers if self.proximal else [])
        self.status[self.todo()] = int(Status.INACCURATE)
        return self.finish()

    def batches_to_solve(self, wanted: Tensor, left: Tensor, first: Backend | None) -> list[Tensor]:
        """Return the groups of samples that a solver gets together, as masks (B,).

        ``wanted`` (B,) marks the samples to solve, and ``left`` (B,) those among them that no solver has solved yet.
        The first solver (``first`` is None before it has run) gets all at once, and so does every solver on a GPU.
        Others get each sample of ``left`` alone, and the rest of ``wanted`` together: rounding depends on the shape of
        a batch, and a hard sample must not depend on its neighbours.
        """
        if first is None or self.x.is_cuda:
            return [wanted]
        alone = [torch.zeros_like(left).index_fill(0, i, True) for i in left.nonzero()]
        together = wanted & ~left
        return [*alone, together] if bool(together.any()) else alone

    def prove_failures_of(self, suspects: Tensor) -> None:
        """Prove by linear programs which ``suspects`` (B,) fail, and set their statuses. No sample is tested twice."""
        left = (suspects & ~self.examined).nonzero()[:, 0]
        if len(left):
            self.examined[left] = True
            status = prove_failures(self.programs_at(left))
            self.status[left] = torch.where(status == Status.INACCURATE, int(Status.SOLVED), status).to(torch.int8)

    def programs_at(self, index: Tensor) -> QuadraticProgram:
        """Return the programs of the samples at ``index`` (k,), without a copy if these are the whole batch."""
        return self.qp if len(index) == self.qp.batch else self.qp[index]

    def todo(self) -> Tensor:
        """Return which samples are neither verified nor known to fail, (B,) bool."""
        return (self.status == Status.SOLVED) & ~self.verified

    def between_vertices(self, solver: Backend) -> Tensor:
        """Return which verified samples are not at a vertex, (B,) bool; all False if ``solver`` finds no vertices."""
        if not solver.vertex or not bool(self.verified.any()):
            return torch.zeros_like(self.verified)
        systems = reduced_systems(self.qp, self.working) if self.systems is None else self.systems
        error = torch.ones_like(self.x)
        return self.verified & ~systems.project(error)[3]

    def repair_warm_starts(self, start: Start) -> None:
        """Repair warm starts to exact solutions. Those whose working set did not have to change count as reused."""
        where = (self.todo() & start.has_start).nonzero()[:, 0]
        some = start[where]
        found = repair_sparse(self.programs_at(where), some, _FROM_START) if len(where) else None
        if found is None:
            self._repair(where, some.x, some.duals, some.working, _FROM_START)
        else:
            self._accept_repair(where, found)
        self.reused = self.verified & (self.exchanges == 0)
        self.exchanges.zero_()

    def solve_with(self, solver: Backend, wanted: Tensor, start: Start | None, last_only: bool) -> None:
        """Solve samples with one solver, in rounds of rising accuracy.

        Args:
            solver: the solver.
            wanted: (B,) bool, the samples to solve; solved samples become False in place.
            start: warm starts, or None.
            last_only: whether a solver without warm starts skips its less accurate rounds.
        """
        self.solver, self.complete = solver.name, False
        rounds, takes_start = solver.rounds_for(self.qp), solver.takes_start(self.qp)
        rounds = rounds[-1:] if last_only and not takes_start else rounds
        for warm in (start, None) if takes_start and start is not None else (None,):
            left = wanted.nonzero()[:, 0]
            begun: Start | Candidate | None = None if warm is None else warm[left]
            for tol, exchanges in rounds:
                candidate = solver.solve(self.programs_at(left), tol, begun)
                most = rounds[-1][1] if candidate.exhausted else exchanges
                good = self.check_candidate(left, candidate, min(most, _FROM_OTHER_SOLVERS) if last_only else most)
                if self.complete:
                    wanted.fill_(False)
                    return
                wanted[left[good]] = False
                self.prove_claims(left, good, candidate)
                left = left[~good & (self.status[left] == Status.SOLVED)]
                if not len(left):
                    return
                if candidate.exhausted:
                    break
                begun = candidate if candidate.resume is not None else None

    def prove_claims(self, index: Tensor, good: Tensor, candidate: Candidate) -> None:
        """Test a candidate's claims that samples at ``index`` (k,) fail, except for solved samples ``good`` (k,)."""
        claimed = (candidate.status == Status.INFEASIBLE) | (candidate.status == Status.UNBOUNDED)
        suspects = torch.zeros_like(self.verified)
        suspects[index] = claimed & ~good
        self.prove_failures_of(suspects & self.todo())

    def solve_as_sparse(self, solver: Backend, wanted: Tensor, start: Start | None) -> None:
        """Solve dense programs with few non-zeros as sparse ones; set ``wanted`` (B,) to False for finished samples."""
        left = wanted.nonzero()[:, 0]
        programs = None if self.qp.is_sparse else self.programs_at(left).sparse_form()
        if programs is None or not len(left):
            return
        found = solve_in_pipeline(programs, (solver,), None if start is None else start[left])
        self._accept(left, found.solved, found.x, found.duals, found.working)
        self.exchanges[left] += found.repaired
        self.status[left] = torch.where(found.status == Status.INACCURATE, int(Status.SOLVED), found.status)
        wanted[left] = self.todo()[left]

    def solve_by_proximal_points(self, solvers: list[Backend]) -> None:
        """Try proximal points (see ``proximal_points``) for unsolved samples with a singular H."""
        left = self.todo()
        if not solvers or not bool(left.any()):
            return
        left &= may_need_proximal_points(self.qp)
        for some in self.batches_to_solve(left, left, solvers[0]) if bool(left.any()) else ():
            index = some.nonzero()[:, 0]

            def repair_points(at: Tensor, points: Start, index: Tensor = index) -> Tensor:
                return self._repair(index[at], points.x, points.duals, points.working, _FROM_START)

            solve_near = partial(solve_in_pipeline, solvers=solvers, proximal=False)
            infeasible = try_proximal_points(self.programs_at(index), solve_near, repair_points)
            self.status[index[infeasible]] = int(Status.INFEASIBLE)

    def check_candidate(self, index: Tensor, candidate: Candidate, max_exchanges: int) -> Tensor:
        """Verify or repair a candidate's points for samples at ``index`` (k,); return which are solved, (k,) bool."""
        qp, working = self.programs_at(index), candidate.working
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
                self.projector = candidate.projector if whole else PartCandidateProjector(index, candidate.projector)
                self.projects[index] = passed
        rest = (~passed & candidate.x.isfinite().all(1)).nonzero()[:, 0]
        if len(rest):
            # a solver that verifies leaves few hard samples; they are repaired alone, independent of each other
            for some in rest.split(1) if candidate.verified and not rest.is_cuda else (rest,):
                if len(some) == len(index):
                    return self._repair_candidate(index, qp, candidate, max_exchanges)
                passed[some] = self._repair_candidate(index[some], qp[some], candidate[some], max_exchanges)
        return passed

    def _repair_candidate(
        self, index: Tensor, qp: QuadraticProgram, candidate: Candidate, max_exchanges: int
    ) -> Tensor:
        """Repair points of a candidate that are not verified; return which samples are solved now, (k,) bool."""
        x, duals, guess = candidate.x, candidate.duals.map(torch.nan_to_num), candidate.guess
        doubtful = candidate.status != Status.SOLVED
        if bool(doubtful.any()):
            # the multipliers of a solver that diverged are worse than zeros
            diverged = doubtful & (kkt_residual(qp, x, duals) > _DIVERGED)
            duals = duals.map(lambda value: torch.where(diverged[:, None], 0.0, value))
        if candidate.working is not None and candidate.verified:
            # the candidate is optimal to the solver's accuracy; only the last digits are missing
            passed = self._accept_repair(index, repair_last_digits(qp, x, duals, candidate.working))
            left = (~passed).nonzero()[:, 0]
            qp, x, duals = qp[left], x[left], duals[left]
            guess = guess if guess is None else guess[left]
        else:
            passed, left = torch.zeros_like(doubtful), torch.arange(len(index), device=index.device)
        guess = run_programs_as_graph("guess", guess_active_set, qp, x, duals) if guess is None else guess
        if self.guesses:
            new = (~self._failed_before(index[left], guess)).nonzero()[:, 0]
            left, guess, x, duals = left[new], guess[new], x[new], duals[new]
        good = self._repair(index[left], x, duals, guess, max_exchanges)
        if self.complete:
            return self.verified
        self.guesses.add_failed(index[left[~good]], guess[~good], self.solver)
        passed[left] = good
        return passed

    def _failed_before(self, index: Tensor, guess: ActiveSet) -> Tensor:
        """Return which samples at ``index`` (k,) have a guessed working set that failed before, (k,) bool.

        A sample with two such guesses becomes INACCURATE: solvers that agree on a working set have found the solution,
        but float64 is too coarse to verify it.
        """
        if self.qp.is_sparse:  # without exact refinement, other multipliers may succeed
            return torch.zeros_like(index, dtype=torch.bool)
        tried = self.guesses.have_failed(index, guess, self.solver)
        self.agreed[index[tried]] += 1
        self.status[index[self.agreed[index] >= _AGREED]] = int(Status.INACCURATE)
        return tried

    def _repair(self, index: Tensor, x: Tensor, duals: Duals, working: ActiveSet, max_exchanges: int) -> Tensor:
        """Repair points of samples at ``index`` (k,), and keep optimal points; return which are optimal, (k,) bool."""
        if not len(index):
            return self.verified[index]
        return self._accept_repair(index, repair(self.programs_at(index), x, duals, working, max_exchanges))

    def _accept_repair(self, index: Tensor, result: RepairResult) -> Tensor:
        """Keep the repaired points of samples at ``index`` (k,) that are optimal; return which are, (k,) bool."""
        self._accept(index, result.solved, result.x, result.duals, result.working)
        self.exchanges[index] += result.exchanges + ~result.solved
        self.sharpened[index] = result.sharpened
        whole = len(index) == self.qp.batch
        self.systems, self.verdict = (result.systems, result.verdict) if whole else (None, None)
        return result.solved

    def _accept(self, index: Tensor, good: Tensor, x: Tensor, duals: Duals, working: ActiveSet) -> None:
        """Keep the points of those samples at ``index`` (k,) that ``good`` (k,) marks as solved."""
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
        """Return the solutions of the batch, with active sets, residuals and statuses."""
        failed = ~self.verified
        qp = self.qp if self.complete or not bool(failed.any()) else screen_out_nonfinite(self.qp, failed)
        verdict = verify(qp, self.x, self.duals, self.working) if self.verdict is None else self.verdict
        tight, weak = exact_active_set(qp, verdict.relative, self.working)
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
