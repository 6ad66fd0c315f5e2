"""Samples of ``pear train`` and ``pear decide``: a row for each sample or value, and forecasts beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pear.cli.csv_table import check_same_samples, read_csv_table, select_columns
from pear.errors import DataError
from pear.wording import suggest_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas

    from pear.train.estimator.regressor import DecisionRegressor

MODEL_SUFFIX = ".pear"
"""The ending of model files."""

_LEAST = 10  # samples that can be split in three at all


class LongColumns(NamedTuple):
    """The columns that make a table a long one.

    Attributes:
        groups: the column that says which rows belong to one decision.
        variables: the column that names what is predicted; None where rows are in the order of the model's values.
    """

    groups: str
    variables: str | None


class SampleRows(NamedTuple):
    """Samples, as ``DecisionRegressor`` takes them.

    Attributes:
        features: (N, p), or (N·k, p) of a long table.
        costs: (N, k), or (N·k,); None where they are not known yet.
        groups: (N·k,) of a long table; None elsewhere.
        forecast: forecasts to correct, in the shape of the costs, or None.
        known: (N, ·) numbers that the model knows, (N·k, ·) of a long table; None where it knows none.
    """

    features: pandas.DataFrame
    costs: Any
    groups: pandas.Series[Any] | None
    forecast: Any
    known: pandas.DataFrame | None = None

    def known_samples(self) -> Any:
        """Return the known numbers, one row for each sample (the first row of each group of a long table), or None."""
        if self.known is None or self.groups is None:
            return self.known
        return self.known[~self.groups.duplicated()]

    def options(self) -> dict[str, Any]:
        """Return the arguments ``groups``, ``base_forecast`` and ``known`` by name, without those that are None."""
        named = {"groups": self.groups, "base_forecast": self.forecast, "known": self.known_samples()}
        return {name: value for name, value in named.items() if value is not None}

    def rows(self, which: slice) -> SampleRows:
        """Return the samples in a slice of the rows."""
        return SampleRows(*(None if part is None else part[which] for part in self))

    def by_date(self, dates: pandas.DatetimeIndex) -> SampleRows:
        """The samples in the order of the dates of their rows, (N,) or (N·k,)."""
        from pear.train.time_order import find_time_order

        order = find_time_order(self.features.set_axis(dates), groups=self.groups)
        return self if order is None else SampleRows(*(None if part is None else part.iloc[order] for part in self))


def read_known_columns(
    problem: Any, table: pandas.DataFrame, path: Path, groups: str | None = None
) -> pandas.DataFrame | None:
    """Read the columns that a model knows, with a row for each of the table; None where it knows nothing.

    Args:
        problem: the model, or a problem, which knows nothing.
        table: the samples.
        path: file of the table, used in error messages.
        groups: for a long table, the column of its groups, in which known numbers are the same.

    Raises:
        DataError: a column is missing or holds no numbers, or differs within a group.
    """
    known = getattr(problem, "known_map", None)
    if known is None:
        return None
    found = select_columns(table, known.names, "known numbers", path)
    if groups is not None:
        for name in known.names:
            if (found[name].groupby(table[groups]).nunique() > 1).any():
                raise DataError(f"--known: column {name!r} of {path} differs within a group; it must be one number")
    return found


def values_of_samples(given: Any, inputs: int) -> Any:
    """Costs or forecasts, the rows of a group after each other, as an array (N, k)."""
    return given.to_numpy().reshape(-1, inputs)


class RowSplit(NamedTuple):
    """Samples to train on, and samples to judge by."""

    train: SampleRows
    test: SampleRows


def split_samples(samples: SampleRows, size: int, share: float, path: Path) -> RowSplit:
    """Split samples in their order: the last ``share`` of them are for the test, which must leave some to train on.

    Args:
        samples: all of them; the rows of a group follow each other.
        size: the rows of a sample.
        share: between 0 and 1.
        path: file of the table, used in error messages.
    """
    if not 0 < share < 1:
        raise DataError(f"--test-share must lie between 0 and 1; got {share:g}")
    if not len(samples.features.columns):
        raise DataError(
            f"{path} has no column to predict from: all of them are costs; add features, or name --features"
        )
    what, count = "rows" if size == 1 and samples.groups is None else "groups", len(samples.features) // size
    test = max(1, round(share * count))
    if count < _LEAST or count - test < _LEAST // 2:
        raise DataError(
            f"{path} has {count} {what}, {test} of them to judge by; expected at least {_LEAST}, with half of them "
            "left to train on"
        )
    cut = (count - test) * size
    return RowSplit(samples.rows(slice(0, cut)), samples.rows(slice(cut, None)))


def variables_in(table: pandas.DataFrame, long: LongColumns, variables: Sequence[str], path: Path) -> list[str]:
    """The variables that a long table has rows for, in the order of the model; all of them where no column names them.

    Raises:
        DataError: a name is that of no variable.
    """
    if long.variables is None:
        return list(variables)
    _require_column(table, long.variables, "--variables", path)
    found = [str(name) for name in dict.fromkeys(table[long.variables])]
    for name in found:
        if name not in variables:
            raise DataError(
                f"column {long.variables!r} of {path} names {name!r}, which is no variable of the "
                f"model{suggest_name(name, list(variables))}"
            )
    return [name for name in variables if name in found]


def order_long_table(table: pandas.DataFrame, long: LongColumns, names: Sequence[str], path: Path) -> pandas.DataFrame:
    """The rows of a long table, group after group, and in each group in the order of the predicted values.

    Args:
        table: the result of ``read_csv_table``; its index counts the lines.
        long: the columns with groups and names.
        names: the k predicted values, in their order.
        path: file of the table, used in error messages.

    Raises:
        DataError: a cell is empty, or a group has a value twice.
        ProblemError: a group has not a row for each value.
    """
    from pear.train.long_table import group_long_table

    _require_column(table, long.groups, "--groups", path)
    if long.variables is not None:
        _require_column(table, long.variables, "--variables", path)
        places = table[long.variables].astype(str).map({name: place for place, name in enumerate(names)})
        if places.isna().any():
            at = int(places.isna().to_numpy().argmax())
            name = str(table[long.variables].iloc[at])
            raise DataError(
                f"line {at + 2} of {path} is a row of {name!r}, which is not predicted{suggest_name(name, list(names))}"
            )
        table = table.iloc[places.argsort(kind="stable")]
        if (twice := table.duplicated([long.groups, long.variables])).any():
            group, name = table.loc[twice, [long.groups, long.variables]].iloc[0]
            raise DataError(f"group {group} of {path} has {name!r} twice; keep one row of each")
    found = group_long_table(table[long.groups], len(table), len(names))
    first = sorted(range(len(found)), key=lambda group: int(table.index[found.rows[group]].min()))
    return table.iloc[found.rows[first].ravel()]


def read_forecasts(
    path: Path, table: pandas.DataFrame, columns: Sequence[str], data: Path, long: bool, empty: bool = False
) -> Any:
    """Read forecasts for the rows of a table.

    Args:
        path: a CSV file with the same rows, and the same columns of costs.
        table: the samples, in the order of their file.
        columns: the columns of costs.
        data: the file of the samples, used in error messages.
        long: whether the table is a long one, whose forecasts may be in a column of any name.
        empty: whether cells may be empty, where no forecast was made; they become NaN.

    Raises:
        DataError: other rows, or no forecasts.
    """
    forecasts = read_csv_table(path)
    check_same_samples(table, forecasts, list(columns), data, path)
    new = [name for name in forecasts.columns if name not in table.columns]
    names = new if long and columns[0] not in forecasts.columns and len(new) == 1 else list(columns)
    there = [name for name in names if name in forecasts.columns]
    filled = forecasts.fillna(dict.fromkeys(there, 0.0)) if empty else forecasts
    found = select_columns(filled, names, "forecasts", path)
    found = found.mask(forecasts[names].isna()) if empty else found
    return found[names[0]] if long else found


def read_base(path: Path, table: pandas.DataFrame, columns: Sequence[str], data: Path, long: bool) -> Any:
    """The forecasts to correct, for the rows of a table: those of a file, or of a model file for these rows.

    Args:
        path: a CSV file of forecasts, or a model file, which ends in .pear.
        table: the samples, in the order of their file.
        columns: the columns of costs.
        data: the file of the samples, used in error messages.
        long: whether the table is a long one.

    Raises:
        DataError: other rows, no forecasts, or a model of other costs or features.
    """
    if path.suffix != MODEL_SUFFIX:
        return read_forecasts(path, table, columns, data, long)
    from pear.train.estimator.regressor import DecisionRegressor

    trained = DecisionRegressor.load(path)
    found = trained.predict(select_columns(table, feature_names(trained, path), "features", data))
    if long:
        return found
    for name in columns:
        if name not in found.columns:
            raise DataError(f"{path} forecasts no {name!r}{suggest_name(name, list(found.columns))}")
    return found[list(columns)]


def feature_names(trained: DecisionRegressor, path: Path) -> list[str]:
    """The names of the features of a model from a model file.

    Raises:
        DataError: it was fitted to an array.
    """
    names = getattr(trained, "feature_names_in_", None)
    if names is None:
        raise DataError(
            f"{path} does not name its features: it was fitted to an array; fit it to a DataFrame, and save it"
        )
    return [str(name) for name in names]


def _require_column(table: pandas.DataFrame, name: str, option: str, path: Path) -> None:
    """Raise DataError unless the table has a column of this name without empty cells."""
    if name not in table.columns:
        raise DataError(f"{option}: {path} has no column {name!r}{suggest_name(name, list(table.columns))}")
    if table[name].isna().any():
        line = int(table[name].isna().to_numpy().argmax()) + 2
        raise DataError(f"{option}: column {name!r} of {path} is empty in line {line}; fill it, or drop the row")
