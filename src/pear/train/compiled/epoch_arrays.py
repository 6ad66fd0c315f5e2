"""The arrays that an epoch in compiled code reads and writes: model, state of Adam, samples and buffers."""

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
    """A linear model with p features and k outputs, and the state of Adam. ``run_epoch_kernel`` changes these arrays.

    Attributes:
        weight: (k, p) the weights of the model.
        bias: (1, k) the bias of the model, or (0, k) for a model without one.
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
    """The settings of Adam, and the number of its steps so far.

    Attributes:
        rate: the learning rate.
        decay, square_decay: the decay rates of the running means of the gradients and of their squares.
        epsilon: the small number that is added to the denominator of a step.
        steps: the number of steps taken before ``run_epoch_kernel`` is called.
    """

    rate: float
    decay: float
    square_decay: float
    epsilon: float
    steps: int


class LossStrengths(NamedTuple):
    """The strengths of injection and guidance in ``PEARLoss``, for one call of ``run_epoch_kernel``.

    Attributes:
        injection: the strength of the injection, β.
        guidance: the strength of the guidance, α, in the first step of the call.
        decay: the factor by which α is multiplied after each step.
    """

    injection: float
    guidance: float
    decay: float


class CostMapArrays(NamedTuple):
    """The map ``cost = M ŷ + known`` from the k forecast values ŷ to the n costs, and buffers for one sample.

    Attributes:
        start: (n + 1,) the positions in ``column`` and ``entry`` at which the rows of M begin; empty if there is no
            map, because the model forecasts the costs themselves.
        column, entry: the column and the value of each non-zero of M, row by row.
        known: the known parts of the costs: (1, n), or (N, n) with a row for each of N samples.
        values: (k,) buffer in the precision of the model, for ŷ and for the gradient with respect to ŷ.
        costs: (n,) buffer in the precision of the model, for the costs and for the gradient with respect to them.
        sums: (k,) buffer in float64, in which the gradient with respect to ŷ is summed over the costs.
    """

    start: Array
    column: Array
    entry: Array
    known: Array
    values: Array
    costs: Array
    sums: Array


class TrainingSet(NamedTuple):
    """The N training samples as arrays for ``run_epoch_kernel``, with p features and n costs each.

    Attributes:
        features: (N, p) in the precision of the model.
        true: (N, n) true costs, in the units in which the optimisation programs are solved.
        units: (n,) the factors that convert forecast costs to these units, in the precision of the model.
        order: (N,) row numbers of the samples, in the order of the epoch.
        slots: (N,) the row of each sample in ``table``.
        own: whether each sample has its own program; otherwise all samples share one.
        failed: (N,) bool, the samples that are left out.
        table: the warm starts and the best decisions of the samples.
        default: the point at which the solver starts for a sample without a warm start.
        cost_map: the map from forecasts to costs; its arrays are empty if the model forecasts the costs.
        factor: (1, n, n) the lower Cholesky factor of the Hessian of the programs; empty if the Hessian is a multiple
            of the identity.
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
    """Buffers for one batch of B samples. All batches of an epoch use them in turn.

    Attributes:
        samples, results: arguments of ``batch_kernel.run_batch_kernel``, with a row for each sample of the batch.
        team: the threads that solve a batch, and their buffers.
        rows: (B,) the row numbers of the batch's samples in the training set.
        totals: (3,) sums over all batches. The first is the sum of the losses. The second is the number of samples for
            which the working set of the warm start was still optimal. The third is the number of samples with a
            positive regret and a gradient of exactly zero.
    """

    samples: SampleCosts
    results: CompiledRegrets
    team: ThreadTeam
    rows: Array
    totals: Array
