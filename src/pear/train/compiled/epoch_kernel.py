"""An epoch of training in compiled code: forecasts of a linear model, regrets, gradients and steps of Adam.

On small problems, the Python code around a training step takes longer than the step. The compiled code computes what
the training loop in Python computes, in the precision of the model; only the order of sums may differ.
"""

from __future__ import annotations

import math

import numpy as np

from pear.compile.jit import address_of, call_address, entry, inner, refer, span
from pear.solvers.active_set.batch_kernel import run_batch_kernel
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
)
from pear.train.compiled.epoch_arrays import (
    Adam,
    BatchBuffers,
    CostMapArrays,
    LinearState,
    LossStrengths,
    TrainingSet,
)


@entry
def run_epoch_kernel(
    regret: int,
    P: Programs,
    data: TrainingSet,
    how: LossStrengths,
    model: LinearState,
    adam: Adam,
    room: BatchBuffers,
    first: int,
) -> int:
    """Train on batches until the epoch ends, or until a batch contains a sample that this code cannot solve.

    Args:
        regret: the address of ``batch_kernel.run_batch_kernel``, from ``epoch_regret_address``.
        P: the optimisation programs of the samples, which share one quadratic term Q.
        data: the training samples.
        how: the strengths of injection and guidance.
        model: the linear model.
        adam: the settings of Adam.
        room: the buffers. At the end they hold the last batch that was tried, and ``totals`` holds the sums over all
            batches.
        first: the number of the first batch, from 0.

    Returns:
        The number of the first batch that is not done; the number of batches if the epoch is complete.
    """
    pair = ProgramPair(P, P.Q, np.bool_(False), data.factor)
    all_samples, m, here = refer(data), refer(model), refer(room)
    order, results = all_samples.order, here.results
    size, done = len(here.samples.at), first
    while done * size < len(order):
        seen = min(size, len(order) - done * size)
        count = forecast_epoch_batch(all_samples, m, here, done * size, seen)
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
            here.totals[2] += 1.0 if results.value[i] > 0.0 and is_zero_gradient(results.exact[i]) else 0.0
        alpha = how.guidance * how.decay ** (done - first)
        for i in span(count):  # a sample that is left out counts with the mean of the others
            value = results.value[i]
            if alpha > 0.0:
                value += add_epoch_guidance(P.sign, all_samples.table, here.samples, results, alpha, i)
            here.totals[0] += value * (seen / count)
            here.totals[1] += 1.0 if results.outcome.changes[i] == 0 else 0.0
        collect_epoch_gradient(m, all_samples, here.rows, count, results.injected)
        done += 1
        step = adam.steps + done - first
        step_epoch_adam(m.weight, m.weight_slope, m.weight_mean, m.weight_square, adam, step)
        step_epoch_adam(m.bias, m.bias_slope, m.bias_mean, m.bias_square, adam, step)
    return done


def epoch_regret_address(P: Programs, data: TrainingSet, room: BatchBuffers) -> int:
    """Return the address of ``batch_kernel.run_batch_kernel``, compiled for the types of these arguments."""
    pair = ProgramPair(P, P.Q, np.bool_(False), data.factor)
    types = (REGRET, pair, room.samples, data.table, data.default, 0.0, room.results, room.team, 0)
    return address_of(run_batch_kernel, types)


@inner
def forecast_epoch_batch(data: TrainingSet, model: LinearState, room: BatchBuffers, begin: int, seen: int) -> int:
    """Write the forecast costs of the samples of a batch to ``room``, and return the number of these samples.

    The batch has the ``seen`` samples from position ``begin`` of the epoch's order. Samples that training leaves out
    are not forecast and not counted.
    """
    count = 0
    for k in span(begin, begin + seen):
        row = data.order[k]
        if not data.failed[row]:
            room.rows[count] = row
            room.samples.at[count] = row if data.own else 0
            room.samples.slots[count] = data.slots[row]
            if len(data.cost_map.start) > 0:
                forecast_mapped_epoch_costs(model, data, row, room.samples.predicted[count])
            else:
                forecast_epoch_costs(model, data.features[row], data.units, room.samples.predicted[count])
            for j in span(len(data.units)):
                room.samples.true[count, j] = data.true[row, j]
            count += 1
    return count


@inner
def is_zero_gradient(g: Array) -> bool:
    """Return whether every entry of a gradient is zero."""
    for j in span(len(g)):  # noqa: SIM110 (a plain loop is what compiles well)
        if g[j] != 0.0:
            return False
    return True


@inner
def add_epoch_guidance(
    sign: float, table: SolutionTable, samples: SampleCosts, results: CompiledRegrets, alpha: float, i: int
) -> float:
    """Add the gradient of the guidance α F to the gradient of sample i, and return α F.

    F compares two decisions at the forecast costs: it says how much worse the best decision under the true costs is
    than the best decision under the forecast.

    Args:
        sign: 1 to minimise, −1 to maximise.
        table: the best decisions under the true costs.
        samples: the forecast and the true costs of the batch.
        results: the regrets and decisions of the batch; ``results.injected`` is the gradient that is changed.
        alpha: the strength α.
        i: the position of the sample in the batch.
    """
    slot, both = samples.slots[i], 0.0
    for j in span(len(results.outcome.x[i])):
        pull = sign * (table.best.x[slot, j] - results.outcome.x[i, j])
        both += (samples.predicted[i, j] - samples.true[i, j]) * pull
        results.injected[i, j] += alpha * pull
    return alpha * max(0.0, both - results.value[i])


