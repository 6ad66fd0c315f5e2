"""The paper's training protocol, which repeats the paper's results to the last printed digit.

To do so, it draws random numbers in the paper's order, from one stream that is seeded once. The stream serves the first
weights, the order of the training samples, and the validation loader, which draws one number at each check although it
does not shuffle.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pear.losses.methods import method
from pear.tasks import Knapsack, Samples, ShortestPath, Split, random_knapsack, shortest_path
from pear.train import FitConfig, History, fit, in_order
from pear_lab.experiments.catalogue import CAPACITIES
from pear_lab.experiments.experiment_errors import RunError
from pear_lab.experiments.protocols.protocol import (
    Listener,
    Protocol,
    TrainingResult,
    forecast_scores,
    make_published_loss,
)
from pear_lab.experiments.run_spec import RunSpec
from pear_lab.experiments.table_spec import DEFAULTS
from pear_lab.tasks import metrics

LPTask = ShortestPath | Knapsack

FEATURES = 5
_PUBLISHED_FIT: dict[str, Any] = {
    "learning_rate": 1e-2, "batch_size": 32, "check_every": 10, "patience": 3, "min_improvement": 0.01
}  # fmt: skip


def paper_order(count: int, generator: torch.Generator) -> Tensor:
    """Return an order of samples, drawn as a ``DataLoader`` of torch with ``shuffle=True`` draws it.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> sorted(paper_order(4, generator).tolist())
        [0, 1, 2, 3]
    """
    torch.empty((), dtype=torch.int64).random_(generator=generator)  # the loader's seed for its workers
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator))
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def paper_model(n: int, seed: int, features: int = FEATURES) -> tuple[nn.Linear, torch.Generator]:
    """Return a linear layer with the paper's first weights, and the random stream after the draw of these weights.

    Args:
        n: number of costs to predict.
        seed: seed of the run.
        features: number of features per sample.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Linear(features, n)
        stream = torch.Generator()
        stream.set_state(torch.get_rng_state())
    return model, stream


def make_task(run: RunSpec) -> LPTask:
    """Return the task of a run. The weights of a knapsack are drawn from the seed of the run."""
    if run.task == "shortest_path":
        rows, columns = run.settings["grid"]
        return shortest_path((rows, columns))
    names = ("items", "dimensions", "capacity_ratio")
    # One thread: runs have a core each.
    return random_knapsack(**{name: run.settings[name] for name in names}, seed=run.seed, jobs=1)


def make_split(run: RunSpec, task: LPTask) -> Split:
    """Draw the samples of a run: half of them for training, a quarter for validation, and a quarter for the test."""
    chosen = {name: run.settings[name] for name in ("degree", "noise")}
    return task.split(task.samples(run.settings["samples"], seed=run.seed, **chosen))


def train_as_published(
    run: RunSpec, task: LPTask, split: Split, progress: Listener = None, loss: nn.Module | None = None
) -> tuple[nn.Linear, History]:
    """Train a linear layer as the paper does, and return it with its history.

    Adam has the learning rate 1e-2, and a batch has 32 samples. The model is checked on the validation samples after
    the epochs 1, 11, 21, … and after the last one. Training ends after 3 checks in a row that improve by at most 1 %.
    The best weights are kept.

    Args:
        run: specification of the training.
        task: task of the run, from ``make_task``.
        split: samples of the run, from ``make_split``.
        progress: called after every epoch.
        loss: loss from ``make_run_loss``, for callers that inspect it afterwards; by default it is made here.

    Returns:
        The model with its best weights, and the history.
    """
    model, stream = paper_model(task.problem.n, run.seed)
    loss = make_run_loss(run, task) if loss is None else loss

    def metric(predicted: Tensor, true: Tensor) -> float:
        torch.empty((), dtype=torch.int64).random_(generator=stream)
        return metrics.published_regret_metric(task.outcome(predicted, true))

    budget = {name: run.settings[name] for name in ("max_epochs", "time_cap")}
    config = FitConfig(**_PUBLISHED_FIT, **budget, seed=stream, start="given")
    order = paper_order if method(run.method).shuffled else in_order
    return model, fit(model, loss, split.train, split.validation, metric, config, order=order, progress=progress)


def make_run_loss(run: RunSpec, task: LPTask) -> nn.Module:
    """Return the loss of a run. Settings that the run does not name are the published ones."""
    options: dict[str, Any] = {k: run.settings[k] for k in ("smoothing", "injection") if k in run.settings}
    return make_published_loss(run, task, **options)


class LPProtocol(Protocol):
    """The protocol of the paper's synthetic linear and integer programs."""

    def method_settings(self, method: str) -> dict[str, Any]:
        """Return the options of a method's loss, and a noise of zero. An experiment may set another noise.

        For PEAR as published ("pear"), the paper's smoothing and injection are included.
        """
        own = DEFAULTS if method == "pear" else {"noise": DEFAULTS["noise"]}
        return {**own, **super().method_settings(method)}

    def train(self, run: RunSpec, progress: Listener = None) -> TrainingResult:
        """Train a linear layer on the first half of the samples. The test samples are the last quarter."""
        task = make_task(run)
        split = make_split(run, task)
        model, history = train_as_published(run, task, split, progress)
        return TrainingResult(
            model, history, lambda: forecast_scores(task, _predict(model, split.test), split.test.costs), (history,)
        )

    def model(self, run: RunSpec) -> nn.Linear:
        """Return a linear layer with an output for each cost of the run's task."""
        return paper_model(make_task(run).problem.n, run.seed)[0]

    def measure(self, run: RunSpec, model: nn.Module) -> dict[str, Any]:
        """Return what the run's variant names.

        This is the squared error ("accuracy"), the change rate of the active set ("stability"), or the regret on
        changed problems ("direction-shift" and "capacity-shift").

        Raises:
            RunError: there is no such variant, or it cannot be measured on the task.
        """
        task = make_task(run)
        test = make_split(run, task).test
        predicted = _predict(model, test)
        if run.variant == "accuracy":
            return {"mse": metrics.mse_metric(predicted, test.costs)}
        if run.variant == "stability":
            rate = metrics.active_change_metric(task.problem, predicted, smoothing=run.settings["smoothing"])
            return {"active_change_rate": rate}
        if run.variant == "direction-shift" and isinstance(task, ShortestPath):
            changed: dict[str, LPTask] = {"forward": task, "cross": task.crossed()}
        elif run.variant == "capacity-shift" and isinstance(task, Knapsack):
            changed = {f"{ratio:g}": task.with_capacity(ratio) for ratio in CAPACITIES}
        else:
            raise RunError(f"{run.variant} cannot be measured on {task.name}")
        outcomes = {name: other.outcome(predicted, test.costs) for name, other in changed.items()}
        return {"shift": {name: metrics.published_regret_metric(outcome) for name, outcome in outcomes.items()}}


def _predict(model: nn.Module, samples: Samples) -> Tensor:
    with torch.no_grad():
        predicted: Tensor = model(samples.features)
    return predicted
