"""``ElasticProblem``: a problem with slack variables on the rows that have a price for their violation."""

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
    """A problem with slack variables s ≥ 0, which measure how much a decision z violates rows and bounds with a price.

    The plain problem is the problem without slacks. Its objective, negated if it is maximised, is f. The elastic
    problem minimises ``f(z) + price·s``. No forecast of the priced rows makes it infeasible.

    A priced equality becomes ``Az + s⁻ − s⁺ = b``: s⁻ measures how much Az is too small, and s⁺ how much it is too
    large. A priced inequality becomes ``Gz − s ≤ h``. A priced bound becomes a row of G with a slack. The first n
    variables are z. The slacks follow in this order: s⁻ of the equalities, s⁺ of the equalities, then the slacks of the
    inequalities, of the lower bounds and of the upper bounds.

    Args:
        problem: the plain problem, without a smooth term.
        prices: the prices of violation, by name: (2, p) for b, with the prices of too little (Az < b) in the first row
            and those of too much in the second; (m,) for h; (n,) for lb and ub. Infinite for a row or bound that may
            not be violated.

    Attributes:
        problem: the elastic problem, with the integers of the plain problem.
        plain: the plain problem.
        price: (slacks,) the price of each slack, at least 0.
        n: the number of variables of the plain problem.
    """

    def __init__(self, problem: Problem, prices: Mapping[str, Tensor]) -> None:
        self.plain, self.n = problem, problem.n
        has = {name: price.isfinite() if name != "b" else price[0].isfinite() for name, price in prices.items()}
        self._at = at = {name: priced.nonzero()[:, 0] for name, priced in has.items()}  # the numbers of the priced rows
        self.price = torch.cat([*prices["b"][:, at["b"]], *(prices[name][at[name]] for name in ("h", "lb", "ub"))])
        own = constraint_sides(problem)
        m, bounds = own["h"].shape[-1], len(at["lb"]) + len(at["ub"])
        # rows of the elastic G that have a slack: the priced rows of G, and all rows made of bounds
        self._rows = torch.cat([at["h"], torch.arange(m, m + bounds, device=problem.device)])
        slacks, e = len(self.price), len(at["b"])
        too_little = _elastic_slack_columns(own["b"].shape[-1], slacks, at["b"], 0, 1.0)
        too_much = _elastic_slack_columns(own["b"].shape[-1], slacks, at["b"], e, -1.0)
        over = _elastic_slack_columns(m + bounds, slacks, self._rows, 2 * e, -1.0)
        eye = sparse.eye_array(self.n, format="csr")
        bound_rows = sparse.vstack([-eye[at["lb"].cpu().numpy()], eye[at["ub"].cpu().numpy()]]).tocsr()
        G = self.price.new_zeros(0, self.n) if problem.G is None else problem.G
        self.problem = Problem(
            Q=_pad_with_elastic_slacks(problem.Q, slacks),
            A=None if problem.A is None else _append_elastic(problem, problem.A, too_little + too_much, -1),
            b=problem.b,
            G=_append_elastic(problem, _append_elastic(problem, G, bound_rows, -2), over, -1) if m + bounds else None,
            h=self.fields(own)["h"] if m + bounds else None,
            **self.bounds(own),
            sense=problem.sense,
            integer=None if problem.integer is None else problem.integer.nonzero()[:, 0],
        ).to(dtype=problem.dtype)

    def smoothed(self, curvature: Matrix | None) -> Problem:
        """Return the continuous relaxation with additional curvature for z, but not for the slacks.

        Args:
            curvature: (n,) for the diagonal, or (n, n) or (N, n, n), dense or sparse; None adds no curvature.
        """
        if curvature is None:
            return self.problem.relaxed()
        if curvature.ndim == 1:
            return problem_with_curvature(self.problem.relaxed(), torch.cat([curvature, torch.zeros_like(self.price)]))
        return problem_with_curvature(self.problem.relaxed(), _pad_with_elastic_slacks(curvature, len(self.price)))

    @cached_property
    def violation_problem(self) -> Problem:
        """The continuous relaxation without Q. A solve with zero costs of z minimises the price of violations."""
        return self.problem.relaxed()._with(Q=None, _plans={})

    def cost(self, cost: Tensor, times: Tensor | None = None) -> Tensor:
        """Return the costs (B, n + slacks) of all variables of the elastic problem. Differentiable.

        Args:
            cost: (B, n) costs of z.
            times: (B,) factors that multiply the prices of each sample; None for 1.
        """
        price = self.plain.sign * self.price.to(cost).expand(len(cost), -1)
        return torch.cat([cost, price if times is None else times.to(cost)[:, None] * price], 1)

    def fields(self, sides: Mapping[str, Tensor], matrices: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
        """Convert fields of the plain problem to fields of the elastic problem. Differentiable.

        Args:
            sides: b, h, lb and ub of the plain problem, by name. Each may have a leading dimension B.
            matrices: those of A (B, p, n), G (B, m, n) and Q (B, n, n) of the plain problem that differ by sample, by
                name; None if there are none.

        Returns:
            The fields of the elastic problem, by name: b and h, unless they are empty, and each of ``matrices``. The
            matrices have additional columns for the slacks, G has additional rows for the priced bounds, and Q has
            additional rows for the slacks.
        """
        at = self._at
        parts = [sides["h"], -sides["lb"][..., at["lb"]], sides["ub"][..., at["ub"]]]
        size = max((part.shape[:-1] for part in parts), key=len)
        h = torch.cat([part.expand(*size, part.shape[-1]) for part in parts], -1)
        found = {name: side for name, side in (("b", sides["b"]), ("h", h)) if side.shape[-1]}
        return found | {name: self._with_slacks(name, rows) for name, rows in (matrices or {}).items()}

    def bounds(self, sides: Mapping[str, Tensor]) -> dict[str, Any]:
        """Convert bounds of the plain problem to bounds of the elastic problem's variables. Differentiable.

        Bounds with a price are no bounds of the elastic problem, but rows of its G.

        Args:
            sides: those of lb and ub of the plain problem that are to be converted, by name, (n,) or (N, n) each. Other
                names are ignored.

        Returns:
            The bounds by name, (n + slacks,) or (N, n + slacks) each.
        """
        found = {}
        for name, absent, slack in (("lb", -torch.inf, 0.0), ("ub", torch.inf, torch.inf)):
            if name in sides:
                own, at = sides[name], self._at[name].to(sides[name].device)
                kept = own.index_fill(-1, at, absent)
                found[name] = torch.cat([kept, kept.new_full((*kept.shape[:-1], len(self.price)), slack)], -1)
        return found

    def _with_slacks(self, name: str, rows: Tensor) -> Tensor:
        """Extend the r rows (B, r, n) of A, G or Q to the r' ≥ r rows (B, r', n + slacks) of the elastic problem."""
        if name == "Q":
            return _pad_with_elastic_slacks(rows, len(self.price))
        whole = getattr(self.problem, name).to(rows)
        tail = whole if whole.ndim == 2 else whole[0]  # slacks and bounds are the same for all samples
        count = rows.shape[-2]
        beside = tail[:count, self.n :].expand(len(rows), -1, -1)
        below = tail[count:].expand(len(rows), -1, -1)
        return torch.cat([torch.cat([rows, beside], -1), below], -2)

    def by_sides(self, by_b: Tensor, by_h: Tensor) -> dict[str, Tensor]:
        """Convert gradients with respect to b and h of the elastic problem to gradients for the plain problem.

        Args:
            by_b: (B, p) gradient with respect to b.
            by_h: (B, m') gradient with respect to the m' entries of h of the elastic problem.

        Returns:
            The gradients with respect to b (B, p), h (B, m), lb (B, n) and ub (B, n) of the plain problem, by name.
            They are 0 for bounds without a price, which are no rows of the elastic problem.
        """
        m, (low, high) = by_h.shape[1] - len(self._at["lb"]) - len(self._at["ub"]), (self._at[x] for x in ("lb", "ub"))
        lb, ub = (by_h.new_zeros(len(by_h), self.n) for _ in range(2))
        lb[:, low], ub[:, high] = -by_h[:, m : m + len(low)], by_h[:, m + len(low) :]
        return {"b": by_b, "h": by_h[:, :m], "lb": lb, "ub": ub}

    def split_rows(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split values (B, m') of the m' rows of G of the elastic problem, some of which stand for bounds.

        Returns:
            The values (B, m) of the rows of G of the plain problem, those (B, n) of the lower bounds, and those (B, n)
            of the upper bounds. Bounds without a price have the value 0.
        """
        sides = self.by_sides(rows[:, :0], rows)
        return sides["h"], -sides["lb"], sides["ub"]

    def as_rows(self, rows: Tensor, bound: Tensor) -> Tensor:
        """Convert multipliers of the plain problem to multipliers (B, m') of the m' rows of the elastic problem's G.

        Args:
            rows: (B, m) multipliers of G.
            bound: (B, n) multipliers of the bounds, negative at lower bounds and positive at upper bounds.
        """
        low, high = (-bound).clamp(min=0)[:, self._at["lb"]], bound.clamp(min=0)[:, self._at["ub"]]
        return torch.cat([rows, low, high], 1)

    def charge(self, x: Tensor) -> Tensor:
        """Compute the total price (B,) of the violations in solutions x (B, n + slacks) of the elastic problem."""
        return (x[:, self.n :] * self.price).sum(1)

    def violation(self, z: Tensor, program: QuadraticProgram) -> Tensor:
        """Compute how much decisions violate each priced row and bound.

        Args:
            z: (B, n) decisions of the plain problem.
            program: the elastic problem as a program.

        Returns:
            (B, slacks), the least slacks that make the decisions feasible.
        """
        x = torch.cat([z, z.new_zeros(len(z), len(self.price))], 1)
        short = (program.b - matvec(program.A, x))[:, self._at["b"]]
        over = (matvec(program.G, x) - program.h)[:, self._rows]
        return torch.cat([short.clamp(min=0), (-short).clamp(min=0), over.clamp(min=0)], 1)

    def slope(self, violated: Tensor, program: QuadraticProgram) -> Tensor:
        """Compute the gradient (B, n) of the total price of violations with respect to z.

        Args:
            violated: (B, slacks) bool, True for the slacks of violated rows.
            program: the elastic problem as a program.
        """
        weight, e = torch.where(violated, self.price, 0.0), len(self._at["b"])
        by_b = weight.new_zeros(len(weight), program.p)
        by_b[:, self._at["b"]] = weight[:, e : 2 * e] - weight[:, :e]
        by_h = weight.new_zeros(len(weight), program.m)
        by_h[:, self._rows] = weight[:, 2 * e :]
        return (tmatvec(program.A, by_b) + tmatvec(program.G, by_h))[:, : self.n]


def _elastic_slack_columns(rows: int, slacks: int, at: Tensor, first: int, sign: float) -> sparse.csr_array:
    """Return a matrix (rows, slacks) with the entry ``sign`` in row ``at[i]`` and column ``first + i``, for every i."""
    places = (at.cpu().numpy(), first + torch.arange(len(at)).numpy())
    return sparse.csr_array((torch.full((len(at),), sign).double().numpy(), places), shape=(rows, slacks))


def _append_elastic(problem: Problem, matrix: Any, more: sparse.csr_array, axis: int) -> Any:
    """Return a matrix of the problem with the additional rows (axis −2) or columns (axis −1) ``more``."""
    if problem.is_sparse:
        return (sparse.vstack if axis == -2 else sparse.hstack)([to_csr_matrix(matrix), more], format="csr")
    dense = torch.from_numpy(more.toarray()).to(problem.device)
    return torch.cat([matrix, dense.expand(*matrix.shape[:-2], *dense.shape)], axis)


def _pad_with_elastic_slacks(Q: Any, slacks: int) -> Any:
    """Return Q with additional zero rows and columns for the slacks; None stays None."""
    if Q is None:
        return None
    if Q.is_sparse:
        return sparse.block_diag([to_csr_matrix(Q), sparse.csr_array((slacks, slacks))], format="csr")
    return torch.nn.functional.pad(Q, (0, slacks, 0, slacks))
