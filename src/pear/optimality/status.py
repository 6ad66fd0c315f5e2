"""``Status``, the outcome of one sample, and functions for tensors of statuses."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor


class Status(IntEnum):
    """The outcome of one sample, such as SOLVED or INFEASIBLE. Its ``sentence`` explains it and gives advice."""

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
        """A sentence that explains the status and says what to do."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.SOLVED: "solved: the optimality conditions hold to tolerance",
    Status.INACCURATE: "no verified solution was found; try another solver or rescale the problem",
    Status.INFEASIBLE: "no point satisfies the constraints; check b, h and the bounds of this sample",
    Status.UNBOUNDED: "the objective improves without end; add bounds, curvature (Q) or smoothing",
    Status.NOT_FINITE: "the data of this sample holds NaN, infinity or a number beyond 1e150; check the predictor and "
    "its inputs",
    Status.NOT_CONVEX: "the curvature given for this sample is indefinite; predict it as LLᵀ, or shift its eigenvalues",
    Status.TIME_LIMIT: "time was up before a best point was proven; raise time_limit, or take the best point so far, "
    "which on_failure='mask' returns with its gap",
    Status.CLAIMED: "decided by an oracle: the decision passed its checks, and that it is the best one is the oracle's "
    "word",
    Status.REJECTED: "what the oracle returned is no decision: its numbers are not finite, or its check refuses it",
}


def has_decision_status(status: Tensor) -> Tensor:
    """Return whether samples with these statuses (B,) have a decision. Shape (B,), bool.

    A decision is either proven by the optimality conditions or claimed by an oracle.
    """
    return (status == Status.SOLVED) | (status == Status.CLAIMED)


def solved_status(x: Tensor) -> Tensor:
    """Return the status SOLVED for each of the decisions x (B, n). Shape (B,), int8."""
    if not x.is_cpu:
        return torch.zeros(len(x), dtype=torch.int8, device=x.device)
    return torch.from_numpy(np.zeros(x.shape[0], np.int8))  # faster than torch.zeros
