"""The numbers that the paper prints, each a row of a CSV file, and how our numbers compare with them."""

from __future__ import annotations

import csv
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files


@dataclass(frozen=True)
class PublishedNumber:
    """One number that the paper prints, or a cell of our tables that the paper does not have.

    Attributes:
        table: the paper's table.
        task: the name of the task, such as ``"knapsack"``.
        method: our name of the method, such as ``"spo+"``.
        condition: the conditions of the cell, such as ``{"degree": 8.0, "noise": 0.1}``.
        metric: what is measured; the unit is part of the name.
        mean: the printed mean; None in a cell that only we have.
        std: the printed standard deviation; None if none is printed.
        decimals: the number of decimals of the printed mean, or of ours in a cell that only we have.
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
        return "" if self.mean is None else format_mean(self.mean, self.std, self.decimals)


@functools.cache
def published(name: str = "published") -> tuple[PublishedNumber, ...]:
    """Return the numbers of the paper's LP tables in order or, for "published_portfolio", those of its portfolios.

    Example:
        >>> first = published()[0]
        >>> first.table, first.method, first.mean, first.std, first.decimals
        ('lp_degree', 'mse', 0.135, 0.037, 3)
        >>> [(row.method, row.mean) for row in published("published_portfolio") if row.metric == "sharpe"]
        [('mse', 0.92), ('qpth', 1.15), ('cvxpylayers', 1.15), ('pear', 1.44)]
    """
    text = files("pear_lab.report").joinpath(f"{name}.csv").read_text("utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(_parse_published_row(row) for row in rows)


def _parse_published_row(row: Mapping[str, str]) -> PublishedNumber:
    """Return the published number in one row of a file."""
    pairs = (pair.split("=") for pair in row["condition"].split(";") if pair)
    return PublishedNumber(
        table=row["table"],
        task=row["task"],
        method=row["method"].lower(),
        condition={name: float(value) for name, value in pairs},
        metric=row["metric"],
        mean=float(row["mean"]),
        std=float(row["std"]) if row["std"] else None,
        decimals=len(row["mean"].partition(".")[2]),
    )


class CellVerdict(Enum):
    """The result of comparing our cell with the published one. The value of a member is the text in the report."""

    WITHIN = "within 1 sd"
    BETTER = "better"
    WORSE = "worse"
    NOT_RUN = "not run"
    NOT_PUBLISHED = "not published"
    REDUCED = "not comparable"

    @property
    def kind(self) -> str:
        """The name of the style in which the page shows the verdict."""
        return self.name.lower() if self in (CellVerdict.WITHIN, CellVerdict.BETTER, CellVerdict.WORSE) else "none"


DEFINITION = (
    "Ours is the mean over the seeds that were run. It is “within 1 sd” where it differs from the published mean by no "
    "more than the published standard deviation, “better” where it lies below that range and “worse” where it lies "
    "above (lower is better in every table). The printed numbers are rounded, so half a unit of the last printed digit "
    "is granted to each side; where the paper prints no standard deviation, that half unit is all that is granted. "
    "“Not run” means that the database holds no finished run of the cell; runs of a smaller problem than the paper's "
    "(pear reproduce --quick), and training times under another time cap, are shown as “not comparable”."
)
"""What :func:`verdict` does, in words."""


def verdict(ours: float | None, published: float | None, std: float | None, decimals: int) -> CellVerdict:
    """Return the verdict on our mean compared with the published one. Lower is better.

    Args:
        ours: our mean; None if nothing was run.
        published: the printed mean; None if the paper has no such cell.
        std: the printed standard deviation; None if none is printed.
        decimals: the decimals of the printed mean.

    Example:
        >>> verdict(4.7, 4.246, 1.106, 3).value, verdict(3.0, 4.246, 1.106, 3).value
        ('within 1 sd', 'better')
    """
    if ours is None:
        return CellVerdict.NOT_RUN
    if published is None:
        return CellVerdict.NOT_PUBLISHED
    allowed = (std or 0.0) + 0.5 * 10.0**-decimals
    difference = ours - published
    # The last term: a difference of decimal numbers is off by some units in the last place of a float.
    if abs(difference) <= allowed + 1e-12 * max(1.0, abs(published)):
        return CellVerdict.WITHIN
    return CellVerdict.BETTER if difference < 0 else CellVerdict.WORSE


def mean_and_deviation(values: Sequence[float], ddof: int) -> tuple[float, float | None]:
    """Return the mean of N values, and their standard deviation with divisor N − ``ddof``.

    The deviation of a single value is None.

    Example:
        >>> mean_and_deviation([1.0, 2.0, 3.0], ddof=1)
        (2.0, 1.0)
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - ddof))


def rank_best_two(means: Sequence[float | None], decimals: int) -> list[int]:
    """Return the rank of each mean: 1 for the lowest, 2 for the second lowest, 0 for all others.

    Means are compared as printed. Equal means share a rank, and the next rank is then left out, as in the paper: if
    two means are the lowest, there is no second lowest. With fewer than two means all ranks are 0.

    Example:
        >>> rank_best_two([0.120, 0.104, None, 0.1041], decimals=3)
        [0, 1, 0, 1]
    """
    printed = [None if mean is None or not math.isfinite(mean) else round(mean, decimals) for mean in means]
    known = [mean for mean in printed if mean is not None]
    if len(known) < 2:
        return [0] * len(means)
    places = [0 if mean is None else 1 + sum(other < mean for other in known) for mean in printed]
    return [place if place <= 2 else 0 for place in places]


def format_mean(mean: float, std: float | None, decimals: int) -> str:
    """Return a mean, and its deviation if there is one, as text with the given number of decimals.

    Example:
        >>> format_mean(4.2461, 1.1, 3), format_mean(0.3, None, 2)
        ('4.246 ± 1.100', '0.30')
    """
    text = f"{mean:.{decimals}f}"
    return text if std is None else f"{text} ± {std:.{decimals}f}"
