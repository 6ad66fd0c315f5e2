"""``FieldProtocol``: the training that every method of the comparison gets.

All begin from the same weights, those of the squared error. Each of five settings is trained for a few epochs; the one
with the lowest regret on the validation samples is trained to the end. The weights of the best check are kept, those of
the start among them. The test samples are looked at once, after all choices.
"""

from __future__ import annotations

import copy
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pear.clock import count_processor_time, read_clock
from pear.errors import DataError, ProblemError, SolveError, TrainingError
from pear.losses.methods import make_loss, method
from pear.problem import Model, Problem
from pear.train import Check, FitConfig, History, fit, in_order, shuffled
from pear.train.optimizer import make_optimizer
from pear_lab.data.data_files import VARIABLE
from pear_lab.experiments.experiment_errors import RunError
from pear_lab.experiments.protocols import Protocol, TrainingResult
from pear_lab.experiments.protocols.protocol import Listener, Say
from pear_lab.experiments.run_spec import RunSpec
from pear_lab.field.field_methods import Setting
from pear_lab.field.field_tasks import field_tasks, has_data
from pear_lab.field.hard_limit import TooSlowError, at_most
from pear_lab.field.prepared_task import PreparedTask, draw_task, prepare_task

NOT_APPLICABLE = "does not apply: "
"""The beginning of the reason of a run whose method cannot train its task."""

FEW = 4
"""The samples of the training that comes before the clock starts."""

COMPILE_SECONDS = 20.0
"""The time that this training has where something may have to be compiled."""

STEP_SHARE = 2.0
"""The time that it has otherwise, as a multiple of the time cap."""

HARD_SHARE = 10.0
"""A training that takes this multiple of its time cap is ended, even within a step."""


@dataclass
class _Try:
    """One setting: its loss, model and optimizer, the checkpoint from which it continues, and its outcome.

    Attributes:
        failure: why its training failed; "" where it did not.
    """

    setting: Setting
    loss: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    checkpoint: Path | None = None
    history: History | None = None
    failure: str = ""

    @property
    def regret(self) -> float:
        """The best validation regret so far; infinite where there is none."""
        return math.inf if self.history is None or self.history.best is None else self.history.best.metric

    def as_record(self) -> dict[str, Any]:
        """Describe the try for the database."""
        found: dict[str, Any] = {"setting": dict(self.setting)}
        if self.failure:
            return {**found, "failure": self.failure}
        assert self.history is not None
        seconds = round(self.history.seconds, 4)
        return {**found, "validation": self.regret, "epochs": self.history.epochs, "seconds": seconds}


class FieldProtocol(Protocol):
    """The protocol of ``pear reproduce field``; see the module."""

    def check(self, run: RunSpec, say: Say = lambda line: None) -> None:
        """Raise where the task needs data that is not there."""
        task = field_tasks()[run.task]
        if not has_data(task):
            raise DataError(
                f"the task {task.name} reads {task.needs_data}, which is not in the folder that ${VARIABLE} names; "
                "get it, or leave the task out with --tasks"
            )

    def train(self, run: RunSpec, progress: Listener = None) -> TrainingResult:
        """Try all settings, and train the best of them to the end; all seconds are of processor time.

        Raises:
            RunError: the method does not apply to the task, or all of its tries failed.
            KeyboardInterrupt: stopped by the user.
        """
        with count_processor_time():
            return self._train(run, progress)

    def _train(self, run: RunSpec, progress: Listener) -> TrainingResult:
        unsuited = field_tasks()[run.task].unsuited
        if run.settings["loss"] in unsuited:
            raise RunError(f"{NOT_APPLICABLE}{unsuited[run.settings['loss']]}")
        try:
            _make_loss(run, draw_task(run.task, run.seed).problem, run.settings["tries"][0])
            prepared = prepare_task(run.task, run.seed, tuple(run.settings["most"]))
            train_on_few(run, prepared)
        except ProblemError as error:
            raise RunError(f"{NOT_APPLICABLE}{error}") from error
        if run.settings["way"] == "fit":
            return _train_as_users_do(run, prepared, progress)
        with tempfile.TemporaryDirectory(prefix="pear-field-") as folder:
            tries = [
                _make_try(run, prepared, setting, Path(folder) / f"{number}.ckpt")
                for number, setting in enumerate(run.settings["tries"])
            ]
            for one in tries:
                _train_try(run, prepared, one, progress, short=len(tries) > 1)
            described = [one.as_record() for one in tries]
            chosen = min(tries, key=lambda one: one.regret)
            if chosen.history is None:
                raise RunError(f"all {len(tries)} tries failed: {tries[0].failure}")
            others = tuple(one.history for one in tries if one is not chosen and one.history is not None)
            if len(tries) > 1:
                _train_try(run, prepared, chosen, progress, short=False)
        if chosen.failure:
            raise RunError(chosen.failure)
        best = with_start(prepared, chosen.history)
        found = {"chosen": dict(chosen.setting), "tries": described}
        return _result(run, prepared, chosen.model, best, (*others, best), found)

    def model(self, run: RunSpec) -> nn.Module:
        """Make the forecaster of the task."""
        return prepare_task(run.task, run.seed, tuple(run.settings["most"])).model(run.seed)


