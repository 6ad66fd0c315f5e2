"""The iterates of the dense interior-point method: Mehrotra's predictor and corrector for a whole batch at once.

Every step is computed for all samples. Samples that need no further step are masked, and stay in place. No number is
read back to the host, so that iterations can be queued on a GPU, or captured once as a CUDA graph and replayed.

Let R = [A; G] be the rows, W their weights (1/δ for equalities, multiplier over slack for inequalities), D the diagonal
matrix that the bounds add to H, and ρ and δ small shifts. A step factors

    H + ρI + D + RᵀWR   (n × n),

or, for a diagonal H and fewer rows than variables,

    R (H + ρI + D)⁻¹ Rᵀ + W⁻¹   (rows × rows).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pear.compile.cuda_graphs import capture_graph, captured_graph, copy_graph_tensors
from pear.problem.matrix import matvec
from pear.solvers.interior_point.dense_scaling import ScaledPrograms, scaled_normal_matrix
from pear.solvers.linalg.cholesky_factor import factor_cholesky

_Solve = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

_RHO = 1e-10
_DELTA = 1e-8
_LIFT = 1e-9  # relative increase of the diagonal of a matrix that is not numerically positive definite
_NOTHING = 1e-200  # the multiplier of an absent constraint; not zero, because it is a divisor
_HUGE = 1e200  # a larger iterate counts as an overflow
_MARGIN = 1e-3
"""Mean complementarity must be smaller than this factor times the tolerance.

