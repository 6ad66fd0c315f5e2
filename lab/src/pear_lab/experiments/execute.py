"""One run from its specification to its record."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pear
from pear.errors import PearError
from pear.train import Progress
from pear.train.checkpoint import pack_weights, read_weights
from pear_lab.experiments.commit import commit
from pear_lab.experiments.database import Database
from pear_lab.experiments.errors import RunError
from pear_lab.experiments.protocols import PROTOCOLS
from pear_lab.experiments.record import Record
from pear_lab.experiments.specs import Run
from pear_lab.experiments.whole_file import write_whole

WEIGHTS = "weights"
"""The folder of trained weights, beside the database."""

_REMEDY = "train again into another folder (--out)"
_PACKAGES = ("torch", "numpy", "scipy", "highspy", "osqp")


@dataclass(frozen=True)
class Outcome:
    """What comes of a run.

    Attributes:
        record: the row to be; weights: the file of a training that is done, empty otherwise.
    """

    record: Record
    weights: bytes = b""

    def write(self, database: Database) -> None:
        """First the weights, so that a row never names a file that is not there; then the row.

        Raises:
            DatabaseError: one of them cannot be written.
        """
        if self.weights:
            write_whole(database.path.parent / self.record.weights, self.weights)
        database.add(self.record)


def execute(run: Run, database: Database, progress: Callable[[Progress], None] | None = None) -> Record:
    """Train or measure, and write the record; a failure of any kind is a record, too, with its reason.

    Nothing is written before the end: weights go to a temporary file that is renamed, then comes the record.

    Args:
        run: what to do; where its record is there and done, that is returned.
        database: where the record goes, and where a measurement finds its trained weights.
        progress: called after every epoch of a training.

    Raises:
        DatabaseError: the weights or the record cannot be written.
        KeyboardInterrupt: stopped by the user; no record is written.
    """
    there = database.get(run.key)
    if there is not None and there.status == "done":
        return there
    try:
        outcome = attempt(run, trained_for(run, database), progress)
    except RunError as error:
        outcome = Outcome(make_record(run, "failed", reason=str(error)))
    outcome.write(database)
    return outcome.record


def trained_for(run: Run, database: Database) -> Outcome | None:
    """What a measurement needs of the training it measures; None where the run is a training.

    Raises:
        RunError: the training has not been run, has failed, or its weights are gone.
    """
    if run.variant is None:
        return None
    trained, folder = database.get(run.training().key), database.path.parent
    if trained is None:
        raise RunError("the training it measures has not been run")
    if trained.status != "done":
        raise RunError(f"the training it measures failed: {trained.reason}")
    path = weights_path(folder, trained.weights)
    if not path.is_file():
        raise RunError(f"the trained weights are gone: {path}; {_REMEDY}")
    return Outcome(trained, path.read_bytes())


def attempt(run: Run, trained: Outcome | None = None, progress: Callable[[Progress], None] | None = None) -> Outcome:
    """Train or measure, and write nothing: whoever does it needs no access to the database.

    Args:
        run: what to do.
        trained: the training that is measured, see ``trained_for``; a training needs none.
        progress: called after every epoch of a training.

    Raises:
        KeyboardInterrupt: stopped by the user.
    """
    try:
        return _train(run, progress) if run.variant is None else _measure(run, trained)
    except Exception as error:  # noqa: BLE001 (one run that fails, for whatever reason, must not end the others)
        return Outcome(make_record(run, "failed", reason=_reason(error)))


def _train(run: Run, progress: Callable[[Progress], None] | None) -> Outcome:
    trained = PROTOCOLS[run.task].train(run, progress)
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
        weights=f"{WEIGHTS}/{run.key}.weights",
    )
    return Outcome(record, pack_weights(trained.model))


def _measure(run: Run, trained: Outcome | None) -> Outcome:
    if trained is None:
        raise RunError("it measures a training, and came without one")
    began = time.perf_counter()
    protocol, said = PROTOCOLS[run.task], trained.record.weights
    model = protocol.model(run)
    with tempfile.TemporaryDirectory(prefix="pear-weights-") as folder:
        path = Path(folder) / Path(said).name
        path.write_bytes(trained.weights)
        read_weights(model, path, _REMEDY)
    metrics = protocol.measure(run, model)
    return Outcome(
        make_record(run, "done", metrics=metrics, timings={"total": time.perf_counter() - began}, weights=said)
    )


def weights_path(folder: Path, said: Any) -> Path:
    """Where the weights of a row lie, which is in the folder of the database and nowhere else.

    Args:
        folder: of the database.
        said: the row's own words, which may be anybody's.

    Raises:
        RunError: the path leads out of the folder: it is absolute, climbs, or follows a link.
    """
    if not isinstance(said, str) or not said or "\0" in said:
        raise RunError(f"the row names no file of weights but {said!r}; {_REMEDY}")
    path = folder / said
    if not path.resolve().is_relative_to(folder.resolve()):
        raise RunError(
            f"the row says that its weights are at {said!r}, which leads out of the folder of the database; only "
            f"files in {folder} are read; {_REMEDY}"
        )
    return path


def make_record(run: Run, status: str, **found: Any) -> Record:
    """What is kept of a run, with where and when it was done."""
    return Record(
        run.key,
        run.experiment,
        run.task,
        run.method,
        run.seed,
        run.settings,
        status,
        **found,
        versions=versions(),
        machine=machine(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _reason(error: Exception) -> str:
    """What went wrong; for an error that was not foreseen also where."""
    if isinstance(error, PearError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


def versions(packages: tuple[str, ...] = _PACKAGES) -> dict[str, str]:
    """The versions of Python, of this package with its commit, and of those ``packages`` that are installed."""
    found = {"pear": pear.__version__, "python": platform.python_version()}
    if here := commit():
        found["commit"] = here
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """System, processor and number of cores, in words."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    except OSError:  # not Linux
        pass
    return f"{platform.system()}, {cpu}, {os.cpu_count()} cores"
