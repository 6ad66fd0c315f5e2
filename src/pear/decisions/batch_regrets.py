"""The walk of a batch to its regrets: known failures, fused pass, pipeline.

    known failures → fused pass → pipeline for the samples it leaves → regrets and gradients

``Decider`` takes this walk for predicted costs, ``RecourseDecider`` for predicted right-hand sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from pear.errors import NotUniqueError, SolveError
from pear.optimality.gap import objective_gap
from pear.problem import Problem
from pear.problem.canonical import QuadraticProgram
from pear.problem.matrix import matvec
from pear.sensitivity.verified_solutions import VerifiedSolutions
from pear.solvers.base import Start
from pear.solvers.fused import RegretCall, Regrets

Statuses = tuple[Tensor, Tensor]
"""(B,) int8 of ``Status``, each: of the problems under the predicted and under the true data."""


class BatchRegrets(NamedTuple):
    """The regrets of a batch.

    Attributes:
        regrets: of all samples; zero where one failed.
        known: failures that were known before any solver was called, or None.
        all_solved: True where every sample is known to be solved without reading the statuses.
    """

    regrets: Regrets
    known: Statuses | None
    all_solved: bool


class RegretDecider(Protocol):
    """Decides under predicted and true data, and compares."""

    def failures_of(self, call: RegretCall) -> Statuses | None:
        """Failures of samples whose data has not changed since they failed; None where there are none."""
        ...

    def regrets(self, call: RegretCall, wanted: bool, seconds: dict[str, float]) -> tuple[Regrets, bool]:
        """The regrets of a batch, and whether all its samples are known to be solved.

        Args:
            call: the inputs.
            wanted: whether gradients are wanted.
            seconds: the time spent is added under "solve" and "gradient".
        """
        ...

    def no_regrets(self, statuses: Statuses) -> Regrets:
        """The regrets of samples that failed with these statuses."""
        ...

    def verify(self, call: RegretCall) -> VerifiedSolutions:
        """The verified solutions under the predicted data; the store stays as it is."""
        ...


def find_regrets(decider: RegretDecider, call: RegretCall, wanted: bool, seconds: dict[str, float]) -> BatchRegrets:
    """Find the regrets of a batch; no solver sees the samples that are known to fail.

    Args:
        decider: decides and compares.
        call: the inputs.
        wanted: whether gradients are wanted.
        seconds: the time spent is added under "solve" and "gradient".

    Raises:
        NotUniqueError: a decision is not unique, and its gradient is wanted.
    """
    known = decider.failures_of(call)
    if known is None:
        regrets, all_solved = decider.regrets(call, wanted, seconds)
        return BatchRegrets(regrets, None, all_solved)
    regrets = decider.no_regrets(known)
    rest = ((known[0] == 0) & (known[1] == 0)).nonzero()[:, 0]
    if len(rest):
        with renumbered(rest):
            regrets.put(rest, decider.regrets(call.only(rest), wanted, seconds)[0])
    return BatchRegrets(regrets, known, False)


@contextmanager
def renumbered(index: Tensor) -> Iterator[None]:
    """Errors raised inside about samples of a part name them by their positions (k,) in the whole batch."""
    try:
        yield
    except (NotUniqueError, SolveError) as error:
        raise error.at(index.tolist()) from error


def regret_of_program(problem: Problem, z: Tensor, ideal: Start, true: QuadraticProgram) -> Tensor:
    """(B,) regret of feasible decisions z (B, n) under the ``true`` programs, whose solutions are ``ideal``."""
    if problem.phi is not None:
        return _regret_by_values(problem, z, ideal.x, true)
    d = z - ideal.x
    return objective_gap(d, matvec(true.H, d), true.h - matvec(true.G, z), ideal.duals)


def objective_value(program: QuadraticProgram, x: Tensor) -> Tensor:
    """(B,) the quadratic objective of the programs at x (B, n)."""
    return (x * (0.5 * matvec(program.H, x) + program.c)).sum(1)


def gradient_error(solved: VerifiedSolutions, predicted: Tensor, true: Tensor, Q: Any, true_Q: Any) -> Tensor:
    """(B, n) error of the objective's gradient at the decision, (ĉ − c) + (Q̂ − Q) z*; zero for failed samples."""
    error = predicted.detach().double() - true.detach().double()
    if Q is not None:
        change = torch.as_tensor(Q).detach().double() - torch.as_tensor(true_Q).detach().double()
        error = error + matvec(change if change.dim() == 3 else change[None], solved.x)
    return torch.where(solved.solved[:, None], error, torch.zeros_like(error))


def _regret_by_values(problem: Problem, z: Tensor, best: Tensor, true: QuadraticProgram) -> Tensor:
    """Regret as a difference of objectives, for problems with φ."""
    phi = problem.phi
    assert phi is not None

    def value(x: Tensor) -> Tensor:
        return objective_value(true, x) + problem.sign * phi.value(x)

    return (value(z) - value(best)).clamp(min=0)
