"""The order in time of rows that carry dates, so that blocks of them that are held out follow each other in time."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pear.train.samples.sample_rows import count_sample_rows, take_sample_rows

Rows = NDArray[np.intp]

NOTE = "the rows were put in the order of their dates, so that those held out follow each other in time"
"""What ``History.note`` says where rows were reordered."""


def describe_time_order(moved: bool) -> str:
    """Say in a sentence where rows were put in the order of their dates; "" where they were not."""
    return NOTE if moved else ""


def find_time_order(*tables: Any, groups: Any = None) -> Rows | None:
    """Find the order in time of rows that carry dates.

    Args:
        *tables: tables of the same N rows. The index of the first DataFrame or Series with an index of dates counts.
        groups: (N,) ids of the samples that rows belong to. They are ordered by their own values where these are
            dates, else by the first date of their rows; the rows of a group keep their order.

    Returns:
        (N,) row numbers; None where there are no dates, or the rows are in order already.

    Example:
        >>> import pandas
        >>> days = pandas.to_datetime(["2026-01-03", "2026-01-01", "2026-01-02"])
        >>> find_time_order(pandas.DataFrame({"load": [3.0, 1.0, 2.0]}, index=days))
        array([1, 2, 0])
    """
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return None
    found = (_times_of_labels(pandas, one.index) for one in tables if hasattr(one, "iloc"))
    of_rows = next((dates for dates in found if dates is not None), None)
    if groups is None:
        dates = of_rows
    else:
        dates = _times_of_labels(pandas, groups)
        if dates is None and of_rows is not None:
            dates = _first_times_of_groups(pandas, of_rows, groups)
    if dates is None or bool(np.all(dates[:-1] <= dates[1:])):
        return None
    return np.argsort(dates, kind="stable")


def sort_samples_by_time(data: Any, numbered: bool, weight: Any = None) -> tuple[Any, Any, bool]:
    """Put a pair of features and costs, or a triple with ids, in the order of their dates.

    Args:
        data: what ``fit`` takes as samples; anything but a pair or a triple is left as it is.
        numbered: whether row numbers serve as ids, as they do for a problem with fields per sample. Samples that move
            then keep their old number as an id.
        weight: (N,) weights of the samples, or None.

    Returns:
        The samples and their weights, and whether they were moved.
    """
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        return data, weight, False
    inputs = data[0].values() if isinstance(data[0], dict) else data[0] if isinstance(data[0], tuple) else [data[0]]
    order = find_time_order(*inputs, data[1])
    if order is None or not _can_sort_by_time((*inputs, *data[1:], weight), len(order)):
        return data, weight, False
    moved = tuple(_take_in_time_order(part, order) for part in data)
    return (*moved, order) if numbered and len(data) == 2 else moved, _take_in_time_order(weight, order), True


def sort_tables_by_time(given: Mapping[str, Any]) -> tuple[dict[str, Any], Rows | None]:
    """Put the tables that ``DecisionRegressor.fit`` is given in the order of their dates.

    Args:
        given: X, y, groups, base_forecast and sample_weight; all but the first two may be None.

    Returns:
        The tables; and for each sample its position before the sorting, or None where nothing was moved.
    """
    groups = given["groups"]
    order = find_time_order(given["X"], given["y"], groups=groups)
    if order is None or not _can_sort_by_time(given.values(), len(order)):
        return dict(given), None
    moved = {name: _take_in_time_order(part, order) for name, part in given.items()}
    if groups is None:
        return moved, order
    numbers: dict[Hashable, int] = {}
    for one in groups:
        numbers.setdefault(one, len(numbers))
    return moved, np.array(list(dict.fromkeys(numbers[one] for one in moved["groups"])), dtype=np.intp)


def _can_sort_by_time(tables: Iterable[Any], count: int) -> bool:
    """Whether all tables have this many rows; tables with other numbers are refused later, with a message."""
    return all(count_sample_rows(one) == count for one in tables if one is not None)


def _take_in_time_order(table: Any, order: Rows) -> Any:
    """The rows of a table in this order; None stays None. A tuple or dict of inputs is taken part by part."""
    if isinstance(table, dict):
        return {name: _take_in_time_order(part, order) for name, part in table.items()}
    if isinstance(table, tuple):
        return tuple(_take_in_time_order(part, order) for part in table)
    return None if table is None else take_sample_rows(table, order)


def _times_of_labels(pandas: Any, labels: Any) -> NDArray[Any] | None:
    """Labels as numbers that grow with time, missing ones last; None where they are not dates."""
    if labels is None or isinstance(labels, torch.Tensor):
        return None
    index = pandas.Index(labels)
    if index.dtype == object and pandas.api.types.infer_dtype(index) in ("date", "datetime"):
        index = pandas.DatetimeIndex(pandas.to_datetime(index, utc=True))
    if isinstance(index, pandas.PeriodIndex):
        index = index.to_timestamp()
    if not isinstance(index, pandas.DatetimeIndex):
        return None
    return np.where(index.isna(), np.iinfo(np.int64).max, index.asi8)


def _first_times_of_groups(pandas: Any, dates: NDArray[Any], groups: Any) -> NDArray[Any]:
    """(N,) the first date of the group that each row belongs to."""
    numbers, _ = pandas.factorize(np.asarray(groups, dtype=object))
    return np.asarray(pandas.Series(dates).groupby(numbers).transform("min"))
