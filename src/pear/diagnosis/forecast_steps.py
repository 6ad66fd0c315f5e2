"""A function of the forecast, attributed to the predicted values by steps from the truth to the forecast.

The way from y to ŷ is divided into equal steps. In every step the values are moved one after the other, in their order
and in the reverse order, and each move is credited with what the function changes by. A value's part is the mean of
both orders. The parts add up to the whole change, and a value that was predicted exactly has the part 0. They are the
integral of the gradient along the way, exactly for a function that is quadratic in every step, and up to the square of
the step's length for other continuous functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_STEPS = (16, 8, 4, 2, 1)  # the most of these that the allowed number of points affords

Evaluate = Callable[[Tensor, Tensor], Tensor]
"""Maps values (M, k) and the numbers of their samples (M,) to numbers (M,), NaN where there is none."""


@dataclass(frozen=True)
class SteppedParts:
    """The parts of the predicted values in the change of a function.

    Attributes:
        parts: (B, k) the part of each value; NaN in samples that were not followed or whose function has no value on
            the way.
        followed: (B,) bool, the samples that the allowed number of points affords.
        steps: the number of steps.
    """

    parts: Tensor
    followed: Tensor
    steps: int


class _Points(NamedTuple):
    """Points between truth and forecast.

    Attributes:
        sample: (M,) number of the sample.
        backward: (M,) bool, whether the values are moved in the reverse order.
        moves: (M,) number of moves from the truth to the point.
    """

    sample: NDArray[np.int64]
    backward: NDArray[np.bool_]
    moves: NDArray[np.int64]


def follow_values(
    evaluate: Evaluate, true: Tensor, predicted: Tensor, ends: tuple[Tensor, Tensor], weight: Tensor, most: int, at: int
) -> SteppedParts:
    """Attribute the change of a function between true and predicted values to these values.

    Args:
        evaluate: the function.
        true: (B, k) true values.
        predicted: (B, k) predicted values.
        ends: (B,) the function at the true values, and at the predicted ones.
        weight: (B,) if there are too few points for all samples, those of the largest weight come first.
        most: largest number of points at which the function is evaluated; one sample is always followed.
        at: number of points that are evaluated at a time.
    """
    wrong = predicted != true
    count = wrong.sum(1).cpu().numpy()
    # A sample with one wrong value needs no point: the whole change is the part of that value.
    needed = {steps: np.where(count > 1, steps * (2 * count - 1) - 1, 0) for steps in _STEPS}
    steps = next((one for one in _STEPS if needed[one].sum() <= most), 1)
    order = np.argsort(-weight.cpu().numpy(), kind="stable")
    chosen = order[(np.cumsum(needed[steps][order]) <= most) | (np.arange(len(order)) == 0)]
    found = _evaluate_points(evaluate, true, predicted, _list_points(chosen, count, steps), count, steps, at)
    first, last = (end.cpu().numpy() for end in ends)
    parts, followed = np.full(true.shape, np.nan), np.zeros(len(true), dtype=bool)
    used = 0
    for i in chosen:
        own = 1 if count[i] < 2 else steps
        size = needed[steps][i]
        parts[i], followed[i] = 0.0, True
        if count[i]:
            where = wrong[i].cpu().numpy()
            parts[i, where] = _credit_moves(first[i], last[i], found[used : used + size], int(count[i]), own)
        used += size
    return SteppedParts(torch.from_numpy(parts).to(true), torch.from_numpy(followed), steps)


def _list_points(chosen: NDArray[np.int64], count: NDArray[np.int64], steps: int) -> _Points:
    """List the points of the chosen samples: those of the order of the values, then those of the reverse order."""
    samples, backward, moves = [], [], []
    for i in chosen:
        inner = np.arange(1, steps * count[i] if count[i] > 1 else 1)
        reverse = inner[inner % max(count[i], 1) != 0]  # both orders meet at the end of every step
        for own, turned in ((inner, False), (reverse, True)):
            samples.append(np.full(len(own), i))
            backward.append(np.full(len(own), turned))
            moves.append(own)
    return _Points(np.concatenate(samples), np.concatenate(backward), np.concatenate(moves))


def _evaluate_points(
    evaluate: Evaluate, true: Tensor, predicted: Tensor, points: _Points, count: NDArray[np.int64], steps: int, at: int
) -> NDArray[np.float64]:
    """Evaluate the function at all points, (M,)."""
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


def _credit_moves(first: float, last: float, found: NDArray[np.float64], count: int, steps: int) -> NDArray[np.float64]:
    """Return the parts (count,) of the wrong values of one sample, from the function at its points."""
    inner = np.arange(1, steps * count)
    chain = np.empty((2, steps * count + 1))
    chain[:, 0], chain[:, -1] = first, last
    chain[:, 1:-1] = found[: len(inner)]
    chain[1, inner[inner % count != 0]] = found[len(inner) :]
    change = np.diff(chain).reshape(2, steps, count).sum(1)
    parts: NDArray[np.float64] = 0.5 * (change[0] + change[1][::-1])
    return parts
