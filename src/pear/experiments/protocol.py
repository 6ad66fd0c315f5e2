"""The paper's training protocol, random numbers included: followed in this order, its results come out to the digit.

One stream of random numbers, seeded first, serves the first weights, the order of the training samples, and the
validation loader, which draws one number a check though it does not shuffle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pear.experiments.specs import Run
from pear.losses.methods import METHODS, make_loss
from pear.tasks import Knapsack, ShortestPath, Split, random_knapsack, shortest_path
from pear.train import FitConfig, History, Progress, fit, in_order

FEATURES = 5


def paper_order(count: int, generator: torch.Generator) -> Tensor:
    """The order of a shuffling ``torch.utils.data.DataLoader`` that has no generator of its own, draw by draw.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> sorted(paper_order(4, generator).tolist())
        [0, 1, 2, 3]
    """
    torch.empty((), dtype=torch.int64).random_(generator=generator)  # the loader's seed for its workers
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator))
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def paper_model(n: int, seed: int, features: int = FEATURES) -> tuple[nn.Linear, torch.Generator]:
    """A linear layer with the paper's first weights, and the stream of random numbers that goes on from there.

    Args:
        n: costs to predict.
        seed: of the run.
        features: p, features per sample.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Linear(features, n)
        stream = torch.Generator()
        stream.set_state(torch.get_rng_state())
    return model, stream


def make_task(run: Run) -> ShortestPath | Knapsack:
    """The decision problem of a run; a knapsack's weights are drawn from its seed."""
    if run.task == "shortest_path":
        rows, columns = run.settings["grid"]
        return shortest_path((rows, columns))
    names = ("items", "dimensions", "capacity_ratio")
    # One thread: runs have a core each.
    return random_knapsack(**{name: run.settings[name] for name in names}, seed=run.seed, jobs=1)


def make_split(run: Run, task: ShortestPath | Knapsack) -> Split:
    """The run's samples in float32: half train, a quarter validates, the last quarter tests."""
    chosen = {name: run.settings[name] for name in ("degree", "noise")}
    return task.split(task.samples(run.settings["samples"], seed=run.seed, **chosen))


def train(
    run: Run,
    task: ShortestPath | Knapsack,
    split: Split,
    progress: Callable[[Progress], None] | None = None,
    loss: nn.Module | None = None,
) -> tuple[nn.Linear, History]:
    """Train a linear layer as the paper does.

    Adam with rate 1e-2, batches of 32, a check after the first and then every tenth epoch, patience of 3 checks that
    improve by no more than 1 %, the best weights.

    Args:
        run: what to train.
        task: of the run; split: its samples.
        progress: called after every epoch.
        loss: of ``make_run_loss``, for those who want to look at it afterwards; made here where it is left out.

    Returns:
        The model with its best weights, and the history.
    """
    model, stream = paper_model(task.problem.n, run.seed)
    loss = make_run_loss(run, task) if loss is None else loss
    shuffles = next(method for method in METHODS if method.name == run.method).shuffled

    def metric(predicted: Tensor, true: Tensor) -> float:
        torch.empty((), dtype=torch.int64).random_(generator=stream)
        return task.normalized_regret(predicted, true)

    history = fit(
        model,
        loss,
        split.train,
        split.validation,
        metric,
        FitConfig(
            learning_rate=1e-2,
            batch_size=32,
            max_epochs=run.settings["max_epochs"],
            check_every=10,
            patience=3,
            min_improvement=0.01,
            time_cap=run.settings["time_cap"],
            seed=stream,
        ),
        order=paper_order if shuffles else in_order,
        progress=progress,
    )
    return model, history


def make_run_loss(run: Run, task: ShortestPath | Knapsack) -> nn.Module:
    """The loss of a run, with the run's settings where it has any and the published ones elsewhere."""
    options: dict[str, Any] = {k: run.settings[k] for k in ("smoothing", "injection") if k in run.settings}
    return make_loss(run.method, task, **options)
