"""A whole epoch in compiled code: a linear model, the regret of its forecasts, and Adam.

On small problems a step of training takes less time than Python needs to ask for it. The arithmetic is that of the
plain loop, in the model's own precision; sums may be taken in another order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pear.solvers.active_set.compile import entry, inner
from pear.solvers.active_set.kernels import regret_batch
from pear.solvers.active_set.layout import SOLVED, Array, Pair, Programs, Results, Samples, States, Table, Work


class Model(NamedTuple):
    """A linear model and Adam's state, written to in place.

    Attributes:
        weight: (n, p); bias: (1, n), or (0, n) where there is none.
        weight_mean, weight_square, bias_mean, bias_square: running means of gradients and of their squares.
        weight_slope, bias_slope: room for gradients, (n, p) and (2, n), of which one number is for rounding.
    """

    weight: Array
    bias: Array
    weight_mean: Array
    weight_square: Array
    bias_mean: Array
    bias_square: Array
    weight_slope: Array
    bias_slope: Array


class Adam(NamedTuple):
    """Settings of the optimiser: learning rate, the two rates of decay, ε; and the steps it has taken so far."""

    rate: float
    decay: float
    square_decay: float
    epsilon: float
    steps: int


class Strengths(NamedTuple):
    """β of the injection; α of the guidance in the first step of the call, and what it is multiplied by after each."""

    injection: float
    guidance: float
    decay: float


class TrainingSet(NamedTuple):
    """What is trained on.

    Attributes:
        features: (N, p) in the model's precision; true: (N, n) costs, in the programs' units.
        units: (n,) what forecasts are multiplied by for the programs, in the model's precision.
        order: (N,) samples in the order of the epoch; slots: (N,) row of each sample in the table.
        own: whether samples have rows of their own in the programs; failed: (N,) bool, samples that are left out.
        table: what is kept of the samples; default: the start of those that have none.
    """

    features: Array
    true: Array
    units: Array
    order: Array
    slots: Array
    own: bool
    failed: Array
    table: Table
    default: States


class Room(NamedTuple):
    """Room for one batch.

    Attributes:
        samples, results: the arguments of ``regret_batch`` that have as many rows; work: what one sample needs.
        rows: the samples' rows in the training set.
        totals: sum of the values, samples whose working set was still optimal, and samples with a regret whose gradient
            is exactly zero, over all batches.
    """

    samples: Samples
    results: Results
    work: Work
    rows: Array
    totals: Array


@entry
def linear_epoch(
    P: Programs, data: TrainingSet, how: Strengths, model: Model, adam: Adam, room: Room, first: int
) -> int:
    """Train on the batches from ``first`` on; returns how many are done when it ends, or meets one that it cannot do.

    Args:
        P: Programs without Q.
        data, how, model, adam: see there.
        room: what is left there belongs to the last batch, ``totals`` to all of them.
        first: the batch to begin with.
    """
    true, order, samples, outcome = data.true, data.order, room.samples, room.results.outcome
    size, done = samples.at.shape[0], first
    while done * size < order.shape[0]:
        seen, count = min(size, order.shape[0] - done * size), 0
        for k in range(seen):
            row = order[done * size + k]
            if data.failed[row]:
                continue
            i = count
            count += 1
            room.rows[i] = row
            samples.at[i] = row if data.own else 0
            samples.slots[i] = data.slots[row]
            forecast(model, data.features[row], data.units, samples.predicted[i])
            for j in range(true.shape[1]):
                samples.true[i, j] = true[row, j]
        pair = Pair(P, P, np.bool_(False))  # literals would compile a second variant
        regret_batch(
            pair, samples, data.table, data.default, how.injection, room.results, room.work, np.int64(0), count
        )
        for i in range(count):
            if outcome.code[i] != SOLVED:
                return done
        for i in range(count):
            room.totals[2] += 1.0 if room.results.value[i] > 0.0 and not room.results.exact[i].any() else 0.0
        if how.guidance > 0.0:
            guide(P.sign, data.table, samples, room.results, how.guidance * how.decay ** (done - first), count)
        for i in range(count):  # the mean over the samples that count, for each that was seen
            room.totals[0] += room.results.value[i] * (seen / count)
            room.totals[1] += 1.0 if outcome.changes[i] == 0 else 0.0
        collect(model, data, room.rows, count, room.results.injected)
        done += 1
        step = adam.steps + done - first
        improve(model.weight, model.weight_slope, model.weight_mean, model.weight_square, adam, step)
        improve(model.bias, model.bias_slope, model.bias_mean, model.bias_square, adam, step)
    return done


@inner
def guide(sign: float, table: Table, samples: Samples, results: Results, alpha: float, count: int) -> None:
    """Add α F, the gap of the true decision under the forecast, to values, and its gradient to gradients."""
    for i in range(count):
        slot, both = samples.slots[i], 0.0
        for j in range(samples.true.shape[1]):
            pull = sign * (table.best.x[slot, j] - results.outcome.x[i, j])
            both += (samples.predicted[i, j] - samples.true[i, j]) * pull
            results.injected[i, j] += alpha * pull
        results.value[i] += alpha * max(0.0, both - results.value[i])


@inner
def forecast(model: Model, x: Array, units: Array, out: Array) -> None:
    """Costs (n,) for features (p,), in the model's precision, times the units."""
    for j in range(model.weight.shape[0]):
        s = model.weight[j, 0] * x[0]
        for q in range(1, x.shape[0]):
            s += model.weight[j, q] * x[q]
        if model.bias.shape[0] > 0:
            s += model.bias[0, j]
        out[j] = s * units[j]


@inner
def collect(model: Model, data: TrainingSet, rows: Array, count: int, g: Array) -> None:
    """The gradient of the batch's mean regret by the model's parameters."""
    n, p = model.weight.shape
    slope, zero = model.weight_slope, model.weight[0, 0] * 0
    for j in range(n):
        for q in range(p):
            slope[j, q] = zero
        model.bias_slope[0, j] = zero
    for i in range(count):
        x = data.features[rows[i]]
        for j in range(n):
            # rounded to the model's precision here, where the plain loop hands the gradient to the model
            model.bias_slope[1, 0] = g[i, j] / count
            along = model.bias_slope[1, 0] * data.units[j]
            for q in range(p):
                slope[j, q] += along * x[q]
            model.bias_slope[0, j] += along


@inner
def improve(value: Array, slope: Array, mean: Array, square: Array, adam: Adam, step: int) -> None:
    """One step of Adam on a matrix."""
    size = adam.rate / (1.0 - adam.decay**step)
    root = math.sqrt(1.0 - adam.square_decay**step)
    for j in range(value.shape[0]):
        for q in range(value.shape[1]):
            mean[j, q] += (slope[j, q] - mean[j, q]) * (1.0 - adam.decay)
            square[j, q] = square[j, q] * adam.square_decay + slope[j, q] * slope[j, q] * (1.0 - adam.square_decay)
            value[j, q] -= size * mean[j, q] / (math.sqrt(square[j, q]) / root + adam.epsilon)