Small complementarity shows which constraints are active. Feasibility is less important, because the repair restores it.
"""
_TO_BOUNDARY = 0.995
_DIVERGED = 1e4
_FURTHER = 1e-4  # share of the tolerance at which a sample stops to move


class _Residuals(NamedTuple):
    """The residuals of the optimality conditions, for K = m + 2n inequalities and bounds.

    Attributes:
        slope: (B, n) the gradient of the Lagrangian.
        equality: (B, p) the residuals of the equalities.
        rest: (B, K) for each inequality and bound, the limit minus the row times x minus the slack.
        product: (B, K) the products of slack and multiplier.
        mu: (B, 1) the mean of these products over the present inequalities and bounds.
    """

    slope: Tensor
    equality: Tensor
    rest: Tensor
    product: Tensor
    mu: Tensor


class DenseIterates:
    """The iterates of a batch of dense programs.

    The state of a sample consists of the point x, the multipliers y of the equalities, and the multipliers λ and the
    slacks s of the K = m + 2n inequalities and bounds.

    Args:
        data: the programs. Every step reads the tensors of the programs, so that the numbers of other programs of the
            same shapes may be copied into them.

    Attributes:
        state: (B, n + p + 2K) the current states.
        best: (B, n + p + 2K) the states with the smallest residuals so far.
        residual: (B,) the residuals of the current states.
        least: (B,) the residuals of the best states.
        lift: (B, 1) the factors that multiply the diagonals of matrices before a factorisation: 1, or slightly more
            after a factorisation of the sample has failed.
        count: (B, 1) the numbers of present inequalities and bounds, at least 1.
    """

    def __init__(self, data: ScaledPrograms) -> None:
        self.data = data
        B, self.n = data.c.shape
        self.k, self.K = data.R.shape[1], data.present.shape[1]
        self.m = self.K - 2 * self.n
        self.p = self.k - self.m
        self.state = data.c.new_zeros(B, self.n + self.p + 2 * self.K)
        self.best = torch.zeros_like(self.state)
        self.residual = data.c.new_zeros(B)
        self.least = data.c.new_zeros(B)
        self.lift = data.c.new_ones(B, 1)
        self.count = data.c.new_zeros(B, 1)
        self._factored = torch.ones_like(self.residual, dtype=torch.bool)
        self._shift = data.c.new_full((B, self.p), _DELTA)

    def begin(self) -> None:
        """Set the first state.

        Up to the small shifts, the point minimises objective + ½‖s‖² subject to the equalities. Here s are the slacks
        of the inequalities and bounds; a violated one has a negative slack. The first state has the slacks s and the
        multipliers −s. If one of these vectors has an entry that is not positive, a constant is added to all entries.
        """
        d, p, m, n = self.data, self.p, self.m, self.n
        self.lift.fill_(1 + _LIFT)  # the matrix must be positive definite, while the first state need not be exact
        self.count.copy_(d.present.sum(1, keepdim=True).clamp(min=1))
        weight, limit = d.present, d.limit[:, p:]
        pulled = limit * weight
        right = pulled[:, m + n :] - pulled[:, m : m + n] - d.c
        solve = self._factor(weight, 1 / weight[:, :m].clamp(min=_NOTHING), d.limit[:, :p])
        x, v = solve(right, -pulled[:, :m])
        gap = self._minus_limits(limit, x) * weight  # slack if positive, multiplier if negative

        def raised(value: Tensor) -> Tensor:
            shift = -torch.where(weight > 0, value, torch.inf).amin(1, keepdim=True)
            return value + torch.where(shift > -1e-3, 1 + shift, 0.0)

        s = torch.where(weight > 0, raised(gap), 1.0)
        self.state.copy_(torch.cat([x, v[:, :p], torch.where(weight > 0, raised(-gap), _NOTHING), s], 1))
        self.best.copy_(self.state)
        self.least.fill_(torch.inf)
        self.lift.fill_(1.0)

    def advance(self) -> None:
        """Take one step with all samples, except those far below their tolerance, and keep the best states."""
        self.move(self.measure())

    def finished(self) -> Tensor:
        """Return whether each sample has reached its accuracy or diverges. Shape (B,), bool.

        Once rounding errors dominate, iterates diverge. The best iterate of such a sample is its result.
        """
        return (self.least <= self.data.tol) | (self.residual > _DIVERGED * self.least)

    def only(self, index: Tensor) -> DenseIterates:
        """Return the iterates of the samples at ``index`` (k,), with their current states."""
        some = DenseIterates(self.data.only(index))
        some.state, some.best, some.lift = self.state[index], self.best[index], self.lift[index]
        some.residual, some.least, some.count = self.residual[index], self.least[index], self.count[index]
        return some

    def measure(self) -> _Residuals:
        """Return the residuals of every state, and record their size and the best states so far."""
        d, state, n, p, m = self.data, self.state, self.n, self.p, self.m
        x, lam, s = self._split_state()
        curvature_term = d.H * x if d.H.dim() == 2 else matvec(d.H, x)
        slope = curvature_term + d.c + lam[:, m + n :] - lam[:, m : m + n]
        slope = self._plus_tmatvec(slope, d.R, state[:, n : n + self.k]) if self.k else slope
        equality = self._plus_matvec(d.limit[:, :p], d.R[:, :p], x, -1) if p else d.limit[:, :p]
        rest = self._minus_limits(d.limit[:, p:], x) - s
        product = s * lam
        mu = product.sum(1, keepdim=True) / self.count
        # residuals are not relative to the multipliers, which grow without limit if no point is feasible
        unit, dual, size, primal = (self._largest_magnitudes(value) for value in (curvature_term, slope, x, rest))
        primal = torch.maximum(primal, self._largest_magnitudes(equality)) if p else primal
        dual = torch.maximum(dual, mu[:, 0] / _MARGIN) / (1 + unit)
        torch.maximum(dual, primal / (1 + size), out=self.residual)
        better = self.residual < self.least
        torch.where(better[:, None], state, self.best, out=self.best)
        torch.where(better, self.residual, self.least, out=self.least)
        return _Residuals(slope, equality, rest, product, mu)

    def move(self, left: _Residuals) -> None:
        """Take Mehrotra's predictor and corrector step, given the residuals of the current states."""
        d, n, p, m = self.data, self.n, self.p, self.m
        slope, equality, rest, product, mu = left
        _, lam, s = self._split_state()
        both = self.state[:, n + p :]
        W = lam / s
        solve = self._factor(W, s[:, :m] / lam[:, :m], equality)

        def direction(pull: Tensor) -> Tensor:
            """Return a Newton step, (B, n + p + 2K): the changes dx, dy, dλ and ds of the state.

            Up to the small shifts, the step removes the residuals ``slope``, ``equality`` and ``rest``. To first order,
            it changes the products of multiplier λ and slack s by s · ``pull`` (B, K): dλ = ``pull`` − W ds.
            """
            t = torch.addcmul(pull, W, rest, value=-1)
            dx, v = solve(t[:, m : m + n] - t[:, m + n :] - slope, t[:, :m])
            ds = self._minus_limits(rest, dx)
            return torch.cat([dx, v[:, :p], torch.addcmul(pull, W, ds, value=-1), ds], 1)

        step = direction(-lam)[:, n + p :]
        ahead = torch.addcmul(both, self._longest_steps(both, step), step)
        mu_ahead = (ahead[:, : self.K] * ahead[:, self.K :]).sum(1, keepdim=True) / self.count
        target = (mu_ahead / mu.clamp(min=1e-300)).clamp(max=1.0) ** 3 * mu
        product = torch.addcmul(product, step[:, : self.K], step[:, self.K :])
        step = direction((target - product) / s * d.present)
        moved = torch.addcmul(self.state, self._longest_steps(both, step[:, n + p :]), step)
        # A step that overflows, as in an unbounded sample, is not taken. Samples within their tolerance still move,
        # because a more accurate point leads to fewer wrong guesses of active constraints.
        moves = (self._largest_magnitudes(moved) < _HUGE) & self._factored & (self.residual > _FURTHER * d.tol)
        torch.where(moves[:, None], moved, self.state, out=self.state)

    def _split_state(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the points x (B, n) of the states, and the multipliers λ and slacks s of inequalities and bounds."""
        x, _, lam, s = self.state.split([self.n, self.p, self.K, self.K], 1)
        return x, lam, s

    def _minus_limits(self, start: Tensor, x: Tensor) -> Tensor:
        """Return ``start`` − [Gx; −x; x] for x (B, n). Shape (B, m + 2n).

        The entries of ``start`` that belong to absent inequalities and bounds do not change.
        """
        d, m, shape = self.data, self.m, (len(x), 2, self.n)
        bounds = torch.addcmul(start[:, m:].view(shape), d.sign.view(shape), x[:, None], value=-1).view(len(x), -1)
        if not m:
            return bounds
        rows = matvec(d.R[:, self.p :], x)
        return torch.cat([torch.addcmul(start[:, :m], d.present[:, :m], rows, value=-1), bounds], 1)

    def _factor(self, W: Tensor, inverse_W: Tensor, equality: Tensor) -> _Solve:
        """Factor the Newton system. The symbols are those of the module's docstring.

        Args:
            W: (B, m + 2n) weights of the inequalities and bounds.
            inverse_W: (B, m) inverse weights of the inequality rows.
            equality: (B, p) residuals of the equalities.

        Returns:
            A function of r (B, n) and t (B, m) that returns two steps: dx (B, n) of x, and v (B, p + m) of the
            multipliers of the rows. They solve (H + ρI + D) dx + Rᵀv = r and v = W R dx + t, where W has the weights of
            all rows, and −equality/δ is put in front of t for the equalities.
        """
        d, m, n, k = self.data, self.m, self.n, self.k
        bounds = W[:, m : m + n] + W[:, m + n :] + _RHO
        if d.H.dim() == 2 and k < n:
            return self._factor_rows(d.H + bounds, self._join_columns(self._shift, inverse_W), -equality)
        M = torch.diag_embed(d.H) if d.H.dim() == 2 else d.H
        weight = self._join_columns(1 / self._shift, W[:, :m])
        return self._factor_variables(M, bounds, weight, equality / -_DELTA)

    def _factor_variables(self, H: Tensor, bounds: Tensor, W: Tensor, t_equality: Tensor) -> _Solve:
        """Eliminate the rows from the Newton system, and factor the rest: H + ρI + D + RᵀWR.

        The symbols are those of the module's docstring.

        Args:
            H: (B, n, n) the curvature.
            bounds: (B, n) the diagonal of ρI + D.
            W: (B, p + m) the weights of the rows.
            t_equality: (B, p) the entries of the right-hand side t that belong to the equalities.

        Returns:
            The function of r (B, n) and t (B, m) that ``_factor`` describes.
        """
        R = self.data.R
        M = torch.baddbmm(H, R.mT.expand(len(W), -1, -1), W[:, :, None] * R) if self.k else H.clone()
        M.diagonal(dim1=1, dim2=2).add_(bounds)
        inverse = self._inverse(M)

        def solve(r: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            t = self._join_columns(t_equality, t)
            if not self.k:
                return inverse(r), t
            dx = inverse(self._plus_tmatvec(r, R, t, -1))
            v = torch.addcmul(t, W, matvec(R, dx))
            # W is as large as 1/δ, and v is a difference of large numbers: one refinement restores the lost digits
            rest = torch.addcmul(r - matvec(H, dx), bounds, dx, value=-1)
            again = inverse(self._plus_tmatvec(rest, R, v, -1))
            return dx + again, torch.addcmul(v, W, matvec(R, again))

        return solve

    def _factor_rows(self, diagonal: Tensor, inverse_W: Tensor, q_equality: Tensor) -> _Solve:
        """Eliminate the variables from the Newton system, and factor the rest: R (H + ρI + D)⁻¹ Rᵀ + W⁻¹.

        The symbols are those of the module's docstring.

        Args:
            diagonal: (B, n) the diagonal of H + ρI + D.
            inverse_W: (B, p + m) the inverse weights of the rows.
            q_equality: (B, p) W⁻¹t for the equalities, where t is the right-hand side that ``_factor`` describes.

        Returns:
            The function of r (B, n) and t (B, m) that ``_factor`` describes.
        """
        R, by, pairs = self.data.R, 1 / diagonal, self.data.pairs
        S = scaled_normal_matrix(R, by, inverse_W) if pairs is None else pairs.normal_matrix(by, inverse_W)
        inverse = self._inverse(S)

        def solve(r: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            q = self._join_columns(q_equality, inverse_W[:, self.p :] * t)
            v = inverse(self._plus_matvec(q, R, by * r))
            return by * self._plus_tmatvec(r, R, v, -1), v

        return solve

    def _inverse(self, M: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function that solves systems with the matrices M (B, k, k). M is overwritten.

        A sample whose matrix is not numerically positive definite does not move in this iteration. From then on, the
        diagonals of its matrices are raised.
        """
        M.diagonal(dim1=1, dim2=2).mul_(self.lift)
        factored = factor_cholesky(M)
        self._factored = factored.good
        self.lift.masked_fill_(~factored.good[:, None], 1 + _LIFT)
        return factored.solve

    @staticmethod
    def _join_columns(first: Tensor, second: Tensor) -> Tensor:
        """Join (B, k) and (B, l) to (B, k + l), without a copy if k or l is zero."""
        if not second.shape[1]:
            return first
        return torch.cat([first, second], 1) if first.shape[1] else second

    @staticmethod
    def _largest_magnitudes(values: Tensor) -> Tensor:
        """Return the largest absolute value of each row (B, k), or 0 if k = 0. Shape (B,)."""
        return torch.linalg.vector_norm(values, torch.inf, 1) if values.shape[1] else values.sum(1)

    @staticmethod
    def _longest_steps(values: Tensor, change: Tensor) -> Tensor:
        """Return the longest steps along ``change``, at most 1, that keep the positive ``values`` clearly positive.

        Both have shape (B, k), and the result (B, 1).
        """
        return ((change / values).amin(1, keepdim=True) / -_TO_BOUNDARY).clamp(min=1.0).reciprocal()

    @staticmethod
    def _plus_matvec(start: Tensor, matrix: Tensor, x: Tensor, times: float = 1.0) -> Tensor:
        """Compute ``start + times · M x`` (B, r) for matrices M (B or 1, r, n) of r rows, and x (B, n)."""
        if len(matrix) == 1:
            return torch.addmm(start, x, matrix[0].mT, alpha=times)
        return torch.baddbmm(start[:, :, None], matrix, x[:, :, None], alpha=times)[:, :, 0]

    @staticmethod
    def _plus_tmatvec(start: Tensor, matrix: Tensor, y: Tensor, times: float = 1.0) -> Tensor:
        """Compute ``start + times · Mᵀ y`` (B, n) for matrices M (B or 1, r, n) of r rows, and y (B, r)."""
        if len(matrix) == 1:
            return torch.addmm(start, y, matrix[0], alpha=times)
        return torch.baddbmm(start[:, None], y[:, None], matrix, alpha=times)[:, 0]


class CapturedDenseIterates(DenseIterates):
    """The iterates of a batch on a GPU, with ``begin`` and ``advance`` captured as CUDA graphs.

    Args:
        data: the programs of the first batch. ``load`` takes further batches of the same shapes.
    """

    def __init__(self, data: ScaledPrograms) -> None:
        super().__init__(data.clone())
        self._begin = capture_graph(super().begin)
        self._advance = capture_graph(super().advance)

    def load(self, data: ScaledPrograms) -> None:
        """Copy the numbers of another batch of the same shapes into the captured tensors."""
        copy_graph_tensors(self.data.tensors, data.tensors)

    def begin(self) -> None:
        """Set the first state, as ``DenseIterates.begin`` does."""
        self._begin.replay()

    def advance(self) -> None:
        """Take one step, as ``DenseIterates.advance`` does."""
        self._advance.replay()


def dense_iterates_on_gpu(data: ScaledPrograms) -> DenseIterates:
    """Return the iterates of a batch on a GPU, captured as CUDA graphs if this saves time."""
    (B, n), k = data.c.shape, data.R.shape[1]
    rows = data.H.dim() == 2 and k < n  # whether the systems are solved by rows
    numbers = B * k * (k if data.pairs is not None else n) if rows else B * n * max(k, n)
    found = captured_graph("interior point", data.tensors, numbers, lambda: CapturedDenseIterates(data))
    if found is None:
        return DenseIterates(data)
    found.load(data)
    return found
