"""``FieldProtocol``: the common training of all methods of the comparison.

All methods start from the same weights, the common start, which is trained on the squared error. First, each of up to
five settings of a method is trained for a few epochs; this is called a try. Then the setting with the lowest regret on
the validation samples is trained to the end. During training the validation regret is checked several times. The result
has the weights of the best check, or those of the common start if no check was better. The test samples are used once,
at the end. Methods with the ``way`` "fit" are trained by ``pear.fit`` instead, from a start of their own.
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
from pear_lab.field.field_methods import MOST_TRIES, Setting
from pear_lab.field.field_tasks import field_tasks, has_field_task_data
from pear_lab.field.hard_limit import TooSlowError, hard_time_limit
from pear_lab.field.prepared_task import PreparedTask, draw_prepared_task, prepare_task

NOT_APPLICABLE = "does not apply: "
"""The first words of the reason of a run whose method does not apply to its task."""

FEW = 4
"""The number of samples of the warm-up, a training before the clock starts."""

COMPILE_SECONDS = 20.0
"""The time limit of the first warm-up, which may compile code."""

STEP_SHARE = 2.0
"""The time limit of the second warm-up, as a multiple of the time cap."""

HARD_SHARE = 10.0
"""A try or a longer training is stopped at this multiple of its own time cap, even within a step."""


@dataclass
class _FieldProtocolTry:
    """The training of one setting of a method.

    Attributes:
        setting: the setting.
        loss, model, optimizer: the parts of the training.
        checkpoint: the file from which the training continues; None for a training that never continues.
        history: the history of the training; None before the training, or if the training failed.
        failure: the error message of a failed training; otherwise empty.
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
        """The best validation regret so far; infinite if there is none."""
        return math.inf if self.history is None or self.history.best is None else self.history.best.metric

    def as_record(self) -> dict[str, Any]:
        """Return the try as an entry of the database: its setting, and its outcome or failure."""
        found: dict[str, Any] = {"setting": dict(self.setting)}
        if self.failure:
            return {**found, "failure": self.failure}
        assert self.history is not None
        seconds = round(self.history.seconds, 4)
        return {**found, "validation": self.regret, "epochs": self.history.epochs, "seconds": seconds}


class FieldProtocol(Protocol):
    """The protocol of ``pear reproduce field``: up to five short tries, and a training with the best setting."""

    def check(self, run: RunSpec, say: Say = lambda line: None) -> None:
        """Raise ``DataError`` if the task needs data that is missing."""
        task = field_tasks()[run.task]
        if not has_field_task_data(task):
            raise DataError(
                f"the task {task.name} reads {task.needs_data}, which is not in the folder that ${VARIABLE} names; "
                "get it, or leave the task out with --tasks"
            )

    def train(self, run: RunSpec, progress: Listener = None) -> TrainingResult:
        """Try all settings, train the best one to the end, and return the result. All times are processor time.

        Raises:
            RunError: the method does not apply to the task, all of its tries failed, or its final training failed.
            KeyboardInterrupt: stopped by the user.
        """
        with count_processor_time():
            return self._train(run, progress)

    def _train(self, run: RunSpec, progress: Listener) -> TrainingResult:
        """Do the work of ``train``, which has switched the clock to processor time, and return the result."""
        unsuited = field_tasks()[run.task].unsuited
        if run.settings["loss"] in unsuited:
            raise RunError(f"{NOT_APPLICABLE}{unsuited[run.settings['loss']]}")
        try:
            _make_field_protocol_loss(run, draw_prepared_task(run.task, run.seed).problem, run.settings["tries"][0])
            prepared = prepare_task(run.task, run.seed, tuple(run.settings["most"]))
            warm_up_field_protocol(run, prepared)
        except ProblemError as error:
            raise RunError(f"{NOT_APPLICABLE}{error}") from error
        if run.settings["way"] == "fit":
            return _train_field_protocol_by_fit(run, prepared, progress)
        with tempfile.TemporaryDirectory(prefix="pear-field-") as folder:
            tries = [
                _make_field_protocol_try(run, prepared, setting, Path(folder) / f"{number}.ckpt")
                for number, setting in enumerate(run.settings["tries"])
            ]
            for one in tries:
                _train_field_protocol_try(run, prepared, one, progress, short=len(tries) > 1)
            described = [one.as_record() for one in tries]
            chosen = min(tries, key=lambda one: one.regret)
            if chosen.history is None:
                raise RunError(f"all {len(tries)} tries failed: {tries[0].failure}")
            others = tuple(one.history for one in tries if one is not chosen and one.history is not None)
            if len(tries) > 1:
                _train_field_protocol_try(run, prepared, chosen, progress, short=False)
        if chosen.failure:
            raise RunError(chosen.failure)
        best = add_start_to_field_protocol(prepared, chosen.history)
        found = {"chosen": dict(chosen.setting), "tries": described}
        return _field_protocol_result(run, prepared, chosen.model, best, (*others, best), found)

    def model(self, run: RunSpec) -> nn.Module:
        """Return the forecaster of the task, with the weights of the common start."""
        return prepare_task(run.task, run.seed, tuple(run.settings["most"])).model(run.seed)


