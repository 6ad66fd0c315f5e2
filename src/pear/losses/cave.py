"""``CaVELoss``: the angle between predicted costs and all costs that have the same best decision as the true ones."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from pear.decisions.solve import solve
from pear.errors import ProblemError
from pear.losses.cosine import cosine_distance
from pear.losses.decision_loss import Decide
from pear.losses.random_draws import DrawingLoss
from pear.optimality.rule import TIGHT
from pear.problem import Model, Problem
from pear.problem.model import problem_of_model
from pear.problem.oracle import program_of_oracle
from pear.problem.sample_keys import select_by_keys
from pear.setting_checks import check_share_setting


class CaVELoss(DrawingLoss):
    """``ℓ = u (1 − cos(−ĉ, p))``, where p is the projection of −ĉ on the cone of the constraints active at z*(c).

    Where −ĉ lies in the cone of the active constraints' normals, z*(c) is optimal in the relaxation under ĉ, and the
    loss is zero (cone-aligned vector estimation; Tang and Khalil, 2024). The projection is exact: −ĉ is split into p
    and its projection d on the feasible directions at z*(c), which a verified QP finds. For maximisation every cost
    changes its sign. Best decisions are found once, and a step solves one QP per sample, however hard the integers are.

    ``inner_ratio`` moves p into the cone, towards the mean of the unit normals; it stands for the projection that is
    stopped early (CaVE+). With ``solve_ratio`` below 1, other batches take −ĉ instead of p, moved in the same way,
    and solve nothing (CaVE Hybrid).

    Args:
        problem: the decision problem, with a linear objective and constraints; those of an ``Oracle`` are its
            relaxation's.
        decide: maps costs (B, n) to best decisions (B, n); ``pear.solve`` on ``problem`` if omitted.
        inner_ratio: from 0, the exact projection, to below 1.
        solve_ratio: the probability that a batch is projected.
        seed: the seed of the loss's own ``numpy.random.RandomState``, whose state is part of ``state_dict()``.
        mse_weight: weight of ``½ ‖ĉ − c‖² / u``, mean over the samples, added to the loss.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

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
        seed: int = 135,
        mse_weight: float = 0.0,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem, decide, seed, mse_weight, cost_unit)
        if problem_of_model(program_of_oracle(self.problem, "CaVE")).is_sparse:
            raise ProblemError("CaVE takes dense problems; this one is sparse: use PEAR")
        self.inner_ratio = check_share_setting("inner_ratio", inner_ratio)
        self.solve_ratio = check_share_setting("solve_ratio", solve_ratio)

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the distance of each sample with its projection held fixed, which has the same derivative."""
        best = self.best(true.double(), ids)
        ascent = -self.problem.sign * predicted
        with self.timed("solve"):
            program = problem_of_model(program_of_oracle(select_by_keys(self.problem, ids), "CaVE")).relaxed()
            cone = _Cone.at(program, best)
            solves = self.solve_ratio == 1 or self.draws.generator.uniform() < self.solve_ratio
            inside = ascent.detach().double()
            inside = cone.project(inside) if solves else inside
            if self.inner_ratio:
                norm = inside.norm(dim=1, keepdim=True)
                unit = inside / norm.where(norm > 0, norm.new_ones(()))
                inside = (1 - self.inner_ratio) * unit + self.inner_ratio * cone.mean_normal()
        with self.timed("gradient"):
            return self.settle_unit(true) * cosine_distance(ascent, inside.to(ascent))


class _Cone(NamedTuple):
    """The normal cones at points of ``{Az = b, Gz ≤ h, lb ≤ z ≤ ub}``.

    Attributes:
        program: the problem, dense.
        tight: (B, m) which rows of G are active; None where there are none.
        low: (B, n) which lower bounds are active.
        high: (B, n) which upper bounds are active.
    """

    program: Problem
    tight: Tensor | None
    low: Tensor
    high: Tensor

    @classmethod
    def at(cls, program: Problem, points: Tensor) -> _Cone:
        """Find the constraints that are active at points (B, n), by the slack of an exact solution."""
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

    def project(self, rows: Tensor) -> Tensor:
        """Project rows (B, n) on the cones: what remains without their projections on the feasible directions."""
        program, inf = self.program, torch.inf
        fields: dict[str, Any] = {"lb": torch.where(self.low, 0.0, -inf), "ub": torch.where(self.high, 0.0, inf)}
        if program.A is not None and program.b is not None:
            fields |= {"A": program.A, "b": torch.zeros_like(program.b)}
        if program.G is not None and self.tight is not None:
            fields |= {"G": program.G, "h": torch.where(self.tight, 0.0, inf)}
        directions = Problem(Q=torch.eye(program.n, dtype=torch.float64, device=program.device), **fields)
        return rows - solve(directions, -rows).x.to(rows)

    def mean_normal(self) -> Tensor:
        """The mean (B, n) of the unit normals of active constraints; an equation has two, which cancel."""
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
