"""The arrays of a compiled epoch: those of the model, the optimizer and the samples, and buffers."""

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
    """A linear model with p features and k outputs, and the state of Adam. The kernel changes all arrays in place.

    Attributes:
        weight: (k, p).
        bias: (1, k), or (0, k) for a model without a bias.
        weight_mean, bias_mean: Adam's running means of the gradients, with the shapes of weight and bias.
        weight_square, bias_square: Adam's running means of the squared gradients, with the same shapes.
        weight_slope: (k, p) buffer for the gradient with respect to the weight.
        bias_slope: (2, k) buffer. The first row is the gradient with respect to the bias. The first number of the
            second row is used to round numbers to the precision of the model.
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
    """The settings of Adam.

    Attributes:
        rate: the learning rate.
        decay, square_decay: the decay rates of the running means of the gradients and of their squares.
        epsilon: the small number that is added to the denominator of a step.
        steps: the number of steps taken before the kernel is called.
    """

    rate: float
    decay: float
    square_decay: float
    epsilon: float
    steps: int


class LossStrengths(NamedTuple):
    """The strengths in ``PEARLoss``.

    Attributes:
        injection: the strength of the injection, β.
        guidance: the strength of the guidance, α, in the first step.
        decay: the factor by which α is multiplied after each step.
    """

    injection: float
    guidance: float
    decay: float


class CostMapArrays(NamedTuple):
    """The map ``cost = M ŷ + known`` from the k forecast values ŷ to the n costs, and buffers for one sample.

    Attributes:
        start: (n + 1,) the positions in ``column`` and ``entry`` at which the rows of M begin; empty without a map.
        column, entry: the column and the value of each non-zero of M, row by row.
        known: the known parts of the costs: (1, n), or (N, n) with a row for each sample.
        values: (k,) buffer in the precision of the model, for forecasts and the gradient with respect to them.
        costs: (n,) buffer in the precision of the model, for costs and the gradient with respect to them.
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
    """The N training samples, as arrays of the compiled epoch. The model has p features.

    Attributes:
        features: (N, p) in the precision of the model.
        true: (N, n) true costs, in the units of the programs.
        units: (n,) the factors that convert forecast costs to the units of the programs, in the precision of the model.
        order: (N,) row numbers of the samples, in the order of the epoch.
        slots: (N,) the row of each sample in ``table``.
        own: whether the programs have a row for each sample; otherwise all samples share one row.
        failed: (N,) bool, the samples that are left out.
        table: the warm starts and the best decisions of the samples.
        default: the start of a sample without a warm start.
        cost_map: the map from forecasts to costs; its arrays are empty if the model forecasts the costs.
        factor: (1, n, n) the lower Cholesky factor of the Hessian; empty if the Hessian is a multiple of the identity.
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
        rows: the row numbers of the batch's samples in the training set.
        totals: three sums over all batches: the sum of the losses, the number of samples for which the working set of
            the warm start was still optimal, and the number of samples with a positive regret and a gradient of
            exactly zero.
    """

    samples: SampleCosts
    results: CompiledRegrets
    team: ThreadTeam
    rows: Array
    totals: Array
