"""The reduced KKT systems of dense programs: the KKT systems without the variables that are at their bounds.

Let H be the curvature, F the free variables, and J the rows of the equalities and of the active inequalities. Every
solution, gradient and derivative of this package solves, for x and the multipliers v,

    [ H_FF  J_Fᵀ ] [x]   [f]
    [ J_F    0   ] [v] = [r].

J_F is usually rank deficient, so that this matrix cannot be factored. The *fast path* puts −δI with a small δ into the
lower right corner, factors a Schur complement, and refines the solution with the residual of the system without δ. If
x is unique, it converges to the exact x, whatever the rank of J_F is. Samples whose residual does not vanish take the
*careful path*: a singular value decomposition of J_F decides its rank, and H on its null space determines x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pear.compile.cuda_graphs import run_as_graph
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import is_naturally_zero
from pear.optimality.rule import FLAT, MIXED, NEGLIGIBLE, RANK, SHARP
from pear.problem.matrix import matvec, tmatvec
from pear.problem.quadratic_program import QuadraticProgram
from pear.sensitivity.exact_refinement import refine_projection
from pear.solvers.linalg.cholesky_factor import factor_cholesky

_SHIFT = 1e-7  # δ, relative to the curvature
_REFINEMENTS = 4
_STEPS = 32  # padded sizes are multiples of this, so that few shapes occur
_CANCELS = 1e4  # terms larger than their sum by this factor leave too few correct digits in the sum
SystemSolution = tuple[Tensor, Tensor, Tensor, Tensor]
"""x (B, n), multipliers (B, p) of the equalities and (B, m) of the inequalities, and a flag (B,) for each sample."""


class DenseReducedSystems:
    """The factorised reduced systems of a batch of dense programs, one per sample, padded to a common size.

    Args:
        qp: the programs.
        active: the constraints to hold with equality.
        sizes: the padded numbers f of free variables and k of active inequalities; None for the smallest that fit.

    Attributes:
        cheap: True, because a dense factorisation is fast enough to exchange active constraints one at a time.
    """

    cheap = True

    def __init__(self, qp: QuadraticProgram, active: ActiveSet, sizes: Sequence[int] | None = None) -> None:
        self._qp, self._active = qp, active
        self._shape = (qp.batch, qp.n, qp.p, qp.m)
        f, k = _reduced_counts(active) if sizes is None else sizes
        self._free, self._free_mask = _reduced_positions(~active.fixed, f)
        self._rows, self._rows_mask = _reduced_positions(active.rows, k)
        self._H = _reduced_H(qp.H, self._free, self._free_mask)
        J = torch.cat([_reduced_J(qp.A.expand(qp.batch, -1, -1), self._free), self._active_rows(qp)], 1)
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
        """Build the systems and call ``then(systems, qp, active, *given)``, by one CUDA graph if this saves time.

        Args:
            qp: the programs.
            active: the constraints to hold with equality.
            then: a function that copies no number from the GPU to the host, and whose result does not contain the
                programs; None to build the systems only.
            *given: further arguments of ``then``.

        Returns:
            The systems, and the result of ``then`` or None.
        """
        # sizes are rounded up, so that batches that differ by little have the same shapes
        f, k = (
            min(-(-size // _STEPS) * _STEPS, most)
            for size, most in zip(_reduced_counts(active), (qp.n, qp.m), strict=True)
        )

        def run(qp: QuadraticProgram, active: ActiveSet, *given: Any) -> tuple[DenseReducedSystems, Any]:
            systems = cls(qp, active, (f, k))
            return systems._without_programs(), None if then is None else then(systems, qp, active, *given)

        known = qp.is_linear  # computed before the capture, because this reads H on the host
        numbers = max(qp.H.numel(), qp.A.numel(), qp.G.numel(), qp.batch * f * (f + qp.p + k))
        systems, result = run_as_graph(("systems", known, f, k, then), run, (qp, active, *given), numbers)
        systems._qp, systems._active = qp, active
        return systems, result

    def _without_programs(self) -> DenseReducedSystems:
        """Return a copy without references to the programs, which ``solve`` does not need."""
        bare = object.__new__(type(self))
        vars(bare).update({name: value for name, value in vars(self).items() if name not in ("_qp", "_active")})
        return bare

    @property
    def usable(self) -> Tensor:
        """(B,) bool, all True: a system that cannot be factored has the solution NaN, which fails every check."""
        return torch.ones(self._shape[0], dtype=torch.bool, device=self._free.device)

    def solve(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Solve each system for one right-hand side by the fast path.

        Args:
            f: (B, n) right-hand sides of stationarity; entries of fixed variables are ignored.
            r_eq: (B, p) right-hand sides of the equalities.
            r_in: (B, m) right-hand sides of the inequalities; entries of inactive rows are ignored.

        Returns:
            x (B, n), zero for fixed variables; the multipliers (B, p) and (B, m), zero for inactive rows; and (B,)
            bool, True if the residual is only rounding and every pivot exceeds its rounding error.
        """
        f_free, r = self._gather(f, r_eq, r_in)
        x, v = self._refined(f_free, r)
        good = self._residual_vanishes(*self._residual(f_free, r, x, v), f_free, r, x, v)
        return *self._scatter(x, v), good & self._definite

    def step(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first three results of ``solve``, for callers that verify them and need no residual check."""
        return self._scatter(*self._refined(*self._gather(f, r_eq, r_in)))

    def solve_carefully(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Solve by the careful path, which decides the rank of the rows by a singular value decomposition.

        If no x satisfies the rows, x has the least residual in them. If x is not unique, it has no component along
        tangent directions without curvature. The arguments are those of ``solve``.

        Returns:
            x (B, n); the multipliers (B, p) and (B, m); and (B,) bool, True if x is unique, because the objective is
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
            dx = matvec(V[:, :, : S.shape[1]], inverse * matvec(U.mT, rest_r))
            along = matvec(V.mT, rest_f - matvec(self._H, dx)) * tangent
            dx = dx + matvec(V, matvec(vectors, torch.where(curved, matvec(vectors.mT, along) / values, 0.0)) * tangent)
            dv = matvec(U, inverse * matvec(V[:, :, : S.shape[1]].mT, rest_f - matvec(self._H, dx)))
            x, v = x + dx, v + dv
        unique = (curved.sum(1) >= tangent.sum(1)) & torch.isfinite(x).all(1)
        return *self._scatter(x, v), unique

    def flat(self, f: Tensor) -> Tensor:
        """Project f (B, n) onto the tangent directions without curvature. Shape (B, n).

        The result is zero if the objective is curved along every tangent direction.
        """
        _, _, V, rank = self._decompose()
        tangent = self._tangent_mask(rank)
        _, vectors, curved = self._reduced_curvature(V, tangent)
        along = matvec(vectors.mT, matvec(V.mT, f.gather(1, self._free) * self._free_mask) * tangent)
        x = matvec(V, matvec(vectors, torch.where(curved, torch.zeros_like(along), along)) * tangent)
        return x.new_zeros(self._shape[:2]).scatter_add(1, self._free, x * self._free_mask)

    def project(self, e: Tensor, least_multipliers: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute P e, the x in the tangent space that minimises ``½ xᵀHx − eᵀx``.

        Unless ``least_multipliers`` is True, the careful path solves only samples at which the fast path fails.

        Args:
            e: (B, n) vectors to project.
            least_multipliers: whether the multipliers of dependent rows must have the least norm, accurate to rounding.
                The careful path then solves all samples, because the fast path computes such multipliers only to about
                the square root of rounding.

        Returns:
            P e (B, n), the multipliers of the rows (B, p) and (B, m), and (B,) bool, True if the objective is curved
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
        """Call ``solve``, on a GPU as one CUDA graph if this saves time."""
        numbers = self._H.numel() + self._J.numel()
        solved: SystemSolution = run_as_graph(
            "solve", DenseReducedSystems.solve, (self._without_programs(), *sides), numbers
        )
        return solved

    def _refine_exactly(self, e: Tensor, x: Tensor, v_eq: Tensor, v_in: Tensor, good: Tensor) -> SystemSolution:
        """Return the projections x of e and their multipliers, refined where float64 rounding may be as large as x."""
        if x.is_cuda:
            return torch.where(is_naturally_zero(self._qp, x, e)[:, None], 0.0, x), v_eq, v_in, good
        mixed = self._mixes_units()
        x = torch.where((is_naturally_zero(self._qp, x, e) & ~mixed)[:, None], 0.0, x)
        for i in (self._cancels(e, x, v_eq, v_in) | mixed).nonzero():
            one = self._qp[i], self._active[i], e[i], x[i], v_eq[i], v_in[i]
            x[i], v_eq[i], v_in[i], good[i] = refine_projection(*one)
        return x, v_eq, v_in, good

    def _cancels(self, e: Tensor, x: Tensor, v_eq: Tensor, v_in: Tensor) -> Tensor:
        """Return whether the terms of Jᵀv cancel each other, or cancel nearly all of e. Shape (B,), bool.

        Args:
            e: (B, n) the vectors to project.
            x: (B, n) their projections.
            v_eq, v_in: (B, p) and (B, m) the multipliers v of the equalities and of the inequality rows.
        """
        terms = tmatvec(self._qp.A.abs(), v_eq.abs()) + tmatvec(self._qp.G.abs(), v_in.abs())
        top, left = e.abs().amax(1), x.abs().amax(1) * self._max_curvature
        return (terms.amax(1) > _CANCELS * top) | ((left > 0) & (left < top / _CANCELS))

    def _mixes_units(self) -> Tensor:
        """Return whether the units of variables differ so much that the rank is unreliable. Shape (B,), bool."""
        curvature = self._H.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt() * self._free_mask
        mixed = _reduced_spread(curvature) > MIXED
        return mixed | (_reduced_spread(self._J.abs().amax(1)) > MIXED) if self._J.shape[1] else mixed

    def tangent_dim(self) -> Tensor:
        """Return the dimension of the tangent space: free variables minus independent active rows. Shape (B,)."""
        _, _, _, rank = self._decompose()
        return self._free_mask.sum(1) - rank.sum(1)

    # -- building blocks ---------------------------------------------------------------------------------------------

    def _active_rows(self, qp: QuadraticProgram) -> Tensor:
        """Select the active rows of G and their free columns. Shape (B, k, f), with zeros as padding."""
        samples = torch.arange(len(self._rows), device=self._rows.device)[:, None] if len(qp.G) != 1 else 0
        return _reduced_J(qp.G[samples, self._rows] * self._rows_mask[:, :, None], self._free)

    def _definite_matrix(self) -> Tensor:
        """Eliminate one block of [H Jᵀ; J −δI], and return the definite matrix that is left.

        Returns:
            H + JᵀJ/δ (B, f, f), or, for a diagonal H and fewer rows than variables, J H⁻¹ Jᵀ + δI (B, p + k, p + k).
        """
        H, J, delta = self._H, self._J, self._delta
        if not self._from_rows:
            return torch.baddbmm(H, J.mT, J / delta[:, :, None]) if J.shape[1] else H
        S = (J / H.diagonal(dim1=1, dim2=2)[:, None, :]) @ J.mT
        S.diagonal(dim1=1, dim2=2).add_(delta)
        return S

    def _step(self, rest_f: Tensor, rest_r: Tensor) -> tuple[Tensor, Tensor]:
        """Return the corrections of x and v for the given residuals; NaN for a system that could not be factored."""
        J, factored = self._J, self._factored
        if self._from_rows:
            h = self._H.diagonal(dim1=1, dim2=2)
            dv = torch.where(factored.good[:, None], factored.solve(matvec(J, rest_f / h) - rest_r), torch.nan)
            return (rest_f - matvec(J.mT, dv)) / h, dv
        right = rest_f + matvec(J.mT, rest_r / self._delta)
        dx = torch.where(factored.good[:, None], factored.solve(right), torch.nan)
        return dx, (matvec(J, dx) - rest_r) / self._delta

    def _refined(self, f: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """Solve the padded systems for x (B, f) and v (B, p + k), with iterative refinement."""
        x, v = self._step(f, r)
        for _ in range(_REFINEMENTS - 1):
            dx, dv = self._step(*self._residual(f, r, x, v))
            x, v = x + dx, v + dv
        return x, v

    def _residual(self, f: Tensor, r: Tensor, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute f − Hx − Jᵀv and r − Jx, of the same shapes as the right-hand sides f and r."""
        return f - matvec(self._H, x) - matvec(self._J.mT, v), r - matvec(self._J, x)

    def _residual_vanishes(self, rest_f: Tensor, rest_r: Tensor, f: Tensor, r: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Return whether both residuals are rounding errors of their terms; False for NaN. Shape (B,), bool."""
        if not f.shape[1]:
            return torch.ones(f.shape[0], dtype=torch.bool, device=f.device)
        terms = (matvec(self._H.abs(), x.abs()) + matvec(self._J.abs().mT, v.abs()) + f.abs()).amax(1)
        good = rest_f.abs().amax(1) <= SHARP * terms
        if r.shape[1]:
            # The residual is compared with x itself: rows parallel to 1e-10 would pass a comparison with f/h, the
            # largest size that x can have. If the tangent space is a point, x is rounding compared with f/h.
            size, largest = x.abs().amax(1), f.abs().amax(1) / self._max_curvature
            good &= (rest_r.abs().amax(1) <= SHARP * (size + r.abs().amax(1))) | (size <= NEGLIGIBLE * largest)
        return good

    def _decompose(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Decompose J_F = U S Vᵀ. Return U, S, the full V, and a mask of the singular values that count as non-zero."""
        U, S, Vh = torch.linalg.svd(self._J, full_matrices=True)
        U = U[:, :, : S.shape[1]]
        top = S[:, :1] if S.shape[1] else S.new_zeros(S.shape[0], 1)
        return U, S, Vh.mT, (RANK * top < S) & (S > 0)

    def _tangent_mask(self, rank: Tensor) -> Tensor:
        """Return which right singular vectors span the null space of J_F. Shape (B, f), bool.

        Padded columns of J_F are zero, so that the null space contains the padding. This is harmless, because H is
        diagonal and the right-hand side is zero at padded variables.
        """
        f = self._free.shape[1]
        mask = torch.ones(rank.shape[0], f, dtype=torch.bool, device=rank.device)
        mask[:, : rank.shape[1]] = ~rank
        return mask

    def _reduced_curvature(self, V: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the eigenvalues and eigenvectors of VᵀHV for the tangent columns of V, and which are positive.

        Eigenvalues that are not positive are replaced by 1.
        """
        t = tangent.to(V.dtype)
        M = t[:, :, None] * (V.mT @ self._H @ V) * t[:, None, :]
        values, vectors = torch.linalg.eigh(M)
        top = values.abs().amax(1, keepdim=True) if values.shape[1] else values
        curved = (values > FLAT * top) & (values > 0)
        return torch.where(curved, values, torch.ones_like(values)), vectors, curved

    def _gather(self, f: Tensor, r_eq: Tensor, r_in: Tensor) -> tuple[Tensor, Tensor]:
        """Return the right-hand sides of the padded and scaled systems, (B, f) and (B, p + k)."""
        f_free = torch.where(self._free_mask, f.gather(1, self._free), 0.0)
        return f_free, torch.cat(
            [r_eq, torch.where(self._rows_mask, r_in.gather(1, self._rows), 0.0)], 1
        ) / self._length

    def _scatter(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Expand a solution of the padded systems to x (B, n) and multipliers (B, p) and (B, m)."""
        B, n, p, m = self._shape
        v = v / self._length
        full = x.new_zeros(B, n).scatter_add(1, self._free, torch.where(self._free_mask, x, 0.0))
        rows = v.new_zeros(B, m).scatter_add(1, self._rows, torch.where(self._rows_mask, v[:, p:], 0.0))
        return full, v[:, :p], rows


def _reduced_spread(size: Tensor) -> Tensor:
    """Return the largest entry of each row (B, k) over its smallest non-zero entry; 0 for empty rows. Shape (B,)."""
    return size.amax(1) / torch.where(size > 0, size, torch.inf).amin(1) if size.shape[1] else size.sum(1)


def _reduced_counts(active: ActiveSet) -> list[int]:
    """Return the largest numbers of free variables and of active inequalities of any sample, in one copy from a GPU."""
    masks = (~active.fixed, active.rows)
    most = [mask.sum(1).amax() if mask.numel() else mask.new_zeros((), dtype=torch.long) for mask in masks]
    sizes: list[int] = torch.stack(most).tolist()
    return sizes


def _reduced_positions(mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the positions of the True entries in each row of a mask.

    Args:
        mask: (B, n) bool, with at most k True entries in each row.
        k: the number of positions to return for each row.

    Returns:
        The positions (B, k), padded with 0, and (B, k) bool, False for padding.
    """
    count = mask.cumsum(1)
    place = torch.where(mask, count - 1, k)  # False entries all go to an extra last column
    column = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    found = column.new_zeros(len(mask), k + 1).scatter_(1, place, column)[:, :k]
    real = torch.arange(k, device=mask.device) < count[:, -1:] if mask.shape[1] else found > 0
    return torch.where(real, found, 0), real


def _reduced_H(H: Tensor, index: Tensor, real: Tensor) -> Tensor:
    """Select the rows and columns ``index`` (B, f) of H (B or 1, n, n). Shape (B, f, f).

    ``real`` (B, f) is False for padding, whose rows and columns are zero except for a positive diagonal entry.
    """
    rows = torch.arange(index.shape[0], device=index.device)[:, None, None] if H.shape[0] > 1 else 0
    block = H[rows, index[:, :, None], index[:, None, :]]
    block = block * (real[:, :, None] & real[:, None, :])
    # padding takes the size of the real curvature, so that no threshold depends on the units of H
    top = block.diagonal(dim1=1, dim2=2).amax(1, keepdim=True) if index.shape[1] else block.new_ones(len(index), 1)
    return block + torch.diag_embed(torch.where(top > 0, top, torch.ones_like(top)) * ~real)


def _reduced_J(rows: Tensor, index: Tensor) -> Tensor:
    """Select the columns ``index`` (B, f) of the rows (B, k, n) of each sample. Shape (B, k, f)."""
    return rows.gather(2, index[:, None, :].expand(-1, rows.shape[1], -1))
