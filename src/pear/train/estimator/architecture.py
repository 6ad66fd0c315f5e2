"""The untrained model that the parameters of a ``DecisionRegressor`` ask for."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from torch import nn

from pear.problem.model import input_count
from pear.train.base_forecast import Correction, typical_error
from pear.train.estimator.loss_setup import seed_of
from pear.train.estimator.networks import SharedNetwork, Standardise, StandardisedModel, make_network

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor
    from pear.train.estimator.training_rows import TrainingRows


def build_model(estimator: DecisionRegressor, rows: TrainingRows) -> StandardisedModel:
    """Make the standardisation of these rows' features, followed by the untrained network.

    The network is shared by the rows of a group where the table is a long one, and a correction where there are
    forecasts of a base.
    """
    features = rows.features
    if isinstance(estimator.model, nn.Module):
        scaled: nn.Module = nn.Identity()
        network = copy.deepcopy(estimator.model)
    else:
        outputs = 1 if estimator._long else input_count(estimator.problem)
        sizes = features.shape[-1], outputs, tuple(estimator.hidden_layer_sizes)
        network = make_network(estimator.model, *sizes, seed_of(estimator.random_state)).to(features)
        scaled = Standardise(features)
    network = SharedNetwork(network) if estimator._long else network
    if rows.offset is None:
        return StandardisedModel(scaled, network)
    corrected = Correction(network, typical_error(rows.offset, rows.costs)).to(features)
    corrected.check_start(scaled(features[:1]))
    return StandardisedModel(scaled, corrected)
