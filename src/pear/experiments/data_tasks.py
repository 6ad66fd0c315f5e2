"""Runs on real data: the parts of a run, one training for each candidate of a setting, scores instance by instance."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from pear.experiments.errors import RunError
from pear.experiments.specs import DATA_TASKS, Run
from pear.losses.methods import make_loss, method
from pear.tasks import (
    Building,
    BuildingData,
    EnergyData,
    Knapsack,
    Part,
    Parts,
    SharedLinear,
    building_parts,
    energy_parts,
    load_building,
    load_energy,
    metrics,
)
from pear.tasks.files import VARIABLE
from pear.train import FitConfig, History, Progress, fit, in_order, shuffled

DataTask = Building | Knapsack


@dataclass(frozen=True)
class Trained:
    """A model and the columns of its row.

    Attributes:
        model: of the candidate that validated best.
        found: "metrics", "timings" and "history".
    """

    model: SharedLinear
    found: dict[str, Any]


@dataclass(frozen=True)
class _Prepared:
    parts: Parts[Building] | Parts[Knapsack]
    factors: Tensor | None
    fingerprint: str

    def model(self, seed: int) -> SharedLinear:
        """With first weights that depend on the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return SharedLinear(self.parts.train.samples.features.shape[-1], self.factors)


def check_data(runs: Iterable[Run]) -> None:
    """Read the files that these runs need, so that a missing or broken one shows before the first run.

    Raises:
        DataError: says what is missing, where it was looked for and how to get it.
        MissingExtraError: a package to read it with is not installed.
    """
    for task, features in {(run.task, run.settings.get("features", "")) for run in runs if run.task in DATA_TASKS}:
        _load(task, features, os.environ.get(VARIABLE))


def train_on_data(run: Run, progress: Callable[[Progress], None] | None = None) -> Trained:
    """Train with every candidate of what the run tunes, keep the one that validates best, and test that one.

    Args:
        run: on one of ``DATA_TASKS``; its settings name the parts, the candidates and the budget.
        progress: called after every epoch.

    Raises:
        KeyboardInterrupt: stopped by the user.
        RunError: no check of the validation instances was made.
    """
    prepared = _prepare(run)
    parts = prepared.parts
    tuned = run.settings.get("tuned", {})
    candidates = [dict(zip(tuned, values, strict=True)) for values in product(*tuned.values())]
    _compile(run, prepared)
    tried = [(options, *_train(run, prepared, options, progress)) for options in candidates]
    best_metric = [float("inf") if h.best is None else h.best.metric for _, _, h in tried]
    options, model, history = tried[best_metric.index(min(best_metric))]
    if history.best is None:
        raise RunError("no check of the validation samples was made")
    began = time.perf_counter()
    found = scores(parts.test, model, parts.unit)
    found |= {"validation_regret": history.best.metric, "chosen": options, "data": prepared.fingerprint}
    timings = {"total": sum(h.seconds for *_, h in tried), "epochs": float(sum(h.epochs for *_, h in tried))}
    for name in history.split:
        timings[name] = sum(h.split[name] for *_, h in tried)
    timings["test"] = time.perf_counter() - began
    checks = [[check.epoch, check.seconds, check.loss, check.metric] for check in history.checks]
    return Trained(model, {"metrics": found, "timings": timings, "history": checks})


def scores(part: Part[Building] | Part[Knapsack], model: SharedLinear, unit: float) -> dict[str, Any]:
    """Scores of a model on a part; regrets and gaps are shares of the best value.

    ``instances`` has, for every instance, its id, what the decision lost and what the best one earns, in the data's own
    unit: what a paired comparison of methods resamples.
    """
    task, (features, values) = part.task, part.samples
    with torch.no_grad():
        predicted = model(features)
    best, earned = ((values * task.decide(costs)).sum(1) for costs in (values, predicted))
    gap = metrics.relaxation_gap(task, predicted, values)
    found = {
        "normalized_regret": task.normalized_regret(predicted, values),
        "mse": metrics.mse(predicted, values),
        "relaxation_gap": gap.gap,
        "relaxation_share": gap.share,
        "instances": {
            "id": list(part.ids),
            "lost": (unit * (best - earned)).tolist(),
            "best": (unit * best).abs().tolist(),
        },
    }
    if task.problem.is_integer:
        found["unambiguous_regret"] = metrics.unambiguous_regret(task, predicted, values)
    return found


def _compile(run: Run, prepared: _Prepared) -> None:
    """One step and one check that count for nothing: what they compile must not be charged to the time cap."""
    train, validation = prepared.parts.train, prepared.parts.validation
    model, keys = prepared.model(run.seed), torch.arange(min(run.settings["batch_size"], len(train.ids)))
    features, values = (rows[keys] for rows in train.samples)
    make_loss(run.method, train.task)(model(features), values, keys=keys).backward()
    with torch.no_grad():
        validation.task.normalized_regret(model(validation.samples.features), validation.samples.costs)


def _train(
    run: Run, prepared: _Prepared, options: dict[str, float], progress: Callable[[Progress], None] | None
) -> tuple[SharedLinear, History]:
    train, validation = prepared.parts.train, prepared.parts.validation
    model = prepared.model(run.seed)
    names = ("batch_size", "check_every", "patience", "time_cap", "max_epochs")
    history = fit(
        model,
        make_loss(run.method, train.task, **options),
        train.samples,
        validation.samples,
        validation.task.normalized_regret,
        FitConfig(learning_rate=1e-2, seed=run.seed, **{name: run.settings[name] for name in names}),
        order=shuffled if method(run.method).shuffled else in_order,
        progress=progress,
    )
    if history.interrupted:
        raise KeyboardInterrupt
    return model, history


def _prepare(run: Run) -> _Prepared:
    data = _load(run.task, run.settings.get("features", ""), os.environ.get(VARIABLE))
    if isinstance(data, BuildingData):
        names = ("fold", "instance_size", "budget", "version")
        chosen = {name: run.settings[name] for name in names}
        return _Prepared(building_parts(data, run.seed, **chosen), None, data.fingerprint)
    parts = energy_parts(data, run.settings["capacity"], run.settings["shares"])
    return _Prepared(parts, data.weights, data.fingerprint)


@lru_cache(maxsize=4)
def _load(task: str, features: Any, root: str | None) -> BuildingData | EnergyData:
    """Read once a process; ``root`` is what the environment names, so that another folder is another entry."""
    return load_building(root, features) if task == "building" else load_energy(root)
