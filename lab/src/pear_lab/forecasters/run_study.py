"""Do the runs of the study that are missing, side by side in processes, and keep each result when it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pear.compile.thread_pools import one_thread
from pear.engines.engine import TaskLoss, TaskResult, TaskUpdate
from pear.train.compiled.compile_all import compile_all
from pear_lab.experiments.processes import start_engine
from pear_lab.forecasters.forecaster_table import FORECASTERS
from pear_lab.forecasters.study_runs import (
    Omission,
    RunKey,
    RunResult,
    append_result,
    do_run,
    drop_partial_line,
    read_results,
    unfinished,
)


def run_study(
    runs: Sequence[RunKey],
    file: Path,
    jobs: int = 1,
    say: Callable[[str], None] = lambda line: None,
    again: bool = False,
) -> None:
    """Do the runs that the file has no result of, the forecasters that take longest first.

    Args:
        runs: what is wanted.
        file: the file of the results, one line of JSON each; written by this process alone.
        jobs: processes of one core each; with 1 all is done in this process.
        say: called with a line on every result, and once with each reason to leave runs out.
        again: do the others as well; the later of two results counts.

    Raises:
        DataError: a line of the file is not a result.
        EngineError: processes die before they are ready.
    """
    drop_partial_line(file)
    slowest_first = list(FORECASTERS)[::-1]
    open_runs = list(runs) if again else unfinished(runs, read_results(file))
    missing = sorted(open_runs, key=lambda key: slowest_first.index(key.forecaster))
    if not missing:
        return
    started, reasons, done = time.perf_counter(), set[str](), 0
    waiting, under_way = missing[::-1], dict[int, RunKey]()

    def hear(update: TaskUpdate) -> None:
        nonlocal done
        match update:
            case TaskResult(ticket, Omission(_, reason)):
                under_way.pop(ticket)
                if reason not in reasons:
                    say(reason)
                reasons.add(reason)
            case TaskResult(ticket, RunResult() as result):
                under_way.pop(ticket)
                append_result(file, result)
                done += 1
                say(f"{done}/{len(missing)}, {time.perf_counter() - started:.0f} s: {describe_result(result)}")
            case TaskLoss(ticket, reason):
                say(f"{under_way.pop(ticket)} is given up: {reason}")

    if jobs > 1:
        _compile_ahead(say)
    with one_thread(), start_engine("local", min(jobs, len(missing))) as engine:
        while waiting or under_way:
            while waiting and engine.free > 0:
                key = waiting.pop()
                under_way[engine.submit(do_run, key)] = key
            engine.wait(hear)


def _compile_ahead(say: Callable[[str], None]) -> None:
    """Compile the solvers once, so that not every process does it at the same time."""
    for part, seconds, was_cached in compile_all():
        if not was_cached:
            say(f"{part}: compiled, {seconds:.1f} s")


def describe_result(result: RunResult) -> str:
    """A line on a result: what was run, the mean loss and the seconds of the training."""
    key = result.key
    what = f"{key.case}, split {key.split}, {key.forecaster}, seed {key.seed}"
    if result.failed:
        return f"{what}: failed: {result.failed}"
    return f"{what}: lost {sum(result.regret) / len(result.regret):.4g}, {result.seconds:.1f} s"
