"""``SampleBatch``: several samples as tensors. Every source of samples yields such batches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.train.samples.features import Features, feature_tensors, map_features, read_features
from pear.train.samples.sample_rows import Keys, read_sample_keys, read_sample_rows


class SampleBatch(NamedTuple):
    """B samples: their features, true costs, ids and weights.

    Attributes:
        features: (B, …), or a tuple or dict of such tensors for a model with several inputs.
        costs: (B, n) true costs.
        keys: B ids; None if the samples have no ids.
        weight: (B,) how much each sample counts; None if all samples count alike.
    """

    features: Features
    costs: Tensor
    keys: Keys | None
    weight: Tensor | None = None

    def only(self, which: Tensor) -> SampleBatch:
        """Return the samples with these row numbers, or those that a mask (B,) selects."""
        features = map_features(lambda part: part[which], self.features)
        weight = None if self.weight is None else self.weight[which]
        return SampleBatch(features, self.costs[which], _select_batch_keys(self.keys, which), weight)

    def to(self, like: Tensor) -> SampleBatch:
        """Return the batch with the dtype and device of ``like``. With several inputs, integers stay integers."""

        def convert(part: Tensor) -> Tensor:
            """Convert the tensor of one input."""
            whole = not part.is_floating_point() and not isinstance(self.features, Tensor)
            return part.detach().to(like.device, part.dtype if whole else like.dtype)

        keys = self.keys.to(like.device) if isinstance(self.keys, Tensor) else self.keys
        weight = None if self.weight is None else self.weight.to(like.device)
        costs = self.costs.detach().to(like.device, like.dtype)
        return SampleBatch(map_features(convert, self.features), costs, keys, weight)


def read_sample_batch(entries: Any, name: str) -> SampleBatch:
    """Return a pair (features, costs) or a triple (features, costs, ids) as a batch.

    Args:
        entries: the two or three entries, from the user, from a collated Dataset or from a DataLoader.
        name: the name of the samples in error messages.

    Raises:
        ProblemError: the entries have another form, or do not have the same number of rows.
    """
    if not isinstance(entries, (tuple, list)) or len(entries) not in (2, 3):
        raise ProblemError(
            f"a batch of {name} must be (features, costs) or (features, costs, ids); got "
            f"{describe_batch_type(entries)}. Several inputs of a model go together: ((a, b), costs)"
        )
    features = read_features(entries[0], f"the features of {name}")
    costs = read_sample_rows(entries[1], f"the costs of {name}")
    for part in feature_tensors(features):
        if len(part) != len(costs) or not len(costs):
            raise ProblemError(
                f"{name} must be features and costs of the same samples, at least one; got {len(part)} rows of "
                f"features and {len(costs)} of costs"
            )
    return SampleBatch(features, costs, read_sample_keys(entries[2], len(costs), name) if len(entries) == 3 else None)


def parameter_for_batches(model: nn.Module) -> Tensor:
    """Return the first trained parameter of a model. All batches for the model get its dtype and device."""
    like = next((p for p in model.parameters() if p.requires_grad), None)
    if like is None:
        raise ProblemError("the model has no parameter to train")
    return like


def join_batch_keys(keys: Sequence[Keys | None]) -> list[Hashable] | None:
    """Return the ids of several batches in one list; None if a batch has no ids."""
    if any(part is None for part in keys):
        return None
    return [one for part in keys for one in (part.tolist() if isinstance(part, Tensor) else part or ())]


def describe_batch_type(value: Any) -> str:
    """Return the type of a value in words, for an error message."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)} entries"
    return f"a {type(value).__name__}"


def _select_batch_keys(keys: Keys | None, which: Tensor) -> Keys | None:
    """Return the ids at these row numbers, or those that a mask selects."""
    if keys is None or isinstance(keys, Tensor):
        return None if keys is None else keys[which]
    rows = which.nonzero()[:, 0] if which.dtype == torch.bool else which
    return [keys[i] for i in rows.tolist()]
