"""``training_labels``: the costs that a model is trained on, if they are not the true costs of the samples.

``FitConfig.label_neighbours`` mixes the costs of a sample with those of its neighbours, and
``FitConfig.normalise_costs`` scales the costs. Validation samples keep their true costs, and the labels of a fold are
made from the training samples of that fold alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pear.errors import ProblemError
from pear.problem import Model, Oracle, Problem
from pear.problem.model import problem_of_model
from pear.problem.sample_keys import count_keyed_samples
from pear.train.correction import Correction
from pear.train.fit_config import FitConfig
from pear.train.samples.features import feature_tensors, map_features
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_batch import SampleBatch
from pear.train.samples.sample_source import SampleSource
from pear.train.samples.usable_samples import nonfinite_samples

_PAIRS = 2**24  # the number of distances that are computed together, in arrays of 128 MB


def training_labels(samples: SampleSource, config: FitConfig, model: Any = None) -> SampleSource:
    """Return the training samples with the costs that the settings ask for.

    Without such settings the samples are returned unchanged. Samples that training leaves out, and samples whose costs
    are not finite, are no neighbours of other samples. They keep their costs; if ``config.label_mixing`` is "each",
    they are dropped instead.

    Args:
        samples: the training samples.
        config: the settings.
        model: the model that is trained. If it is a ``Correction``, distances between samples do not use the forecasts
            that it corrects.

    Raises:
        ProblemError: the settings ask for other costs, and the samples are not in memory.

    Example:
        >>> import torch
        >>> pair = MemorySamples.read((torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([[2.0], [4.0], [8.0]])), "X")
        >>> training_labels(pair, FitConfig(label_neighbours=1, label_own_weight=0.5)).costs.flatten()
        tensor([3., 3., 6.])
    """
    if not config.label_neighbours and not config.normalise_costs:
        return samples
    if not isinstance(samples, MemorySamples):
        raise ProblemError(
            "label_neighbours and normalise_costs need samples in memory, such as a pair (X, C) or a Dataset; read "
            "them first, or leave both settings out"
        )
    counted = ~nonfinite_samples(samples.costs)
    if samples.left_out is not None:
        counted &= ~samples.left_out
    seen = samples.all.only(counted)
    labels = seen.costs.double()
    if config.label_neighbours:
        inputs = feature_tensors(seen.features)[:1] if isinstance(model, Correction) else feature_tensors(seen.features)
        places = torch.cat([part.double().flatten(1) for part in inputs], 1)
        if config.label_mixing == "each":
            each = mix_labels_with_each_neighbour(places, seen, config.label_neighbours, config.label_own_weight)
            costs = equal_label_norms(each.costs, each.weight) if config.normalise_costs else each.costs
            return MemorySamples(each._replace(costs=costs))
        weight = torch.ones_like(labels[:, 0]) if seen.weight is None else seen.weight.to(labels)
        labels = mix_labels_with_neighbours(places, labels, config.label_neighbours, config.label_own_weight, weight)
    if config.normalise_costs:
        labels = equal_label_norms(labels, seen.weight)
    costs = samples.costs.clone()
    costs[counted] = labels.to(costs)
    return replace(samples, all=samples.all._replace(costs=costs))


def mix_labels_with_neighbours(features: Tensor, costs: Tensor, count: int, own: float, weight: Tensor) -> Tensor:
    """Return the costs ``w cᵢ + (1 − w) mean_j c_j`` of each sample i, a mixture with the costs of its neighbours.

    The weighted mean is over the neighbours j of sample i.

    Args:
        features: (N, p), p features of each sample. Neighbours are nearest in Euclidean distance after each feature is
            divided by its standard deviation. A missing value is replaced by the mean of its feature.
        costs: (N, n) the costs.
        count: the number of neighbours of a sample. If it is larger than N − 1, all other samples are neighbours.
        own: w, the weight of the sample's costs.
        weight: (N,) how much each sample counts as a neighbour.

    Returns:
        The mixed costs (N, n).
    """
    near = find_label_neighbours(features, count)
    if not near.shape[1]:
        return costs
    shares = weight[near] / weight[near].sum(1, keepdim=True)
    mean = torch.stack([shares[:, j, None] * costs[near[:, j]] for j in range(near.shape[1])]).sum(0)
    return own * costs + (1 - own) * mean


def mix_labels_with_each_neighbour(features: Tensor, samples: SampleBatch, count: int, own: float) -> SampleBatch:
    """Replace each sample i by k samples with the costs ``w cᵢ + (1 − w) c_j``, one for each neighbour j.

    Args:
        features: (N, p), p features of each sample, as in ``mix_labels_with_neighbours``.
        samples: N samples without ids.
        count: k, the number of neighbours of a sample. If it is larger than N − 1, all other samples are neighbours.
        own: w, the weight of the sample's costs.

    Returns:
        N·k samples; a single sample is returned unchanged. If the samples have weights, the mean weight of the k
        samples is the weight of the sample that they replace.
    """
    near = find_label_neighbours(features, count)
    if not near.shape[1]:
        return samples
    costs = own * samples.costs[:, None] + (1 - own) * samples.costs[near]
    weight = None
    if samples.weight is not None:
        shares = samples.weight[near] / samples.weight[near].mean(1, keepdim=True)
        weight = (samples.weight[:, None] * shares).flatten()
    repeated = map_features(lambda part: part.repeat_interleave(near.shape[1], 0), samples.features)
    return SampleBatch(repeated, costs.flatten(0, 1), None, weight)


def find_label_neighbours(features: Tensor, count: int) -> Tensor:
    """Return the row numbers (N, k) of the k = ``count`` nearest neighbours of each row of p features (N, p).

    A row is no neighbour of itself. With fewer than k + 1 rows, all other rows are neighbours.
    """
    total, count = len(features), min(count, len(features) - 1)
    places, nearest = _standardise_label_features(features), []
    for rows in torch.arange(total, device=features.device).split(max(1, _PAIRS // total)):
        apart = torch.cdist(places[rows], places)
        apart[torch.arange(len(rows), device=rows.device), rows] = torch.inf
        nearest.append(apart.topk(count, largest=False).indices)
    return torch.cat(nearest)


def _standardise_label_features(features: Tensor) -> Tensor:
    """Return the p features (N, p) with mean 0 and standard deviation 1. Missing values become 0, the mean."""
    known = features.isfinite()
    mean = torch.where(known, features, 0.0).sum(0) / known.sum(0).clamp_min(1)
    away = torch.where(known, features - mean, 0.0)
    spread = away.square().mean(0).sqrt()
    return away / torch.where(spread > 0, spread, 1.0)


def equal_label_norms(costs: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return costs (N, n) in which the costs of every sample have the same norm, the mean norm of all samples.

    Costs that are all zero stay zero.

    Args:
        costs: (N, n).
        weight: (N,) how much each sample counts in the mean; None weighs all samples alike.

    Example:
        >>> equal_label_norms(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[1.8000, 2.4000],
                [0.0000, 3.0000]])
    """
    norms = costs.norm(dim=1, keepdim=True)
    mean = norms.mean() if weight is None else (weight.to(norms)[:, None] * norms).sum() / weight.to(norms).sum()
    return torch.where(norms > 0, costs / norms * mean, costs)


