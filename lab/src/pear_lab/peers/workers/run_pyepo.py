"""SPO+ of PyEPO with OR-Tools, an open solver, trained for some epochs under the paper's protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("pyepo", "ortools", "torch", "numpy")
MSE_WEIGHT = 0.01
"""The weight of the squared error ½‖ĉ − c‖², which the paper adds to SPO+."""


def prepare_pyepo_training(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """Return a function that trains a linear layer, and returns its weights and the seconds of the training.

    Adam trains at a rate of 1e-2, in shuffled batches of 32.

    Args:
        data: ``features`` (B, p), ``costs`` (B, n), ``first_weight`` and ``first_bias`` of the layer, ``epochs``,
            ``seed``, and ``grid`` (2,) for paths, or ``weights`` (k, n) and ``capacity`` (k,) for k capacities.
        device: "cpu".
    """
    import torch

    model = _make_pyepo_model(data)
    features, costs = (torch.from_numpy(data[name]) for name in ("features", "costs"))
    dataset = import_module("pyepo.data.dataset").optDataset(model, features, costs)  # solves the true problems
    loss = import_module("pyepo.func").SPOPlus(model, processes=1)

    def step() -> dict[str, Any]:
        torch.manual_seed(int(data["seed"]))
        layer = torch.nn.Linear(features.shape[1], costs.shape[1])
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(data["first_weight"]))
            layer.bias.copy_(torch.from_numpy(data["first_bias"]))
        optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
        loader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True)
        began = time.perf_counter()
        for _ in range(int(data["epochs"])):
            for x, c, z, value in loader:
                predicted = layer(x)
                error = loss(predicted, c, z, value) + MSE_WEIGHT * 0.5 * (predicted - c).square().sum(1).mean()
                optimizer.zero_grad()
                error.backward()
                optimizer.step()
        seconds = time.perf_counter() - began
        return {
            "weight": layer.weight.detach().numpy(),
            "bias": layer.bias.detach().numpy(),
            "training_seconds": seconds,
        }

    return step


def _make_pyepo_model(data: dict[str, Any]) -> Any:
    """Make PyEPO's model of paths or knapsacks."""
    models = import_module("pyepo.model.ort")
    if "grid" in data:
        return models.shortestPathModel(tuple(int(size) for size in data["grid"]))
    return models.knapsackModel(data["weights"], data["capacity"], "scip")


PREPARE = prepare_pyepo_training
