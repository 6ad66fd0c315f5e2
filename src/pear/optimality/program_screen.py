"""The screen before any solver runs: statuses that follow from the data of a sample alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pear.optimality.rule import LARGEST
from pear.optimality.status import Status
from pear.problem.matrix import matrix_entries_within
from pear.problem.quadratic_program import QuadraticProgram


def screen_programs(qp: QuadraticProgram) -> Tensor:
    """Return a status for each sample, which is not SOLVED if the data alone shows that there is no solution.

    A sample is NOT_FINITE if h or a bound is NaN, or if any other number is NaN or exceeds 1e150 (``rule.LARGEST``) in
    absolute value. A sample is INFEASIBLE if a lower bound exceeds the upper bound, if a lower bound is +∞, or if an
    upper bound or an entry of h is −∞.

    Returns:
        (B,) int8 codes of ``Status``: NOT_FINITE, INFEASIBLE, or SOLVED for all other samples.
    """
    number = (qp.c.abs() <= LARGEST).all(1)
    for value in (qp.H, qp.A, qp.b, qp.G):
        number = number & matrix_entries_within(value, LARGEST)
    for value in (qp.h, qp.lb, qp.ub):
        number = number & ~value.isnan().any(1)
    empty = (qp.lb > qp.ub).any(1) | (qp.h == -torch.inf).any(1)
    empty = empty | (qp.lb == torch.inf).any(1) | (qp.ub == -torch.inf).any(1)
    status = torch.where(empty, int(Status.INFEASIBLE), int(Status.SOLVED))
    return torch.where(number, status, int(Status.NOT_FINITE)).to(torch.int8).expand(qp.batch).clone()


def screen_out_nonfinite(qp: QuadraticProgram, failed: Tensor) -> QuadraticProgram:
    """Return the programs with zeros in place of non-finite entries of failed samples, so that NaN does not spread.

    Infinite entries of h and of the bounds are valid, and stay.

    Args:
        qp: the programs.
        failed: (B,) bool, the failed samples.
    """

    def screened(value: Any, infinite: bool) -> Any:
        if value.is_sparse:  # sparse matrices are finite, which was checked when they were made
            return value
        nonfinite = value.isnan() if infinite else ~value.isfinite()
        where = failed.view(-1, *[1] * (value.dim() - 1))
        return torch.where(where & nonfinite, torch.zeros_like(value), value) if bool(nonfinite.any()) else value

    data: dict[str, Any] = {name: screened(getattr(qp, name), False) for name in ("H", "c", "A", "b", "G")}
    data |= {name: screened(getattr(qp, name), True) for name in ("h", "lb", "ub")}
    return replace(qp, **data)
