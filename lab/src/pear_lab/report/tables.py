"""The tables, laid out as the paper prints them, with our cell in each place."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from pear.pages.section import Grid, Section
from pear_lab.experiments.catalogue import EXPERIMENTS, METHODS, Experiment
from pear_lab.experiments.table import Table
from pear_lab.report.cells import TABLES, Cell, cell, place, runs_of
from pear_lab.report.compare import Verdict, best_two
from pear_lab.report.figure_data import figures
from pear_lab.report.paired import difference_grid, differences
from pear_lab.report.published import Published, published
from pear_lab.report.runs import Runs


def table_sections(runs: Runs) -> list[Section]:
    """Every table, filled with what the database holds; those that the paper does not have where there are runs."""
    filled = {one.table.name: _section(one, runs) for one in EXPERIMENTS.values() if one.tasks != ("portfolio",)}
    drawn = figures(runs, {name: section.cells for name, section in filled.items()})
    return [
        dataclasses.replace(section, figures=drawn.get(name, ()))
        for name, section in filled.items()
        if not TABLES[name].cells or any(cell.values for cell in section.cells)
    ]


def wanted(experiment: Experiment, runs: Runs) -> list[Published]:
    """The published cells of a table, and the same for the methods that only we have, where there are runs of them."""
    table = experiment.table
    printed = [item for item in published() if item.table == table.name] or _unpublished(experiment)
    if table.rows != "method":
        return printed
    known = {item.method for item in printed}
    possible = [
        dataclasses.replace(item, method=method, mean=None, std=None)
        for item in printed
        if item.method == "pear"
        for method in sorted({run.method for run in runs.done} - known)
    ]
    found = {(place(item)[0], item.method) for item in possible if runs_of(runs, item)}
    extra = [item for item in possible if (place(item)[0], item.method) in found]
    order = {name: place for place, name in enumerate(METHODS)}
    # Blocks keep the paper's order, since sorting is stable and the block comes first.
    blocks = _unique(place(item)[0] for item in printed)
    return sorted(
        [*printed, *extra], key=lambda item: (blocks.index(place(item)[0]), order.get(item.method, len(order)))
    )


def _unpublished(experiment: Experiment) -> list[Published]:
    """The cells of a table that the paper does not have."""
    table = experiment.table
    return [
        Published(table.name, task, method, condition, metric, None, None, table.decimals_of(metric))
        for task in experiment.tasks
        for metric in table.metrics
        for method in experiment.methods
        for condition in table.cells
    ]


def _section(experiment: Experiment, runs: Runs) -> Section:
    table, items = experiment.table, wanted(experiment, runs)
    cells = {place(item): cell(runs, item) for item in items}
    grids = [_grid(table, title, cells) for title in _unique(block for block, _, _ in cells)]
    found = differences(runs, items)
    if found:
        grids.append(difference_grid(found))
    return Section(table.name, table.title, (f"{table.caption} {_deviation_words(table)}",), tuple(grids))


def _grid(table: Table, title: str, cells: dict[tuple[str, str, str], Cell]) -> Grid:
    inside = [at for at in cells if at[0] == title]
    rows, columns = _unique(row for _, row, _ in inside), _unique(column for _, _, column in inside)
    lines = [[cells[title, row, column] for column in columns] for row in rows]
    if table.ranked:
        lines = _ranked(lines)
    return Grid(title, (table.heading, *columns), tuple((row, *line) for row, line in zip(rows, lines, strict=True)))


def _deviation_words(table: Table) -> str:
    """Which standard deviation stands behind ±, and whether the paper's numbers are known to have the same."""
    kind = "of the sample (ddof 1)" if table.ddof else "of the population (ddof 0)"
    known = ", as the paper's numbers of this table" if table.as_published else ""
    return f"± is the standard deviation {kind}{known}."


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _ranked(lines: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """Mark the best two of each column, among ours and among theirs."""
    marked = []
    for column in zip(*lines, strict=True):
        decimals = column[0].published.decimals
        ours = best_two([None if cell.verdict is Verdict.REDUCED else cell.mean for cell in column], decimals)
        theirs = best_two([cell.published.mean for cell in column], decimals)
        marked.append(
            [dataclasses.replace(c, place=a, published_place=b) for c, a, b in zip(column, ours, theirs, strict=True)]
        )
    return [list(line) for line in zip(*marked, strict=True)]
