"""``Status``: the outcome of one sample."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
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


def has_decision_status(status: Tensor) -> Tensor:
    """Whether samples (B,) have a decision, proven by optimality conditions or claimed by an oracle; (B,) bool."""
    return (status == Status.SOLVED) | (status == Status.CLAIMED)


def solved_status(x: Tensor) -> Tensor:
    """Return the statuses (B,) of decisions (B, n) that are all solved; NumPy is faster than torch on a CPU."""
    if not x.is_cpu:
        return torch.zeros(len(x), dtype=torch.int8, device=x.device)
    return torch.from_numpy(np.zeros(x.shape[0], np.int8))
