"""``ElasticProblem``: a problem whose priced rows have slack variables, so that every forecast has a feasible point."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from scipy import sparse
from torch import Tensor

from pear.problem.constraint_map import constraint_sides
from pear.problem.derived_problems import problem_with_curvature
from pear.problem.matrix import Matrix, matvec, tmatvec, to_csr_matrix
from pear.problem.problem import Problem
from pear.problem.quadratic_program import QuadraticProgram


class ElasticProblem:
    """``min f(z) + price·s`` over z and s ≥ 0, with ``Az + s⁻ − s⁺ = b`` and ``Gz − s ≤ h`` on the rows with a price.

    A bound with a price becomes a row of G. The variables are z, then s⁻ and s⁺ of the priced equalities, then s of
    the priced inequalities, lower and upper bounds.

    Args:
        problem: the problem to relax, without a smooth term.
        prices: the price of every row, infinite where there is none: (2, p) for b, (m,) for h, (n,) for lb and ub.

    Attributes:
        problem: the elastic problem over all variables, integers included.
        plain: the problem that was given.
        price: (slacks,) the price of each slack, positive.
        n: the number of variables of the plain problem.
    """

    def __init__(self, problem: Problem, prices: Mapping[str, Tensor]) -> None:
        self.plain, self.n = problem, problem.n
        has = {name: price.isfinite() if name != "b" else price[0].isfinite() for name, price in prices.items()}
        self._at = at = {name: where.nonzero()[:, 0] for name, where in has.items()}
        self.price = torch.cat([*prices["b"][:, at["b"]], *(prices[name][at[name]] for name in ("h", "lb", "ub"))])
        own = constraint_sides(problem)
        m, bounds = own["h"].shape[-1], len(at["lb"]) + len(at["ub"])
        # rows of the elastic G that have a slack: the priced rows of G, and all rows made of bounds
        self._rows = torch.cat([at["h"], torch.arange(m, m + bounds, device=problem.device)])
        slacks, e = len(self.price), len(at["b"])
        too_little = _slack_columns(own["b"].shape[-1], slacks, at["b"], 0, 1.0)
        too_much = _slack_columns(own["b"].shape[-1], slacks, at["b"], e, -1.0)
        over = _slack_columns(m + bounds, slacks, self._rows, 2 * e, -1.0)
        bound_rows = sparse.vstack([-_identity_rows(self.n, at["lb"]), _identity_rows(self.n, at["ub"])]).tocsr()
        G = self.price.new_zeros(0, self.n) if problem.G is None else problem.G
        self.problem = Problem(
            Q=_pad_with_slacks(problem.Q, slacks),
            A=None if problem.A is None else _append_elastic(problem, problem.A, too_little + too_much, -1),
            b=problem.b,
            G=_append_elastic(problem, _append_elastic(problem, G, bound_rows, -2), over, -1) if m + bounds else None,
            h=self.fields(own)["h"] if m + bounds else None,
            lb=self._bound(own["lb"], has["lb"], -torch.inf, 0.0),
            ub=self._bound(own["ub"], has["ub"], torch.inf, torch.inf),
            sense=problem.sense,
            integer=None if problem.integer is None else problem.integer.nonzero()[:, 0],
        ).to(dtype=problem.dtype)

    def smoothed(self, curvature: Matrix | None) -> Problem:
        """The continuous relaxation with curvature added for z and none for the slacks.

        Args:
            curvature: (n,) for the diagonal, or (n, n) or (N, n, n), dense or sparse; None adds nothing.
        """
        if curvature is None:
            return self.problem.relaxed()
        if curvature.ndim == 1:
            return problem_with_curvature(self.problem.relaxed(), torch.cat([curvature, torch.zeros_like(self.price)]))
        return problem_with_curvature(self.problem.relaxed(), _pad_with_slacks(curvature, len(self.price)))

    @cached_property
    def violations(self) -> Problem:
        """The continuous relaxation without Q. With the prices as its only costs, it minimises the violation."""
        return self.problem.relaxed()._with(Q=None, _plans={})

    def cost(self, cost: Tensor, times: Tensor | None = None) -> Tensor:
        """The costs of all variables, (B, n + slacks), from the costs (B, n) of z; differentiable.

        ``times`` (B,) multiplies the prices of each sample.
        """
        price = self.plain.sign * self.price.to(cost).expand(len(cost), -1)
        return torch.cat([cost, price if times is None else times.to(cost)[:, None] * price], 1)

    def fields(self, sides: Mapping[str, Tensor], matrices: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
        """b and h of the elastic problem from b, h, lb and ub, (r,) or (B, r) each; differentiable.

        ``matrices`` are A and G with predicted coefficients, (B, r, n), by name; the result has those of the elastic
        problem, with the columns of the slacks and the rows of priced bounds.
        """
        at = self._at
        parts = [sides["h"], -sides["lb"][..., at["lb"]], sides["ub"][..., at["ub"]]]
        size = max((part.shape[:-1] for part in parts), key=len)
        h = torch.cat([part.expand(*size, part.shape[-1]) for part in parts], -1)
        found = {name: side for name, side in (("b", sides["b"]), ("h", h)) if side.shape[-1]}
        return found | {name: self._with_slacks(name, rows) for name, rows in (matrices or {}).items()}

    def _with_slacks(self, name: str, rows: Tensor) -> Tensor:
        """A or G of the elastic problem, (B, r', n + slacks), from rows (B, r, n)."""
        whole = getattr(self.problem, name).to(rows)
        tail = whole if whole.ndim == 2 else whole[0]  # slacks and bounds are the same for all samples
        count = rows.shape[-2]
        beside = tail[:count, self.n :].expand(len(rows), -1, -1)
        below = tail[count:].expand(len(rows), -1, -1)
        return torch.cat([torch.cat([rows, beside], -1), below], -2)

    def by_sides(self, by_b: Tensor, by_h: Tensor) -> dict[str, Tensor]:
        """Convert gradients with respect to b and h of the elastic problem to those with respect to b, h, lb and ub."""
        m, (low, high) = by_h.shape[1] - len(self._at["lb"]) - len(self._at["ub"]), (self._at[x] for x in ("lb", "ub"))
        lb, ub = (by_h.new_zeros(len(by_h), self.n) for _ in range(2))
        lb[:, low], ub[:, high] = -by_h[:, m : m + len(low)], by_h[:, m + len(low) :]
        return {"b": by_b, "h": by_h[:, :m], "lb": lb, "ub": ub}

    def split_rows(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split values of the rows of the elastic G into those of h, of lower bounds and of upper bounds (B, n)."""
        sides = self.by_sides(rows[:, :0], rows)
        return sides["h"], -sides["lb"], sides["ub"]

    def as_rows(self, rows: Tensor, bound: Tensor) -> Tensor:
        """Multipliers of the elastic G from those of G (B, m) and of the bounds (B, n), negative at lower bounds."""
        low, high = (-bound).clamp(min=0)[:, self._at["lb"]], bound.clamp(min=0)[:, self._at["ub"]]
        return torch.cat([rows, low, high], 1)

    def charge(self, x: Tensor) -> Tensor:
        """The total price of the violations in solutions x (B, n + slacks) of the elastic problem. Shape (B,)."""
        return (x[:, self.n :] * self.price).sum(1)

    def violation(self, z: Tensor, program: QuadraticProgram) -> Tensor:
        """The amount by which z (B, n) violates each priced row of an elastic program. Shape (B, slacks)."""
        x = torch.cat([z, z.new_zeros(len(z), len(self.price))], 1)
        short = (program.b - matvec(program.A, x))[:, self._at["b"]]
        over = (matvec(program.G, x) - program.h)[:, self._rows]
        return torch.cat([short.clamp(min=0), (-short).clamp(min=0), over.clamp(min=0)], 1)

    def slope(self, violated: Tensor, program: QuadraticProgram) -> Tensor:
        """The gradient with respect to z of the total price of violations. Shape (B, n).

        Args:
            violated: (B, slacks) bool, True where a priced row is violated.
            program: the elastic program.
        """
        weight, e = torch.where(violated, self.price, 0.0), len(self._at["b"])
        by_b = weight.new_zeros(len(weight), program.p)
        by_b[:, self._at["b"]] = weight[:, e : 2 * e] - weight[:, :e]
        by_h = weight.new_zeros(len(weight), program.m)
        by_h[:, self._rows] = weight[:, 2 * e :]
        return (tmatvec(program.A, by_b) + tmatvec(program.G, by_h))[:, : self.n]

    def _bound(self, own: Tensor, priced: Tensor, absent: float, slack: float) -> Tensor:
        kept = torch.where(priced, absent, own)
        return torch.cat([kept, kept.new_full((*kept.shape[:-1], len(self.price)), slack)], -1)


def _slack_columns(rows: int, slacks: int, at: Tensor, first: int, sign: float) -> sparse.csr_array:
    """A matrix (rows, slacks) with the entry ``sign`` in row ``at[i]`` and column ``first + i``, for every i."""
    where = (at.cpu().numpy(), first + torch.arange(len(at)).numpy())
    return sparse.csr_array((torch.full((len(at),), sign).double().numpy(), where), shape=(rows, slacks))


def _identity_rows(n: int, at: Tensor) -> sparse.csr_array:
    """The rows ``at`` of the identity matrix (n, n)."""
    return sparse.csr_array(sparse.eye_array(n, format="csr")[at.cpu().numpy()])


def _append_elastic(problem: Problem, matrix: Any, more: sparse.csr_array, axis: int) -> Any:
    """A matrix of the problem with the rows (axis −2) or columns (axis −1) ``more`` behind its own."""
    if problem.is_sparse:
        return (sparse.vstack if axis == -2 else sparse.hstack)([to_csr_matrix(matrix), more], format="csr")
    dense = torch.from_numpy(more.toarray()).to(problem.device)
    return torch.cat([matrix, dense.expand(*matrix.shape[:-2], *dense.shape)], axis)


def _pad_with_slacks(Q: Matrix | None, slacks: int) -> Any:
    """Q with additional zero rows and columns for the slacks; None stays None."""
    if Q is None:
        return None
    if Q.is_sparse:
        return sparse.block_diag([to_csr_matrix(Q), sparse.csr_array((slacks, slacks))], format="csr")
    return torch.nn.functional.pad(Q, (0, slacks, 0, slacks))
