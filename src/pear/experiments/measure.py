"""What is measured on the test samples, and on trained weights under changed conditions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pear.experiments.errors import RunError
from pear.experiments.specs import CAPACITIES, Run
from pear.tasks import Knapsack, Samples, ShortestPath, metrics

LPTask = ShortestPath | Knapsack


def scores(task: LPTask, model: nn.Module, test: Samples) -> dict[str, Any]:
    """The scores of a trained model; regrets and gaps are shares of the best value.

    Args:
        task: what is decided; model: forecasts its costs.
        test: samples that training has not seen.
    """
    with torch.no_grad():
        predicted = model(test.features)
    gap = metrics.relaxation_gap(task, predicted, test.costs)
    return {
        "normalized_regret": task.normalized_regret(predicted, test.costs),
        "unambiguous_regret": metrics.unambiguous_regret(task, predicted, test.costs),
        "mse": metrics.mse(predicted, test.costs),
        "relaxation_gap": gap.gap,
        "relaxation_share": gap.share,
    }


def measure(run: Run, task: LPTask, model: nn.Module, test: Samples) -> dict[str, Any]:
    """What a run's variant asks for.

    Args:
        run: has a variant.
        task: that the model was trained on; model: with the trained weights.
        test: samples that training has not seen.
    """
    with torch.no_grad():
        predicted = model(test.features)
    if run.variant == "accuracy":
        return {"mse": metrics.mse(predicted, test.costs)}
    if run.variant == "stability":
        percent = metrics.active_change_rate(task.problem, predicted, smoothing=run.settings["smoothing"])
        return {"active_change_rate": percent / 100}
    if run.variant == "direction-shift" and isinstance(task, ShortestPath):
        variants: dict[str, LPTask] = {"forward": task, "cross": task.crossed()}
    elif run.variant == "capacity-shift" and isinstance(task, Knapsack):
        variants = {f"{ratio:g}": task.with_capacity(ratio) for ratio in CAPACITIES}
    else:
        raise RunError(f"{run.variant} cannot be measured on {task.name}")
    return {"shift": {name: shifted.normalized_regret(predicted, test.costs) for name, shifted in variants.items()}}
