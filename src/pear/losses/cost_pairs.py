"""Checks and conversions of pairs of predicted and true costs, and of the curvatures given with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import CostMap, Model, Problem
from pear.problem.model import split_cost_model
from pear.problem.pandas_data import check_pandas_order, series_as_sample_row
from pear.problem.tensor_conversion import to_batch_tensor


def check_cost_pair(predicted: Tensor, true: Tensor) -> None:
    """Raise ProblemError if predicted and true costs differ in shape, or seem to be swapped.

    They seem to be swapped if the true costs require a gradient and the predicted costs do not.
    """
    if true.requires_grad and not predicted.requires_grad and torch.is_grad_enabled():
        raise ProblemError(
            "the true costs require a gradient and the predicted ones do not, so that the two are probably swapped; "
            "call loss(predicted, true)"
        )
    if predicted.shape != true.shape:
        raise ProblemError(
            f"predicted and true costs must have the same shape; got {tuple(predicted.shape)} and {tuple(true.shape)}"
        )


def detach_cost_pair(
    problem: Problem | Model, predicted: Any, true: Any
) -> tuple[Problem, CostMap | None, Tensor, Tensor]:
    """Convert predicted and true values to detached costs.

    Args:
        problem: the decision problem; the cost map of a ``Model`` maps the values to costs.
        predicted: (B, n) predicted costs, or (B, k) predicted values.
        true: the true costs or values, of the same shape.

    Returns:
        The problem without its cost map, the cost map or None, and the predicted and the true costs (B, n).
    """
    plain, cost_map = split_cost_model(problem)
    check_pandas_order(problem, series_as_sample_row(predicted), series_as_sample_row(true))
    pair = to_batch_tensor(predicted).detach(), to_batch_tensor(true).detach()
    check_cost_pair(*pair)
    forecast, costs = pair if cost_map is None else (cost_map(pair[0]), cost_map(pair[1]))
    return plain, cost_map, forecast, costs


def true_curvature_of_pair(problem: Problem, Q: Any, true_Q: Any, batch: int) -> Any:
    """Return the curvature of the true objective; None if no curvature is predicted.

    Args:
        problem: the decision problem.
        Q: (n, n) or (B, n, n) predicted curvature; None if no curvature is predicted.
        true_Q: (n, n) or (B, n, n) true curvature; None for the Q of the problem.
        batch: B, the number of samples.

    Raises:
        ProblemError: ``true_Q`` is given without Q; Q is given, but neither ``true_Q`` nor a Q of the problem; or
            ``true_Q`` has a wrong shape.
    """
    if Q is None and true_Q is not None:
        raise ProblemError(
            "true_Q was given without Q; pass the predicted curvature as Q, or put true_Q into the problem"
        )
    if Q is None:
        return None
    if true_Q is None and problem.Q is None:
        raise ProblemError("Q was given, but neither true_Q nor a Q in the problem to compare it with; pass true_Q")
    true_Q = problem.Q if true_Q is None else torch.as_tensor(true_Q)
    n = problem.n
    if tuple(true_Q.shape) not in ((n, n), (batch, n, n)):
        raise ProblemError(f"true_Q must have shape {(n, n)} or {(batch, n, n)}; got {tuple(true_Q.shape)}")
    return true_Q