def check_label_settings(config: FitConfig, problem: Any, ids: Any = None) -> None:
    """Raise ProblemError if the settings mix or scale the costs of samples in a way that the problem does not allow.

    Samples can be replaced by several samples (``label_mixing="each"``) only if they have no ids, and no data of their
    own in the problem. Costs can be scaled only if that does not change the best decision: the objective has no curved
    term, no part of a cost is known, and no right-hand side is predicted.

    Args:
        config: the settings.
        problem: the problem of the loss, or None.
        ids: the ids of the training samples, or None.
    """
    if (
        config.label_neighbours
        and config.label_mixing == "each"
        and (ids is not None or _labels_belong_to_samples(problem))
    ):
        raise ProblemError(
            "label_mixing='each' trains on several samples in the place of one, and here samples have ids, or data of "
            "their own in the problem; take 'mean'"
        )
    if not config.normalise_costs or not isinstance(problem, (Problem, Model)):
        return
    why = ""
    if problem_of_model(problem).is_curved or getattr(problem, "curvature_map", None) is not None:
        why = "its objective is not linear"
    elif getattr(problem, "constraint_map", None) is not None:
        why = "right-hand sides are predicted"
    elif isinstance(problem, Model) and problem.cost_map is not None and bool(problem.cost_map.known.any()):
        why = "a part of its costs is known"
    if why:
        raise ProblemError(
            f"normalise_costs multiplies what is predicted for a sample by a number, which changes the best decision "
            f"of this problem: {why}. Leave it out"
        )


def _labels_belong_to_samples(problem: Any) -> bool:
    """Return whether fields of a problem differ by sample, or its decision function has the sample ids as argument."""
    if not isinstance(problem, (Problem, Model)):
        return False
    plain = problem_of_model(problem)
    asks = isinstance(plain, Oracle) and plain.takes_keys
    return asks or count_keyed_samples(problem) is not None
