"""``PreparedTask``: the samples of a task for one seed, the common start of all methods, and the measure of regret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pear.clock import read_clock
from pear.losses.methods import make_loss
from pear.losses.regret_outcome import RegretOutcome
from pear.problem import Model, Problem
from pear.problem.sample_keys import count_keyed_samples
from pear.tasks import Samples, Split
from pear.train import FitConfig, fit
from pear.train.validation_score import make_validation_outcomes
from pear_lab.field.field_tasks import field_tasks
from pear_lab.tasks.public import Drawing

Measure = Literal["normalized", "mean"]


class PreparedTaskJudge:
    """A function that returns the regret of forecasts on fixed samples. It is a metric of ``pear.fit``.

    Args:
        problem: the decision problem.
        costs: (N, k) the k true values of each of N samples.
        keys: (N,) the positions of the samples in a batch of problems; None if all samples share one problem.
        measure: "normalized" for ``Σ regret / Σ |best value|`` over the samples; "mean" for the mean regret.

    Attributes:
        check_seconds: the seconds of the last call, which ``pear.fit`` reads to keep the time cap.
    """

    def __init__(self, problem: Problem | Model, costs: Tensor, keys: Tensor | None, measure: Measure) -> None:
        self._outcomes: Callable[[Tensor], RegretOutcome] = make_validation_outcomes(problem, costs, keys)
        self._measure = measure
        self.check_seconds = 0.0

    def __call__(self, predicted: Tensor, true: Tensor | None = None) -> float:
        """Return the regret of forecasts (N, k). The argument ``true`` is ignored."""
        began = read_clock()
        outcome = self._outcomes(predicted)
        self.check_seconds = read_clock() - began
        return outcome.score if self._measure == "normalized" else float(outcome.regret.mean())


@dataclass(frozen=True)
class PreparedTask:
    """The data and the start that all methods share on a task with one seed.

    Attributes:
        problem: the decision problem, or a batch of problems.
        split: the samples, at most as many as the argument ``most`` of ``prepare_task`` allows.
        forecaster: function that makes an untrained forecaster.
        start: the weights of the common start, which ``pear.fit`` finds with the squared error.
        start_seconds: the seconds of training the common start.
        validation: the measure of regret on the validation samples.
        start_regret: the validation regret of the start.
        keys: the positions of training, validation and test samples in a batch of problems; None if all samples share
            one problem.
        measure: "normalized" or "mean", as in ``PreparedTaskJudge``.
    """

    problem: Problem | Model
    split: Split
    forecaster: Callable[[int, int], nn.Module]
    start: dict[str, Any]
    start_seconds: float
    validation: PreparedTaskJudge
    start_regret: float
    keys: tuple[Tensor, ...] | None
    measure: Measure

    def model(self, seed: int, start: bool = True) -> nn.Module:
        """Return a forecaster with the weights of the common start, or an untrained one if ``start`` is False.

        The seed determines the weights of an untrained forecaster.
        """
        model = fresh_task_model(self.forecaster, self.split.train, seed)
        if start:
            model.load_state_dict(self.start)
        return model

    @property
    def train(self) -> tuple[Any, ...]:
        """The features and the costs of the training samples; for a batch of problems, their keys follow."""
        return self.split.train if self.keys is None else (*self.split.train, self.keys[0])

    def test(self, *models: nn.Module) -> list[float]:
        """Return the test regret of each model."""
        judge = PreparedTaskJudge(
            self.problem, self.split.test.costs, None if self.keys is None else self.keys[2], self.measure
        )
        return [judge(forecast_task_samples(model, self.split.test)) for model in models]


def fresh_task_model(forecaster: Callable[[int, int], nn.Module], train: Samples, seed: int) -> nn.Module:
    """Return an untrained forecaster for the sizes of the samples ``train``. Its weights depend only on the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return forecaster(train.features.shape[-1], train.costs.shape[-1])


def forecast_task_samples(model: nn.Module, samples: Samples) -> Tensor:
    """Return a model's forecasts (N, k) for N samples."""
    model.eval()
    with torch.no_grad():
        predicted: Tensor = model(samples.features)
    return predicted


@lru_cache(maxsize=2)
def draw_prepared_task(name: str, seed: int) -> Drawing:
    """Return the problem and the samples of a task, drawn with a seed. The last two results are cached."""
    return field_tasks()[name].draw(seed)


@lru_cache(maxsize=2)
def prepare_task(name: str, seed: int, most: tuple[int, int, int]) -> PreparedTask:
    """Draw the samples of a task, train the common start, and return both. The last two results are cached.

    Args:
        name: the name of the task.
        seed: the seed of the samples, of the first weights and of the batches.
        most: the largest numbers of samples for training, validation and test. Of more samples, the first are used.
    """
    task, drawing = field_tasks()[name], draw_prepared_task(name, seed)
    split = Split(*(Samples(part.features[:k], part.costs[:k]) for part, k in zip(drawing.split, most, strict=True)))
    keys = None
    if count_keyed_samples(drawing.problem) is not None:
        counts = [len(part.costs) for part in drawing.split]
        begins = [0, counts[0], counts[0] + counts[1]]
        keys = tuple(torch.arange(at, at + len(part.costs)) for at, part in zip(begins, split, strict=True))
    judge = PreparedTaskJudge(drawing.problem, split.validation.costs, None if keys is None else keys[1], task.measure)
    began = read_clock()
    model = fresh_task_model(task.forecaster, split.train, seed)
    train = split.train if keys is None else (*split.train, keys[0])
    fit(model, make_loss("mse", drawing.problem), train, split.validation, judge, FitConfig(seed=seed))
    seconds = read_clock() - began
    regret = judge(forecast_task_samples(model, split.validation))
    return PreparedTask(
        drawing.problem, split, task.forecaster, model.state_dict(), seconds, judge, regret, keys, task.measure
    )
