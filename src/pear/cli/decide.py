"""``pear decide``: decisions for the rows of a table, by a model file that ``pear train`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import pear
from pear.cli.console import print_plain
from pear.cli.csv_table import read_csv_table, select_columns
from pear.cli.output_files import writable_file
from pear.cli.training_table import LongColumns, SampleRows, order_long_table, read_forecasts, read_known_columns
from pear.errors import DataError

if TYPE_CHECKING:
    import pandas

    from pear.train.estimator.regressor import DecisionRegressor


def decide(
    model: Annotated[Path, typer.Argument(help="A model file that pear train wrote.")],
    data: Annotated[
        Path, typer.Argument(help="A CSV file with the features that the model was trained on, and what it knows.")
    ],
    to: Annotated[Path, typer.Option("--out", help="The CSV file of decisions.")] = Path("decisions.csv"),
    groups: Annotated[
        str | None, typer.Option(help="Of a long table, the column of its groups, as in training.")
    ] = None,
    variables: Annotated[
        str | None, typer.Option(help="Of a long table, the column that names the variable of each row.")
    ] = None,
    base_forecast: Annotated[
        Path | None, typer.Option(help="Forecasts of these rows, where the model corrects them: a CSV file.")
    ] = None,
) -> None:
    """Forecast the costs of every row, take the best decision under them, and write a column for every variable."""
    from pear.train.estimator.regressor import DecisionRegressor  # which needs an extra, and says so

    estimator = DecisionRegressor.load(model)
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        raise DataError(
            f"{model} does not name its features: it was fitted to an array; fit it to a DataFrame, and save it"
        )
    samples = _read_rows(estimator, data, groups, variables, base_forecast)
    writable_file(to)
    decisions = _cast_integer_columns(estimator, estimator.decide(samples.features, **samples.options()))
    decisions.to_csv(to, index=groups is not None)
    what = "row" if groups is None else "group"
    rows = f"1 {what}" if len(decisions) == 1 else f"{len(decisions):,} {what}s"
    print_plain(f"Decisions for {rows}, {len(decisions.columns)} variables each: {to}")


def _read_rows(
    estimator: DecisionRegressor, data: Path, groups: str | None, variables: str | None, base_forecast: Path | None
) -> SampleRows:
    """Read features and forecasts; those of a long table are brought into the order of groups and values."""
    table, forecast, ids = read_csv_table(data), None, None
    if base_forecast is not None:
        columns = [str(name) for name in estimator._columns or ()]
        forecast = read_forecasts(base_forecast, table, columns, data, groups is not None)
    if groups is not None:
        problem = estimator.problem
        names = problem.names if isinstance(problem, pear.Model) else [f"x{i}" for i in range(problem.n)]
        table = order_long_table(table, LongColumns(groups, variables), names, data)
        ids, forecast = table[groups], None if forecast is None else forecast.loc[table.index]
    features = select_columns(table, [str(name) for name in estimator.feature_names_in_], "features", data)
    return SampleRows(features, None, ids, forecast, read_known_columns(estimator.problem, table, data, groups))


def _cast_integer_columns(estimator: DecisionRegressor, decisions: pandas.DataFrame) -> pandas.DataFrame:
    """Convert the columns of integer variables to an integer type, so that the file shows 1 instead of 1.0."""
    from pear.problem.model import plain_problem

    integer = plain_problem(estimator.problem).integer
    if integer is None:
        return decisions
    whole = [name for name, marked in zip(decisions.columns, integer.tolist(), strict=True) if marked]
    return decisions.round(dict.fromkeys(whole, 0)).astype(dict.fromkeys(whole, "int64"))
