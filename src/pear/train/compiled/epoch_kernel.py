"""A whole epoch in compiled code: the forecasts of a linear model, their regret, its gradient, and a step of Adam.

On small problems Python's share of a training step takes longer than the step itself. The arithmetic is that of the
training loop in Python, in the model's own precision; sums may be taken in another order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pear.compile.jit import address_of, call_address, entry, inner, refer, span
from pear.solvers.active_set.batch_kernel import run_batch
from pear.solvers.active_set.kernel_arrays import (
    REGRET,
    SAMPLE,
    SOLVED,
    WORKER,
    Array,
    CompiledRegrets,
    ProgramPair,
    Programs,
    SampleCosts,
    SolutionTable,
    States,
    ThreadTeam,
)


class LinearState(NamedTuple):
    """A linear model and Adam's state, which are changed in place.

    Attributes:
        weight: (n, p).
        bias: (1, n), or (0, n) where the model has none.
        weight_mean, bias_mean: Adam's running means of gradients, shaped as weight and bias.
        weight_square, bias_square: Adam's running means of squared gradients.
        weight_slope: (n, p) buffer for the gradient by the weight.
        bias_slope: (2, n) buffer. The first row is the gradient by the bias; the first number of the second row serves
            to round to the model's precision.
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
    """Adam's learning rate, its two decay rates and ε, and the number of steps that it has taken so far."""

    rate: float
    decay: float
    square_decay: float
    epsilon: float
    steps: int


class LossStrengths(NamedTuple):
    """The injection β, the guidance α of the first step of the call, and the factor of α from step to step."""

    injection: float
    guidance: float
    decay: float


class TrainingSet(NamedTuple):
    """The training samples in the arrays that the compiled epoch uses.

    Attributes:
        features: (N, p) in the model's precision.
        true: (N, n) true costs, in the units of the programs.
        units: (n,) factors from the model's forecasts to costs in the units of the programs, in the model's precision.
        order: (N,) row numbers of the samples, in the order of the epoch.
        slots: (N,) row of each sample in ``table``.
        own: whether samples have rows of their own in the programs.
        failed: (N,) bool, samples that are left out.
        table: warm starts and best decisions of the samples.
        default: the start of samples that have no warm start.
    """

    features: Array
    true: Array
    units: Array
    order: Array
    slots: Array
    own: bool
    failed: Array
    table: SolutionTable
    default: States


class BatchBuffers(NamedTuple):
    """Buffers for one batch, which all batches use in turn.

    Attributes:
        samples, results: arguments of ``batch_kernel.run_batch``, with a row for each sample of the batch.
        team: one thread, and its buffers.
        rows: row numbers of the batch's samples in the training set.
        totals: three sums over all batches: the values; the samples whose working set was still optimal; the samples
            with a positive regret whose gradient is exactly zero.
    """

    samples: SampleCosts
    results: CompiledRegrets
    team: ThreadTeam
    rows: Array
    totals: Array


@entry
def linear_epoch(
    regret: int,
    P: Programs,
    data: TrainingSet,
    how: LossStrengths,
    model: LinearState,
    adam: Adam,
    room: BatchBuffers,
    first: int,
) -> int:
    """Train on the batches from number ``first`` on, until the end or a batch with a sample that is not solved.

    Args:
        regret: the address of ``batch_kernel.run_batch``, from ``run_batch_address``.
        P: programs without Q.
        data: the training set.
        how: strengths of injection and guidance.
        model: the linear model.
        adam: the settings of Adam.
        room: buffers; they hold the last batch at the end, and ``totals`` the sums over all batches.
        first: the number of the batch to begin with.

    Returns:
        The number of batches done since the beginning of the epoch.
    """
    pair = ProgramPair(P, P, np.bool_(False))
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
            add_guidance(P.sign, all_samples.table, here.samples, results, alpha, count)
        for i in span(count):  # the mean over the samples that count, for each that was seen
            here.totals[0] += results.value[i] * (seen / count)
            here.totals[1] += 1.0 if results.outcome.changes[i] == 0 else 0.0
        collect_model_gradient(m, all_samples, here.rows, count, results.injected)
        done += 1
        step = adam.steps + done - first
        adam_step(m.weight, m.weight_slope, m.weight_mean, m.weight_square, adam, step)
        adam_step(m.bias, m.bias_slope, m.bias_mean, m.bias_square, adam, step)
    return done


def run_batch_address(P: Programs, data: TrainingSet, room: BatchBuffers) -> int:
    """The address of ``batch_kernel.run_batch`` as compiled for these arguments."""
    pair = ProgramPair(P, P, np.bool_(False))
    types = (REGRET, pair, room.samples, data.table, data.default, 0.0, room.results, room.team, 0)
    return address_of(run_batch, types)


@inner
def forecast_batch(data: TrainingSet, model: LinearState, room: BatchBuffers, begin: int, seen: int) -> int:
    """Forecast the costs of the next ``seen`` samples; returns how many of them are not left out."""
    count = 0
    for k in span(begin, begin + seen):
        row = data.order[k]
        if not data.failed[row]:
            room.rows[count] = row
            room.samples.at[count] = row if data.own else 0
            room.samples.slots[count] = data.slots[row]
            forecast_costs(model, data.features[row], data.units, room.samples.predicted[count])
            for j in span(len(data.units)):
                room.samples.true[count, j] = data.true[row, j]
            count += 1
    return count


@inner
def is_zero(g: Array) -> bool:
    """Whether every entry is zero."""
    for j in span(len(g)):  # noqa: SIM110 (a plain loop is what compiles well)
        if g[j] != 0.0:
            return False
    return True


@inner
def add_guidance(
    sign: float, table: SolutionTable, samples: SampleCosts, results: CompiledRegrets, alpha: float, count: int
) -> None:
    """Add the guidance α F to the values, and its gradient to the gradients.

    F is the suboptimality of the true decision under the forecast.
    """
    for i in span(count):
        slot, both = samples.slots[i], 0.0
        for j in span(len(results.outcome.x[i])):
            pull = sign * (table.best.x[slot, j] - results.outcome.x[i, j])
            both += (samples.predicted[i, j] - samples.true[i, j]) * pull
            results.injected[i, j] += alpha * pull
        results.value[i] += alpha * max(0.0, both - results.value[i])


@inner
def forecast_costs(model: LinearState, x: Array, units: Array, out: Array) -> None:
    """Forecast costs (n,) from features (p,), in the model's precision, times the units."""
    for j in span(len(model.weight)):
        s = model.weight[j, 0] * x[0]
        for q in span(1, len(x)):
            s += model.weight[j, q] * x[q]
        if len(model.bias) > 0:
            s += model.bias[0, j]
        out[j] = s * units[j]


@inner
def collect_model_gradient(model: LinearState, data: TrainingSet, rows: Array, count: int, g: Array) -> None:
    """Compute the gradient of the batch's mean regret by the model's parameters."""
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
def adam_step(value: Array, slope: Array, mean: Array, square: Array, adam: Adam, step: int) -> None:
    """One step of Adam on a matrix."""
    size = adam.rate / (1.0 - adam.decay**step)
    root = math.sqrt(1.0 - adam.square_decay**step)
    rows, columns = value.shape
    for j in span(rows):
        for q in span(columns):
            mean[j, q] += (slope[j, q] - mean[j, q]) * (1.0 - adam.decay)
            square[j, q] = square[j, q] * adam.square_decay + slope[j, q] * slope[j, q] * (1.0 - adam.square_decay)
            value[j, q] -= size * mean[j, q] / (math.sqrt(square[j, q]) / root + adam.epsilon)
