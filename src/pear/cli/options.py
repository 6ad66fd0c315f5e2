"""Options that several commands share, with their help texts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ModelPath = Annotated[
    Path, typer.Argument(help="The decision problem: an MPS, QPS or LP file (also .gz), or one that a plug-in reads.")
]

Features = Annotated[
    str | None,
    typer.Option(help="Columns to predict from, separated by commas. Default: all columns without another use."),
]

Costs = Annotated[
    str | None,
    typer.Option(
        help="Columns of true costs, named like variables of the model and separated by commas. Default: all such "
        "columns. ROW=PRICE also predicts the right-hand side of a row of the model; PRICE is the cost of a unit of "
        "violation. For equalities, ROW=LITTLE:MUCH sets a price for too little and one for too much."
    ),
]

CostMapPath = Annotated[
    Path | None,
    typer.Option(
        "--cost-map",
        help="A CSV file with the matrix by which predicted values are multiplied to give costs: a row for each "
        "variable, its name first, and a column for each predicted value. The costs in the model's file are added.",
    ),
]

Known = Annotated[
    str | None,
    typer.Option(
        "--known",
        help="Columns, separated by commas, whose values differ by sample and are known when the decision is made. A "
        "column named like a row of the model holds the right-hand side of this row. Columns x, x.lb and x.ub hold the "
        "cost and the bounds of the variable x.",
    ),
]

Base = Annotated[
    Path | None,
    typer.Option(
        "--base",
        "--base-forecast",
        help="Forecasts to correct: a CSV file with the same rows and cost columns, or a model file of pear.",
    ),
]

Groups = Annotated[
    str | None,
    typer.Option(
        help="For a long table, with a row for each predicted value: the column that names the sample of each row."
    ),
]

Variables = Annotated[
    str | None,
    typer.Option(
        help="For a long table: the column that names the variable of each row. Default: rows are in the model's order."
    ),
]


class Architecture(StrEnum):
    """The kind of forecaster that is trained."""

    linear = "linear"
    mlp = "mlp"


ModelKind = Annotated[Architecture, typer.Option("--model", help="The kind of forecaster.")]
