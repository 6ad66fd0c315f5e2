"""Train and test one forecaster on one split of a case: a run, and the file of runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pear.engines.engine import SendMessage
from pear.errors import DataError, MissingExtraError, PearError
from pear.evaluation.walk_forward import walk_forward
from pear.evaluation.walk_forward_result import WalkForward
from pear_lab.experiments.commit import current_commit
from pear_lab.forecasters.case_table import CASES, make_case
from pear_lab.forecasters.forecaster_table import FORECASTERS, TrainingSet
from pear_lab.forecasters.study_case import Array, Split, StudyCase

_DIGITS = 10
"""Significant digits of the stored losses."""


class RunKey(NamedTuple):
    """What a run is: its case, the number of the split, the forecaster, the seed, and whether few rows were used."""

    case: str
    split: int
    forecaster: str
    seed: int
    quick: bool


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run.

    Attributes:
        key: what was run.
        regret: (B,) what each test period lost against the best decision.
        best: (B,) the value of the best decision.
        sign: 1 where values are minimised, −1 where they are maximised: the value is ``best + sign · regret``.
        seconds: the time of training and forecast.
        commit: the commit of the code; None where it is not known.
        failed: why there is no result; empty where there is one.
        note: what the training says about itself.
    """

    key: RunKey
    regret: list[float]
    best: list[float]
    sign: float
    seconds: float
    commit: str | None = None
    failed: str = ""
    note: str = ""


@dataclass(frozen=True)
class Omission:
    """A run that was not done, and why: a file or a package is missing."""

    key: RunKey
    reason: str


def expand_runs(cases: Sequence[str], forecasters: Sequence[str], seeds: int | None, quick: bool) -> list[RunKey]:
    """List the runs of these cases. Where all seeds have the same rows, forecasters that use no seed are run once.

    Args:
        cases, forecasters: names.
        seeds: number of seeds; None for that of each case, and one where few rows will do.
        quick: use few rows, and one split.

    Example:
        >>> [key.seed for key in expand_runs(["energy"], ["ridge", "pear-mlp"], seeds=2, quick=True)]
        [0, 0, 1]
    """
    runs = []
    for case in cases:
        row = CASES[case]
        count = seeds or (1 if quick else row.seeds)
        for name in forecasters:
            wanted = range(count) if row.drawn or FORECASTERS[name].seeded else range(1)
            splits = range(1 if quick else row.folds)
            runs += [RunKey(case, split, name, seed, quick) for seed in wanted for split in splits]
    return runs


def do_run(send: SendMessage, key: RunKey) -> RunResult | Omission:
    """Train and test; a task of an engine, whose first argument sends messages and is not needed.

    A training that fails is a result, and says why; what is not installed or has no file is left out.
    """
    forecaster = FORECASTERS[key.forecaster]
    if not forecaster.installed:
        return Omission(key, f"{forecaster.title} is left out: {forecaster.package} is not installed")
    try:
        case = make_case(key.case, key.seed if CASES[key.case].drawn else 0, key.quick)
    except (DataError, MissingExtraError) as error:
        return Omission(key, f"{CASES[key.case].title} is left out: {error}")
    begin = time.perf_counter()
    try:
        found, note = judge_forecaster(case, case.splits[key.split], key.forecaster, key.seed, key.quick)
    except PearError as error:
        return RunResult(key, [], [], 1.0, time.perf_counter() - begin, current_commit(), f"{error}")
    sign = -1.0 if found.sense == "max" else 1.0
    seconds = round(found.seconds[key.forecaster], 3)
    regret, best = _rounded(found.regret[0]), _rounded(found.best + case.offset)
    return RunResult(key, regret, best, sign, seconds, current_commit(), note=note)


def judge_forecaster(case: StudyCase, split: Split, name: str, seed: int, quick: bool) -> tuple[WalkForward, str]:
    """Train a forecaster on a split and judge its decisions; return the result and the forecaster's note.

    Raises:
        ForecasterError: it fails; the message says where.
    """

    def forecast(X: Array, y: Array, ahead: Array) -> Array:
        groups = None if case.groups is None else case.groups[: len(X)]
        problem = case.problem_of(split.train)
        data = TrainingSet(problem, X, y, groups, split.held_out, seed, quick)
        trained = FORECASTERS[name].train(data)
        notes.append(trained.note)
        return trained.predict(ahead)

    notes: list[str] = []
    pair = [(split.train, split.test)]
    found = walk_forward(case.problem, case.table, case.C, {name: forecast}, pair, groups=case.groups)
    return found, notes[0]


def _rounded(values: Any) -> list[float]:
    """A list of numbers, to the digits that are stored."""
    return [float(f"{value:.{_DIGITS}g}") for value in np.asarray(values, dtype=np.float64)]


def read_results(file: Path) -> dict[RunKey, RunResult]:
    """The results in a file of JSON lines; a last line that is cut off is left out, and the later of two counts.

    Raises:
        DataError: a line is not a result.
    """
    found: dict[RunKey, RunResult] = {}
    if not file.is_file():
        return found
    lines = file.read_text("utf-8").split("\n")
    for number, line in enumerate(lines[:-1], start=1):  # a complete line ends with a line break
        try:
            content = json.loads(line)
            key = RunKey(**content.pop("key"))
            found[key] = RunResult(key, **{one.name: content[one.name] for one in fields(RunResult)[1:]})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{file}, line {number} is no result of this study: {error}; delete the line") from error
    return found


def drop_partial_line(file: Path) -> None:
    """Remove a last line that was cut off, so that the next one can be appended."""
    if file.is_file():
        whole = file.read_bytes()
        if not whole.endswith(b"\n"):
            file.write_bytes(whole[: whole.rfind(b"\n") + 1])


def append_result(file: Path, result: RunResult) -> None:
    """Add a line to a file of results."""
    content = {**asdict(result), "key": result.key._asdict()}
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(content, allow_nan=False) + "\n")


def unfinished(runs: Iterable[RunKey], done: dict[RunKey, RunResult]) -> list[RunKey]:
    """The runs without a result. Runs that failed are tried again."""
    return [key for key in runs if key not in done or done[key].failed]
