"""Trainings that were run under several time caps: what the longer one changed, on the same seeds."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pear.pages.section import Grid, Section
from pear_lab.experiments.catalogue import METHODS, TASKS, TIME_CAP
from pear_lab.experiments.record import Record
from pear_lab.report.runs import Runs

CONDITIONS = ("degree", "noise")
"""What tells the cells of a task apart."""


def caps_section(runs: Runs) -> Section | None:
    """A table for every task of which some trainings have run under the published cap and under another one."""
    cells: dict[str, dict[tuple[str, ...], dict[float, dict[int, Record]]]] = defaultdict(dict)
    for run in runs.done:
        trained = TASKS[run.task].published and "epochs" in run.timings
        if trained and all(name in run.settings for name in CONDITIONS):
            where = (run.experiment, run.method, *(f"{run.settings[name]:g}" for name in CONDITIONS))
            caps = cells[run.task].setdefault(where, defaultdict(dict))
            caps[float(run.settings["time_cap"])][run.seed] = run
    grids = [grid for task, found in cells.items() if (grid := _grid(task, found)) is not None]
    if not grids:
        return None
    sentence = (
        f"Trainings under a cap of {TIME_CAP:g} seconds beside the same under a shorter one: mean test regret in % "
        "over the seeds that both have, the epochs of the longer one, and how many of its trainings the cap ended."
    )
    return Section("time-caps", "The full time cap", (sentence,), tuple(grids))


def _grid(task: str, found: Mapping[tuple[str, ...], Mapping[float, Mapping[int, Record]]]) -> Grid | None:
    rows = []
    for (_, method, degree, noise), caps in sorted(found.items()):
        full = caps.get(TIME_CAP, {})
        for cap in sorted(set(caps) - {TIME_CAP}):
            seeds = sorted(set(full) & set(caps[cap]))
            if seeds:
                long, short = [full[seed] for seed in seeds], [caps[cap][seed] for seed in seeds]
                label = f"{METHODS[method]}, degree {degree}" + (f", noise {noise}" if float(noise) else "")
                ended = sum(run.timings["total"] >= TIME_CAP for run in long)
                epochs = f"{_mean(long, 'epochs'):.0f}"
                entries = (", ".join(map(str, seeds)), f"{cap:g} s", _regret(short), _regret(long), epochs, str(ended))
                rows.append((label, *entries))
    header = ("", "seeds", "shorter cap", "regret there", f"regret, {TIME_CAP:g} s", "epochs", "ended by the cap")
    return Grid(TASKS[task].title, header, tuple(rows)) if rows else None


def _regret(runs: Sequence[Record]) -> str:
    return f"{100 * statistics.fmean(run.metrics['normalized_regret'] for run in runs):.3f}"


def _mean(runs: Sequence[Record], name: str) -> float:
    return statistics.fmean(run.timings[name] for run in runs)
