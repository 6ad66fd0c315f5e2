"""A whole epoch in compiled code: a linear model, the regret of its forecasts, and Adam.

On small problems a step of training takes less time than Python needs to ask for it. The arithmetic is that of the
plain loop, in the model's own precision; sums may be taken in another order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pear.compile.jit import address_of, call_address, entry, inner, refer, span
from pear.solvers.active_set.kernels import run
from pear.solvers.active_set.layout import (
    REGRET,
    SAMPLE,
    SOLVED,
    WORKER,
    Array,
    Pair,
    Programs,
    Results,
    Samples,
    States,
    Table,
    Team,
)


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
        samples, results: the arguments of ``kernels.run`` that have as many rows; team: one thread, and its room.
        rows: the samples' rows in the training set.
        totals: sum of the values, samples whose working set was still optimal, and samples with a regret whose gradient
            is exactly zero, over all batches.
    """

    samples: Samples
    results: Results
    team: Team
    rows: Array
    totals: Array


@entry
def linear_epoch(
    regret: int, P: Programs, data: TrainingSet, how: Strengths, model: Model, adam: Adam, room: Room, first: int
) -> int:
    """Train on the batches from ``first`` on; returns how many are done when it ends, or meets one that it cannot do.

    Args:
        regret: the address of ``kernels.run``, see ``address``.
        P: Programs without Q.
        data, how, model, adam: see there.
        room: what is left there belongs to the last batch, ``totals`` to all of them.
        first: the batch to begin with.
    """
    pair = Pair(P, P, np.bool_(False))
    all_samples, m, here = refer(data), refer(model), refer(room)
    order, results = all_samples.order, here.results
    size, done = len(here.samples.at), first
    while done * size < len(order):
        seen = min(size, len(order) - done * size)
        count = forecast_batch(all_samples, m, here, done * size, seen)
        here.team.turn[SAMPLE] = here.team.turn[WORKER] = 0
        call_address(
            regret,
            (
                *(REGRET, pair, room.samples, data.table, data.default),
                *(how.injection, room.results, room.team, count),
            ),
        )
        for i in span(count):
            if results.outcome.code[i] != SOLVED:
                return done
        for i in span(count):
            here.totals[2] += 1.0 if results.value[i] > 0.0 and is_zero(results.exact[i]) else 0.0
        if how.guidance > 0.0:
            alpha = how.guidance * how.decay ** (done - first)
            guide(P.sign, all_samples.table, here.samples, results, alpha, count)
        for i in span(count):  # the mean over the samples that count, for each that was seen
            here.totals[0] += results.value[i] * (seen / count)
            here.totals[1] += 1.0 if results.outcome.changes[i] == 0 else 0.0
        collect(m, all_samples, here.rows, count, results.injected)
        done += 1
        step = adam.steps + done - first
        improve(m.weight, m.weight_slope, m.weight_mean, m.weight_square, adam, step)
        improve(m.bias, m.bias_slope, m.bias_mean, m.bias_square, adam, step)
    return done


def address(P: Programs, data: TrainingSet, room: Room) -> int:
    """The address of ``kernels.run`` for these arguments."""
    pair = Pair(P, P, np.bool_(False))
    types = (REGRET, pair, room.samples, data.table, data.default, 0.0, room.results, room.team, 0)
    return address_of(run, types)


@inner
def forecast_batch(data: TrainingSet, model: Model, room: Room, begin: int, seen: int) -> int:
    """Forecast for the next batch; returns how many of its ``seen`` samples are not left out."""
    count = 0
    for k in span(begin, begin + seen):
        row = data.order[k]
        if not data.failed[row]:
            room.rows[count] = row
            room.samples.at[count] = row if data.own else 0
            room.samples.slots[count] = data.slots[row]
            forecast(model, data.features[row], data.units, room.samples.predicted[count])
            for j in span(len(data.units)):
                room.samples.true[count, j] = data.true[row, j]
            count += 1
    return count


@inner
def is_zero(g: Array) -> bool:
    """True where every entry is."""
    for j in span(len(g)):  # noqa: SIM110 (a plain loop is what compiles well)
        if g[j] != 0.0:
            return False
    return True


@inner
def guide(sign: float, table: Table, samples: Samples, results: Results, alpha: float, count: int) -> None:
    """Add α F, the gap of the true decision under the forecast, to values, and its gradient to gradients."""
    for i in span(count):
        slot, both = samples.slots[i], 0.0
        for j in span(len(results.outcome.x[i])):
            pull = sign * (table.best.x[slot, j] - results.outcome.x[i, j])
            both += (samples.predicted[i, j] - samples.true[i, j]) * pull
            results.injected[i, j] += alpha * pull
        results.value[i] += alpha * max(0.0, both - results.value[i])


@inner
def forecast(model: Model, x: Array, units: Array, out: Array) -> None:
    """Costs (n,) for features (p,), in the model's precision, times the units."""
    for j in span(len(model.weight)):
        s = model.weight[j, 0] * x[0]
        for q in span(1, len(x)):
            s += model.weight[j, q] * x[q]
        if len(model.bias) > 0:
            s += model.bias[0, j]
        out[j] = s * units[j]


@inner
def collect(model: Model, data: TrainingSet, rows: Array, count: int, g: Array) -> None:
    """The gradient of the batch's mean regret by the model's parameters."""
    n, p = model.weight.shape
    slope, zero = model.weight_slope, model.weight[0, 0] * 0
    for j in span(n):
        for q in span(p):
            slope[j, q] = zero
        model.bias_slope[0, j] = zero
    for i in span(count):
        x = data.features[rows[i]]
        for j in span(n):
            # rounded to the model's precision here, where the plain loop hands the gradient to the model
            model.bias_slope[1, 0] = g[i, j] / count
            along = model.bias_slope[1, 0] * data.units[j]
            for q in span(p):
                slope[j, q] += along * x[q]
            model.bias_slope[0, j] += along


@inner
def improve(value: Array, slope: Array, mean: Array, square: Array, adam: Adam, step: int) -> None:
    """One step of Adam on a matrix."""
    size = adam.rate / (1.0 - adam.decay**step)
    root = math.sqrt(1.0 - adam.square_decay**step)
    rows, columns = value.shape
    for j in span(rows):
        for q in span(columns):
            mean[j, q] += (slope[j, q] - mean[j, q]) * (1.0 - adam.decay)
            square[j, q] = square[j, q] * adam.square_decay + slope[j, q] * slope[j, q] * (1.0 - adam.square_decay)
            value[j, q] -= size * mean[j, q] / (math.sqrt(square[j, q]) / root + adam.epsilon)
