"""The paper's LP tables, laid out as printed, with our cell in each place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pear.report.cells import Cell, cell, runs_of
from pear.report.compare import Verdict, best_two
from pear.report.database import Runs
from pear.report.paired import Difference, differences
from pear.report.published import Published, published

METHODS = {
    "mse": "MSE",
    "spo+": "SPO+",
    "spo+relaxed": "SPO+ (relaxed)",
    "pfyl": "PFYL",
    "dbb": "DBB",
    "lava": "LAVA",
    "pear": "PEAR",
}
"""Methods in the order of the paper, and how they are written."""

TASKS = {"shortest_path": "Shortest path", "knapsack": "Knapsack"}
DATA_TASKS = {"building": "Building investment", "energy": "Energy"}

METRICS = {
    "normalized_regret_pct": "normalised regret, %",
    "train_seconds": "training time, s",
    "mse": "mean squared error",
    "active_set_change_rate_pct": "active-set change rate ρ, %",
}

_Key = Callable[[Published], str]


@dataclass(frozen=True)
class Layout:
    """How one table is arranged.

    Attributes:
        name: of the table, as in ``published.csv``.
        title, caption: for people.
        ddof: what the paper takes off the number of seeds in its standard deviations.
        block, row, column: the part, line and column that a cell belongs to.
        heading: of the lines.
        ranked: whether the best two of a column are marked.
        as_published: whether the paper is known to take off as much.
    """

    name: str
    title: str
    caption: str
    ddof: int
    block: _Key
    row: _Key
    column: _Key
    heading: str = "Method"
    ranked: bool = True
    as_published: bool = True


@dataclass(frozen=True)
class Block:
    """One part of a table: ``cells[i][j]`` stands in line ``rows[i]`` and column ``columns[j]``."""

    title: str
    heading: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Table:
    """A table, filled; ``differences`` are of the methods to PEAR, where runs keep what every instance lost."""

    layout: Layout
    blocks: tuple[Block, ...]
    differences: tuple[Difference, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """All of them, in reading order."""
        return [cell for block in self.blocks for row in block.cells for cell in row]


def _task(cell: Published) -> str:
    return (TASKS | DATA_TASKS)[cell.task]


def _method(cell: Published) -> str:
    return METHODS.get(cell.method, cell.method)


def _degree(cell: Published) -> str:
    return f"degree {cell.condition['degree']:g}"


def _value(name: str, text: str) -> _Key:
    return lambda cell: text.format(cell.condition[name])


def _capacity(cell: Published) -> str:
    capacity = cell.condition["capacity"]
    return f"capacity {capacity:g}" + (" (trained)" if capacity == 0.5 else "")


LAYOUTS = (
    Layout(
        "lp_degree",
        "LP benchmarks by degree",
        "Test regret and training time as the costs grow less linear; no noise. Times are of different machines.",
        1,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _method,
        _degree,
    ),
    # The printed deviations of the noise table are those of the population: MSE on paths at noise 0.5 gives 2.95 with
    # ddof 0, as printed, and 3.30 with ddof 1.
    Layout(
        "lp_noise",
        "LP benchmarks under noise",
        "Test regret at degree 8 where every cost carries a random factor of this half-width.",
        0,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _method,
        _value("noise", "noise {:g}"),
    ),
    # As in the noise table: MSE at degree 8 gives 1.47 with ddof 0, as printed, and 1.64 with ddof 1.
    Layout(
        "direction_shift",
        "Direction shift",
        "Trained on paths from the top left to the bottom right, tested from the bottom left to the top right.",
        0,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _method,
        _degree,
    ),
    Layout(
        "capacity_shift",
        "Capacity shift",
        "Trained with a capacity of half the total weight, tested with others.",
        0,
        lambda cell: f"{_task(cell)}, {_degree(cell)}: {METRICS[cell.metric]}",
        _method,
        _capacity,
    ),
    Layout(
        "ablation_beta",
        "Ablation: normal injection β",
        "PEAR with smoothing λ = 0.1; the best two β of a degree are marked.",
        0,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _value("beta", "β = {:g}"),
        _degree,
        heading="Injection",
    ),
    Layout(
        "ablation_lambda",
        "Ablation: smoothing λ",
        "PEAR with injection β = 0.1; the best two λ of a degree are marked.",
        0,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _value("lambda", "λ = {:g}"),
        _degree,
        heading="Smoothing",
    ),
    Layout(
        "stability",
        "Stability of the active set",
        "Share of inequalities whose activity changes when PEAR's predicted costs are perturbed a little, at degree 8. "
        "The paper names neither the degree nor the size of its perturbations, and prints no deviation; ours are "
        "1 % of the mean predicted cost.",
        0,
        lambda cell: METRICS[cell.metric],
        _task,
        lambda cell: "PEAR",
        heading="Task",
        ranked=False,
    ),
    Layout(
        "accuracy",
        "Prediction accuracy",
        "Mean squared error of the predicted costs on the test samples.",
        0,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _method,
        _degree,
    ),
    Layout(
        "building_investment",
        "Building investment",
        "Real properties in instances of 10, a budget of 0.4 of each instance's construction cost. Ours is "
        "cross-validated: each seed deals out the properties anew, and over five folds every instance is tested once "
        "by a model that has not seen it; each method but MSE chooses one setting of five on validation instances. "
        "The paper does not say how it splits, so that the two are only loosely comparable; its deviations, if of "
        "single splits, must be larger.",
        1,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _method,
        lambda cell: "budget 0.4",
        as_published=False,
    ),
)
"""Which ``ddof`` a table has is seen from runs that repeat its printed digits."""


OWN_LAYOUTS = (
    Layout(
        "building_equality",
        "Building investment, budget spent exactly",
        "As above, with properties built in part so that the budget is met: a linear program. Not in the paper.",
        1,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _method,
        lambda cell: "budget 0.4",
        as_published=False,
    ),
    Layout(
        "energy",
        "Energy",
        "A knapsack of 48 half-hours on Irish prices: the first 70 % of the days train, 10 % validate, the last 20 % "
        "test. Seeds differ in first weights and batches alone. Each method but MSE chooses one setting of five on "
        "the validation days; its time is that of all five. Not in the paper.",
        1,
        lambda cell: f"{_task(cell)}: {METRICS[cell.metric]}",
        _method,
        _value("limit", "capacity {:g}"),
        as_published=False,
    ),
)
"""Tables that the paper does not have; they are shown where there are runs of them."""


def tables(runs: Runs) -> list[Table]:
    """Every table, filled with what the database holds."""
    filled = [_table(layout, runs) for layout in (*LAYOUTS, *OWN_LAYOUTS)]
    own = {layout.name for layout in OWN_LAYOUTS}
    return [table for table in filled if table.layout.name not in own or any(cell.values for cell in table.cells)]


def _table(layout: Layout, runs: Runs) -> Table:
    wanted = _wanted(layout, runs)
    cells = {_place(layout, item): cell(runs, item, layout.ddof) for item in wanted}
    blocks = []
    for title in _unique(layout.block(item) for item in wanted):
        inside = [item for item in wanted if layout.block(item) == title]
        rows = _unique(layout.row(item) for item in inside)
        columns = _unique(layout.column(item) for item in inside)
        grid = [[cells[title, row, column] for column in columns] for row in rows]
        blocks.append(Block(title, layout.heading, rows, columns, _ranked(grid) if layout.ranked else _frozen(grid)))
    return Table(layout, tuple(blocks), differences(runs, wanted, layout.row, layout.column))


def _wanted(layout: Layout, runs: Runs) -> list[Published]:
    """The published cells, and the same for the methods that only we have, where there are runs of them."""
    printed = [item for item in (*published(), *_unpublished()) if item.table == layout.name]
    if layout.heading != "Method":
        return printed
    known = {item.method for item in printed}
    possible = [
        dataclasses.replace(item, method=method, mean=None, std=None)
        for item in printed
        if item.method == "pear"
        for method in sorted({run.method for run in runs.done} - known)
    ]
    found = {(layout.block(item), item.method) for item in possible if runs_of(runs, item)}
    extra = [item for item in possible if (layout.block(item), item.method) in found]
    order = {name: place for place, name in enumerate(METHODS)}
    # Blocks keep the paper's order, since sorting is stable and the block comes first.
    blocks = _unique(layout.block(item) for item in printed)
    return sorted(
        [*printed, *extra], key=lambda item: (blocks.index(layout.block(item)), order.get(item.method, len(order)))
    )


def _unpublished() -> list[Published]:
    """The cells of tables that the paper does not have."""
    methods = [name for name in METHODS if name != "spo+relaxed"]
    regret, seconds = "normalized_regret_pct", "train_seconds"
    cells = [
        Published("building_equality", "building", name, {"batch": 10.0, "budget": 0.4}, regret, None, None, 2)
        for name in methods
    ]
    return cells + [
        Published("energy", "energy", name, {"limit": limit}, metric, None, None, decimals)
        for metric, decimals in ((regret, 3), (seconds, 1))
        for name in methods
        for limit in (60.0, 120.0, 180.0)
    ]


def _place(layout: Layout, item: Published) -> tuple[str, str, str]:
    return layout.block(item), layout.row(item), layout.column(item)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _frozen(grid: Sequence[Sequence[Cell]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(row) for row in grid)


def _ranked(grid: Sequence[Sequence[Cell]]) -> tuple[tuple[Cell, ...], ...]:
    """Mark the best two of each column, among ours and among theirs."""
    marked = []
    for column in zip(*grid, strict=True):
        decimals = column[0].published.decimals
        ours = best_two([None if cell.verdict is Verdict.REDUCED else cell.mean for cell in column], decimals)
        theirs = best_two([cell.published.mean for cell in column], decimals)
        marked.append(
            [dataclasses.replace(c, place=a, published_place=b) for c, a, b in zip(column, ours, theirs, strict=True)]
        )
    return _frozen(list(zip(*marked, strict=True)))
