"""The numbers that the paper prints, one row of ``published.csv`` each."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from pear_lab.report.compare import number


@dataclass(frozen=True)
class Published:
    """One printed number.

    Attributes:
        table: the paper's table.
        task: ``"shortest_path"`` or ``"knapsack"``.
        method: our name of it (``"spo+"``).
        condition: what the cell is about, such as ``{"degree": 8.0, "noise": 0.1}``.
        metric: what is measured; the unit is part of the name.
        mean: as printed; None in a cell that only we have.
        std: as printed; None where none is.
        decimals: of the printed mean.
    """

    table: str
    task: str
    method: str
    condition: Mapping[str, float]
    metric: str
    mean: float | None
    std: float | None
    decimals: int

    @property
    def text(self) -> str:
        """Mean and deviation as printed; empty in a cell that only we have."""
        return "" if self.mean is None else number(self.mean, self.std, self.decimals)


@functools.cache
def published(name: str = "published") -> tuple[Published, ...]:
    """Every number of the paper's LP tables, in the paper's order; "published_portfolio" has those of its portfolios.

    Example:
        >>> first = published()[0]
        >>> first.table, first.method, first.mean, first.std, first.decimals
        ('lp_degree', 'mse', 0.135, 0.037, 3)
        >>> [(row.method, row.mean) for row in published("published_portfolio") if row.metric == "sharpe"]
        [('mse', 0.92), ('qpth', 1.15), ('cvxpylayers', 1.15), ('pear', 1.44)]
    """
    text = files("pear_lab.report").joinpath(f"{name}.csv").read_text("utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(_parse(row) for row in rows)


def _parse(row: Mapping[str, str]) -> Published:
    pairs = (pair.split("=") for pair in row["condition"].split(";") if pair)
    return Published(
        table=row["table"],
        task=row["task"],
        method=row["method"].lower(),
        condition={name: float(value) for name, value in pairs},
        metric=row["metric"],
        mean=float(row["mean"]),
        std=float(row["std"]) if row["std"] else None,
        decimals=len(row["mean"].partition(".")[2]),
    )
