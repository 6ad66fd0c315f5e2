"""``pear advise``: advice on a model from a file and its costs, before a forecaster is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import pear
from pear.cli.console import err, print_plain
from pear.cli.csv_table import read_csv_table, select_csv_columns, split_at_commas
from pear.cli.model_columns import parse_cost_columns, read_wide_model_columns
from pear.cli.options import CostMapPath, Costs, Known, ModelPath
from pear.cli.table_samples import read_known_columns
from pear.errors import DataError


def advise_command(
    model: ModelPath,
    data: Annotated[
        Path | None,
        typer.Argument(help="True costs: a CSV file with a row for each sample. Default: the model's costs."),
    ] = None,
    costs: Costs = None,
    cost_map: CostMapPath = None,
    known: Known = None,
) -> None:
    """Give advice before training: on a model's size, scaling, degeneracy, integrality, solver, loss and time."""
    if data is None:
        if costs or cost_map or known:
            option = "--costs" if costs else "--cost-map" if cost_map else "--known"
            raise DataError(f"{option} names columns of a table, and none was given; pass a CSV file behind the model")
        problem, samples = pear.from_file(model), None
    else:
        table = read_csv_table(data)
        named, priced = parse_cost_columns(split_at_commas(costs))
        problem, paid = read_wide_model_columns(model, named, table, priced, split_at_commas(known), cost_map)
        samples = select_csv_columns(table, paid, "costs", data)
        told = read_known_columns(problem, table, data)
        problem = problem if told is None else problem.with_known(told, len(table))
    with err.status("Looking at the model and timing an epoch, about ten seconds…"):
        found = pear.advise(problem, samples)
    print_plain(str(found))
