"""The arrays of a compiled epoch: the model, the optimizer, the samples, and buffers."""

from __future__ import annotations

from typing import NamedTuple

from pear.solvers.active_set.kernel_arrays import (
    Array,
    CompiledRegrets,
    SampleCosts,
    SolutionTable,
    States,
    ThreadTeam,
)


class LinearState(NamedTuple):
    """A linear model with k outputs and Adam's state, which are changed in place.

    Attributes:
        weight: (k, p).
        bias: (1, k), or (0, k) where the model has none.
        weight_mean, bias_mean: Adam's running means of gradients, shaped as weight and bias.
        weight_square, bias_square: Adam's running means of squared gradients.
        weight_slope: (k, p) buffer for the gradient with respect to the weight.
        bias_slope: (2, k) buffer. The first row is the gradient with respect to the bias; the first number of the
            second row serves to round to the model's precision.
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


class CostMapArrays(NamedTuple):
    """The map ``cost = M ŷ + known`` from the k values that the model forecasts, and buffers for a sample.

    Attributes:
        start: (n + 1,) where the non-zeros of each row of M begin; empty where there is no map.
        column, entry: the non-zeros of M, row by row.
        known: (1, n), or (N, n) with a row for each sample.
        values: (k,) buffer in the model's precision, for forecasts and their gradient.
        costs: (n,) buffer in the model's precision, for costs and their gradient.
        sums: (k,) buffer for sums over the costs.
    """

    start: Array
    column: Array
    entry: Array
    known: Array
    values: Array
    costs: Array
    sums: Array


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
        cost_map: from forecasts to costs; empty where the forecasts are the costs.
        factor: (1, n, n) lower Cholesky factor of the Hessian; (0, 0, 0) where the Hessian is λI.
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
    cost_map: CostMapArrays
    factor: Array


class BatchBuffers(NamedTuple):
    """Buffers for one batch, which all batches use in turn.

    Attributes:
        samples, results: arguments of ``batch_kernel.run_batch_kernel``, with a row for each sample of the batch.
        team: the threads that solve a batch, and their buffers.
        rows: row numbers of the batch's samples in the training set.
        totals: three sums over all batches: the values; the samples whose working set was still optimal; the samples
            with a positive regret whose gradient is exactly zero.
    """

    samples: SampleCosts
    results: CompiledRegrets
    team: ThreadTeam
    rows: Array
    totals: Array
