"""The change of a function from true values y to predicted values ŷ, attributed to these values in steps.

The line from y to ŷ is divided into equal steps. Each step moves the values one after the other, once in their order
and once in the reverse order. The part of a value is the change of the function while this value moves, summed over the
steps and averaged over both orders. The parts add up to the whole change. A value that was predicted exactly has the
part 0. The parts are the integral of the gradient along the line: exactly if the function is quadratic within every
step, otherwise with an error of the order of the squared step length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_STEPS = (16, 8, 4, 2, 1)  # the first of these that needs no more points than allowed

Evaluate = Callable[[Tensor, Tensor], Tensor]
"""A function from M points of k values (M, k) and the numbers of their samples (M,) to M numbers; NaN for no value."""


@dataclass(frozen=True)
class SteppedParts:
    """The change of a function, divided among the predicted values.

    Attributes:
        parts: (B, k) the part of each value; NaN in samples that were not followed, or if the function has no value at
            a point of the sample.
        followed: (B,) bool, False for samples that were left out because there would be too many points.
        steps: the number of steps from the true to the predicted values.
    """

    parts: Tensor
    followed: Tensor
    steps: int


class _StepPoints(NamedTuple):
    """M points between truth and forecast. A move changes one value of a sample by one step (see the module).

    Attributes:
        sample: (M,) number of the sample.
        backward: (M,) bool, whether the values of the sample move in the reverse order.
        moves: (M,) number of moves from the truth to the point.
    """

    sample: NDArray[np.int64]
    backward: NDArray[np.bool_]
    moves: NDArray[np.int64]


def follow_forecast_steps(
    evaluate: Evaluate, true: Tensor, predicted: Tensor, ends: tuple[Tensor, Tensor], weight: Tensor, most: int, at: int
) -> SteppedParts:
    """Return how much each of k values contributes to the change of a function from the true to the predicted values.

    Args:
        evaluate: the function, which maps points (M, k) and the numbers of their samples (M,) to results (M,).
        true: (B, k) true values.
        predicted: (B, k) predicted values.
        ends: (B,) the function at the true values, and (B,) at the predicted values.
        weight: (B,) the importance of each sample. If ``most`` is too small for all samples, even with a single step,
            those with the largest weights are followed.
        most: largest number of points at which the function is evaluated. At least one sample is followed in any case.
        at: number of points that are evaluated in one call.
    """
    wrong = predicted != true
    count = wrong.sum(1).cpu().numpy()
    # A sample with one wrong value needs no points: the part of this value is the whole change.
    needed = {steps: np.where(count > 1, steps * (2 * count - 1) - 1, 0) for steps in _STEPS}
    steps = next((one for one in _STEPS if needed[one].sum() <= most), 1)
    order = np.argsort(-weight.cpu().numpy(), kind="stable")
    chosen = order[(np.cumsum(needed[steps][order]) <= most) | (np.arange(len(order)) == 0)]
    found = _evaluate_step_points(evaluate, true, predicted, _list_step_points(chosen, count, steps), count, steps, at)
    first, last = (end.cpu().numpy() for end in ends)
    parts, followed = np.full(true.shape, np.nan), np.zeros(len(true), dtype=bool)
    used = 0
    for i in chosen:
        own = 1 if count[i] < 2 else steps
        size = needed[steps][i]
        parts[i], followed[i] = 0.0, True
        if count[i]:
            where = wrong[i].cpu().numpy()
            parts[i, where] = _credit_step_moves(first[i], last[i], found[used : used + size], int(count[i]), own)
        used += size
    return SteppedParts(torch.from_numpy(parts).to(true), torch.from_numpy(followed), steps)


def _list_step_points(chosen: NDArray[np.int64], count: NDArray[np.int64], steps: int) -> _StepPoints:
    """Return the points at which the function is evaluated.

    The points of a sample follow each other: first those at which the values move in their order, then those at which
    they move in the reverse order. Points that both orders share are listed once.

    Args:
        chosen: numbers of the samples to follow.
        count: (B,) the number of wrong values of each sample.
        steps: the number of steps.
    """
    samples, backward, moves = [], [], []
    for i in chosen:
        inner = np.arange(1, steps * count[i] if count[i] > 1 else 1)
        reverse = inner[inner % max(count[i], 1) != 0]  # both orders meet at the end of every step
        for own, turned in ((inner, False), (reverse, True)):
            samples.append(np.full(len(own), i))
            backward.append(np.full(len(own), turned))
            moves.append(own)
    return _StepPoints(np.concatenate(samples), np.concatenate(backward), np.concatenate(moves))


def _evaluate_step_points(
    evaluate: Evaluate,
    true: Tensor,
    predicted: Tensor,
    points: _StepPoints,
    count: NDArray[np.int64],
    steps: int,
    at: int,
) -> NDArray[np.float64]:
    """Return the function at M points.

    Args:
        evaluate: the function.
        true: (B, k) true values.
        predicted: (B, k) predicted values.
        points: the M points.
        count: (B,) the number of wrong values of each sample.
        steps: the number of steps.
        at: number of points that are evaluated in one call.

    Returns:
        (M,) the values of the function.
    """
    found = np.empty(len(points.sample))
    wrong = predicted != true
    rank, error = wrong.cumsum(1) - 1, predicted - true
    for begin in range(0, len(found), at):
        some = [torch.from_numpy(part[begin : begin + at]).to(true.device) for part in points]
        sample, backward, moves = some
        size = torch.from_numpy(count).to(true.device)[sample]
        done, place = (moves // size)[:, None], (moves % size)[:, None]
        forward, own = ~backward[:, None], rank[sample]
        moved = torch.where(forward, own < place, own >= size[:, None] - place)
        t = (done + moved).to(true) / steps
        values = torch.where(t == 1, predicted[sample], true[sample] + t * error[sample])
        found[begin : begin + at] = evaluate(torch.where(wrong[sample], values, true[sample]), sample).cpu().numpy()
    return found


def _credit_step_moves(
    first: float, last: float, found: NDArray[np.float64], count: int, steps: int
) -> NDArray[np.float64]:
    """Return how much each wrong value of one sample contributes to the change of the function.

    Args:
        first, last: the function at the true and at the predicted values.
        found: the function at the points of the sample, in the order of ``_list_step_points``.
        count: the number of wrong values.
        steps: the number of steps.

    Returns:
        (count,) the parts.
    """
    inner = np.arange(1, steps * count)
    chain = np.empty((2, steps * count + 1))
    chain[:, 0], chain[:, -1] = first, last
    chain[:, 1:-1] = found[: len(inner)]
    chain[1, inner[inner % count != 0]] = found[len(inner) :]
    change = np.diff(chain).reshape(2, steps, count).sum(1)
    parts: NDArray[np.float64] = 0.5 * (change[0] + change[1][::-1])
    return parts
