"""How records become the cells of a table: its metrics with their units, its conditions, and its layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pear_lab.experiments.run_record import RunRecord

DEFAULTS: Mapping[str, float] = {"noise": 0.0, "smoothing": 0.1, "injection": 0.1}
"""Settings of the paper's experiments, unless an experiment names others."""


@dataclass(frozen=True)
class TableMetric:
    """A number that tables show.

    Attributes:
        title: how a table names it, with its unit.
        source: name in ``RunRecord.metrics`` or ``RunRecord.timings``.
        factor: the table shows a record's number multiplied by this factor, which is 100 for a share in per cent.
        decimals: number of decimals to print if no published number shows how many.
    """

    title: str
    source: str
    factor: float = 1.0
    decimals: int = 2


METRICS: Mapping[str, TableMetric] = {
    "normalized_regret_pct": TableMetric("normalised regret, %", "normalized_regret", 100.0),
    "train_seconds": TableMetric("training time, s", "total", decimals=1),
    "mse": TableMetric("mean squared error", "mse", decimals=3),
    "active_set_change_rate_pct": TableMetric("active-set change rate ρ, %", "active_change_rate", 100.0),
    "cumulative_return_pct": TableMetric("cumulative return, %", "cumulative_return", 100.0),
    "annual_return_pct": TableMetric("annual return, %", "annual_return", 100.0),
    "volatility_pct": TableMetric("volatility, %", "volatility", 100.0),
    "sharpe": TableMetric("Sharpe", "sharpe"),
    "max_drawdown_pct": TableMetric("max. drawdown, %", "max_drawdown", 100.0),
    "turnover": TableMetric("turnover", "mean_turnover"),
    "normalized_mse": TableMetric("normalised MSE", "normalized_mse", decimals=3),
}
"""Metrics by their names in the published tables, in the order in which tables print them."""


@dataclass(frozen=True)
class Condition:
    """A condition of a table's cells, such as the degree or the noise.

    Attributes:
        label: the name of a row or column, with a placeholder for the value.
        setting: the name of the condition in ``RunRecord.settings``. It is empty if each run has a number for every
            value of the condition, which ``TableSpec.shift`` then finds.
    """

    label: str
    setting: str = ""


CONDITIONS: Mapping[str, Condition] = {
    "degree": Condition("degree {:g}", "degree"),
    "noise": Condition("noise {:g}", "noise"),
    "lambda": Condition("λ = {:g}", "smoothing"),
    "beta": Condition("β = {:g}", "injection"),
    "batch": Condition("instances of {:g}", "instance_size"),
    "budget": Condition("budget {:g}", "budget"),
    "limit": Condition("capacity {:g}", "capacity"),
    "capacity": Condition("capacity {:g}"),
    "lower_bound": Condition("lower bound {:g}"),
}
"""Conditions by their names in the published tables."""


@dataclass(frozen=True)
class TableSpec:
    """A table of an experiment.

    Attributes:
        name: the name of the table among the published numbers.
        title: heading of the table.
        caption: text below the heading.
        metrics: names in ``METRICS``.
        blocks, rows, columns: what the blocks, rows and columns of the table stand for: "task", "method" or a name in
            ``CONDITIONS``. Each metric has blocks of its own.
        heading: heading of the column that names the rows.
        ddof: 0 or 1. The standard deviation over N seeds has the divisor N − ``ddof``.
        as_published: whether the paper's standard deviations have the same divisor, as inferred from runs that repeat
            its printed digits.
        ranked: whether the best two of a column are marked.
        settings: settings that a run must have to fill a cell, besides the conditions of the cell and ``DEFAULTS``.
        variants: the variants (measurements) of the runs that fill the table; None stands for trainings.
        shift: the key of a cell's number in ``RunRecord.metrics["shift"]``, which holds regrets on changed problems.
            The key may have a placeholder for a condition, as in "{capacity:g}". Empty if the table shows the metric.
        cells: the conditions of each cell of a table that is not in the paper. For a table of the paper it is empty,
            because the published numbers name their conditions.
        decimals: the decimals of metrics whose decimals differ from those in ``METRICS``.
    """

    name: str
    title: str
    caption: str
    metrics: tuple[str, ...] = ("normalized_regret_pct",)
    blocks: tuple[str, ...] = ("task",)
    rows: str = "method"
    columns: str = "degree"
    heading: str = "Method"
    ddof: int = 0
    as_published: bool = True
    ranked: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[str | None, ...] = (None,)
    shift: str = ""
    cells: tuple[Mapping[str, float], ...] = ()
    decimals: Mapping[str, int] = field(default_factory=dict)

    def matches(self, record: RunRecord, condition: Mapping[str, float]) -> bool:
        """Return whether a record has the variant and the settings of a cell. The caller compares task and method."""
        named = {CONDITIONS[name].setting: value for name, value in condition.items() if CONDITIONS[name].setting}
        expected = {**DEFAULTS, **named, **self.settings}
        return record.settings.get("variant") in self.variants and all(
            record.settings.get(name, DEFAULTS.get(name)) == value for name, value in expected.items()
        )

    def decimals_of(self, metric: str) -> int:
        """Return the number of decimals to print if no published number shows how many."""
        return self.decimals.get(metric, METRICS[metric].decimals)

    def value(self, record: RunRecord, metric: str, condition: Mapping[str, float]) -> float | None:
        """Return the number that a record has for a cell, in the unit of the table; None if it has none.

        Example:
            >>> table = TableSpec("stability", "Stability", "", metrics=("active_set_change_rate_pct",))
            >>> found = {"active_change_rate": 0.0038}
            >>> record = RunRecord("k", "stability", "knapsack", "pear", 0, {}, "done", metrics=found)
            >>> table.value(record, "active_set_change_rate_pct", {})
            0.38
        """
        chosen = METRICS[metric]
        if self.shift:
            number = record.metrics.get("shift", {}).get(self.shift.format(**condition))
        else:
            number = record.metrics.get(chosen.source, record.timings.get(chosen.source))
        return None if number is None else chosen.factor * number
