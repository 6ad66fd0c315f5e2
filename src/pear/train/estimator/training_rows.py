"""``TrainingRows``: the samples that a ``DecisionRegressor`` is trained on, read from tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pear.problem import Model, Problem
from pear.problem.known_samples import insert_known_samples, read_known_samples
from pear.problem.model import problem_of_model
from pear.problem.pandas_data import check_pandas_columns
from pear.train.base_forecast import CorrectionOffsets
from pear.train.estimator.base_offset import base_offset, fit_base_offset
from pear.train.estimator.estimator_tables import (
    check_table_columns,
    name_table_columns,
    read_table_groups,
    read_table_values,
    read_table_weights,
)
from pear.train.estimator.number_checks import check_numbers
from pear.train.long_table import Array
from pear.train.samples.memory_samples import MemorySamples
from pear.train.samples.sample_batch import SampleBatch

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor

_KINDS = np.float64, np.float32


class TrainingRows(NamedTuple):
    """The samples of a call of ``fit`` or ``partial_fit``, as tensors.

    Attributes:
        features: (N, p), p features of N samples, or (N, k, p) from a long table.
        costs: (N, k) the k true values of each sample.
        offset: (N, k) the forecasts that are corrected; None if the estimator corrects nothing.
        known: (N, m) the m known numbers of each sample, in the order of ``Model.known_map.names``; None for a problem
            without known values.
        weight: (N,) how much each sample counts; None if all samples count alike.
        offsets: the kinds of forecasts among which a race chooses those that take the place of ``offset``; None if it
            has no such choice.
    """

    features: Tensor
    costs: Tensor
    offset: Tensor | None
    known: Tensor | None = None
    weight: Tensor | None = None
    offsets: CorrectionOffsets | None = None

    def batch(self, scaled: Any) -> SampleBatch:
        """Return the samples as a batch: the features for the network, and the costs.

        The features are scaled by the module ``scaled``. If there are forecasts to correct, the features are the pair
        of the scaled features and these forecasts.
        """
        features: Tensor = scaled(self.features)
        return SampleBatch(features if self.offset is None else (features, self.offset), self.costs, None)

    def samples(self, scaled: Any, ids: Any) -> tuple[Any, ...] | MemorySamples:
        """Return a tuple of the features for the network, the costs and, unless it is None, ``ids``.

        If there are ``offsets``, the result is a ``MemorySamples`` with the entries of the tuple and with ``offsets``.

        Args:
            scaled: the module that scales the features.
            ids: the row of the problem that belongs to each sample, (N,), or None.
        """
        features, costs = self.batch(scaled)[:2]
        given = (features, costs) if ids is None else (features, costs, ids)
        return given if self.offsets is None else replace(MemorySamples.read(given, "train"), offsets=self.offsets)

    def with_known_in(self, order: Array | None) -> TrainingRows:
        """Return the same samples with the rows of ``known`` in this order; None keeps the order.

        All other tensors keep their order: they were read from tables that were sorted by time, and ``known`` was not.

        Args:
            order: (N,) the former row number of each sample, or None.
        """
        if self.known is None or order is None:
            return self
        return self._replace(known=self.known[torch.from_numpy(order)])


def problem_of_training_rows(
    problem: Problem | Model, rows: TrainingRows, held_out: TrainingRows | None
) -> Problem | Model:
    """Return the problem with the known numbers of the training samples and then those of the validation samples.

    A problem without known values is returned unchanged. ``held_out`` has the validation samples, or is None.
    """
    if not isinstance(problem, Model) or problem.known_map is None:
        return problem
    parts = [part.known for part in (rows, held_out) if part is not None and part.known is not None]
    bound: Problem | Model = insert_known_samples(problem, torch.cat(parts))
    return bound


def read_training_rows(
    estimator: DecisionRegressor, given: Mapping[str, Any], dtype: torch.dtype | None = None, least: int = 1
) -> TrainingRows:
    """Read the training samples from tables, which scikit-learn and the estimator check.

    Args:
        estimator: the estimator. If ``dtype`` is None, the results of an earlier training are deleted, and the
            estimator records the columns of the tables, and whether the tables are long.
        given: X, y, groups, base_forecast, known and sample_weight, by name.
        dtype: the dtype of the model, if its training is continued; None if a new training begins.
        least: the smallest allowed number of rows.
    """
    from sklearn.utils.validation import validate_data

    fresh, X, y = dtype is None, given["X"], given["y"]
    if fresh:
        estimator._forget()
    for name, table in (("X", X), ("y", y)):
        check_numbers(table, name)
    numbers: dict[str, Any] = {"dtype": list(_KINDS), "reset": fresh, "ensure_min_samples": least}
    rows, true = validate_data(estimator, X, y, multi_output=True, y_numeric=True, **numbers)
    if fresh:
        estimator._long = given.get("groups") is not None
    groups = read_table_groups(estimator, given.get("groups"), len(rows))
    values = read_table_values(estimator, true, groups)
    if fresh:
        estimator._columns, estimator._flat = name_table_columns(y, groups), true.ndim == 1
        if groups is None:
            check_pandas_columns(estimator.problem, estimator._columns, "y")
    else:
        check_table_columns(estimator, y)
    device, features = problem_of_model(estimator.problem).device, torch.from_numpy(np.array(rows))
    kind = dtype or features.dtype
    costs = torch.from_numpy(np.array(values)).to(device, kind)
    table = given.get("base_forecast")
    if fresh:
        offset, offsets = fit_base_offset(estimator, X, y, costs, groups, table)
    else:
        offset, offsets = base_offset(estimator, X, table, groups), None
    return TrainingRows(
        (features if groups is None else features[torch.from_numpy(groups.rows)]).to(device, kind),
        costs,
        None if offset is None else torch.from_numpy(offset).to(device, kind),
        read_known_samples(estimator.problem, given.get("known"), len(costs)),
        read_table_weights(given.get("sample_weight"), len(rows), groups),
        offsets,
    )
