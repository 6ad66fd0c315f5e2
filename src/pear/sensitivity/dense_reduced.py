"""The reduced KKT systems of dense programs: their KKT systems after variables at their bounds are eliminated.

With F the free variables and K the active rows, every solution, gradient and derivative of this package solves

    [ H_FF  J_Fᵀ ] [x]   [f]
    [ J_F    0   ] [v] = [r].

J_F is usually rank deficient (flow balance, vertices), so that the matrix itself cannot be factored. The fast path puts
−δI into the lower right corner, factors the smaller of the two Schur complements, and refines against the true
residual: x converges to the exact, unique answer for any rank. A sample whose residual does not vanish takes the
careful path: a singular value decomposition of J_F decides the rank, and the reduced Hessian is used on its null space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pear.compile.cuda_graphs import run_as_graph
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import is_naturally_zero
from pear.optimality.rule import FLAT, NEGLIGIBLE, RANK, SHARP
from pear.problem.matrix import tmatvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.exact_refinement import refine_projection
from pear.solvers.linalg.cholesky_factor import factor_cholesky

_SHIFT = 1e-7  # δ, relative to the curvature
_REFINEMENTS = 4
_STEPS = 32  # padded sizes are multiples of this, so that few shapes occur
_CANCELS = 1e4  # terms larger than their sum by this factor leave too few correct digits in the sum
SystemSolution = tuple[Tensor, Tensor, Tensor, Tensor]
"""x (B, n), the multipliers (B, p) and (B, m), and a flag for each sample (B,)."""


class DenseReducedSystems:
    """Factorised reduced systems of a batch, one per sample, padded to a common size.

    Args:
        qp: the programs.
        active: the constraints to hold with equality.
        sizes: the padded numbers of free variables and of active rows; None to compute the smallest that fit.
    """

    cheap = True

    def __init__(self, qp: QuadraticProgram, active: ActiveSet, sizes: Sequence[int] | None = None) -> None:
        self._qp, self._active = qp, active
        self._shape = (qp.batch, qp.n, qp.p, qp.m)
        f, k = common_sizes(active) if sizes is None else sizes
        self._free, self._free_mask = _positions(~active.fixed, f)
        self._rows, self._rows_mask = _positions(active.rows, k)
        self._H = _block(qp.H, self._free, self._free_mask)
        J = torch.cat([_columns(qp.A.expand(qp.batch, -1, -1), self._free), self._active_rows(qp)], 1)
        self._J = J * self._free_mask[:, None, :]
        # rows are scaled to length one, so that neither the shift nor the rank depends on their units
        length = torch.linalg.vector_norm(self._J, dim=2)
        self._length = torch.where(length > 0, length, torch.ones_like(length))
        self._J = self._J / self._length[:, :, None]
        diagonal = self._H.diagonal(dim1=1, dim2=2).masked_fill(~self._free_mask, 0.0)
        h = diagonal.amax(1) if f else diagonal.sum(1)
        self._max_curvature = torch.where(h > 0, h, torch.ones_like(h))
        self._delta = (_SHIFT / self._max_curvature)[:, None]
        self._from_rows = qp.diagonal and not qp.is_linear and self._J.shape[1] < f
        M = self._definite_matrix()
        self._factored = factor_cholesky(M)
        self._definite = self._factored.clears_rounding(M)

    @classmethod
    def replayed(
        cls, qp: QuadraticProgram, active: ActiveSet, then: Callable[..., Any] | None = None, *given: Any
    ) -> tuple[DenseReducedSystems, Any]:
        """Build the systems and call ``then(systems, qp, active, *given)``, by one CUDA graph where that saves time.

        Args:
            qp: the programs.
            active: the constraints to hold with equality.
            then: a function that reads no number of a tensor on the host, and whose result does not contain the
                programs; None for none.
            *given: further arguments of ``then``.

        Returns:
            The systems, and the result of ``then``.
        """
        # sizes are rounded up, so that batches that differ by little have the same shapes
        f, k = (
            min(-(-size // _STEPS) * _STEPS, most)
            for size, most in zip(common_sizes(active), (qp.n, qp.m), strict=True)
        )

        def run(qp: QuadraticProgram, active: ActiveSet, *given: Any) -> tuple[DenseReducedSystems, Any]:
            systems = cls(qp, active, (f, k))
            return systems._without_programs(), None if then is None else then(systems, qp, active, *given)

        known = qp.is_linear  # computed before the capture, because it reads H on the host
        numbers = max(qp.H.numel(), qp.A.numel(), qp.G.numel(), qp.batch * f * (f + qp.p + k))
        systems, result = run_as_graph(("systems", known, f, k, then), run, (qp, active, *given), numbers)
        systems._qp, systems._active = qp, active
        return systems, result

    def _without_programs(self) -> DenseReducedSystems:
        """A copy that does not hold the programs; ``solve`` works without them."""
        bare = object.__new__(type(self))
        vars(bare).update({name: value for name, value in vars(self).items() if name not in ("_qp", "_active")})
        return bare

    @property
    def usable(self) -> Tensor:
        """All True, (B,) bool. The solution of a system that cannot be factored is NaN, which every check rejects."""
        return torch.ones(self._shape[0], dtype=torch.bool, device=self._free.device)

    def solve(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Solve for one right-hand side per sample by the fast path.

        Args:
            f: (B, n) right-hand side of stationarity; entries of fixed variables are ignored.
            r_eq: (B, p) right-hand side of the equalities.
            r_in: (B, m) right-hand side of the inequalities; entries of inactive rows are ignored.

        Returns:
            x (B, n), zero on fixed variables; the multipliers (B, p) and (B, m), zero on inactive rows; and (B,) bool,
            True where the residual vanished up to rounding and no pivot is as small as its rounding error.
        """
        f_free, r = self._gather(f, r_eq, r_in)
        x, v = self._refined(f_free, r)
        good = self._residual_vanishes(*self._residual(f_free, r, x, v), f_free, r, x, v)
        return *self._scatter(x, v), good & self._definite

    def step(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``solve`` without the check of the residual, for callers that verify the result themselves."""
        return self._scatter(*self._refined(*self._gather(f, r_eq, r_in)))

    def solve_carefully(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Solve by the careful path, which decides the rank of the rows by a singular value decomposition.

        Among all x with the least residual in the rows, the one of least norm is returned.

        Args:
            f: (B, n) right-hand side of stationarity; entries of fixed variables are ignored.
            r_eq: (B, p) right-hand side of the equalities.
            r_in: (B, m) right-hand side of the inequalities; entries of inactive rows are ignored.

        Returns:
            x (B, n); the multipliers (B, p) and (B, m); and (B,) bool, True where x is unique, because the objective is
            curved along every tangent direction.
        """
        f_free, r = self._gather(f, r_eq, r_in)
        U, S, V, rank = self._decompose()
        inverse = torch.where(rank, 1 / S.where(rank, torch.ones_like(S)), torch.zeros_like(S))
        tangent = self._tangent_mask(rank)
        values, vectors, curved = self._reduced_curvature(V, tangent)
        x, v = torch.zeros_like(f_free), torch.zeros_like(r)
        for _ in range(2):
            rest_f, rest_r = self._residual(f_free, r, x, v)
            dx = _mv(V[:, :, : S.shape[1]], inverse * _mv(U.mT, rest_r))
            along = _mv(V.mT, rest_f - _mv(self._H, dx)) * tangent
            dx = dx + _mv(V, _mv(vectors, torch.where(curved, _mv(vectors.mT, along) / values, 0.0)) * tangent)
            dv = _mv(U, inverse * _mv(V[:, :, : S.shape[1]].mT, rest_f - _mv(self._H, dx)))
            x, v = x + dx, v + dv
        unique = (curved.sum(1) >= tangent.sum(1)) & torch.isfinite(x).all(1)
        return *self._scatter(x, v), unique

    def flat(self, f: Tensor) -> Tensor:
        """The part of f (B, n) along tangent directions without curvature, (B, n); zero for a curved objective."""
        _, _, V, rank = self._decompose()
        tangent = self._tangent_mask(rank)
        _, vectors, curved = self._reduced_curvature(V, tangent)
        along = _mv(vectors.mT, _mv(V.mT, f.gather(1, self._free) * self._free_mask) * tangent)
        x = _mv(V, _mv(vectors, torch.where(curved, torch.zeros_like(along), along)) * tangent)
        return x.new_zeros(self._shape[:2]).scatter_add(1, self._free, x * self._free_mask)

    def project(self, e: Tensor, least_multipliers: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Project e onto the tangent space. The careful path is taken only where the fast path fails.

        Args:
            e: (B, n) vectors to project.
            least_multipliers: whether to return, where rows are dependent, the multipliers of least norm accurate to
                rounding. The fast path computes them to about the square root of rounding only.

        Returns:
            P e (B, n), the multipliers of the rows (B, p) and (B, m), and (B,) bool, True where the objective is curved
            along every tangent direction.
        """
        B, _, p, m = self._shape
        zeros = e.new_zeros(B, p), e.new_zeros(B, m)
        if least_multipliers:
            return self._refine_exactly(e, *self.solve_carefully(e, *zeros))
        fast = self._solve_replayed(e, *zeros)
        good = fast[3]
        if not bool(good.all()):
            careful = self.solve_carefully(e, *zeros)
            x, v_eq, v_in = (torch.where(good[:, None], f, c) for f, c in zip(fast[:3], careful[:3], strict=True))
            fast = x, v_eq, v_in, good | careful[3]
        return self._refine_exactly(e, *fast)

    def _solve_replayed(self, *sides: Tensor) -> SystemSolution:
        """``solve``, on a GPU as one CUDA graph where that saves time."""
        numbers = self._H.numel() + self._J.numel()
        solved: SystemSolution = run_as_graph(
            "solve", DenseReducedSystems.solve, (self._without_programs(), *sides), numbers
        )
        return solved

    def _refine_exactly(self, e: Tensor, x: Tensor, v_eq: Tensor, v_in: Tensor, good: Tensor) -> SystemSolution:
        """Refine with exact residuals where the projection may be as small as the rounding of float64."""
        if x.is_cuda:
            return torch.where(is_naturally_zero(self._qp, x, e)[:, None], 0.0, x), v_eq, v_in, good
        mixed = self._mixes_units()
        x = torch.where((is_naturally_zero(self._qp, x, e) & ~mixed)[:, None], 0.0, x)
        for i in (self._cancels(e, x, v_eq, v_in) | mixed).nonzero():
            one = self._qp[i], self._active[i], e[i], x[i], v_eq[i], v_in[i]
            x[i], v_eq[i], v_in[i], good[i] = refine_projection(*one)
        return x, v_eq, v_in, good

    def _cancels(self, e: Tensor, x: Tensor, v_eq: Tensor, v_in: Tensor) -> Tensor:
        """Whether the terms of nearly parallel rows cancel each other, or cancel nearly all of e. Shape (B,), bool."""
        terms = tmatvec(self._qp.A.abs(), v_eq.abs()) + tmatvec(self._qp.G.abs(), v_in.abs())
        top, left = e.abs().amax(1), x.abs().amax(1) * self._max_curvature
        return (terms.amax(1) > _CANCELS * top) | ((left > 0) & (left < top / _CANCELS))

    def _mixes_units(self) -> Tensor:
        """Whether the units of variables differ so much that the rank is unreliable. Shape (B,), bool."""
        curvature = self._H.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt() * self._free_mask
        mixed = _spread_of_rows(curvature) > _CANCELS
        return mixed | (_spread_of_rows(self._J.abs().amax(1)) > _CANCELS) if self._J.shape[1] else mixed

    def tangent_dim(self) -> Tensor:
        """The dimension of the tangent space: free variables minus independent active rows. Shape (B,)."""
        _, _, _, rank = self._decompose()
        return self._free_mask.sum(1) - rank.sum(1)

    # -- building blocks ---------------------------------------------------------------------------------------------

    def _active_rows(self, qp: QuadraticProgram) -> Tensor:
        rows = qp.G[0][self._rows] if qp.G.shape[0] == 1 else _take(qp.G, self._rows)
        return _columns(rows * self._rows_mask[:, :, None], self._free)

    def _definite_matrix(self) -> Tensor:
        """Eliminate one block of [H Jᵀ; J −δI]: H + JᵀJ/δ, or, for diagonal H, the Schur complement J H⁻¹ Jᵀ + δI."""
        H, J, delta = self._H, self._J, self._delta
        if not self._from_rows:
            return torch.baddbmm(H, J.mT, J / delta[:, :, None]) if J.shape[1] else H
        S = (J / H.diagonal(dim1=1, dim2=2)[:, None, :]) @ J.mT
        S.diagonal(dim1=1, dim2=2).add_(delta)
        return S

    def _step(self, rest_f: Tensor, rest_r: Tensor) -> tuple[Tensor, Tensor]:
        """Corrections (dx, dv) for the residuals (rest_f, rest_r); NaN where a system could not be factored."""
        J, factored = self._J, self._factored
        if self._from_rows:
            h = self._H.diagonal(dim1=1, dim2=2)
            dv = torch.where(factored.good[:, None], factored.solve(_mv(J, rest_f / h) - rest_r), torch.nan)
            return (rest_f - _mv(J.mT, dv)) / h, dv
        right = rest_f + _mv(J.mT, rest_r / self._delta)
        dx = torch.where(factored.good[:, None], factored.solve(right), torch.nan)
        return dx, (_mv(J, dx) - rest_r) / self._delta

    def _refined(self, f: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        x, v = self._step(f, r)
        for _ in range(_REFINEMENTS - 1):
            dx, dv = self._step(*self._residual(f, r, x, v))
            x, v = x + dx, v + dv
        return x, v

    def _residual(self, f: Tensor, r: Tensor, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return f - _mv(self._H, x) - _mv(self._J.mT, v), r - _mv(self._J, x)

    def _residual_vanishes(self, rest_f: Tensor, rest_r: Tensor, f: Tensor, r: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Whether both residuals are rounding errors of the terms they are computed from; False for NaN. Shape (B,)."""
        if not f.shape[1]:
            return torch.ones(f.shape[0], dtype=torch.bool, device=f.device)
        terms = (_mv(self._H.abs(), x.abs()) + _mv(self._J.abs().mT, v.abs()) + f.abs()).amax(1)
        good = rest_f.abs().amax(1) <= SHARP * terms
        if r.shape[1]:
            # compare with the size of x itself: with f/h, the largest size that x can have, rows parallel to 1e-10
            # would pass. Where the tangent space is a point, x is zero up to rounding, which f/h tells
            size, largest = x.abs().amax(1), f.abs().amax(1) / self._max_curvature
            good &= (rest_r.abs().amax(1) <= SHARP * (size + r.abs().amax(1))) | (size <= NEGLIGIBLE * largest)
        return good

    def _decompose(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """U, S and the full V of J_F = U S Vᵀ, and a mask of the singular values that count as non-zero."""
        U, S, Vh = torch.linalg.svd(self._J, full_matrices=True)
        U = U[:, :, : S.shape[1]]
        top = S[:, :1] if S.shape[1] else S.new_zeros(S.shape[0], 1)
        return U, S, Vh.mT, (RANK * top < S) & (S > 0)

    def _tangent_mask(self, rank: Tensor) -> Tensor:
        """Which right singular vectors span the null space of J within the free variables, (B, f) bool.

        Padded columns of J are zero, so that padding lies in the null space too; H is diagonal there and f is 0, which
        keeps it harmless.
        """
        f = self._free.shape[1]
        mask = torch.ones(rank.shape[0], f, dtype=torch.bool, device=rank.device)
        mask[:, : rank.shape[1]] = ~rank
        return mask

    def _reduced_curvature(self, V: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Eigenpairs of VᵀHV on the tangent vectors, and which of them are curved."""
        t = tangent.to(V.dtype)
        M = t[:, :, None] * (V.mT @ self._H @ V) * t[:, None, :]
        values, vectors = torch.linalg.eigh(M)
        top = values.abs().amax(1, keepdim=True) if values.shape[1] else values
        curved = (values > FLAT * top) & (values > 0)
        return torch.where(curved, values, torch.ones_like(values)), vectors, curved

    def _gather(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor]:
        f_free = torch.where(self._free_mask, f.gather(1, self._free), 0.0)
        return f_free, torch.cat(
            [r_eq, torch.where(self._rows_mask, r_in.gather(1, self._rows), 0.0)], 1
        ) / self._length

    def _scatter(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        B, n, p, m = self._shape
        v = v / self._length
        full = x.new_zeros(B, n).scatter_add(1, self._free, torch.where(self._free_mask, x, 0.0))
        rows = v.new_zeros(B, m).scatter_add(1, self._rows, torch.where(self._rows_mask, v[:, p:], 0.0))
        return full, v[:, :p], rows


def _spread_of_rows(size: Tensor) -> Tensor:
    """The largest entry of each row (B, k) divided by the smallest that is not 0; 0 for empty rows. Shape (B,)."""
    return size.amax(1) / torch.where(size > 0, size, torch.inf).amin(1) if size.shape[1] else size.sum(1)


def common_sizes(active: ActiveSet) -> list[int]:
    """The largest number of free variables, and of active rows, of any sample, read from the device in one transfer."""
    masks = (~active.fixed, active.rows)
    most = [mask.sum(1).amax() if mask.numel() else mask.new_zeros((), dtype=torch.long) for mask in masks]
    sizes: list[int] = torch.stack(most).tolist()
    return sizes


def _positions(mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The positions of the True entries in each row of a mask.

    Args:
        mask: (B, n) bool.
        k: the number of positions to return; no row has more True entries.

    Returns:
        The positions (B, k), padded with 0, and (B, k) bool, True where a position is not padding.
    """
    count = mask.cumsum(1)
    place = torch.where(mask, count - 1, k)  # False entries all go to an extra last column
    column = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    found = column.new_zeros(len(mask), k + 1).scatter_(1, place, column)[:, :k]
    real = torch.arange(k, device=mask.device) < count[:, -1:] if mask.shape[1] else found > 0
    return torch.where(real, found, 0), real


def _block(H: Tensor, index: Tensor, real: Tensor) -> Tensor:
    """The rows and columns ``index`` of each sample's H, (B, f, f); padding gets a positive diagonal.

    ``real`` (B, f) is False for entries of ``index`` that are padding.
    """
    rows = torch.arange(index.shape[0], device=index.device)[:, None, None] if H.shape[0] > 1 else 0
    block = H[rows, index[:, :, None], index[:, None, :]]
    block = block * (real[:, :, None] & real[:, None, :])
    # padding takes the size of the real curvature, so that no threshold depends on the units of H
    top = block.diagonal(dim1=1, dim2=2).amax(1, keepdim=True) if index.shape[1] else block.new_ones(len(index), 1)
    return block + torch.diag_embed(torch.where(top > 0, top, torch.ones_like(top)) * ~real)


def _columns(rows: Tensor, index: Tensor) -> Tensor:
    """Select columns of ``rows`` (B, k, n): for sample i those in ``index[i]``, so that (B, f) gives (B, k, f)."""
    return rows.gather(2, index[:, None, :].expand(-1, rows.shape[1], -1))


def _take(rows: Tensor, index: Tensor) -> Tensor:
    return rows.gather(1, index[:, :, None].expand(-1, -1, rows.shape[2]))


def _mv(matrix: Tensor, vector: Tensor) -> Tensor:
    return torch.bmm(matrix, vector.unsqueeze(-1)).squeeze(-1)
