"""``pear decide``: decisions for the rows of a table, by a model file that ``pear train`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pear.cli.console import print_plain
from pear.cli.csv_table import read_csv_table, select_columns
from pear.cli.output_files import writable_file
from pear.errors import DataError

if TYPE_CHECKING:
    import pandas

    from pear.train.estimator.regressor import DecisionRegressor


def decide(
    model: Annotated[Path, typer.Argument(help="A model file that pear train wrote.")],
    data: Annotated[Path, typer.Argument(help="A CSV file with the features that the model was trained on.")],
    to: Annotated[Path, typer.Option("--out", help="The CSV file of decisions.")] = Path("decisions.csv"),
) -> None:
    """Forecast the costs of every row, take the best decision under them, and write a column for every variable."""
    from pear.train.estimator.regressor import DecisionRegressor  # which needs an extra, and says so

    estimator = DecisionRegressor.load(model)
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        raise DataError(
            f"{model} does not name its features: it was fitted to an array; fit it to a DataFrame, and save it"
        )
    features = select_columns(read_csv_table(data), [str(name) for name in names], "features", data)
    writable_file(to)
    decisions = _cast_integer_columns(estimator, estimator.decide(features))
    decisions.to_csv(to, index=False)
    rows = "1 row" if len(decisions) == 1 else f"{len(decisions):,} rows"
    print_plain(f"Decisions for {rows}, {len(decisions.columns)} variables each: {to}")


def _cast_integer_columns(estimator: DecisionRegressor, decisions: pandas.DataFrame) -> pandas.DataFrame:
    """Convert the columns of integer variables to an integer type, so that the file shows 1 instead of 1.0."""
    from pear.problem.model import plain_problem

    integer = plain_problem(estimator.problem).integer
    if integer is None:
        return decisions
    whole = [name for name, marked in zip(decisions.columns, integer.tolist(), strict=True) if marked]
    return decisions.round(dict.fromkeys(whole, 0)).astype(dict.fromkeys(whole, "int64"))