def warm_up_field_protocol(run: RunSpec, prepared: PreparedTask) -> None:
    """Train on a few samples before the clock starts, once or twice.

    The first training compiles code, loads modules and writes a checkpoint, so that the times of the tries do not
    include this. If the first training is slow, a second one checks that a step without compilation is fast enough.

    Raises:
        ProblemError: the method does not apply to the task.
        TooSlowError: the first training takes longer than ``COMPILE_SECONDS``, or the second one takes longer than
            the share ``STEP_SHARE`` of the time cap.
    """
    few = tuple(rows[:FEW] for rows in prepared.train)
    held_out = tuple(rows[:FEW] for rows in prepared.split.validation)
    config = FitConfig(max_epochs=1, seed=run.seed, start="given")
    slow = STEP_SHARE * run.settings["time_cap"]
    for limit in (COMPILE_SECONDS, slow):
        one, began = _make_field_protocol_try(run, prepared, run.settings["tries"][0]), read_clock()
        with (
            hard_time_limit(limit, f"a step on {FEW} samples"),
            tempfile.TemporaryDirectory(prefix="pear-field-") as folder,
        ):
            given: dict[str, Any] = {"optimizer": one.optimizer, "checkpoint": Path(folder) / "few.ckpt"}
            fit(one.model, one.loss, few, held_out, lambda predicted, true: 0.0, config, **given)
        if read_clock() - began < slow:
            return


def add_start_to_field_protocol(prepared: PreparedTask, history: History) -> History:
    """Return the history with one more check, at epoch 0: the validation regret of the common start.

    This check is the best one unless a later check has a smaller regret. In all later checks, seconds and losses are
    rounded.
    """
    first = Check(0, 0.0, math.nan, prepared.start_regret)
    best = history.best if history.best is not None and history.best.metric < first.metric else first
    checks = [replace(one, seconds=round(one.seconds, 4), loss=float(f"{one.loss:.6g}")) for one in history.checks]
    return replace(history, checks=[first, *checks], best=best)


def _make_field_protocol_loss(run: RunSpec, problem: Problem | Model, setting: Setting) -> nn.Module:
    """Return the loss of a run, with the options of a setting."""
    options = {name: value for name, value in setting.items() if name != "learning_rate"}
    return make_loss(run.settings["loss"], problem, **options)


def _field_protocol_config(run: RunSpec, short: bool) -> FitConfig:
    """Return the ``FitConfig`` of a try if ``short``, otherwise of a training to the end."""
    names = ("batch_size", "check_every", "patience", "min_improvement")
    epochs, cap = ("try_epochs", "try_cap") if short else ("max_epochs", "time_cap")
    shared = {name: run.settings[name] for name in names}
    return FitConfig(
        **shared, max_epochs=run.settings[epochs], time_cap=run.settings[cap], seed=run.seed, start="given"
    )


def _make_field_protocol_try(
    run: RunSpec, prepared: PreparedTask, setting: Setting, checkpoint: Path | None = None
) -> _FieldProtocolTry:
    """Return an untrained try of a setting: its loss, the model at the common start, and the optimizer."""
    loss, model = _make_field_protocol_loss(run, prepared.problem, setting), prepared.model(run.seed)
    rate = FitConfig(learning_rate=setting.get("learning_rate", run.settings["learning_rate"]))
    train = prepared.split.train
    optimizer = make_optimizer(model, train.features, train.costs, rate, keep=True, typical=hasattr(loss, "problem"))
    return _FieldProtocolTry(setting, loss, model, optimizer, checkpoint)


def _train_field_protocol_try(
    run: RunSpec, prepared: PreparedTask, one: _FieldProtocolTry, progress: Listener, short: bool
) -> None:
    """Train the try ``one``, and store its history or failure in it. A try with a checkpoint file continues from it.

    Args:
        run: the run.
        prepared: the data of the task.
        one: the try.
        progress: called after every epoch.
        short: whether the training has the limits of a try; otherwise it has those of the final training.

    Raises:
        KeyboardInterrupt: the user stopped the training.
    """
    config = _field_protocol_config(run, short)
    assert config.time_cap is not None
    try:
        with hard_time_limit(HARD_SHARE * config.time_cap, "a training"):
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


def _train_field_protocol_by_fit(run: RunSpec, prepared: PreparedTask, progress: Listener) -> TrainingResult:
    """Train by ``pear.fit`` with its defaults.

    The time cap is the total that a method with the most tries has for the common start, all tries and the final
    training. The final training continues a try, whose time counts once.
    """
    model, loss = prepared.model(run.seed, start=False), _make_field_protocol_loss(run, prepared.problem, {})
    cap = prepared.start_seconds + run.settings["time_cap"] + (MOST_TRIES - 1) * run.settings["try_cap"]
    config = FitConfig(time_cap=cap, seed=run.seed)
    held_out = prepared.split.validation
    history = fit(model, loss, prepared.train, held_out, prepared.validation, config, progress=progress)
    if history.best is None:
        raise RunError("pear.fit ended before it judged anything")
    return _field_protocol_result(run, prepared, model, history, (history,), {"chosen": {}, "choice": history.choice})


def _field_protocol_result(
    run: RunSpec,
    prepared: PreparedTask,
    model: nn.Module,
    history: History,
    histories: tuple[History, ...],
    found: dict[str, Any],
) -> TrainingResult:
    """Return the result of a run: its model, its histories, and the function that tests the model.

    If the method has tries, and no check was better than the start, the model of the result is the start.

    Args:
        run: the run.
        prepared: the data and the start of the task.
        model: the trained model.
        history: the history of the chosen training.
        histories: the histories of all trainings.
        found: further entries of the test results, such as the chosen setting.
    """
    start = prepared.model(run.seed)
    if history.best is not None and history.best.epoch == 0 and run.settings["way"] == "tries":
        model = copy.deepcopy(start)

    def test() -> dict[str, Any]:
        regret, from_start = prepared.test(model, start)
        numbers = {"start_regret": from_start, "start_seconds": prepared.start_seconds}
        return {"regret": regret, **numbers, "stopped": history.stopped, **found}

    return TrainingResult(model, history, test, histories)
