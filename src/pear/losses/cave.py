"""``CaVELoss``: the angle between the predicted costs and the costs for which the true best decision is optimal."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.cosine import cosine_distance
from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss, DrawSettings
from pear.optimality.rule import TIGHT
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.problem.oracle import program_of_oracle
from pear.problem.sample_keys import select_by_keys
from pear.setting_checks import check_share_setting


class CaVELoss(DrawingLoss):
    """Cone-aligned vector estimation (Tang and Khalil, 2024): ``ℓ = u (1 − cos(−ĉ, p))``.

    ĉ and c are the predicted and the true costs, u is the unit of the costs, and cos is the cosine of the angle between
    two vectors. z*(c) is the best decision under c. The cone at z*(c) consists of all non-negative combinations of the
    normals of the constraints that are active there. p is the projection of −ĉ on this cone. If the cone contains −ĉ,
    then z*(c) is optimal in the relaxation under ĉ, and the loss is zero. The projection is exact: ``p = −ĉ − d``,
    where d is the projection of −ĉ on the feasible directions at z*(c), the solution of a verified QP. For maximisation
    every cost changes its sign. The best decision of a sample with an id is computed once. A training step solves one
    continuous QP per sample, also for an integer problem.

    With ``inner_ratio`` r > 0, the loss compares −ĉ with ``(1 − r) p/‖p‖ + r a`` instead of p. Here a is the mean of
    the unit normals of the active constraints. This point inside the cone replaces the inexact projection of CaVE+,
    whose solver is stopped early. With ``solve_ratio`` below 1, some batches use −ĉ in place of p and solve nothing
    (CaVE Hybrid).

    Args:
        problem: the decision problem, dense, with a linear objective; an ``Oracle`` must have a relaxation.
        inner_ratio: r, from 0 (p itself) to 1.
        solve_ratio: the probability that a batch is projected.
        decide, seed, mse_weight, cost_unit: as for ``DrawingLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import CaVELoss
        >>> loss = CaVELoss(pear.Problem(lb=0.0, ub=1.0, n=2), cost_unit=1.0)
        >>> value = loss(torch.tensor([[3.0, 4.0]]), torch.tensor([[-1.0, 2.0]]))  # the first cost has the wrong sign
        >>> round(value.item(), 6)
        0.2
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        inner_ratio: float = 0.0,
        solve_ratio: float = 1.0,
        **shared: Unpack[DrawSettings],
    ) -> None:
        super().__init__(problem, decide, **shared)
        if problem_of_model(program_of_oracle(self.problem, "CaVE")).is_sparse:
            raise ProblemError("CaVE takes dense problems; this one is sparse: use PEAR")
        self.inner_ratio = check_share_setting("inner_ratio", inner_ratio)
        self.solve_ratio = check_share_setting("solve_ratio", solve_ratio)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss of each sample, (B,).

        The gradient treats p as a constant. It is still exact by the envelope theorem, because p has the smallest angle
        to −ĉ in the cone. With ``inner_ratio`` the point inside the cone is treated as a constant, too.
        """
        best = self.best(true.double(), ids)
        ascent = -self.problem.sign * predicted
        with self.timed("solve"):
            program = problem_of_model(program_of_oracle(select_by_keys(self.problem, ids), "CaVE")).relaxed()
            cone = _CaveCone.at(program, best)
            solves = self.solve_ratio == 1 or self.draws.generator.uniform() < self.solve_ratio
            inside = ascent.detach().double()
            inside = cone.project(inside) if solves else inside
            if self.inner_ratio:
                norm = inside.norm(dim=1, keepdim=True)
                unit = inside / norm.where(norm > 0, norm.new_ones(()))
                inside = (1 - self.inner_ratio) * unit + self.inner_ratio * cone.mean_normal()
        with self.timed("gradient"):
            return self.settle_unit(true) * cosine_distance(ascent, inside.to(ascent))


class _CaveCone(NamedTuple):
    """The normal cones at points of ``{Az = b, Gz ≤ h, lb ≤ z ≤ ub}``, given by the constraints active there.

    Attributes:
        program: the problem, dense.
        tight: (B, m) bool, which rows of G are active; None if the problem has no G.
        low: (B, n) bool, which lower bounds are active.
        high: (B, n) bool, which upper bounds are active.
    """

    program: Problem
    tight: Tensor | None
    low: Tensor
    high: Tensor

    @classmethod
    def at(cls, program: Problem, points: Tensor) -> _CaveCone:
        """Return the normal cones at exact solutions (B, n).

        A constraint is active if its slack, relative to the size of the point and of the row, is at most ``TIGHT``.
        """
        z = points.to(program.device)
        scale = z.abs().amax(1, keepdim=True).clamp_min(1.0)
        none = torch.zeros_like(z, dtype=torch.bool)
        low = none if program.lb is None else z - program.lb <= TIGHT * scale
        high = none if program.ub is None else program.ub - z <= TIGHT * scale
        if program.G is None or program.h is None:
            return cls(program, None, low, high)
        sizes = program.G.abs().sum(-1)
        slack = program.h - (program.G @ z[..., None])[..., 0]
        return cls(program, slack <= TIGHT * scale * sizes, low, high)

    def project(self, vectors: Tensor) -> Tensor:
        """Project vectors (B, n) on the cones.

        A projection is the vector minus its projection on the feasible directions.
        """
        program, inf = self.program, torch.inf
        fields: dict[str, Any] = {"lb": torch.where(self.low, 0.0, -inf), "ub": torch.where(self.high, 0.0, inf)}
        if program.A is not None and program.b is not None:
            fields |= {"A": program.A, "b": torch.zeros_like(program.b)}
        if program.G is not None and self.tight is not None:
            fields |= {"G": program.G, "h": torch.where(self.tight, 0.0, inf)}
        directions = Problem(Q=torch.eye(program.n, dtype=torch.float64, device=program.device), **fields)
        return vectors - solve(directions, -vectors).x.to(vectors)

    def mean_normal(self) -> Tensor:
        """Compute the mean (B, n) of the unit normals of the active constraints.

        An equation counts as two constraints, whose normals cancel.
        """
        program = self.program
        total = self.high.double() - self.low.double()
        count = self.high.sum(1) + self.low.sum(1)
        if program.A is not None:
            count = count + 2 * program.A.shape[-2]
        if program.G is not None and self.tight is not None:
            sizes = program.G.norm(dim=-1, keepdim=True)
            units = program.G / sizes.where(sizes > 0, sizes.new_ones(()))
            total = total + (self.tight.to(units)[:, None] @ units)[:, 0]
            count = count + self.tight.sum(1)
        return total / count.clamp_min(1)[:, None]
