"""Functions that sort rows by their dates, so that blocks of rows can be held out in the order of time."""

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
"""The sentence in ``History.note`` if the rows were sorted."""


def describe_time_order(moved: bool) -> str:
    """Return the sentence that says that the rows were sorted by their dates; "" if they were not moved."""
    return NOTE if moved else ""


def find_time_order(*tables: Any, groups: Any = None) -> Rows | None:
    """Return the order in time of rows that carry dates.

    Args:
        *tables: tables with the same N rows. The dates are the index of the first DataFrame or Series that has an index
            of dates.
        groups: (N,) ids of the samples that the rows belong to, or None. Groups are sorted by their ids if these are
            dates, and otherwise by the first date of their rows. The rows of a group keep their order.

    Returns:
        The row numbers (N,) in the order of time; None if the rows carry no dates, or are sorted already.

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
    """Sort a pair of features and costs, or a triple with ids, by the dates in the index of their tables.

    Args:
        data: the samples, in any form that ``fit`` accepts. Only pairs and triples are sorted.
        numbered: whether samples without ids get their former row numbers as ids when they are moved. This is necessary
            if the problem has a field, such as b, with a row for each sample.
        weight: (N,) weights of the samples, or None.

    Returns:
        Three values: the samples, their weights, and whether the samples were moved.
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
    """Sort the tables of ``DecisionRegressor.fit`` by the dates in their index or in ``groups``.

    Args:
        given: X, y, groups, base_forecast and sample_weight by name. All except X and y may be None.

    Returns:
        Two values: the tables by name; and the former number of each sample (N,), or None if nothing was moved.
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
    """Return whether all tables have ``count`` rows. If not, they are left unsorted, because they are refused later."""
    return all(count_sample_rows(one) == count for one in tables if one is not None)


def _take_in_time_order(table: Any, order: Rows) -> Any:
    """Return the rows of a table in this order.

    The tables in a tuple or a dict are all put in this order, and None stays None.
    """
    if isinstance(table, dict):
        return {name: _take_in_time_order(part, order) for name, part in table.items()}
    if isinstance(table, tuple):
        return tuple(_take_in_time_order(part, order) for part in table)
    return None if table is None else take_sample_rows(table, order)


def _times_of_labels(pandas: Any, labels: Any) -> NDArray[Any] | None:
    """Return labels (N,) as numbers that grow with time, with missing dates last; None if the labels are not dates."""
    if labels is None or isinstance(labels, (torch.Tensor, str)):  # a text is refused later
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
    """Return, for each row, the first date in the group of the row, (N,).

    Args:
        pandas: the module.
        dates: (N,) the date of each row, as a number that grows with time.
        groups: (N,) the id of the group of each row.
    """
    numbers, _ = pandas.factorize(np.asarray(groups, dtype=object))
    return np.asarray(pandas.Series(dates).groupby(numbers).transform("min"))
