"""The reduced KKT systems of a batch, dense or sparse, behind one interface.

Repair and projection use the protocol ``ReducedSystems`` only. ``reduced_systems`` chooses between the dense and the
sparse implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import is_noise
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.dense_reduced import ReducedKKT
from pear.sensitivity.program_curvature import curvature_sign

if TYPE_CHECKING:
    from pear.sensitivity.sparse_reduced import SparseReducedKKT

_LARGE = 1_000  # number of variables from which sparse systems of dense programs are faster than dense ones

SystemSolution = tuple[Tensor, Tensor, Tensor, Tensor]
"""x (B, n), the multipliers (B, p) and (B, m), and a flag for each sample (B,), which each method explains."""


class ReducedSystems(Protocol):
    """The factorised system ``[H_FF J_Fᵀ; J_F 0]`` of every sample, with F its free variables and J its held rows.

    Attributes:
        usable: (B,) bool, False where a system could not be factored.
        cheap: True where a factorisation is fast enough to exchange constraints one at a time.
    """

    @property
    def usable(self) -> Tensor: ...  # noqa: D102

    @property
    def cheap(self) -> bool: ...  # noqa: D102

    def solve(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> SystemSolution:
        """Solve for one right-hand side per sample. The flag is True where the residual vanished."""
        ...

    def step(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``solve`` without the check of the residual, for callers that verify the result themselves."""
        ...

    def solve_carefully(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> SystemSolution:
        """Solve after deciding the rank of the rows. The flag is True where x is unique."""
        ...

    def flat(self, f: Tensor) -> Tensor:
        """The part of f along tangent directions without curvature, (B, n)."""
        ...

    def project(self, e: Tensor, least_multipliers: bool = False) -> SystemSolution:
        """P e and the multipliers of the rows. The flag is True where all tangent directions have curvature."""
        ...

    def tangent_dim(self) -> Tensor:
        """The dimension of the tangent space, (B,)."""
        ...


def reduced_systems(qp: QuadraticProgram, active: ActiveSet) -> ReducedSystems:
    """The reduced systems of these programs with the constraints ``active`` held with equality."""
    if qp.is_sparse:
        return SparseSystems(qp, active, [None] * qp.batch)
    if qp.c.is_cuda:
        return ReducedKKT.replayed(qp, active)[0]
    sparse = qp.sparse_form() if qp.n >= _LARGE else None
    return ReducedKKT(qp, active) if sparse is None else SparseThenDenseSystems(qp, sparse, active)


class SparseSystems:
    """The reduced systems of sparse programs, one per sample, each built when it is first used.

    Args:
        qp: the programs.
        active: the constraints to hold.
        kept: for each sample its system where that has been built already, else None.
    """

    def __init__(self, qp: QuadraticProgram, active: ActiveSet, kept: Sequence[SparseReducedKKT | None]) -> None:
        self.qp, self.active, self.kept = qp, active, list(kept)

    @classmethod
    def joined(
        cls, qp: QuadraticProgram, active: ActiveSet, singles: Sequence[ReducedSystems | None], room: int
    ) -> SparseSystems:
        """The systems of a batch, joined from those of its samples, which were built one by one.

        Args:
            qp: the programs.
            active: the constraints to hold.
            singles: for each sample a ``SparseSystems`` of that sample alone, or None.
            room: how many entries all kept factors together may have. Factors beyond that are dropped.
        """
        kept: list[SparseReducedKKT | None] = []
        for single in cast("Sequence[SparseSystems | None]", singles):
            system = None if single is None else single.kept[0]
            room -= 0 if system is None else system.fill
            kept.append(system if room >= 0 else None)
        return cls(qp, active, kept)

    def of(self, i: int) -> SparseReducedKKT:
        """The system of sample i."""
        from pear.sensitivity.sparse_reduced import SparseReducedKKT  # brings numba, which dense programs do not need

        system = self.kept[i]
        if system is None:
            system = SparseReducedKKT(self.qp, self.active.fixed[i].numpy(), self.active.rows[i].numpy())
            self.kept[i] = system
        return system

    @property
    def usable(self) -> Tensor:
        """(B,) bool, False where a system could not be factored."""
        return torch.tensor([self.of(i).usable for i in range(self.qp.batch)])

    @property
    def cheap(self) -> bool:
        """True where so few variables are free that an exchange is much faster than an iteration of a solver."""
        return all(self.of(i).small for i in range(self.qp.batch))

    def solve(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> SystemSolution:
        """Solve for one right-hand side per sample, in threads. The flag is True where the residual vanished."""
        B, p = self.qp.batch, self.qp.p
        x, v, good = f.new_zeros(B, self.qp.n), f.new_zeros(B, p + self.qp.m), torch.zeros(B, dtype=torch.bool)
        r = torch.cat([r_eq, r_in], 1)

        def one(i: int) -> None:
            if not (
                bool(f[i].any()) or bool(r[i].any())
            ):  # the solution is zero, even where the system cannot be factored
                good[i] = True
                return
            found, multipliers, good[i] = self.of(i).solve(f[i].numpy(), r[i].numpy())
            x[i], v[i] = torch.from_numpy(found), torch.from_numpy(multipliers)

        map_in_threads(one, B)
        return x, v[:, :p], v[:, p:], good

    def step(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first three results of ``solve``."""
        return self.solve(f, r_eq, r_in)[:3]

    solve_carefully = solve  # no rank is decided for a large sparse matrix

    def flat(self, f: Tensor) -> Tensor:
        """Zero, because directions without curvature are not computed for a large sparse matrix. Shape (B, n)."""
        return torch.zeros_like(f)

    def project(self, e: Tensor, least_multipliers: bool = False) -> SystemSolution:
        """P e and the multipliers of least norm. The flag is True where all tangent directions have curvature."""
        p, m = self.qp.p, self.qp.m
        x, v_eq, v_in, good = self.solve(e, e.new_zeros(len(e), p), e.new_zeros(len(e), m))
        x = torch.where(is_noise(self.qp, x, e)[:, None], 0.0, x)
        return x, v_eq, v_in, good & self.curved(good)

    def curved(self, where: Tensor) -> Tensor:
        """Whether the objective is curved along every tangent direction, (B,) bool.

        Args:
            where: (B,) bool, the samples to test; the result is False for the others, unless every H is definite.
        """
        if curvature_sign(self.qp) > 0:
            return torch.ones_like(where)
        return torch.tensor([bool(where[i]) and self.of(i).is_curved() for i in range(self.qp.batch)])

    def tangent_dim(self) -> Tensor:
        """Raise ProblemError, because the rank of a large sparse matrix is not computed."""
        raise ProblemError(
            "tangent_dim needs the rank of the active rows, which is not computed for a sparse problem; "
            "pass Q, A and G as dense arrays where they fit"
        )


class SparseThenDenseSystems(SparseSystems):
    """The reduced systems of large dense programs: sparse ones first, and dense ones where the rank must be decided.

    Args:
        qp: the dense programs.
        sparse: the same programs with sparse matrices.
        active: the constraints to hold.
    """

    def __init__(self, qp: QuadraticProgram, sparse: QuadraticProgram, active: ActiveSet) -> None:
        super().__init__(sparse, active, [None] * qp.batch)
        self._given = qp

    @cached_property
    def _dense(self) -> ReducedKKT:
        return ReducedKKT(self._given, self.active)

    def project(self, e: Tensor, least_multipliers: bool = False) -> SystemSolution:
        """P e and the multipliers of the rows, by dense systems where the refinement does not converge."""
        fast = super().project(e)
        if bool(fast[3].all()):
            return fast
        careful = self._dense.solve_carefully(e, *(e.new_zeros(len(e), k) for k in (self.qp.p, self.qp.m)))
        x, v_eq, v_in = (torch.where(fast[3][:, None], f, c) for f, c in zip(fast[:3], careful[:3], strict=True))
        return x, v_eq, v_in, fast[3] | careful[3]

    def tangent_dim(self) -> Tensor:
        """The dimension of the tangent space, (B,)."""
        return self._dense.tangent_dim()


def map_in_threads(function: Callable[[int], None], count: int) -> None:
    """Call ``function(i)`` for i = 0, …, count − 1, in as many threads as torch uses."""
    threads = min(torch.get_num_threads(), count)
    if threads < 2:
        for i in range(count):
            function(i)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="pear-sparse") as pool:
        list(pool.map(function, range(count)))
