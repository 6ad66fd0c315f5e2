"""How records become the cells of a table: metrics with their units, conditions, and what a table shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pear_lab.experiments.run_record import RunRecord

DEFAULTS: Mapping[str, float] = {"noise": 0.0, "smoothing": 0.1, "injection": 0.1}
"""Settings of the paper where it names no other."""


@dataclass(frozen=True)
class TableMetric:
    """A number that tables show.

    Attributes:
        title: how a table names it, with its unit.
        source: name in ``RunRecord.metrics`` or ``RunRecord.timings``.
        factor: what turns the record's unit, a share or seconds, into that of the table.
        decimals: number of decimals where no published number says how many to print.
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
"""By the names of the published tables, in the order in which a table prints them."""


@dataclass(frozen=True)
class Condition:
    """A condition of a table's cells, such as the degree or the noise.

    Attributes:
        label: how a row or column is named, with a place for the value.
        setting: the setting of the runs; empty where one run holds all values, under ``metrics["shift"]``.
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
"""By the names of the published tables."""


@dataclass(frozen=True)
class TableSpec:
    """A table of an experiment.

    Attributes:
        name: as in the published tables, by which their rows are found.
        title: heading of the table.
        caption: text below the heading.
        metrics: names in ``METRICS``.
        blocks, rows, columns: what tells the parts, lines and columns apart: "task", "method" or one of
            ``CONDITIONS``; each metric has a block of its own as well.
        heading: heading of the column that names the lines.
        ddof: what the paper subtracts from the number of seeds in the divisor of its standard deviations, as inferred
            from runs that repeat its printed digits.
        as_published: whether ``ddof`` is known.
        ranked: whether the best two of a column are marked.
        settings: settings of its runs that the published rows do not name.
        variants: the variants of the runs that fill it; None is a training.
        shift: key in ``metrics["shift"]``, with places for conditions; empty where the metric itself is shown.
        cells: conditions of the cells, where the paper has no such table.
        decimals: the decimals of its metrics, where they differ.
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
        """Whether a record's settings are those of a cell; task and method are compared by the caller."""
        named = {CONDITIONS[name].setting: value for name, value in condition.items() if CONDITIONS[name].setting}
        expected = {**DEFAULTS, **named, **self.settings}
        return record.settings.get("variant") in self.variants and all(
            record.settings.get(name, DEFAULTS.get(name)) == value for name, value in expected.items()
        )

    def decimals_of(self, metric: str) -> int:
        """The decimals to print where no published number shows how many."""
        return self.decimals.get(metric, METRICS[metric].decimals)

    def value(self, record: RunRecord, metric: str, condition: Mapping[str, float]) -> float | None:
        """What a record says about a cell, in the table's unit; None where it says nothing.

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
