"""The reduced KKT systems of sparse programs.

The systems and symbols are those of ``pear.sensitivity.dense_reduced_systems``; the factorisation is sparse. Rows and
columns are equilibrated. −δI with a small δ > 0 is put into the lower right corner, and H is shifted too if it may be
singular. Solutions are refined to rounding, with the residual of the system without these shifts. Rows without a free
variable are left out, and their multipliers are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from pear.compile.thread_pools import map_in_threads
from pear.errors import ProblemError
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import is_naturally_zero
from pear.optimality.rule import PROJECTED, SHARP
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.convexity import convexity_sign
from pear.sensitivity.dense_reduced_systems import DenseReducedSystems, SystemSolution
from pear.sensitivity.kept_by_sets import keep_by_sets

if TYPE_CHECKING:
    from pear.solvers.exchanges.exchange_plan import ExchangePlan

Array = NDArray[Any]

_SHIFT = 1e-10  # δ relative to the curvature, for rows that may be nearly dependent
_LIFT = 1e-7  # shift of a curvature that may be singular, and δ in this case; large enough to exceed rounding
_SMALL = 0.2  # share of the unknowns; solving a smaller system takes a fraction of an interior-point iteration
_REFINEMENTS = 40
_STALLED = 0.7  # refinement stops if more than this share of the residual remains


class SparseReducedSystem:
    """The factorised reduced system of one sample.

    Args:
        qp: programs with the matrices of the sample; nothing else of them is used.
        fixed: (n,) bool, the variables at a bound.
        rows: (m,) bool, the active rows of G.
    """

    def __init__(self, qp: QuadraticProgram, fixed: Array, rows: Array) -> None:
        # these import numba, which dense programs do not need
        from pear.solvers.linalg.equilibrated_program import equilibrated_program
        from pear.solvers.linalg.saddle import SaddlePattern

        self._n, self._p, self._m = qp.n, qp.p, qp.m
        self._free = np.flatnonzero(~fixed)
        whole, self._units = equilibrated_program(qp), equilibrated_program(qp).columns[self._free]
        H = _sparse_system_block(whole.pattern.H, self._free, qp.diagonal)
        J = sparse.csr_array(whole.by_columns[:, self._free])
        held = np.concatenate([np.ones(qp.p, bool), rows])
        self._rows = np.flatnonzero(held & (np.diff(J.indptr) > 0))
        J = sparse.csr_array(J[self._rows])
        squares = np.asarray(J.multiply(J).sum(1)).reshape(-1)
        # rows are scaled to length one, so that the shift does not depend on their units
        length = np.sqrt(np.where(squares > 0, squares, 1.0))
        J = sparse.csr_array(sparse.diags_array(1 / length) @ J) if len(self._rows) else J
        self._length = length / whole.rows[self._rows]
        pattern = SaddlePattern(H, J)
        self._pattern = pattern
        top = float(pattern.curvature.max(initial=0.0))
        self._max_curvature = top if top > 0 else 1.0
        lift, shift = (0.0, _SHIFT) if convexity_sign(qp) > 0 else (_LIFT, _LIFT)
        D, E = np.full(pattern.n, lift * self._max_curvature), np.full(pattern.rows, shift / self._max_curvature)
        self._system = pattern.factor(D, E) if pattern.affordable else None

    @property
    def usable(self) -> bool:
        """False if the system could not be factored."""
        return self._system is not None and self._system.succeeded

    @property
    def small(self) -> bool:
        """True if the system has at most a fifth of the unknowns of the whole program."""
        return self._pattern.n + self._pattern.rows <= _SMALL * (self._n + self._p + self._m)

    @property
    def fill(self) -> int:
        """About the number of stored entries: those of the factor, and four times the non-zeros of the active rows.

        The rows count four times because they are stored in several forms. The number is 0 if there is no factor.
        """
        return self._system.fill + 4 * self._pattern.J.nnz if self._system is not None else 0

    @property
    def memory(self) -> int:
        """About the number of bytes of the factor, the rows in several forms, and vectors."""
        return 32 * self.fill + 64 * (self._n + self._p + self._m)

    def solve(self, f: Array, r: Array) -> tuple[Array, Array, bool]:
        """Solve the system ``[H Jᵀ; J 0][x; v] = [f; r]``, with H and the active rows J reduced to the free variables.

        Args:
            f: (n,) right-hand side of stationarity; entries of fixed variables are ignored.
            r: (p + m,) right-hand side of the rows; entries of rows outside the system are ignored.

        Returns:
            x (n,), zero for fixed variables; v (p + m,), zero for rows outside the system; and whether the relative
            residual is at most ``PROJECTED``.
        """
        x, v = np.zeros(self._n), np.zeros(self._p + self._m)
        if not self.usable:
            return x, v, False
        free_x, free_v, good = self._refined(f[self._free] * self._units, r[self._rows] / self._length)
        x[self._free], v[self._rows] = free_x * self._units, free_v / self._length
        return x, v, good

    def is_curved(self) -> bool:
        """Return whether the objective is curved along every tangent direction.

        Without curvature along some direction, the projection of a random vector does not converge.
        """
        e = _sparse_system_probe(self._n).numpy()
        return self.solve(e, np.zeros(self._p + self._m))[2]

    def _refined(self, f: Array, r: Array) -> tuple[Array, Array, bool]:
        """Solve the scaled system for the right-hand sides f and r, with iterative refinement.

        Returns:
            The solution x, the multipliers v, and whether the relative residual is at most ``PROJECTED``.
        """
        assert self._system is not None
        H, J, JT = self._pattern.H, self._pattern.J, self._pattern.JT
        x, v = np.zeros_like(f), np.zeros_like(r)
        rest_f, rest_r = f, r
        last = np.inf
        for _ in range(_REFINEMENTS):
            dx, dv = self._system.solve(rest_f, rest_r, refinements=0)
            if not (np.isfinite(dx).all() and np.isfinite(dv).all()):
                return x, v, False
            x, v = x + dx, v + dv
            terms = H @ x, JT @ v
            rest_f, rest_r = f - terms[0] - terms[1], r - J @ x
            rest = self._relative(rest_f, rest_r, f, r, x, terms)
            if rest <= SHARP or rest > _STALLED * last:
                return x, v, rest <= PROJECTED
            last = rest
        return x, v, False

    def _relative(
        self, rest_f: Array, rest_r: Array, f: Array, r: Array, x: Array, terms: tuple[Array, Array]
    ) -> float:
        """Return the size of the residual relative to the terms that the residual is computed from.

        Args:
            rest_f, rest_r: the residual.
            f, r: the right-hand sides.
            x: the solution.
            terms: the products Hx and Jᵀv.
        """
        if not len(f):
            return 0.0
        largest = float((np.abs(terms[0]) + np.abs(terms[1]) + np.abs(f)).max())
        size = max(float(np.abs(x).max()), float(np.abs(f).max()) / self._max_curvature)
        size += float(np.abs(r).max(initial=0.0))
        over_f = float(np.abs(rest_f).max()) / largest if largest > 0 else 0.0
        return max(over_f, float(np.abs(rest_r).max(initial=0.0)) / size if size > 0 else 0.0)


class SparseReducedSystems:
    """The reduced systems of a batch of sparse programs. The system of a sample is built when it is first used.

    Args:
        qp: the programs.
        active: the constraints to hold with equality.
        kept: the system of each sample, None for a sample whose system has not been built. If ``kept`` itself is None,
            no system has been built.
    """

    def __init__(
        self, qp: QuadraticProgram, active: ActiveSet, kept: list[SparseReducedSystem | None] | None = None
    ) -> None:
        self.qp, self.active = qp, active
        self.kept: list[SparseReducedSystem | None] = [None] * qp.batch if kept is None else kept

    @classmethod
    def joined(
        cls,
        qp: QuadraticProgram,
        active: ActiveSet,
        singles: Sequence[DenseReducedSystems | SparseReducedSystems | None],
        room: int,
    ) -> SparseReducedSystems:
        """Return the systems of a batch, joined from those of samples that were solved one by one.

        Args:
            qp: the programs of the batch.
            active: the constraints to hold with equality.
            singles: for each sample the systems of that sample alone, or None.
            room: the largest sum of ``fill`` over the kept systems. The first system beyond it and all later ones are
                dropped.
        """
        kept: list[SparseReducedSystem | None] = []
        for single in singles:
            system = single.kept[0] if isinstance(single, SparseReducedSystems) else None
            room -= 0 if system is None else system.fill
            kept.append(system if room >= 0 else None)
        return cls(qp, active, kept)

    def of(self, i: int) -> SparseReducedSystem:
        """Return the system of sample i, and build it if necessary."""
        system = self.kept[i]
        if system is None:
            sets = self.active.fixed[i].numpy(), self.active.rows[i].numpy()
            system = keep_by_sets(
                self.qp,
                "reduced system",
                sets,
                lambda: SparseReducedSystem(self.qp, *sets),
                lambda system: system.memory,
            )
            self.kept[i] = system
        return system

    @property
    def usable(self) -> Tensor:
        """Which systems could be factored. Shape (B,), bool."""
        return torch.tensor([self.of(i).usable for i in range(self.qp.batch)])

    @property
    def cheap(self) -> bool:
        """True if all systems are so small that an exchange of constraints is much faster than a solver's iteration."""
        return all(self.of(i).small for i in range(self.qp.batch))

    def solve(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> SystemSolution:
        """Solve each system for one right-hand side, in threads.

        Args:
            f: (B, n) right-hand sides of stationarity; entries of fixed variables are ignored.
            r_eq: (B, p) right-hand sides of the equalities.
            r_in: (B, m) right-hand sides of the inequalities; entries of inactive rows are ignored.

        Returns:
            x (B, n), the multipliers (B, p) and (B, m), and (B,) bool, True if the relative residual is at most
            ``PROJECTED``.
        """
        B, p = self.qp.batch, self.qp.p
        r = torch.cat([r_eq, r_in], 1)
        if sparse_system_plan(self.qp) is not None:
            x, v, good = self._solve_whole(f[None], r[None])
            return x[0], v[0, :, :p], v[0, :, p:], good[0]
        x, v, good = f.new_zeros(B, self.qp.n), f.new_zeros(B, p + self.qp.m), torch.zeros(B, dtype=torch.bool)

        def one(i: int) -> None:
            if not bool(f[i].any() | r[i].any()):
                good[i] = True  # the solution is zero, even if the system cannot be factored
                return
            found, multipliers, good[i] = self.of(i).solve(f[i].numpy(), r[i].numpy())
            x[i], v[i] = torch.from_numpy(found), torch.from_numpy(multipliers)

        map_in_threads(one, B)
        return x, v[:, :p], v[:, p:], good

    def step(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x and the two kinds of multipliers from ``solve``, without the flags of accuracy."""
        return self.solve(f, r_eq, r_in)[:3]

    solve_carefully = solve  # no rank is decided for a large sparse matrix

    def flat(self, f: Tensor) -> Tensor:
        """Return zeros (B, n) in place of the projection of f onto the tangent directions without curvature.

        These directions are not computed for sparse matrices.
        """
        return torch.zeros_like(f)

    def project(self, e: Tensor, least_multipliers: bool = False) -> SystemSolution:
        """Compute P e, the projection of H⁻¹e onto the tangent space.

        Args:
            e: (B, n) vectors to project.
            least_multipliers: ignored, because the multipliers always have the least norm.

        Returns:
            P e (B, n), the multipliers (B, p) and (B, m), and (B,) bool, True if P e is accurate and the objective is
            curved along every tangent direction.
        """
        p, m = self.qp.p, self.qp.m
        if sparse_system_plan(self.qp) is None:
            x, v_eq, v_in, good = self.solve(e, e.new_zeros(len(e), p), e.new_zeros(len(e), m))
            curved = good & self.curved(good)
        else:
            several = [e] if convexity_sign(self.qp) > 0 else [e, _sparse_system_probe(self.qp.n).expand_as(e)]
            f = torch.stack(several)
            xs, vs, goods = self._solve_whole(f, f.new_zeros(*f.shape[:2], p + m))
            x, v_eq, v_in, curved = xs[0], vs[0, :, :p], vs[0, :, p:], goods.all(0)
        return torch.where(is_naturally_zero(self.qp, x, e)[:, None], 0.0, x), v_eq, v_in, curved

    def _solve_whole(self, f: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Solve for K right-hand sides per sample, by factors of the whole KKT system of every sample.

        Args:
            f: (K, B, n) right-hand sides of stationarity.
            r: (K, B, p + m) right-hand sides of the rows.

        Returns:
            x (K, B, n), v (K, B, p + m), and (K, B) bool, True if the relative residual is at most ``PROJECTED``.
        """
        from pear.solvers.exchanges.exchange_calls import call_exchange_systems

        plan = sparse_system_plan(self.qp)
        assert plan is not None
        x, v, good = call_exchange_systems(plan, self.active, f, r)
        nothing = ~(f.any(2) | r.any(2))  # the solution is zero, even if the system cannot be factored
        return x, v, good | nothing

    def curved(self, where: Tensor) -> Tensor:
        """Return whether the objective is curved along every tangent direction. Shape (B,), bool.

        Args:
            where: (B,) bool, the samples to test. The result is False for all others, unless H is positive definite.
        """
        if convexity_sign(self.qp) > 0:
            return torch.ones_like(where)
        return torch.tensor([bool(where[i]) and self.of(i).is_curved() for i in range(self.qp.batch)])

    def tangent_dim(self) -> Tensor:
        """Raise ProblemError, because the rank of a large sparse matrix is not computed."""
        raise ProblemError(
            "tangent_dim needs the rank of the active rows, which is not computed for a sparse problem; "
            "pass Q, A and G as dense arrays where they fit"
        )


class SparseThenDenseReducedSystems(SparseReducedSystems):
    """The reduced systems of large dense programs: sparse systems, and dense systems if a rank must be decided.

    Args:
        qp: the dense programs.
        sparse: the same programs with sparse matrices.
        active: the constraints to hold with equality.
    """

    def __init__(self, qp: QuadraticProgram, sparse: QuadraticProgram, active: ActiveSet) -> None:
        super().__init__(sparse, active)
        self._given = qp

    @cached_property
    def _dense(self) -> DenseReducedSystems:
        return DenseReducedSystems(self._given, self.active)

    def project(self, e: Tensor, least_multipliers: bool = False) -> SystemSolution:
        """Compute P e as ``SparseReducedSystems.project`` does, or by a dense system if that one is not accurate."""
        fast = super().project(e)
        if bool(fast[3].all()):
            return fast
        careful = self._dense.solve_carefully(e, *(e.new_zeros(len(e), k) for k in (self.qp.p, self.qp.m)))
        x, v_eq, v_in = (torch.where(fast[3][:, None], f, c) for f, c in zip(fast[:3], careful[:3], strict=True))
        return x, v_eq, v_in, fast[3] | careful[3]

    def tangent_dim(self) -> Tensor:
        """Compute the dimension of the tangent space. Shape (B,)."""
        return self._dense.tangent_dim()


def _sparse_system_probe(n: int) -> Tensor:
    """Return the vector (n,) whose projection tests whether an objective is curved along every tangent direction."""
    return torch.from_numpy(np.random.default_rng(0).standard_normal(n))


def sparse_system_plan(qp: QuadraticProgram) -> ExchangePlan | None:
    """Return the plan for factors of whole KKT systems, made once for a problem; None if they are too large."""
    from pear.solvers.exchanges.exchange_plan import make_exchange_plan  # numba, which dense programs do not need

    return qp.prepare_once("exchanges", lambda qp: make_exchange_plan(qp, convexity_sign(qp) > 0))


def _sparse_system_block(H: sparse.csr_array, free: Array, diagonal: bool) -> sparse.csr_array:
    """Return the rows and columns of H (n, n) at the positions ``free``; ``diagonal`` is True for a diagonal H."""
    if diagonal:
        return sparse.csr_array(sparse.diags_array(H.diagonal()[free]))
    return sparse.csr_array(H[free][:, free])
