"""Decisions of an ``Oracle`` as a ``Solution``. The user's function claims that they are best; nothing proves it."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from pear.decisions.solution import Solution
from pear.errors import ProblemError
from pear.optimality.duals_and_active_sets import ActiveSet
from pear.optimality.natural_sizes import finite_size, positive_size
from pear.optimality.rule import INTEGRAL, SHARE_OF_SIZE
from pear.optimality.status import Status, has_decision_status
from pear.problem import Problem
from pear.problem.matrix import matvec
from pear.problem.oracle import Oracle
from pear.problem.problem_fields import given_fields

logger = logging.getLogger("pear")

_MOST_COMPLAINTS = 3  # that a message quotes


def decide_by_oracle(oracle: Oracle, cost: Tensor, smoothing: Any, solver: str, **fields: Any) -> tuple[Solution, str]:
    """Return the decisions of an oracle's function for costs (B, n).

    Args:
        oracle: the oracle.
        cost: (B, n) costs on the device of the oracle.
        smoothing, solver, fields: arguments of ``pear.solve`` that an oracle does not support.

    Returns:
        The decisions, and words for an error message: who decided, and why the first three rejected decisions are
        rejected.

    Raises:
        ProblemError: ``smoothing``, ``solver`` or ``fields`` are given.
    """
    extra = [*given_fields(**fields), *(["smoothing"] if smoothing else []), *(["solver"] if solver != "auto" else [])]
    if extra:
        raise ProblemError(
            f"{extra[0]} came with an Oracle, whose function takes costs alone; leave it out, or let the function "
            "know it"
        )
    found = oracle.decisions(cost)
    kinds = [
        Status.NOT_FINITE if one is None else Status.REJECTED if one.complaint else Status.CLAIMED for one in found
    ]
    status = torch.tensor([int(kind) for kind in kinds], dtype=torch.int8, device=cost.device)
    x = torch.full(cost.shape, torch.nan, dtype=torch.float64, device=cost.device)
    for i, one in enumerate(found):
        if one is not None and not one.complaint:
            x[i] = torch.from_numpy(one.z)
    unknown = torch.full((len(cost),), torch.nan, dtype=torch.float64, device=cost.device)
    none = ActiveSet.none(len(cost), oracle.n, 0, cost.device)
    solution = Solution(
        x=x,
        value=oracle.objective(x, cost.double()),
        status=status,
        active=none,
        weak=none,
        duals=None,
        kkt_residual=unknown,
        repaired=torch.zeros_like(status, dtype=torch.bool),
        gap=torch.where(has_decision_status(status), torch.inf, unknown),  # no bound is proven
        unchecked=torch.zeros_like(status, dtype=torch.bool),  # the status CLAIMED says so already
    )
    if oracle.is_new():
        _compare_oracle_decisions(oracle, x[has_decision_status(status)], cost[has_decision_status(status)])
    wrong = [(i, one.complaint) for i, one in enumerate(found) if one is not None and one.complaint]
    said = "; ".join(f"sample {i}: {complaint}" for i, complaint in wrong[:_MOST_COMPLAINTS])
    return solution, f"the oracle ({said})" if said else "the oracle"


def _compare_oracle_decisions(oracle: Oracle, x: Tensor, cost: Tensor) -> None:
    """Log a warning if decisions x (B, n) under costs (B, n) violate the oracle's relaxation, on which PEAR trains."""
    if not isinstance(oracle.relaxation, Problem) or oracle.batch is not None or not len(x):
        return
    qp = oracle.relaxation.relaxed().canonical(cost)
    size = torch.maximum(x.abs(), SHARE_OF_SIZE * x.abs().amax(1, keepdim=True))  # so that −1e-115 does not violate 0
    parts = [
        (matvec(qp.A, x) - qp.b).abs() / positive_size(matvec(qp.A.abs(), size) + qp.b.abs()),
        (matvec(qp.G, x) - qp.h) / positive_size(matvec(qp.G.abs(), size) + finite_size(qp.h)),
        (qp.lb - x) / positive_size(size + finite_size(qp.lb)),
        (x - qp.ub) / positive_size(size + finite_size(qp.ub)),
    ]
    outside = torch.cat(parts, 1).amax(1) > INTEGRAL
    if bool(outside.any()):
        logger.warning(
            f"{int(outside.sum())} of the first {len(x)} decisions of the oracle violate its relaxation, which must "
            "contain all of them: check its rows, the order of its variables, and the decisions"
        )
