"""Forecasts for the rows of a table, from a CSV file or made by a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pear.cli.csv_table import check_csv_samples_match, read_csv_table, select_csv_columns
from pear.errors import DataError
from pear.wording import suggest_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas

    from pear.train.estimator.regressor import DecisionRegressor

MODEL_SUFFIX = ".pear"
"""The ending of model files."""


def read_forecast_file(
    path: Path, table: pandas.DataFrame, columns: Sequence[str], data: Path, long: bool, empty: bool = False
) -> Any:
    """Return forecasts for the rows of a table, read from a CSV file: a DataFrame, or a column for a long table.

    Args:
        path: the CSV file, with the rows of the table and the columns of costs.
        table: the samples, in the order of their file.
        columns: the columns of costs.
        data: the file of the samples, for error messages.
        long: whether the table is a long one. Its forecasts may be in a column of any name, if this is the only column
            that the table of samples does not have.
        empty: whether cells may be empty because there is no forecast. They become NaN.

    Raises:
        DataError: the file has other rows, or a forecast is missing.
    """
    forecasts = read_csv_table(path)
    check_csv_samples_match(table, forecasts, list(columns), data, path)
    new = [name for name in forecasts.columns if name not in table.columns]
    names = new if long and columns[0] not in forecasts.columns and len(new) == 1 else list(columns)
    there = [name for name in names if name in forecasts.columns]
    filled = forecasts.fillna(dict.fromkeys(there, 0.0)) if empty else forecasts
    found = select_csv_columns(filled, names, "forecasts", path)
    found = found.mask(forecasts[names].isna()) if empty else found
    return found[names[0]] if long else found


def read_base_forecasts(path: Path, table: pandas.DataFrame, columns: Sequence[str], data: Path, long: bool) -> Any:
    """Return forecasts for the rows of a table, read from a CSV file or made by a model file.

    Args:
        path: a CSV file of forecasts, or a model file, which ends in .pear.
        table: the samples, in the order of their file.
        columns: the columns of costs.
        data: the file of the samples, for error messages.
        long: whether the table is a long one.

    Raises:
        DataError: the file has other rows, a forecast is missing, or the model has other costs or features.
    """
    if path.suffix != MODEL_SUFFIX:
        return read_forecast_file(path, table, columns, data, long)
    from pear.train.estimator.regressor import DecisionRegressor

    trained = DecisionRegressor.load(path)
    found = trained.predict(select_csv_columns(table, model_feature_names(trained, path), "features", data))
    if long:
        return found
    for name in columns:
        if name not in found.columns:
            raise DataError(f"{path} forecasts no {name!r}{suggest_name(name, list(found.columns))}")
    return found[list(columns)]


def model_feature_names(trained: DecisionRegressor, path: Path) -> list[str]:
    """Return the names of the features of a model that was loaded from the file ``path``.

    Raises:
        DataError: the model was fitted to an array and has no names.
    """
    names = getattr(trained, "feature_names_in_", None)
    if names is None:
        raise DataError(
            f"{path} does not name its features: it was fitted to an array; fit it to a DataFrame, and save it"
        )
    return [str(name) for name in names]
