"""``pear advise``: advice on a model from a file and its costs, before a forecaster is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import pear
from pear.cli.console import err, print_plain
from pear.cli.csv_table import read_csv_table, select_columns, split_at_commas
from pear.cli.train import read_model
from pear.errors import DataError


def advise(
    model: Annotated[Path, typer.Argument(help="What is decided: an MPS, QPS or LP file, also with .gz.")],
    data: Annotated[
        Path | None, typer.Argument(help="True costs: a CSV file with a row for each sample; the model's if left out.")
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(help="Columns of true costs, named as variables of the model; all that are if left out."),
    ] = None,
) -> None:
    """Say what matters about a model and its costs: size, scaling, degeneracy, integrality, solver, loss and time."""
    if data is None:
        if costs:
            raise DataError("--costs names columns of a table, and none was given; pass a CSV file behind the model")
        problem, samples = pear.from_file(model), None
    else:
        table = read_csv_table(data)
        problem, paid = read_model(model, split_at_commas(costs), table, {})
        samples = select_columns(table, paid, "costs", data)
    with err.status("Looking at the model and timing an epoch, about ten seconds…"):
        found = pear.advise(problem, samples)
    print_plain(str(found))
