"""The protocol of tasks on tables of real data: a training for each candidate of a setting, and scores by instance."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from pear.losses.methods import method
from pear.tasks import Knapsack
from pear.train import FitConfig, History, fit, in_order, shuffled
from pear_lab.data import BuildingData, EnergyData, load_building, load_energy
from pear_lab.data.data_files import VARIABLE
from pear_lab.experiments.catalogue import OURS, TUNED
from pear_lab.experiments.protocols.protocol import (
    Listener,
    Protocol,
    Say,
    TrainingResult,
    forecast_scores,
    make_published_loss,
)
from pear_lab.experiments.run_spec import RunSpec
from pear_lab.tasks import Building, SharedLinear, Subset, TaskSplit, building_split, energy_split, metrics


@dataclass(frozen=True)
class _TabularData:
    split: TaskSplit[Building] | TaskSplit[Knapsack]
    factors: Tensor | None
    fingerprint: str

    def model(self, seed: int) -> SharedLinear:
        """Return a new model, whose initial weights depend on the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return SharedLinear(self.split.train.samples.features.shape[-1], self.factors)


class TabularProtocol(Protocol):
    """The protocol of tasks on tables of real data. One linear model predicts the values of all items."""

    def method_settings(self, method: str) -> dict[str, Any]:
        """Return the settings of a method.

        The setting ``tuned`` lists, for each tuned option of the loss, the values to try. PEAR with our defaults has no
        tuned options, and starts from weights that were trained on the squared error.
        """
        own = super().method_settings(method)
        if method == OURS:
            return {**own, "start": "mse"}
        return {**own, "tuned": TUNED[method]} if method in TUNED else own

    def check(self, run: RunSpec, say: Say = lambda line: None) -> None:
        """Read the files that the run needs; raise an error if one is missing or broken."""
        _load_data_set(run.task, run.settings.get("features", ""), os.environ.get(VARIABLE))

    def train(self, run: RunSpec, progress: Listener = None) -> TrainingResult:
        """Train with every combination of values in ``tuned``, and return the model with the best validation regret.

        Raises:
            KeyboardInterrupt: stopped by the user.
        """
        prepared = _load_tabular_data(run)
        tuned = run.settings.get("tuned", {})
        candidates = [dict(zip(tuned, values, strict=True)) for values in product(*tuned.values())]
        _compile_before_training(run, prepared)
        tried = [(options, *_train_candidate(run, prepared, options, progress)) for options in candidates]
        options, model, history = min(tried, key=lambda one: one[2].best.metric if one[2].best else math.inf)
        chosen = {"chosen": options, "data": prepared.fingerprint}
        return TrainingResult(
            model,
            history,
            lambda: {**instance_scores(prepared.split.test, model, prepared.split.unit), **chosen},
            tuple(one[2] for one in tried),
        )

    def model(self, run: RunSpec) -> SharedLinear:
        """Return a linear model of the table's features."""
        return _load_tabular_data(run).model(run.seed)


def instance_scores(subset: Subset[Building] | Subset[Knapsack], model: SharedLinear, unit: float) -> dict[str, Any]:
    """Return the scores of a model on a subset: those of ``forecast_scores``, and the entry ``instances``.

    This entry holds, for every instance, its id, the regret of the decision (``lost``) and the absolute value of the
    best decision (``best``), in the unit of the data. Paired comparisons of methods draw bootstrap samples from these
    numbers.
    """
    task, (features, values) = subset.task, subset.samples
    with torch.no_grad():
        predicted = model(features)
    outcome = task.outcome(predicted, values)
    instances = {
        "id": list(subset.ids),
        "lost": (unit * outcome.regret).tolist(),
        "best": (unit * outcome.best).abs().tolist(),
    }
    return {**forecast_scores(task, predicted, values, ties=task.problem.is_integer), "instances": instances}


def _compile_before_training(run: RunSpec, prepared: _TabularData) -> None:
    """Do one training step and one validation before the clock starts, so that compilation does not count."""
    train, validation = prepared.split.train, prepared.split.validation
    model, keys = prepared.model(run.seed), torch.arange(min(run.settings["batch_size"], len(train.ids)))
    features, values = (rows[keys] for rows in train.samples)
    make_published_loss(run, train.task)(model(features), values, keys=keys).backward()
    with torch.no_grad():
        validation.task.outcome(model(validation.samples.features), validation.samples.costs)


def _train_candidate(
    run: RunSpec, prepared: _TabularData, options: dict[str, float], progress: Listener
) -> tuple[SharedLinear, History]:
    """Train one model whose loss has the given options, and return it with its history."""
    train, validation = prepared.split.train, prepared.split.validation
    model = prepared.model(run.seed)
    start = run.settings.get("start", "given")
    names = ("batch_size", "check_every", "patience", "time_cap", "max_epochs")
    history = fit(
        model,
        make_published_loss(run, train.task, **options),
        train.samples,
        validation.samples,
        lambda predicted, true: metrics.published_regret_metric(validation.task.outcome(predicted, true)),
        FitConfig(learning_rate=1e-2, seed=run.seed, start=start, **{name: run.settings[name] for name in names}),
        order=shuffled if method(run.method).shuffled else in_order,
        progress=progress,
    )
    if history.interrupted:
        raise KeyboardInterrupt
    return model, history


def _load_tabular_data(run: RunSpec) -> _TabularData:
    """Return the data set of a run, split into training, validation and test."""
    data = _load_data_set(run.task, run.settings.get("features", ""), os.environ.get(VARIABLE))
    if isinstance(data, BuildingData):
        names = ("fold", "instance_size", "budget", "version")
        chosen = {name: run.settings[name] for name in names}
        return _TabularData(building_split(data, run.seed, **chosen), None, data.fingerprint)
    split = energy_split(data, run.settings["capacity"], run.settings["shares"])
    return _TabularData(split, data.weights, data.fingerprint)


@lru_cache(maxsize=4)
def _load_data_set(task: str, features: Any, root: str | None) -> BuildingData | EnergyData:
    """Return the data set of a task, which is read once per process.

    Args:
        task: "building", or any other name for the energy data.
        features: the setting ``features`` of the run. Only the building data depends on it.
        root: the value of ``$PEAR_DATA``.
    """
    return load_building(root, features) if task == "building" else load_energy(root)
