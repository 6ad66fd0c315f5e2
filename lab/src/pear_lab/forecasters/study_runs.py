"""Runs of the study of forecasters.

A run trains and tests one forecaster on one split of a case, and is stored in a file.
"""

from __future__ import annotations

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
from pear_lab.forecasters.case_table import CASES, make_table_case
from pear_lab.forecasters.forecaster_table import FORECASTERS, ForecasterTrainingSet
from pear_lab.forecasters.json_lines import append_json_line, read_json_lines
from pear_lab.forecasters.study_case import Array, StudyCase, StudySplit

_DIGITS = 10
"""The number of significant digits of stored losses."""


class StudyRunKey(NamedTuple):
    """The identity of a run: case and forecaster, number of the split, seed, and whether the run uses few samples."""

    case: str
    split: int
    forecaster: str
    seed: int
    quick: bool


@dataclass(frozen=True)
class StudyRunResult:
    """The result of a run.

    Attributes:
        key: the run.
        regret: (B,) the regret of each test sample.
        best: (B,) the value of the best decision of each test sample.
        sign: 1 if values are minimised, −1 if they are maximised. A decision has the value ``best + sign · regret``.
        seconds: the time of training and forecast.
        commit: the commit of the code; None if it is unknown.
        failed: the error message of a failed run; otherwise empty.
        note: a summary of the training.
    """

    key: StudyRunKey
    regret: list[float]
    best: list[float]
    sign: float
    seconds: float
    commit: str | None = None
    failed: str = ""
    note: str = ""


@dataclass(frozen=True)
class StudyRunOmission:
    """A run that is not done because a file or a package is missing, with the reason."""

    key: StudyRunKey
    reason: str


def expand_study_runs(
    cases: Sequence[str], forecasters: Sequence[str], seeds: int | None, quick: bool
) -> list[StudyRunKey]:
    """Return the runs of some forecasters on some cases.

    A forecaster without random numbers is run with one seed only, unless the seed draws the samples.

    Args:
        cases, forecasters: the names of the cases and of the forecasters.
        seeds: the number of seeds; None for the default of each case or, if ``quick``, for one.
        quick: whether to use few samples, and only the first split.

    Example:
        >>> [key.seed for key in expand_study_runs(["energy"], ["ridge", "pear-mlp"], seeds=2, quick=True)]
        [0, 0, 1]
    """
    runs = []
    for case in cases:
        row = CASES[case]
        count = seeds or (1 if quick else row.seeds)
        for name in forecasters:
            wanted = range(count) if row.drawn or FORECASTERS[name].seeded else range(1)
            splits = range(1 if quick else row.folds)
            runs += [StudyRunKey(case, split, name, seed, quick) for seed in wanted for split in splits]
    return runs


def do_study_run(send: SendMessage, key: StudyRunKey) -> StudyRunResult | StudyRunOmission:
    """Train and test a forecaster, and return the result. Engines call this function.

    A failed training gives a result with the error message. If a file or a package is missing, the run is omitted.

    Args:
        send: ignored. An engine passes a function that sends messages.
        key: the run.
    """
    forecaster = FORECASTERS[key.forecaster]
    if not forecaster.installed:
        return StudyRunOmission(key, f"{forecaster.title} is left out: {forecaster.package} is not installed")
    try:
        case = make_table_case(key.case, key.seed if CASES[key.case].drawn else 0, key.quick)
    except (DataError, MissingExtraError) as error:
        return StudyRunOmission(key, f"{CASES[key.case].title} is left out: {error}")
    begin = time.perf_counter()
    try:
        found, note = judge_study_run(case, case.splits[key.split], key.forecaster, key.seed, key.quick)
    except PearError as error:
        return StudyRunResult(key, [], [], 1.0, time.perf_counter() - begin, current_commit(), f"{error}")
    sign = -1.0 if found.sense == "max" else 1.0
    seconds = round(found.seconds[key.forecaster], 3)
    regret, best = _round_study_losses(found.regret[0]), _round_study_losses(found.best + case.offset)
    return StudyRunResult(key, regret, best, sign, seconds, current_commit(), note=note)


def judge_study_run(case: StudyCase, split: StudySplit, name: str, seed: int, quick: bool) -> tuple[WalkForward, str]:
    """Train a forecaster on a split, and compute the regret of its decisions on the test samples.

    Returns:
        The result of ``walk_forward``, and the summary of the training.

    Raises:
        ForecasterError: training or forecast failed.
    """

    def forecast(X: Array, y: Array, ahead: Array) -> Array:
        groups = None if case.groups is None else case.groups[: len(X)]
        problem = case.problem_of(split.train)
        data = ForecasterTrainingSet(problem, X, y, groups, split.held_out, seed, quick)
        trained = FORECASTERS[name].train(data)
        notes.append(trained.note)
        return trained.predict(ahead)

    notes: list[str] = []
    pair = [(split.train, split.test)]
    found = walk_forward(case.problem, case.table, case.C, {name: forecast}, pair, groups=case.groups)
    return found, notes[0]


def _round_study_losses(values: Any) -> list[float]:
    """Return numbers (B,) as a list, rounded to the stored digits."""
    return [float(f"{value:.{_DIGITS}g}") for value in np.asarray(values, dtype=np.float64)]


def read_study_runs(file: Path) -> dict[StudyRunKey, StudyRunResult]:
    """Read the results in a file of JSON lines. Of several results of a run, the last one counts.

    Raises:
        DataError: a line cannot be decoded.
    """
    return {one.key: one for one in read_json_lines(file, _decode_study_run, "result of this study")}


def _decode_study_run(content: dict[str, Any]) -> StudyRunResult:
    """Return the result that the content of a line holds."""
    key = StudyRunKey(**content["key"])
    return StudyRunResult(key, **{one.name: content[one.name] for one in fields(StudyRunResult)[1:]})


def append_study_run(file: Path, result: StudyRunResult) -> None:
    """Append a result to a file of JSON lines."""
    append_json_line(file, {**asdict(result), "key": result.key._asdict()})


def unfinished_study_runs(runs: Iterable[StudyRunKey], done: dict[StudyRunKey, StudyRunResult]) -> list[StudyRunKey]:
    """Return the runs that have no result in ``done``, or a failed one."""
    return [key for key in runs if key not in done or done[key].failed]
