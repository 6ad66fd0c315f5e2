"""PyEPO's SPO+ with OR-Tools, its open solver back end, trained for some epochs under the paper's protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

PACKAGES = ("pyepo", "ortools", "torch", "numpy")
MSE_WEIGHT = 0.01
"""What the paper adds to SPO+: 0.01 · ½‖ĉ − c‖²."""


def prepare(data: dict[str, Any], device: str) -> Callable[[], dict[str, Any]]:
    """A linear layer, Adam with rate 1e-2, batches of 32 in a shuffling loader.

    Args:
        data: ``features`` (N, p), ``costs`` (N, n), ``first_weight`` and ``first_bias`` of the layer, ``epochs``, and
            ``grid`` (2,), or ``weights`` (k, n) and ``capacity`` (k,).
        device: "cpu".
    """
    import torch

    model = _model(data)
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


def _model(data: dict[str, Any]) -> Any:
    models = import_module("pyepo.model.ort")
    if "grid" in data:
        return models.shortestPathModel(tuple(int(size) for size in data["grid"]))
    return models.knapsackModel(data["weights"], data["capacity"], "scip")