@inner
def forecast_epoch_value(model: LinearState, x: Array, j: int) -> float:
    """Return the forecast of value j from p features x (p,), in the precision of the model."""
    s = model.weight[j, 0] * x[0]
    for q in span(1, len(x)):
        s += model.weight[j, q] * x[q]
    if len(model.bias) > 0:
        s += model.bias[0, j]
    return s


@inner
def forecast_epoch_costs(model: LinearState, x: Array, units: Array, out: Array) -> None:
    """Write the costs that the model forecasts from features x (p,), times ``units`` (n,), to ``out`` (n,)."""
    for j in span(len(model.weight)):
        out[j] = forecast_epoch_value(model, x, j) * units[j]


@inner
def forecast_mapped_epoch_costs(model: LinearState, data: TrainingSet, row: int, out: Array) -> None:
    """Forecast the k values of the sample in this row, map them to n costs, and write the costs to ``out`` (n,).

    ``data.units`` converts the written costs to the units in which the programs are solved.
    """
    to_costs = data.cost_map
    known = to_costs.known[row if len(to_costs.known) > 1 else 0]
    for j in span(len(model.weight)):
        to_costs.values[j] = forecast_epoch_value(model, data.features[row], j)
    for j in span(len(known)):
        total = known[j]
        for at in span(to_costs.start[j], to_costs.start[j + 1]):
            total += to_costs.entry[at] * to_costs.values[to_costs.column[at]]
        to_costs.costs[j] = total  # rounded to the model's precision, as in the plain loop
        out[j] = to_costs.costs[j] * data.units[j]


@inner
def pull_back_epoch_costs(to_costs: CostMapArrays, units: Array, g: Array, count: int) -> None:
    """Write the gradient of a batch's mean loss with respect to one sample's forecast values to ``to_costs.values``.

    Args:
        to_costs: the map from the k forecast values to the n costs, and its buffers.
        units: (n,) the factors that convert costs to the units in which the programs are solved.
        g: (n,) the gradient of the sample's loss with respect to the costs in these units.
        count: the number of samples in the batch, by which the gradient is divided.
    """
    for q in span(len(to_costs.sums)):
        to_costs.sums[q] = 0.0
    for j in span(len(g)):
        to_costs.costs[j] = g[j] / count
        to_costs.costs[j] *= units[j]
        for at in span(to_costs.start[j], to_costs.start[j + 1]):
            to_costs.sums[to_costs.column[at]] += to_costs.entry[at] * to_costs.costs[j]
    for q in span(len(to_costs.sums)):
        to_costs.values[q] = to_costs.sums[q]


@inner
def collect_epoch_gradient(model: LinearState, data: TrainingSet, rows: Array, count: int, g: Array) -> None:
    """Write the gradient of the mean loss of a batch, with respect to weight and bias, to the buffers in ``model``.

    Args:
        model: the model, with the buffers ``weight_slope`` and ``bias_slope``.
        data: the training samples.
        rows: the row numbers of the batch's samples; only the first ``count`` are read.
        count: the number of samples in the batch, by which the gradient is divided.
        g: (B, n) the gradient of each sample's loss with respect to its costs, in the units in which the programs are
            solved; only the first ``count`` rows are read.
    """
    n, p = model.weight.shape
    slope, zero = model.weight_slope, model.weight[0, 0] * 0
    for j in span(n):
        for q in span(p):
            slope[j, q] = zero
        model.bias_slope[0, j] = zero
    mapped = len(data.cost_map.start) > 0
    for i in span(count):
        x = data.features[rows[i]]
        if mapped:
            pull_back_epoch_costs(data.cost_map, data.units, g[i], count)
        for j in span(n):
            # rounded to the model's precision here, where the plain loop hands the gradient to the model
            if mapped:
                along = data.cost_map.values[j]
            else:
                model.bias_slope[1, 0] = g[i, j] / count
                along = model.bias_slope[1, 0] * data.units[j]
            for q in span(p):
                slope[j, q] += along * x[q]
            model.bias_slope[0, j] += along


@inner
def step_epoch_adam(value: Array, slope: Array, mean: Array, square: Array, adam: Adam, step: int) -> None:
    """Take one step of Adam on the matrix ``value``, in place.

    Args:
        value: the parameters.
        slope: the gradient, with the shape of ``value``.
        mean, square: Adam's running means of the gradient and of its square, which are updated in place.
        adam: the settings.
        step: the number of the step, counted from 1.
    """
    size = adam.rate / (1.0 - adam.decay**step)
    root = math.sqrt(1.0 - adam.square_decay**step)
    rows, columns = value.shape
    for j in span(rows):
        for q in span(columns):
            mean[j, q] += (slope[j, q] - mean[j, q]) * (1.0 - adam.decay)
            square[j, q] = square[j, q] * adam.square_decay + slope[j, q] * slope[j, q] * (1.0 - adam.square_decay)
            value[j, q] -= size * mean[j, q] / (math.sqrt(square[j, q]) / root + adam.epsilon)
