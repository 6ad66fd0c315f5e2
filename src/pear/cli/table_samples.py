"""The samples of a table, in the form that ``DecisionRegressor`` expects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pear
from pear.cli.csv_table import read_csv_table, select_csv_columns
from pear.cli.forecast_files import model_feature_names, read_base_forecasts
from pear.cli.long_csv_table import LongColumns, order_long_csv_table
from pear.errors import DataError
from pear.wording import count_noun

if TYPE_CHECKING:
    import pandas

    from pear.train.estimator.regressor import DecisionRegressor

_LEAST = 10  # the smallest number of samples that can be divided into three parts


class TableSamples(NamedTuple):
    """N samples of k costs, in the form that ``DecisionRegressor`` expects.

    A table has a row for each sample, and a long table a row for each of the N·k costs.

    Attributes:
        features: the features of each row.
        costs: (N, k) true costs, or (N·k,) from a long table; None if they are not known yet.
        groups: (N·k,) the group of each row of a long table; None for another table.
        forecast: forecasts to correct, of the shape of the costs, or None.
        known: the known values of each row: model data that differ by sample and are not predicted (``--known``). None
            if the model has none.
    """

    features: pandas.DataFrame
    costs: Any
    groups: pandas.Series[Any] | None
    forecast: Any
    known: pandas.DataFrame | None = None

    def known_samples(self) -> Any:
        """Return ``known`` with one row for each sample: in a long table, the first row of each group."""
        if self.known is None or self.groups is None:
            return self.known
        return self.known[~self.groups.duplicated()]

    def options(self) -> dict[str, Any]:
        """Return the arguments ``groups``, ``base_forecast`` and ``known`` of ``DecisionRegressor``, without None."""
        named = {"groups": self.groups, "base_forecast": self.forecast, "known": self.known_samples()}
        return {name: value for name, value in named.items() if value is not None}

    def rows(self, which: slice) -> TableSamples:
        """Return the samples of a slice of the rows."""
        return TableSamples(*(None if part is None else part[which] for part in self))

    def by_date(self, dates: pandas.DatetimeIndex) -> TableSamples:
        """Return the samples sorted by the dates of their rows."""
        from pear.train.time_order import find_time_order

        order = find_time_order(self.features.set_axis(dates), groups=self.groups)
        return self if order is None else TableSamples(*(None if part is None else part.iloc[order] for part in self))


def read_known_columns(
    problem: Any, table: pandas.DataFrame, path: Path, groups: str | None = None
) -> pandas.DataFrame | None:
    """Return the known values of a model from the columns of a table: data that differ by sample and are not predicted.

    Args:
        problem: the model. A ``Problem`` has no known values.
        table: the samples.
        path: the file of the table, for error messages.
        groups: for a long table, the column of its groups. Known values must not differ within a group.

    Returns:
        A DataFrame with the rows of the table, or None if the model has no known values.

    Raises:
        DataError: a column is missing, contains other entries than numbers, or differs within a group.
    """
    known = getattr(problem, "known_map", None)
    if known is None:
        return None
    found = select_csv_columns(table, known.names, "known numbers", path)
    if groups is not None:
        for name in known.names:
            if (found[name].groupby(table[groups]).nunique() > 1).any():
                raise DataError(f"--known: column {name!r} of {path} differs within a group; it must be one number")
    return found


def table_values(given: Any, inputs: int) -> Any:
    """Return costs or forecasts from a table as an array (N, inputs), with a row for each sample.

    Args:
        given: a DataFrame with a row for each sample, or the column of a long table with consecutive rows of a group.
        inputs: the number of predicted values of a sample.
    """
    return given.to_numpy().reshape(-1, inputs)


class SplitTableSamples(NamedTuple):
    """Samples to train on, and samples to test on."""

    train: TableSamples
    test: TableSamples


def split_table_samples(samples: TableSamples, size: int, share: float, path: Path) -> SplitTableSamples:
    """Return samples in two parts, in their order: those to train on, and the last ones, to test on.

    Args:
        samples: all samples. The rows of a group follow each other.
        size: the number of rows of a sample.
        share: the share of the test samples, between 0 and 1.
        path: the file of the table, for error messages.

    Raises:
        DataError: ``share`` is out of range, there are no features, or there are too few samples.
    """
    if not 0 < share < 1:
        raise DataError(f"--test-share must lie between 0 and 1; got {share:g}")
    if not len(samples.features.columns):
        raise DataError(
            f"{path} has no column to predict from: all of them are costs; add features, or name --features"
        )
    what, count = "row" if size == 1 and samples.groups is None else "group", len(samples.features) // size
    test = max(1, round(share * count))
    if count < _LEAST or count - test < _LEAST // 2:
        raise DataError(
            f"{path} has {count_noun(count, what)}, {test} of them to judge by; expected at least {_LEAST}, with half "
            "of them left to train on"
        )
    cut = (count - test) * size
    return SplitTableSamples(samples.rows(slice(0, cut)), samples.rows(slice(cut, None)))


def read_estimator_samples(
    estimator: DecisionRegressor,
    model: Path | None,
    data: Path,
    groups: str | None,
    variables: str | None,
    forecasts: Path | None,
    with_costs: bool = False,
) -> TableSamples:
    """Return the samples of a table for a trained estimator. Rows of a long table are ordered by groups and values.

    Args:
        estimator: the estimator.
        model: the file of the estimator, for error messages. If it is None, no features are read.
        data: the CSV file of the table.
        groups: for a long table, the column of its groups.
        variables: for a long table, the column that names the variables.
        forecasts: a file of forecasts to correct, or a model file that makes them, or None.
        with_costs: whether to read the true costs, too.

    Raises:
        DataError: a column is missing, or contains other entries than finite numbers; or the table is a long one and
            that of training was not, or the reverse.
    """
    _check_long_option(estimator, groups)
    table, forecast, ids, costs = read_csv_table(data), None, None, None
    columns = [str(name) for name in estimator._columns or ()]
    if forecasts is not None:
        forecast = read_base_forecasts(forecasts, table, columns, data, groups is not None)
    if groups is not None:
        problem = estimator.problem
        names = problem.names if isinstance(problem, pear.Model) else [f"x{i}" for i in range(problem.n)]
        table = order_long_csv_table(table, LongColumns(groups, variables), names, data)
        ids, forecast = table[groups], None if forecast is None else forecast.loc[table.index]
    features = select_csv_columns(
        table, [] if model is None else model_feature_names(estimator, model), "features", data
    )
    if with_costs:
        costs = select_csv_columns(table, columns, "true costs", data)
        costs = costs if groups is None else costs[columns[0]]
    return TableSamples(features, costs, ids, forecast, read_known_columns(estimator.problem, table, data, groups))


def _check_long_option(estimator: DecisionRegressor, groups: str | None) -> None:
    """Raise ``DataError`` if ``--groups`` is missing for a model of long tables, or is given for another model."""
    if estimator._long and groups is None:
        raise DataError(
            "the model was trained on a long table, with a row for each value; name the column of its groups "
            "(--groups) and, if it has one, that of its variables (--variables)"
        )
    if groups is not None and not estimator._long:
        raise DataError("the model was trained on a table with a row for each sample; leave out --groups")
