"""``LAVALoss``: a loss that asks the best vertex to be cheaper than its neighbours under the predicted cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pear.losses.adjacent_vertices import adjacent_vertices_in_problem
from pear.losses.decision_loss import Decide, DecisionLoss
from pear.problem import Model, Problem
from pear.problem.oracle import make_oracle
from pear.problem.sample_keys import call_with_keys, select_by_keys
from pear.setting_checks import check_number_setting

Adjacent = Callable[..., list[Tensor]]
"""A function from vertices (B, n) to B tensors (k, n), the neighbours of each vertex; it may take ``keys``."""

_DIGITS = 9  # decimals to which two solutions must agree to count as the same vertex


class LAVALoss(DecisionLoss):
    """The mean of ``ĉᵀ(z*(c) − v)`` over the vertices v adjacent to z*(c), counted as zero where it is below τu.

    Where no neighbour is cheaper, z*(c) is optimal under ĉ. The mean runs over an array (B, k), where k is the largest
    number of neighbours in the batch; missing entries are zero. For maximisation every cost changes its sign.
    Nothing is solved after the first epoch, because best vertices and their neighbours are stored.

    Args:
        problem: the decision problem; an integer problem is relaxed.
        decide: maps costs (B, n) to best vertices (B, n) of the relaxation; ``pear.solve`` if omitted.
        adjacent: maps vertices (B, n) to a list of B tensors (k, n) of their neighbours; computed if omitted.
        threshold: τ ≤ 0. A neighbour that is more expensive than z*(c) by more than −τu adds nothing.
        cost_unit: u, the unit of the costs; "auto" is their typical deviation, see ``DecisionLoss``.

    Example:
        >>> import torch, pear
        >>> from pear.losses import LAVALoss
        >>> corners = torch.eye(3)
        >>> loss = LAVALoss(
        ...     pear.Problem(A=[[1.0, 1.0, 1.0]], b=[1.0], lb=0.0),
        ...     adjacent=lambda z: [corners[row == 0] for row in z],
        ... )
        >>> predicted = torch.tensor([[2.0, 1.0, 5.0]], requires_grad=True)
        >>> value = loss(predicted, torch.tensor([[1.0, 3.0, 3.0]]))
        >>> value.backward()
        >>> value.item(), predicted.grad
        (0.5, tensor([[ 0.5000, -0.5000,  0.0000]]))
    """

    def __init__(
        self,
        problem: Problem | Model,
        decide: Decide | None = None,
        adjacent: Adjacent | None = None,
        threshold: float = -0.1,
        cost_unit: float | Literal["auto"] = "auto",
    ) -> None:
        super().__init__(problem.relaxed(), decide, cost_unit=cost_unit)
        self.given = problem if decide is None else make_oracle(problem, decide)  # with its integers, for the metric
        self.threshold = check_number_setting("threshold", threshold)
        self._adjacent = adjacent
        self._away: dict[tuple[Hashable, bytes], _Differences] = {}
        self._away_in = self.problem

    def value(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the mean over the padded array (B, k)."""
        # in float64: a vertex rounded to float32 violates the constraints that meet in it
        away = self._differences(self.best(true.double(), ids), ids)
        with self.timed("gradient"):
            slots = len(away) * max(one.vectors for one in away)
            return 0.0 * predicted.sum() if slots == 0 else self._dearer(away, predicted, true).sum() / slots

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the mean of each row of the padded array (B, k)."""
        away = self._differences(self.best(true.double(), ids), ids)
        with self.timed("gradient"):
            counts = torch.tensor([one.vectors for one in away], device=predicted.device)
            sample = torch.arange(len(away), device=predicted.device).repeat_interleave(counts)
            sums = predicted.new_zeros(len(away)).index_add(0, sample, self._dearer(away, predicted, true))
            return sums / max(int(counts.max()), 1)

    def _dearer(self, away: list[_Differences], predicted: Tensor, true: Tensor) -> Tensor:
        """Return by how much z*(c) costs more than each neighbour of each sample, zero below the threshold."""
        dearer = self.problem.sign * _multiply_by_costs(away, predicted)
        return torch.where(dearer >= self.threshold * self.settle_unit(true), dearer, 0.0)

    def _differences(self, best: Tensor, ids: list[Hashable] | None) -> list[_Differences]:
        """Return the differences z*(c) − v to the neighbours v of each sample's best vertex."""
        if self._away_in is not self.problem:  # the user has assigned another problem
            self._away, self._away_in = {}, self.problem
        # Adding 0.0 turns −0.0 into 0.0.
        rounded = (best.double().cpu() * 10**_DIGITS).round() + 0.0
        # A vertex has the same neighbours in every sample, unless samples have constraints of their own.
        if self.problem.batch is not None and ids is None:
            ids = list(range(len(best)))
        own = [None] * len(best) if self.problem.batch is None or ids is None else ids
        names = [(key, row.tobytes()) for key, row in zip(own, rounded.numpy(), strict=True)]
        new = {name: i for i, name in enumerate(names) if name not in self._away}
        if new:
            with self.timed("solve"):
                rows = list(new.values())
                vertices, keys = best[rows], None if ids is None else [ids[i] for i in rows]
                if self._adjacent is None:
                    found = adjacent_vertices_in_problem(select_by_keys(self.problem, keys), vertices)
                else:
                    found = call_with_keys(self._adjacent, vertices, keys)
                for name, z, neighbours in zip(new, vertices, found, strict=True):
                    self._away[name] = _Differences.of(z - neighbours.detach().to(z).reshape(-1, len(z)))
        return [self._away[name] for name in names]


class _Differences(NamedTuple):
    """A sparse (k, n) matrix, whose rows are the differences of a vertex to its k neighbours.

    Attributes:
        vectors: the number k of rows.
        row: the row of each non-zero entry.
        column: the column of each non-zero entry.
        value: the value of each non-zero entry.
    """

    vectors: int
    row: Tensor
    column: Tensor
    value: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> _Differences:
        """Make the sparse matrix from a dense one (k, n)."""
        row, column = rows.nonzero(as_tuple=True)
        return cls(len(rows), row, column, rows[row, column])


def _multiply_by_costs(away: list[_Differences], cost: Tensor) -> Tensor:
    """Multiply each sample's differences by its cost (B, n); returns one tensor with all products of all samples.

    There is no padding, because a degenerate vertex may have thousands of neighbours and the others a hundred.
    """
    ends = torch.tensor([one.vectors for one in away]).cumsum(0).tolist()
    row = torch.cat([one.row + end - one.vectors for one, end in zip(away, ends, strict=True)])
    place = torch.cat([one.column + i * cost.shape[1] for i, one in enumerate(away)])
    value = torch.cat([one.value for one in away]).to(cost)
    return cost.new_zeros(ends[-1]).index_add(0, row, value * cost.flatten().index_select(0, place))
