"""The networks that ``DecisionRegressor`` makes from its parameters, including the standardisation of features."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.problem.model import model_input_count
from pear.train.correction import Correction, correction_scale
from pear.train.estimator.loss_and_config import config_seed
from pear.train.long_table import Array

if TYPE_CHECKING:
    from pear.train.estimator.regressor import DecisionRegressor
    from pear.train.estimator.training_rows import TrainingRows


ARCHITECTURES = ("linear", "mlp")
"""The names of the networks that ``make_network`` makes."""


class NetworkStandardisation(nn.Module):
    """A module that standardises features to mean 0 and standard deviation 1 on the training rows.

    A constant feature becomes 0.

    Args:
        features: the p features of the training rows: (N, p), or (N, k, p) for the N·k rows of a long table.

    Attributes:
        mean, factor: (p,) buffers; the output is ``(x − mean) · factor``.

    Example:
        >>> NetworkStandardisation(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))(torch.tensor([[1.0, 9.0]]))
        tensor([[-1.,  0.]])
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        rows = features.double().flatten(0, -2)
        mean, spread = rows.mean(0), rows.std(0, correction=0)
        rounding = 8 * torch.finfo(features.dtype).eps * rows.abs().amax(0)
        factor = torch.where(spread > rounding, 1 / spread, 0.0)
        self.register_buffer("mean", mean.to(features.dtype))
        self.register_buffer("factor", factor.to(features.dtype))

    def forward(self, features: Tensor) -> Tensor:
        """Return the p features (…, p), standardised."""
        return (features - self.mean) * self.factor


class SharedNetwork(nn.Module):
    """A module that applies one network to every row of a long table.

    Args:
        network: a network from M rows of p features, (M, p), to a value for each row, (M, 1) or (M,).

    Example:
        >>> SharedNetwork(nn.Linear(3, 1))(torch.ones(4, 24, 3)).shape
        torch.Size([4, 24])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Tensor) -> Tensor:
        """Return a value for each row of p features: (…) for features (…, p)."""
        values: Tensor = self.network(features.flatten(0, -2))
        shape = features.shape[:-1]
        if values.numel() != shape.numel():
            raise ProblemError(
                f"with groups= the module must give one value for each row, (rows, 1) or (rows,); it gave "
                f"{tuple(values.shape)} for {shape.numel()} rows"
            )
        return values.reshape(shape)


class StandardisedNetwork(nn.Sequential):
    """A module that standardises features and applies a network. Further inputs go to the network unchanged."""

    def forward(self, features: Tensor, *others: Tensor) -> Tensor:
        """Return predicted values for p features (…, p), and for base forecasts if the network is a ``Correction``."""
        scaled, network = self
        values: Tensor = network(scaled(features), *others)
        return values

    def forecast(self, rows: Array, offset: Array | None) -> Array:
        """Return predicted values for N rows of p features, (N, p), as an array, in evaluation mode.

        Args:
            rows: (N, p).
            offset: the base forecasts if the network is a ``Correction``, otherwise None.
        """
        _, network = self
        # a linear layer does the same in all modes, and ``eval`` takes longer than its forecast of a row
        like = network.weight if type(network) is nn.Linear else next(self.eval().parameters())
        others = () if offset is None else (torch.from_numpy(offset).to(like),)
        with torch.no_grad():
            found: Array = self(torch.from_numpy(np.array(rows)).to(like), *others).cpu().numpy()
        return found


def make_network(name: str, inputs: int, outputs: int, hidden: Sequence[int], seed: int) -> nn.Module:
    """Return an untrained linear model, or an untrained perceptron with ReLU between its layers.

    Args:
        name: "linear" or "mlp".
        inputs: the number of features.
        outputs: the number of predicted values.
        hidden: the widths of the hidden layers of "mlp".
        seed: the seed of the random first weights.

    Example:
        >>> make_network("mlp", 4, 2, (8,), seed=0)[2]
        Linear(in_features=8, out_features=2, bias=True)
    """
    if name not in ARCHITECTURES:
        raise ProblemError(f"model must be 'linear', 'mlp' or a torch module; got {name!r}")
    sizes = [inputs, *(hidden if name == "mlp" else ()), outputs]
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        raise ProblemError(f"hidden_layer_sizes must be whole numbers of at least 1; got {hidden!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(*pair) for pair in pairwise(sizes)]
    if len(layers) == 1:
        return layers[0]
    between: list[nn.Module] = [part for layer in layers[:-1] for part in (layer, nn.ReLU())]
    return nn.Sequential(*between, layers[-1])


def build_network(estimator: DecisionRegressor, rows: TrainingRows) -> StandardisedNetwork:
    """Return the network of an estimator before any training, with a first part that standardises the features.

    The standardisation uses the means and deviations of the training rows. A module of the user is copied, and gets
    the features unchanged. For a long table, one network is applied to all rows. If there are forecasts to correct,
    the network is a ``Correction``.
    """
    features = rows.features
    if isinstance(estimator.model, nn.Module):
        scaled: nn.Module = nn.Identity()
        network = copy.deepcopy(estimator.model)
    else:
        outputs = 1 if estimator._long else model_input_count(estimator.problem)
        sizes = features.shape[-1], outputs, tuple(estimator.hidden_layer_sizes)
        network = make_network(estimator.model, *sizes, config_seed(estimator.random_state)).to(features)
        scaled = NetworkStandardisation(features)
    network = SharedNetwork(network) if estimator._long else network
    if rows.offset is None:
        return StandardisedNetwork(scaled, network)
    optional = rows.offsets is not None and not isinstance(estimator.model, nn.Module)
    corrected = Correction(network, correction_scale(rows.offset, rows.costs), optional).to(features)
    corrected.check_start(scaled(features[:1]))
    return StandardisedNetwork(scaled, corrected)
