"""The tables of PEAR's paper, with our number beside each published one."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pear.pages.page import PageGrid, PageSection
from pear_lab.experiments.catalogue import EXPERIMENTS, METHODS, TASKS, TIME_CAP, Experiment
from pear_lab.experiments.run_record import RunRecord
from pear_lab.experiments.table_spec import TableSpec
from pear_lab.report.paired_comparison import difference_grid
from pear_lab.report.published_numbers import CellVerdict, rank_best_two
from pear_lab.report.report_figures import make_report_figures
from pear_lab.report.table_cells import TABLES, Cell, StoredRuns, cell_place, cells_of_experiment, fill_cell


def table_sections(runs: StoredRuns) -> list[PageSection]:
    """Return a section for each table except those of portfolios. Tables that the paper lacks need at least one run."""
    filled = {one.table.name: _table_section(one, runs) for one in EXPERIMENTS.values() if one.tasks != ("portfolio",)}
    drawn = make_report_figures(runs, {name: section.cells for name, section in filled.items()})
    return [
        dataclasses.replace(section, figures=drawn.get(name, ()))
        for name, section in filled.items()
        if not TABLES[name].cells or any(cell.values for cell in section.cells)
    ]


def _table_section(experiment: Experiment, runs: StoredRuns) -> PageSection:
    """Return the section of one experiment: its table with our cells, and paired differences if the runs have them."""
    table, items = experiment.table, cells_of_experiment(experiment, runs)
    cells = {cell_place(item): fill_cell(runs, item) for item in items}
    grids = [_table_grid(table, title, cells) for title in dict.fromkeys(block for block, _, _ in cells)]
    if (differences := difference_grid(runs, items)) is not None:
        grids.append(differences)
    return PageSection(table.name, table.title, (f"{table.caption} {_deviation_words(table)}",), tuple(grids))


def _table_grid(table: TableSpec, title: str, cells: dict[tuple[str, str, str], Cell]) -> PageGrid:
    """Return one block of a table.

    Args:
        table: the description of the table.
        title: the title of the block.
        cells: all cells of the table, by the titles of block, row and column.
    """
    inside = [at for at in cells if at[0] == title]
    rows, columns = (tuple(dict.fromkeys(at[part] for at in inside)) for part in (1, 2))
    lines = [[cells[title, row, column] for column in columns] for row in rows]
    if table.ranked:
        lines = _mark_best_two(lines)
    return PageGrid(
        title, (table.heading, *columns), tuple((row, *line) for row, line in zip(rows, lines, strict=True))
    )


def _deviation_words(table: TableSpec) -> str:
    """Return a sentence that says which standard deviation follows the ± in a table."""
    kind = "of the sample (ddof 1)" if table.ddof else "of the population (ddof 0)"
    known = ", as the paper's numbers of this table" if table.as_published else ""
    return f"± is the standard deviation {kind}{known}."


def _mark_best_two(lines: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """Return the cells with marks at the two best means of each column, for our means and for the published ones."""
    marked = []
    for column in zip(*lines, strict=True):
        decimals = column[0].published.decimals
        ours = rank_best_two([None if cell.verdict is CellVerdict.REDUCED else cell.mean for cell in column], decimals)
        theirs = rank_best_two([cell.published.mean for cell in column], decimals)
        marked.append(
            [dataclasses.replace(c, place=a, published_place=b) for c, a, b in zip(column, ours, theirs, strict=True)]
        )
    return [list(line) for line in zip(*marked, strict=True)]


def time_cap_section(runs: StoredRuns) -> PageSection | None:
    """Return the section that compares trainings under the published time cap with those under others.

    The result is None if no seed was trained under both.
    """
    cells: dict[str, dict[tuple[str, ...], dict[float, dict[int, RunRecord]]]] = defaultdict(dict)
    for run in runs.done:
        settings = run.settings
        if TASKS[run.task].published and "epochs" in run.timings and {"degree", "noise"} <= settings.keys():
            where = (run.experiment, run.method, f"{settings['degree']:g}", f"{settings['noise']:g}")
            caps = cells[run.task].setdefault(where, defaultdict(dict))
            caps[float(settings["time_cap"])][run.seed] = run
    grids = [
        PageGrid(TASKS[task].title, _CAPS, rows)
        for task, found in cells.items()
        if (rows := tuple(_time_cap_rows(found)))
    ]
    sentence = (
        f"Trainings under a cap of {TIME_CAP:g} seconds beside the same under a shorter one: mean test regret in % "
        "over the seeds that both have, the epochs of the longer one, and how many of its trainings the cap ended."
    )
    return PageSection("time-caps", "The full time cap", (sentence,), tuple(grids)) if grids else None


_CAPS = ("", "seeds", "shorter cap", "regret there", f"regret, {TIME_CAP:g} s", "epochs", "ended by the cap")


def _time_cap_rows(
    found: Mapping[tuple[str, ...], Mapping[float, Mapping[int, RunRecord]]],
) -> Iterable[tuple[str, ...]]:
    """Yield a table row for every cell and every time cap other than the published one.

    ``found`` holds the runs by cell (experiment, method, degree, noise), then by time cap, then by seed.
    """
    for (_, method, degree, noise), caps in sorted(found.items()):
        full = caps.get(TIME_CAP, {})
        for cap in sorted(set(caps) - {TIME_CAP}):
            seeds = sorted(full.keys() & caps[cap].keys())
            if seeds:
                label = f"{METHODS[method]}, degree {degree}" + (f", noise {noise}" if float(noise) else "")
                long, short = ([runs[seed] for seed in seeds] for runs in (full, caps[cap]))
                regrets = (
                    f"{100 * statistics.fmean(run.metrics['normalized_regret'] for run in some):.3f}"
                    for some in (short, long)
                )
                epochs = f"{statistics.fmean(run.timings['epochs'] for run in long):.0f}"
                ended = str(sum(run.timings["total"] >= TIME_CAP for run in long))
                yield (label, ", ".join(map(str, seeds)), f"{cap:g} s", *regrets, epochs, ended)
