"""``RealisedCost``: the part of a model's objective that belongs to the periods that are carried out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Penalty
from pear.problem.constraint_map import constraint_sides
from pear.problem.matrix import to_csr_matrix
from pear.rolling.timeline import BEFORE, Timeline
from pear.wording import list_names


class RealisedCost:
    """The realised cost of the first periods of a plan: the objective of the model at the true values.

    A term of the objective belongs to the latest period among its variables. If ``level[0]`` is the initial state,
    ``(level[1] − level[0])²`` therefore belongs to period 0. Three kinds of terms are left out: those that contain only
    the initial state, which belong to an earlier plan; those of periods that are not carried out; and the constant of
    the objective. If right-hand sides or bounds are predicted, a plan may violate the true ones. Each unit of such a
    violation costs the price in the model's ``Penalty``, if the last period of the constraint is carried out.

    Args:
        timeline: the periods of the model.
        step: the number of periods that are carried out.

    Raises:
        ProblemError: a variable has a cost but no period, or the model has a smooth term, or it predicts right-hand
            sides without a ``Penalty``.
    """

    def __init__(self, timeline: Timeline, step: int) -> None:
        self.model = timeline.model
        problem, periods = self.model.problem, timeline.periods
        if problem.phi is not None:
            raise ProblemError(
                "the smooth term of the model belongs to no period; pass cost=, what the steps done cost"
            )
        self.done = ((periods >= 0) & (periods < step)).nonzero()[:, 0]
        before = (periods == BEFORE).nonzero()[:, 0]
        self.touched = torch.cat([self.done, before])
        self._paid_before = torch.zeros(len(self.touched), len(self.touched), dtype=torch.bool)
        self._paid_before[len(self.done) :, len(self.done) :] = True
        self._check_unplaced(timeline)
        self._rows = {name: (last >= 0) & (last < step) for name, last in timeline.row_periods.items()}
        self._bounds = (periods >= 0) & (periods < step)
        self._prices = self._read_prices()

    def __call__(self, z: Tensor, cost: Tensor, fields: Mapping[str, Tensor]) -> Tensor:
        """Return the realised cost (B,), or the profit if the model maximises, differentiably.

        Args:
            z: (B, n) plans.
            cost: (B, n) true costs.
            fields: the fields of the problem that differ by sample, by name, at the true values.
        """
        done, touched = self.done.to(z.device), self.touched.to(z.device)
        paid = (z[:, done] * cost[:, done]).sum(1)
        Q = fields.get("Q", self.model.problem.Q)
        if Q is not None:
            part = self._part_of(Q, touched).to(z)
            part = part.masked_fill(self._paid_before.to(z.device), 0.0)
            own = z[:, touched]
            paid = paid + 0.5 * (own * (part @ own[:, :, None])[:, :, 0]).sum(1)
        return paid + self.model.problem.sign * self._violations(z, fields)

    def _part_of(self, Q: Tensor, columns: Tensor) -> Tensor:
        """Return the rows and columns ``columns`` (q,) of Q as a dense tensor, (q, q) or (B, q, q)."""
        if Q.is_sparse:
            at = columns.cpu().numpy()
            return torch.from_numpy(to_csr_matrix(Q)[at][:, at].toarray())
        return Q.to(columns.device)[..., columns[:, None], columns]

    def _violations(self, z: Tensor, fields: Mapping[str, Tensor]) -> Tensor:
        """Return the cost (B,) of violated rows and bounds of the periods that are carried out.

        Args:
            z: (B, n) plans.
            fields: as for ``__call__``.
        """
        total, own = torch.zeros_like(z[:, 0]), constraint_sides(self.model.problem)
        for name, price in self._prices.items():
            side = fields.get(name, own[name].to(z))
            if name in ("b", "h"):
                matrix = "A" if name == "b" else "G"
                rows = fields.get(matrix, getattr(self.model.problem, matrix)).to(z)
                over = (rows @ z[:, :, None])[:, :, 0] - side
            else:
                over = side - z if name == "lb" else z - side
            little, much = price.to(z) if name == "b" else (None, price.to(z))
            over = torch.where(torch.isfinite(over), over, 0.0)
            total = total + (over.clamp(min=0) * much).sum(1)
            total = total if little is None else total + ((-over).clamp(min=0) * little).sum(1)
        return total

    def _read_prices(self) -> dict[str, Tensor]:
        """Return the prices of violations for each of b, h, lb and ub of which a constraint has a price.

        The constraint need not be predicted. A price is zero for constraints of periods that are not carried out, and
        for constraints without a finite price.
        """
        model = self.model
        if model.constraint_map is None:
            return {}
        if not isinstance(model.recourse, Penalty):
            raise ProblemError(
                "the model predicts right-hand sides, and what their violation costs in the steps done is known of a "
                "pear.Penalty alone; pass recourse=pear.Penalty(…), or cost=, what the steps done cost"
            )
        prices, found = model.recourse.prices(model.problem, model.constraint_map), {}
        for name, price in prices.items():
            if not bool(price.isfinite().any()):
                continue
            mine = self._rows["A"] if name == "b" else self._rows["G"] if name == "h" else self._bounds
            found[name] = torch.where(mine & price.isfinite(), price, 0.0)
        return found

    def _check_unplaced(self, timeline: Timeline) -> None:
        """Raise ProblemError if a variable without a period has a cost."""
        model, problem = self.model, self.model.problem
        costly = model.known.reshape(-1, problem.n).abs().sum(0) > 0
        if model.cost_map is None:
            costly |= True
        elif model.cost_map.M is not None:
            costly |= torch.from_numpy(abs(to_csr_matrix(model.cost_map.M)).sum(1) > 0)
        if problem.Q is not None:
            Q = problem.Q if problem.Q.ndim == 2 else problem.Q.abs().sum(0)
            costly |= torch.from_numpy(abs(to_csr_matrix(Q)).sum(1) > 0)
        stray = (costly & (timeline.periods == timeline.horizon)).nonzero()[:, 0].tolist()
        if stray:
            raise ProblemError(
                f"{list_names([model.variables[j] for j in stray])} has a cost and no period; name variables by "
                "period, charge[0], charge[1], …, or pass cost=, a function that says what the steps done cost"
            )
