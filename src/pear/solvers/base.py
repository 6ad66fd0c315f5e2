"""What a solver returns: an approximate primal-dual point, and what it believes about every sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pear.optimality.point import Batched, Duals, Status


@dataclass(frozen=True)
class Candidate(Batched):
    """What a backend returns: an approximate primal-dual point, to be verified and polished.

    Attributes:
        x: (B, n) primal point.
        duals: multipliers in the sign convention of ``Duals``; zeros where the backend has none (integer problems).
        status: (B,) int8 of ``Status``; what the backend believes. INACCURATE still carries its best point.
        bound: (B,) proven lower bounds of the minimised objective, of integer programs; None for continuous ones.
    """

    x: Tensor
    duals: Duals
    status: Tensor
    bound: Tensor | None = None


def empty_candidate(batch: int, n: int, p: int, m: int, like: Tensor) -> Candidate:
    """A hint of NaNs with status INACCURATE, for a backend to fill in."""

    def nan(size: int) -> Tensor:
        return torch.full((batch, size), float("nan"), dtype=torch.float64, device=like.device)

    status = torch.full((batch,), int(Status.INACCURATE), dtype=torch.int8, device=like.device)
    return Candidate(nan(n), Duals(nan(p), nan(m), nan(n)), status)
