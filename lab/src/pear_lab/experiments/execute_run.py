"""Executes one run: from its specification to its record."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch

import pear
from pear.errors import PearError
from pear.train import Progress
from pear_lab.experiments.commit import current_commit
from pear_lab.experiments.database import Database
from pear_lab.experiments.experiment_errors import RunError
from pear_lab.experiments.protocols import protocol_of
from pear_lab.experiments.run_record import RunRecord
from pear_lab.experiments.run_spec import RunSpec

_REMEDY = "train again into another folder (--out)"
_PACKAGES = ("torch", "numpy", "scipy", "highspy", "osqp")


@dataclass(frozen=True)
class Outcome:
    """The result of a run, to be written to the database.

    Attributes:
        record: the row for the database.
        weights: the weights of a training that is done, in the format of safetensors; empty otherwise.
    """

    record: RunRecord
    weights: bytes = b""


def trained_for(run: RunSpec, database: Database) -> Outcome | None:
    """Return the outcome of the training whose weights a run measures; None if the run itself is a training.

    Raises:
        RunError: the training has not been run, has failed, or its weights are gone.
    """
    if run.variant is None:
        return None
    trained = database.get(run.training().key)
    if trained is None:
        raise RunError("the training it measures has not been run")
    if trained.status != "done":
        raise RunError(f"the training it measures failed: {trained.reason}")
    weights = database.weights(trained)
    if weights is None:
        raise RunError(
            f"the trained weights are gone: {database.path} has none of the key {trained.weights!r}; {_REMEDY}"
        )
    return Outcome(trained, weights)


def attempt(
    run: RunSpec, trained: Outcome | None = None, progress: Callable[[Progress], None] | None = None
) -> Outcome:
    """Do a run, and return its outcome without writing it. An error gives the record of a failed run.

    Args:
        run: specification of the run.
        trained: the outcome of the training to measure, from ``trained_for``; None if the run is a training.
        progress: called after every epoch of a training.

    Raises:
        KeyboardInterrupt: stopped by the user.
    """
    try:
        return _train_run(run, progress) if run.variant is None else _measure_run(run, trained)
    except Exception as error:  # noqa: BLE001 (one run that fails, for whatever reason, must not end the others)
        return Outcome(make_record(run, "failed", reason=_failure_reason(error)))


def _train_run(run: RunSpec, progress: Callable[[Progress], None] | None) -> Outcome:
    """Train and test a model by the protocol of the run, and return the record and the trained weights."""
    trained = protocol_of(run).train(run, progress)
    history, histories = trained.history, trained.histories
    if history.interrupted:
        raise KeyboardInterrupt
    if history.best is None:
        raise RunError("no check of the validation samples was made")
    began = time.perf_counter()
    metrics = {**trained.test(), "validation_regret": history.best.metric}
    timings = {"total": sum(one.seconds for one in histories), "epochs": sum(one.epochs for one in histories)}
    timings |= {name: sum(one.split[name] for one in histories) for name in history.split}
    record = make_record(
        run,
        "done",
        metrics=metrics,
        timings={**timings, "test": time.perf_counter() - began},
        history=[[check.epoch, check.seconds, check.loss, check.metric] for check in history.checks],
        weights=run.key,
    )
    return Outcome(record, safetensors.torch.save(trained.model.state_dict()))


def _measure_run(run: RunSpec, trained: Outcome | None) -> Outcome:
    """Measure the model that another run has trained, and return the record of the measurement."""
    if trained is None:
        raise RunError("it measures a training, and came without one")
    began = time.perf_counter()
    protocol, key = protocol_of(run), trained.record.weights
    model = protocol.model(run)
    try:
        model.load_state_dict(safetensors.torch.load(trained.weights))
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise RunError(f"the weights of the key {key!r} do not belong to this model: {error}; {_REMEDY}") from error
    timings = {"total": time.perf_counter() - began}
    return Outcome(make_record(run, "done", metrics=protocol.measure(run, model), timings=timings, weights=key))


def make_record(run: RunSpec, status: str, **found: Any) -> RunRecord:
    """Return the record of a run. Machine, versions and time are added to the fields ``found``."""
    found |= {"versions": package_versions(), "machine": machine_in_words()}
    found["created"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return RunRecord(run.key, run.experiment, run.task, run.method, run.seed, run.settings, status, **found)


def _failure_reason(error: Exception) -> str:
    """Return a description of an error. For an unexpected error, it also says where the error was raised."""
    if isinstance(error, PearError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


def package_versions(packages: tuple[str, ...] = _PACKAGES) -> dict[str, str]:
    """Return the versions of Python, of PEAR and of those ``packages`` that are installed, by name.

    The entry ``commit`` is the git commit of PEAR, if it is known.
    """
    found = {"pear": pear.__version__, "python": platform.python_version()}
    if here := current_commit():
        found["commit"] = here
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine_in_words() -> str:
    """Return system, processor and number of cores, in words."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:  # not Linux
        pass
    return f"{platform.system()}, {cpu}, {os.cpu_count()} cores"