def train_on_few(run: RunSpec, prepared: PreparedTask) -> None:
    """Train on a few samples before the clock starts, so that compilation does not count; see if the method applies.

    It writes a checkpoint as the tries do, so that no try waits for what Python loads at its first use.

    Raises:
        ProblemError: the method does not apply to the task.
        TooSlowError: a step takes longer than a training may, compilation not counted.
    """
    few = tuple(rows[:FEW] for rows in prepared.train)
    held_out = tuple(rows[:FEW] for rows in prepared.split.validation)
    config = FitConfig(max_epochs=1, seed=run.seed, start="given")
    slow = STEP_SHARE * run.settings["time_cap"]
    for limit in (COMPILE_SECONDS, slow):
        one, began = _make_try(run, prepared, run.settings["tries"][0]), read_clock()
        with at_most(limit, f"a step on {FEW} samples"), tempfile.TemporaryDirectory(prefix="pear-field-") as folder:
            given: dict[str, Any] = {"optimizer": one.optimizer, "checkpoint": Path(folder) / "few.ckpt"}
            fit(one.model, one.loss, few, held_out, lambda predicted, true: 0.0, config, **given)
        if read_clock() - began < slow:
            return


def with_start(prepared: PreparedTask, history: History) -> History:
    """Add the start to a history, as the check of epoch 0; it is the best one where no later check is better."""
    first = Check(0, 0.0, math.nan, prepared.start_regret)
    best = history.best if history.best is not None and history.best.metric < first.metric else first
    checks = [replace(one, seconds=round(one.seconds, 4), loss=float(f"{one.loss:.6g}")) for one in history.checks]
    return replace(history, checks=[first, *checks], best=best)


def _make_loss(run: RunSpec, problem: Problem | Model, setting: Setting) -> nn.Module:
    options = {name: value for name, value in setting.items() if name != "learning_rate"}
    return make_loss(run.settings["loss"], problem, **options)


def _config(run: RunSpec, short: bool) -> FitConfig:
    """Return the settings of a training: of a short one that is a try, or of one to the end."""
    names = ("batch_size", "check_every", "patience", "min_improvement")
    epochs, cap = ("try_epochs", "try_cap") if short else ("max_epochs", "time_cap")
    shared = {name: run.settings[name] for name in names}
    return FitConfig(
        **shared, max_epochs=run.settings[epochs], time_cap=run.settings[cap], seed=run.seed, start="given"
    )


def _make_try(run: RunSpec, prepared: PreparedTask, setting: Setting, checkpoint: Path | None = None) -> _Try:
    loss, model = _make_loss(run, prepared.problem, setting), prepared.model(run.seed)
    rate = FitConfig(learning_rate=setting.get("learning_rate", run.settings["learning_rate"]))
    train = prepared.split.train
    optimizer = make_optimizer(model, train.features, train.costs, rate, keep=True, typical=hasattr(loss, "problem"))
    return _Try(setting, loss, model, optimizer, checkpoint)


def _train_try(run: RunSpec, prepared: PreparedTask, one: _Try, progress: Listener, short: bool) -> None:
    """Train a setting, or continue its training from the checkpoint; the outcome is stored in ``one``.

    Raises:
        KeyboardInterrupt: stopped by the user.
    """
    config = _config(run, short)
    assert config.time_cap is not None
    try:
        with at_most(HARD_SHARE * config.time_cap, "a training"):
            one.history = fit(
                one.model,
                one.loss,
                prepared.train,
                prepared.split.validation,
                prepared.validation,
                config,
                optimizer=one.optimizer,
                order=shuffled if method(run.settings["loss"]).shuffled else in_order,
                progress=progress,
                checkpoint=one.checkpoint,
            )
    except (TrainingError, SolveError, ProblemError, TooSlowError) as error:
        one.failure = str(error)
        return
    if one.history.interrupted:
        raise KeyboardInterrupt


def _train_as_users_do(run: RunSpec, prepared: PreparedTask, progress: Listener) -> TrainingResult:
    """Train by ``pear.fit`` with its defaults, in the time that others have for the start and all their tries."""
    model, loss = prepared.model(run.seed, start=False), _make_loss(run, prepared.problem, {})
    cap = prepared.start_seconds + run.settings["time_cap"] + 4 * run.settings["try_cap"]
    config = FitConfig(time_cap=cap, seed=run.seed)
    held_out = prepared.split.validation
    history = fit(model, loss, prepared.train, held_out, prepared.validation, config, progress=progress)
    if history.best is None:
        raise RunError("pear.fit ended before it judged anything")
    return _result(run, prepared, model, history, (history,), {"chosen": {}, "choice": history.choice})


def _result(
    run: RunSpec,
    prepared: PreparedTask,
    model: nn.Module,
    history: History,
    histories: tuple[History, ...],
    found: dict[str, Any],
) -> TrainingResult:
    """Make the result of a run: the model of the best check, and the function that tests it."""
    start = prepared.model(run.seed)
    if history.best is not None and history.best.epoch == 0 and run.settings["way"] == "tries":
        model = copy.deepcopy(start)

    def test() -> dict[str, Any]:
        regret, from_start = prepared.test(model, start)
        numbers = {"start_regret": from_start, "start_seconds": prepared.start_seconds}
        return {"regret": regret, **numbers, "stopped": history.stopped, **found}

    return TrainingResult(model, history, test, histories)
