"""``pear predict``: forecasts for the rows of a table, by a model file that ``pear train`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pear.cli.console import err, out, print_plain
from pear.cli.csv_table import read_csv_table
from pear.cli.options import Base, Groups, Variables
from pear.cli.output_files import STANDARD_OUTPUT, writable_output_file, write_output_csv
from pear.cli.table_samples import read_estimator_samples


def predict_command(
    model: Annotated[Path, typer.Argument(help="A model file that pear train wrote.")],
    data: Annotated[Path, typer.Argument(help="A CSV file with the features that the model was trained on.")],
    to: Annotated[Path, typer.Option("--out", help="The CSV file of forecasts; - is the standard output.")] = Path(
        "forecasts.csv"
    ),
    groups: Groups = None,
    variables: Variables = None,
    base: Base = None,
) -> None:
    """Forecast the costs of every row, and write a column for every cost, in the order of the rows.

    pear diagnose and pear decide --forecasts read the file. For a long table, the file also has the columns of groups
    and variables.
    """
    from pear.train.estimator.regressor import DecisionRegressor  # which needs an extra, and says so

    estimator = DecisionRegressor.load(model)
    samples = read_estimator_samples(estimator, model, data, groups, variables, base)
    writable_output_file(to)
    found = estimator.predict(samples.features, base_forecast=samples.forecast)
    if groups is not None:
        named = [name for name in (groups, variables) if name is not None]
        found = read_csv_table(data)[named].join(found)
    write_output_csv(found.sort_index(), to, index=False)
    rows = "1 row" if len(found) == 1 else f"{len(found):,} rows"
    print_plain(f"Forecasts for {rows}: {to}", to=err if to == STANDARD_OUTPUT else out)
