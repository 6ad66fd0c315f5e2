"""``RegretFinder``: computes the regrets of a batch, with their gradients.

``CostRegretFinder`` computes regrets if costs are predicted, in three steps:

    known failures → fused pass → pipeline for the samples that the fused pass could not solve

A fused pass is one call of a solver that solves and verifies a whole batch. ``RecourseRegretFinder``, in another file,
computes regrets if right-hand sides are predicted, without a fused pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pear.clock import Stopwatch
from pear.decisions.decider import Decider
from pear.errors import renumber_samples_in_errors
from pear.optimality.objective_gap import objective_gap
from pear.optimality.status import Status
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.projection import inject_into_projection, project
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.candidate import Start
from pear.solvers.regret_call import RegretCall, RegretCallResults


class BatchRegrets(NamedTuple):
    """The regrets of a batch.

    Attributes:
        regrets: the regrets of all samples; zero for failed samples.
        known: the failures that were known before any solver was called: two tensors (B,) of statuses, under the
            predicted and under the true data, SOLVED for samples without a known failure. None if no failure was known.
        all_solved: whether all samples are certainly solved; if not, the statuses say which are.
    """

    regrets: RegretCallResults
    known: tuple[Tensor, Tensor] | None
    all_solved: bool


class RegretFinder(ABC):
    """The base class of objects that compute the regrets of batches.

    A sample that failed before is not solved again with the same data.
    """

    def find(self, call: RegretCall, wanted: bool, seconds: dict[str, float]) -> BatchRegrets:
        """Compute the regrets of a batch.

        Args:
            call: the inputs.
            wanted: whether to compute gradients.
            seconds: times by name, to which the time spent is added under "solve" and "gradient".

        Raises:
            NotUniqueError: a decision is not unique, and its gradient is wanted.
        """
        failures = self.known_failures(call)
        found = [status for status in failures if status is not None]
        if not found:
            regrets, all_solved = self.solve_regrets(call, wanted, seconds)
            return BatchRegrets(regrets, None, all_solved)
        status, true_status = (torch.zeros_like(found[0]) if one is None else one for one in failures)
        regrets = self.regrets_of_failures(status, true_status)
        rest = ((status == 0) & (true_status == 0)).nonzero()[:, 0]
        if len(rest):
            with renumber_samples_in_errors(rest.tolist()):
                regrets.put(rest, self.solve_regrets(call.only(rest), wanted, seconds)[0])
        return BatchRegrets(regrets, (status, true_status), False)

    @abstractmethod
    def known_failures(self, call: RegretCall) -> tuple[Tensor | None, Tensor | None]:
        """Return the statuses (B,) of samples that are known to fail, first under predicted, then under true data.

        A result is None if no failure is known.
        """

    @abstractmethod
    def regrets_of_failures(self, status: Tensor, true_status: Tensor) -> RegretCallResults:
        """Return regrets of zero for B samples, with the given statuses.

        Args:
            status: (B,) statuses under the predicted data.
            true_status: (B,) statuses under the true data.
        """

    @abstractmethod
    def solve_regrets(
        self, call: RegretCall, wanted: bool, seconds: dict[str, float]
    ) -> tuple[RegretCallResults, bool]:
        """Compute the regrets of a batch without regard to known failures; the arguments are those of ``find``.

        Returns:
            The regrets, and whether all samples are certainly solved.
        """

    @abstractmethod
    def solve_again(self, call: RegretCall) -> VerifiedSolutions:
        """Solve again under the predicted data of a call, without using or changing stored solutions."""

    @staticmethod
    def regret_of_decisions(problem: Problem, z: Tensor, ideal: Start, true: QuadraticProgram) -> Tensor:
        """Compute the regret (B,) of feasible decisions.

        Args:
            problem: the decision problem.
            z: (B, n) decisions.
            ideal: the solutions of the programs under the true costs.
            true: the programs under the true costs.
        """
        phi, sign = problem.phi, problem.sign
        if phi is not None:
            paid, least = (true.objective(x) + sign * phi.value(x) for x in (z, ideal.x))
            return (paid - least).clamp(min=0)
        d = z - ideal.x
        return objective_gap(d, matvec(true.H, d), true.h - matvec(true.G, z), ideal.duals)

    @staticmethod
    def assemble_regrets(
        good: Tensor,
        value: Tensor,
        decisions: tuple[Tensor, Tensor],
        solved: VerifiedSolutions,
        true_status: Tensor,
        **gradients: Tensor,
    ) -> RegretCallResults:
        """Make the ``RegretCallResults`` of a batch. Values and decisions of failed samples become zero.

        Args:
            good: (B,) bool, whether a sample is solved under the predicted and under the true data.
            value: (B,) regrets.
            decisions: the decisions (B, n) under the predicted data, and the best decisions (B, n) under the true data.
            solved: the solutions under the predicted data.
            true_status: (B,) statuses under the true data.
            **gradients: the other fields of ``RegretCallResults``.
        """
        x, best = (torch.where(good[:, None], z, 0.0) for z in decisions)
        return RegretCallResults(
            value=torch.where(good, value, 0.0),
            x=x,
            best=best,
            status=solved.status,
            true_status=true_status,
            kkt_residual=solved.kkt_residual,
            reused=solved.reused,
            repaired=solved.repaired,
            **gradients,
        )


class CostRegretFinder(RegretFinder):
    """A ``RegretFinder`` for problems whose costs are predicted.

    Args:
        decider: the ``Decider`` of the problem.
    """

    def __init__(self, decider: Decider) -> None:
        self.decider = decider

    def known_failures(self, call: RegretCall) -> tuple[Tensor | None, Tensor | None]:
        """Return the statuses (B,) of samples that are known to fail, first under predicted, then under true costs.

        A result is None if no failure is known.
        """
        look_up, lam, keys = self.decider.known_failures, call.smoothing, call.keys
        predicted = look_up("predicted", call.predicted, lam, keys, {"Q": call.Q})
        return predicted, look_up("true", call.true, lam, keys, {"Q": call.true_Q})

    def regrets_of_failures(self, status: Tensor, true_status: Tensor) -> RegretCallResults:
        """Return regrets of zero, with the given statuses (B,) under the predicted and under the true costs."""
        return RegretCallResults.of_failures(status, true_status, self.decider.problem.n)

    def solve_regrets(
        self, call: RegretCall, wanted: bool, seconds: dict[str, float]
    ) -> tuple[RegretCallResults, bool]:
        """Compute regrets in the fused pass, and in the pipeline for samples that the fused pass could not solve.

        Arguments and results are those of ``RegretFinder.solve_regrets``.
        """
        found = None
        if self.decider.fused is not None:
            with Stopwatch(seconds, "solve"):
                found = self.decider.fused.regret(call)
        if found is None or found[1].shape[0] == call.predicted.shape[0]:
            return self._find_by_pipeline(call, wanted, seconds), False
        regrets, left = found
        if left.shape[0]:
            with renumber_samples_in_errors(left.tolist()):
                regrets.put(left, self._find_by_pipeline(call.only(left), wanted, seconds))
        return regrets, left.shape[0] == 0

    def _find_by_pipeline(self, call: RegretCall, wanted: bool, seconds: dict[str, float]) -> RegretCallResults:
        """Compute regrets and gradients in the pipeline, on any device and with any solver."""
        lam, at = call.smoothing, (call.keys, call.rows)
        problem = self.decider.problem_of(*at)
        with Stopwatch(seconds, "solve"):
            solved = self.decider.solve(call.predicted, lam, *at, Q=call.Q)
            # constraints that are infeasible under one cost are infeasible under every cost
            known = torch.where(solved.status == Status.INFEASIBLE, solved.status, 0)
            ideal, ideal_status = self.decider.solve_true(call.true, lam, *at, known=known, Q=call.true_Q)
        good = solved.solved & (ideal_status == Status.SOLVED)
        true_program = problem.canonical(call.true, lam, Q=call.true_Q)
        value = self.regret_of_decisions(problem, solved.x, ideal, true_program)
        exact = injected = torch.zeros_like(solved.x)
        if wanted:
            with Stopwatch(seconds, "gradient"):
                error = self.gradient_error(solved, call.predicted, call.true, call.Q, call.true_Q)
                error = torch.where(good[:, None], error, 0.0)
                exact = torch.where(good[:, None], project(solved, error), 0.0)
                injected = torch.where(good[:, None], inject_into_projection(solved, error, exact, call.injection), 0.0)
        return self.assemble_regrets(
            good, value, (solved.x, ideal.x), solved, ideal_status, exact=exact, injected=injected
        )

    def solve_again(self, call: RegretCall) -> VerifiedSolutions:
        """Solve again under the predicted costs of a call, without using or changing stored solutions."""
        decider = self.decider
        return decider.solve(call.predicted, call.smoothing, None, decider.row_numbers(call.keys, call.rows), Q=call.Q)

    @staticmethod
    def gradient_error(solved: VerifiedSolutions, predicted: Tensor, true: Tensor, Q: Any, true_Q: Any) -> Tensor:
        """Compute the error of the objective's gradient at the decision z*, ``(ĉ − c) + (Q̂ − Q) z*``.

        Args:
            solved: the solutions z* under the predicted costs.
            predicted: (B, n) predicted costs ĉ.
            true: (B, n) true costs c.
            Q: predicted curvature Q̂, or None.
            true_Q: true curvature Q, or None.

        Returns:
            (B, n), zero for failed samples.
        """
        error = predicted.detach().double() - true.detach().double()
        if Q is not None:
            change = torch.as_tensor(Q).detach().double() - torch.as_tensor(true_Q).detach().double()
            error = error + matvec(change if change.dim() == 3 else change[None], solved.x)
        return torch.where(solved.solved[:, None], error, torch.zeros_like(error))
