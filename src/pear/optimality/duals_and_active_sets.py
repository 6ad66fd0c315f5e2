"""The status, the multipliers and the active sets of a batch of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor


class Status(IntEnum):
    """The outcome of one sample. ``sentence`` explains it and says what to do."""

    SOLVED = 0
    INACCURATE = 1
    INFEASIBLE = 2
    UNBOUNDED = 3
    NOT_FINITE = 4
    NOT_CONVEX = 5
    TIME_LIMIT = 6
    CLAIMED = 7
    REJECTED = 8

    @property
    def sentence(self) -> str:
        """An explanation of the status, with advice."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.SOLVED: "solved: the optimality conditions hold to tolerance",
    Status.INACCURATE: "no verified solution was found; try another solver or rescale the problem",
    Status.INFEASIBLE: "no point satisfies the constraints; check b, h and the bounds of this sample",
    Status.UNBOUNDED: "the objective falls without end; add bounds, curvature (Q) or smoothing",
    Status.NOT_FINITE: "the data of this sample holds NaN, infinity or a number beyond 1e150; check the predictor and "
    "its inputs",
    Status.NOT_CONVEX: "the curvature given for this sample is indefinite; predict it as LLᵀ, or shift its eigenvalues",
    Status.TIME_LIMIT: "time was up before a best point was proven; raise time_limit, or take the best point so far, "
    "which on_failure='mask' returns with its gap",
    Status.CLAIMED: "decided by an oracle: the decision passed its checks, and that it is the best one is the oracle's "
    "word",
    Status.REJECTED: "what the oracle returned is no decision: its numbers are not finite, or its check refuses it",
}


def has_decision(status: Tensor) -> Tensor:
    """Whether samples (B,) have a decision, proven by optimality conditions or claimed by an oracle; (B,) bool."""
    return (status == Status.SOLVED) | (status == Status.CLAIMED)


class TensorRecord:
    """Base class of dataclasses whose tensors share their first dimension.

    Its methods select, overwrite, join and move the rows of all tensors together.
    """

    def __getitem__(self, index: Any) -> Any:
        return self.map(lambda value: value[index])

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """A copy with every tensor moved or converted as ``torch.Tensor.to`` does."""
        return self.map(lambda value: value.to(*args, **kwargs))

    @classmethod
    def cat(cls, parts: Sequence[Any]) -> Any:
        """One object with the rows of all ``parts``, in their order."""
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: torch.cat(column) for name, column in columns.items()})

    def put(self, index: Tensor, rows: Any) -> None:
        """Overwrite the rows at ``index`` with those of the object ``rows``, in place."""
        for f in fields(self):  # type: ignore[arg-type]
            mine, theirs = getattr(self, f.name), getattr(rows, f.name)
            if isinstance(mine, TensorRecord):
                mine.put(index, theirs)
            elif isinstance(mine, Tensor):
                mine[index] = theirs

    def tensors(self) -> list[Tensor]:
        """All tensors, in the order in which ``map`` visits them."""
        values = [getattr(self, f.name) for f in fields(self)]  # type: ignore[arg-type]
        nested = [one.tensors() if isinstance(one, TensorRecord) else [one] for one in values]
        return [one for part in nested for one in part if isinstance(one, Tensor)]

    def map(self, function: Callable[[Tensor], Tensor]) -> Any:
        """A copy with ``function`` applied to every tensor."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

        def one(value: Any) -> Any:
            if isinstance(value, TensorRecord):
                return value.map(function)
            return function(value) if isinstance(value, Tensor) else value

        return type(self)(**{name: one(value) for name, value in values.items()})


@dataclass(frozen=True)
class Duals(TensorRecord):
    """Multipliers of the minimisation, signed so that ``Hz + c + Aᵀ equality + Gᵀ inequality + bound = 0``.

    Attributes:
        equality: (B, p) multipliers of the equalities, of either sign.
        inequality: (B, m) multipliers of the inequalities, never negative.
        bound: (B, n) multipliers of the bounds: at most 0 at a lower bound, at least 0 at an upper bound.
    """

    equality: Tensor
    inequality: Tensor
    bound: Tensor


@dataclass(frozen=True)
class ActiveSet(TensorRecord):
    """The inequalities and bounds that hold with equality. Equality rows are always active and are not listed.

    Attributes:
        rows: (B, m) bool, the active rows of G.
        lower: (B, n) bool, the variables at their lower bounds.
        upper: (B, n) bool, the variables at their upper bounds.
    """

    rows: Tensor
    lower: Tensor
    upper: Tensor

    @property
    def fixed(self) -> Tensor:
        """The variables at one of their bounds, (B, n) bool."""
        return self.lower | self.upper

    def same(self, other: ActiveSet) -> Tensor:
        """Whether this set equals the other, for each sample, (B,) bool."""
        rows = (self.rows == other.rows).all(1)
        return rows & (self.lower == other.lower).all(1) & (self.upper == other.upper).all(1)

    def count(self) -> Tensor:
        """The number of active inequalities and bounds, (B,)."""
        return self.rows.sum(1) + self.fixed.sum(1)

    def only(self, where: Tensor) -> ActiveSet:
        """A copy in which samples for which ``where`` (B,) is False have an empty set."""
        keep = where[:, None]
        return ActiveSet(self.rows & keep, self.lower & keep, self.upper & keep)

    @classmethod
    def none(cls, batch: int, n: int, m: int, device: torch.device) -> ActiveSet:
        """Empty active sets for ``batch`` samples with n variables and m inequality rows."""
        rows, lower, upper = (torch.zeros(batch, k, dtype=torch.bool, device=device) for k in (m, n, n))
        return cls(rows, lower, upper)
