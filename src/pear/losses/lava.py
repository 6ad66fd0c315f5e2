"""``LAVALoss``: compares the best vertex with its adjacent vertices under the predicted costs."""

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
"""A function from vertices (B, n) to B tensors (k, n), the vertices adjacent to each. It may have an argument
``keys``."""

_DIGITS = 9  # decimals in which two solutions agree if they are the same vertex


class LAVALoss(DecisionLoss):
    """The mean of ``ĉᵀ(z*(c) − v)`` over the vertices v adjacent to z*(c); terms below τu count as zero.

    ĉ and c are the predicted and the true costs, and z*(c) is the best vertex of the relaxation under c. If no adjacent
    vertex is cheaper, z*(c) is optimal under ĉ. Let k be the largest number of adjacent vertices of a sample in the
    batch. The loss of a sample is the sum of its terms divided by k, and the loss of the batch is the mean over the
    samples. For maximisation every cost changes its sign. Adjacent vertices are stored for all samples, best vertices
    for samples with ids. If all samples have ids, nothing is solved after the first epoch.

    Args:
        problem: the decision problem; an integer problem is relaxed.
        decide: maps costs (B, n) to best vertices (B, n) of the relaxation; ``pear.solve`` if omitted.
        adjacent: maps vertices (B, n) to a list of B tensors (k, n), the vertices adjacent to each; computed if
            omitted.
        threshold: τ ≤ 0. An adjacent vertex that is more expensive than z*(c) by more than −τu adds nothing.
        cost_unit: u, as for ``DecisionLoss``.

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
        self._away: dict[tuple[Hashable, bytes], _LavaDifferences] = {}
        self._away_in = self.problem

    def values(self, predicted: Tensor, true: Tensor, ids: list[Hashable] | None) -> Tensor:
        """Compute the loss of each sample, (B,): the sum of its terms, divided by the k that the class defines."""
        # in float64: a vertex rounded to float32 violates the constraints that meet in it
        away = self._differences(self.best(true.double(), ids), ids)
        with self.timed("gradient"):
            counts = torch.tensor([one.vectors for one in away])
            sample = torch.arange(len(away)).repeat_interleave(counts).to(predicted.device)
            sums = predicted.new_zeros(len(away)).index_add(0, sample, self._dearer(away, predicted, true))
            return sums / max(int(counts.max()), 1)

    def _dearer(self, away: list[_LavaDifferences], predicted: Tensor, true: Tensor) -> Tensor:
        """Return how much more z*(c) costs than each adjacent vertex under the forecast; 0 for values below τu.

        The result has one dimension, with the adjacent vertices of the first sample, then those of the second, and so
        on. It is not padded, because a degenerate vertex may have thousands of neighbours and another one a hundred.
        """
        ends = torch.tensor([one.vectors for one in away]).cumsum(0).tolist()
        row = torch.cat([one.row + end - one.vectors for one, end in zip(away, ends, strict=True)])
        place = torch.cat([one.column + i * predicted.shape[1] for i, one in enumerate(away)])
        products = torch.cat([one.value for one in away]).to(predicted) * predicted.flatten().index_select(0, place)
        dearer = self.problem.sign * predicted.new_zeros(ends[-1]).index_add(0, row, products)
        return torch.where(dearer >= self.threshold * self.settle_unit(true), dearer, 0.0)

    def _differences(self, best: Tensor, ids: list[Hashable] | None) -> list[_LavaDifferences]:
        """Return the differences between each sample's best vertex (B, n) and its adjacent vertices."""
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
                    self._away[name] = _LavaDifferences.of(z - neighbours.detach().to(z).reshape(-1, len(z)))
        return [self._away[name] for name in names]


class _LavaDifferences(NamedTuple):
    """A sparse (k, n) matrix, whose rows are the differences between a vertex and its k adjacent vertices.

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
    def of(cls, rows: Tensor) -> _LavaDifferences:
        """Make the sparse matrix from a dense one (k, n)."""
        row, column = rows.nonzero(as_tuple=True)
        return cls(len(rows), row, column, rows[row, column])
