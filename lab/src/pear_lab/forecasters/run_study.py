"""Running the study of forecasters: missing runs are done in parallel processes, and each result is stored at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pear.compile.thread_pools import one_thread
from pear.engines.engine import TaskFailure, TaskResult, TaskUpdate
from pear.train.compiled.compile_all import compile_all
from pear_lab.experiments.processes import start_engine
from pear_lab.forecasters.forecaster_table import FORECASTERS
from pear_lab.forecasters.json_lines import drop_partial_json_line
from pear_lab.forecasters.study_runs import (
    StudyRunKey,
    StudyRunOmission,
    StudyRunResult,
    append_study_run,
    do_study_run,
    read_study_runs,
    unfinished_study_runs,
)


def run_study(
    runs: Sequence[StudyRunKey],
    file: Path,
    jobs: int = 1,
    say: Callable[[str], None] = lambda line: None,
    again: bool = False,
) -> None:
    """Do the runs that have failed, or have no result in the file. Slow forecasters are run first.

    Args:
        runs: the runs.
        file: the file of the results, with a line of JSON for each. Only this process writes it.
        jobs: the number of processes, each on one core; with 1 this process does all runs.
        say: function that is called with a line of text for every result, and for each new reason to omit runs.
        again: whether to repeat runs that have a result; the later result of a run counts.

    Raises:
        DataError: a line of the file cannot be decoded.
        EngineError: processes die before they are ready.
    """
    drop_partial_json_line(file)
    slowest_first = list(FORECASTERS)[::-1]
    open_runs = list(runs) if again else unfinished_study_runs(runs, read_study_runs(file))
    missing = sorted(open_runs, key=lambda key: slowest_first.index(key.forecaster))
    if not missing:
        return
    started, reasons, done = time.perf_counter(), set[str](), 0
    waiting, under_way = missing[::-1], dict[int, StudyRunKey]()

    def hear(update: TaskUpdate) -> None:
        nonlocal done
        match update:
            case TaskResult(ticket, StudyRunOmission(_, reason)):
                under_way.pop(ticket)
                if reason not in reasons:
                    say(reason)
                reasons.add(reason)
            case TaskResult(ticket, StudyRunResult() as result):
                under_way.pop(ticket)
                append_study_run(file, result)
                done += 1
                say(f"{done}/{len(missing)}, {time.perf_counter() - started:.0f} s: {_study_progress_line(result)}")
            case TaskFailure(ticket, reason):
                say(f"{under_way.pop(ticket)} is given up: {reason}")

    if jobs > 1:
        _compile_before_study(say)
    with one_thread(), start_engine("local", min(jobs, len(missing))) as engine:
        while waiting or under_way:
            while waiting and engine.free > 0:
                key = waiting.pop()
                under_way[engine.submit(do_study_run, key)] = key
            engine.wait(hear)


def _compile_before_study(say: Callable[[str], None]) -> None:
    """Compile the solvers before the processes start. Otherwise every process would compile them itself."""
    for part, seconds, was_cached in compile_all():
        if not was_cached:
            say(f"{part}: compiled, {seconds:.1f} s")


def _study_progress_line(result: StudyRunResult) -> str:
    """Return a line of text on a run: its mean loss and the seconds of its training, or why it failed."""
    key = result.key
    what = f"{key.case}, split {key.split}, {key.forecaster}, seed {key.seed}"
    if result.failed:
        return f"{what}: failed: {result.failed}"
    return f"{what}: lost {sum(result.regret) / len(result.regret):.4g}, {result.seconds:.1f} s"
