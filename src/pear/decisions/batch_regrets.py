"""The regrets of a batch, with their gradients, in three steps.

    known failures → fused pass → pipeline for the samples that the pass could not solve

``Decider`` takes these steps for predicted costs, ``RecourseRegrets`` for predicted right-hand sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from pear.errors import NotUniqueError, SolveError
from pear.optimality.objective_gap import objective_gap
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.candidate import Start
from pear.solvers.fused import RegretCall, Regrets

Statuses = tuple[Tensor, Tensor]
"""Two tensors (B,) int8 of ``Status``: of the problems under the predicted data, and under the true data."""


class BatchRegrets(NamedTuple):
    """The regrets of a batch.

    Attributes:
        regrets: the regrets of all samples; zero where a sample failed.
        known: the failures that were known before any solver was called, or None.
        all_solved: whether all samples are certainly solved. False means that the statuses must be read.
    """

    regrets: Regrets
    known: Statuses | None
    all_solved: bool


class RegretDecider(Protocol):
    """The interface of an object that computes regrets from predicted and true data."""

    def known_failures_of(self, call: RegretCall) -> Statuses | None:
        """Return the statuses of samples that failed before with the same data; None where there are none."""
        ...

    def regrets(self, call: RegretCall, wanted: bool, seconds: dict[str, float]) -> tuple[Regrets, bool]:
        """Compute the regrets of a batch; the second result is True where all samples are certainly solved.

        Args:
            call: the inputs.
            wanted: whether gradients are wanted.
            seconds: the time spent is added under "solve" and "gradient".
        """
        ...

    def regrets_of_failures(self, statuses: Statuses) -> Regrets:
        """Return zero regrets for samples that failed with these statuses."""
        ...

    def verify(self, call: RegretCall) -> VerifiedSolutions:
        """Solve again under the predicted data of a call, without changing the stored warm starts."""
        ...


def find_regrets(decider: RegretDecider, call: RegretCall, wanted: bool, seconds: dict[str, float]) -> BatchRegrets:
    """Compute the regrets of a batch; samples that are known to fail are not solved.

    Args:
        decider: computes the regrets of the other samples.
        call: the inputs.
        wanted: whether gradients are wanted.
        seconds: the time spent is added under "solve" and "gradient".

    Raises:
        NotUniqueError: a decision is not unique, and its gradient is wanted.
    """
    known = decider.known_failures_of(call)
    if known is None:
        regrets, all_solved = decider.regrets(call, wanted, seconds)
        return BatchRegrets(regrets, None, all_solved)
    regrets = decider.regrets_of_failures(known)
    rest = ((known[0] == 0) & (known[1] == 0)).nonzero()[:, 0]
    if len(rest):
        with renumber_errors(rest):
            regrets.put(rest, decider.regrets(call.only(rest), wanted, seconds)[0])
    return BatchRegrets(regrets, known, False)


@contextmanager
def renumber_errors(index: Tensor) -> Iterator[None]:
    """Renumber the samples in errors raised inside: sample i of a part is sample ``index[i]`` of the batch."""
    try:
        yield
    except (NotUniqueError, SolveError) as error:
        raise error.at(index.tolist()) from error


def regret_of_program(problem: Problem, z: Tensor, ideal: Start, true: QuadraticProgram) -> Tensor:
    """Compute the regret (B,) of feasible decisions.

    Args:
        problem: the decision problem.
        z: (B, n) decisions.
        ideal: the solutions of the true programs.
        true: the programs under the true costs.
    """
    if problem.phi is not None:
        return _regret_by_values(problem, z, ideal.x, true)
    d = z - ideal.x
    return objective_gap(d, matvec(true.H, d), true.h - matvec(true.G, z), ideal.duals)


def objective_value(program: QuadraticProgram, x: Tensor) -> Tensor:
    """Compute the quadratic objective of the programs at x (B, n); the result has shape (B,)."""
    return (x * (0.5 * matvec(program.H, x) + program.c)).sum(1)


def gradient_error(solved: VerifiedSolutions, predicted: Tensor, true: Tensor, Q: Any, true_Q: Any) -> Tensor:
    """Compute the error of the objective's gradient at the decision, ``(ĉ − c) + (Q̂ − Q) z*``.

    Args:
        solved: the solutions z* under the predicted costs.
        predicted: (B, n) predicted costs ĉ.
        true: (B, n) true costs c.
        Q: predicted curvature, or None.
        true_Q: true curvature, or None.

    Returns:
        (B, n); zero for failed samples.
    """
    error = predicted.detach().double() - true.detach().double()
    if Q is not None:
        change = torch.as_tensor(Q).detach().double() - torch.as_tensor(true_Q).detach().double()
        error = error + matvec(change if change.dim() == 3 else change[None], solved.x)
    return torch.where(solved.solved[:, None], error, torch.zeros_like(error))


def _regret_by_values(problem: Problem, z: Tensor, best: Tensor, true: QuadraticProgram) -> Tensor:
    """Compute the regret (B,) as a difference of objectives, for problems with φ."""
    phi = problem.phi
    assert phi is not None

    def value(x: Tensor) -> Tensor:
        return objective_value(true, x) + problem.sign * phi.value(x)

    return (value(z) - value(best)).clamp(min=0)
