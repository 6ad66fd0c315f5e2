"""Exact solutions of a batch of sparse programs, and the projection onto their tangent spaces."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError, SolveError
from pear.optimality.point import Status
from pear.problem.sparse import SparseProgram
from pear.sensitivity.curvature import least_curvature
from pear.sensitivity.sparse_reduced import SparseReduced
from pear.sensitivity.uniqueness import cannot_leave
from pear.sensitivity.verified import Verified


@dataclass
class SparseVerified(Verified):
    """As ``Verified``, for sparse programs; ``systems`` holds the factors that were kept, one per sample or None."""

    systems: list[SparseReduced | None] = field(default_factory=list)

    @property
    def reduced(self) -> Any:
        """What projects onto the tangent spaces, sample by sample."""
        return SparseProjector(self)


class SparseProjector:
    """Projection onto the tangent space of every sample's active constraints."""

    def __init__(self, solution: SparseVerified) -> None:
        self._solution = solution

    def project(self, e: Tensor, least_multipliers: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """P e (B, n), the multipliers of equalities (B, p) and inequalities (B, m), and (B,) where P is defined.

        Args:
            e: (B, n).
            least_multipliers: accepted for the dense path's sake; multipliers are always those of least norm.
        """
        solution = self._solution
        B, n, p, m = solution.qp.batch, solution.qp.n, solution.qp.p, solution.qp.m
        x, v, unique = e.new_zeros(B, n), e.new_zeros(B, p + m), torch.ones(B, dtype=torch.bool)

        def one(i: int) -> None:
            if not bool(solution.solved[i]):
                return
            system = self._system(i)
            result, multipliers, good = system.project(e[i].numpy())
            x[i], v[i] = torch.from_numpy(result), torch.from_numpy(multipliers)
            if not good and least_curvature(program_of(solution)) > 0:
                raise SolveError(
                    f"the derivative of sample {i} could not be computed to 1e-10; rescale the problem",
                    [i],
                    [Status.INACCURATE],
                )
            unique[i] = good and self._is_unique(i, system)

        in_threads(one, B)
        return x, v[:, :p], v[:, p:], unique

    def tangent_dim(self) -> Tensor:
        """Not available: it needs the rank of a large sparse matrix."""
        raise ProblemError(
            "tangent_dim needs the rank of the active rows, which is not computed for a sparse problem; "
            "pass Q, A and G as dense arrays where they fit"
        )

    def _system(self, i: int) -> SparseReduced:
        solution = self._solution
        system = solution.systems[i]
        if system is None:
            active = solution.active
            system = SparseReduced(program_of(solution), active.fixed[i].numpy(), active.rows[i].numpy())
        return system

    def _is_unique(self, i: int, system: SparseReduced) -> bool:
        """With a definite curvature always; else by a random force, and a linear program for weak constraints."""
        qp = program_of(self._solution)
        if least_curvature(qp) > 0:
            return True
        if not system.is_curved():
            return False
        one = torch.tensor([i])
        weak = self._solution.weak[one]
        return not bool(weak.count() > 0) or cannot_leave(sample_of(qp, i), self._solution.active[one], weak)


def in_threads(function: Any, count: int) -> None:
    """Call the function for 0, …, count − 1, on as many threads as torch may use."""
    threads = min(torch.get_num_threads(), count)
    if threads < 2:
        for i in range(count):
            function(i)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="pear-sparse") as pool:
        list(pool.map(function, range(count)))


def sample_of(qp: SparseProgram, i: int) -> SparseProgram:
    """The program of sample ``i``, a batch of one."""
    sample = qp[torch.tensor([i])]
    assert isinstance(sample, SparseProgram)
    return sample


def program_of(solution: SparseVerified) -> SparseProgram:
    """Its programs, which are sparse."""
    assert isinstance(solution.qp, SparseProgram)
    return solution.qp
