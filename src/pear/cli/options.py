"""Options that several commands share: one help text each."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ModelPath = Annotated[
    Path, typer.Argument(help="What is decided: an MPS, QPS or LP file, also with .gz; or one that a plug-in reads.")
]

Features = Annotated[str | None, typer.Option(help="Columns to predict from; all that are no costs if left out.")]

Costs = Annotated[
    str | None,
    typer.Option(
        help="Columns of true costs, named as variables of the model; all that are if left out. Also right-hand sides, "
        "as ROW=PRICE: a row of the model, and what a unit of its violation costs; of an equality also ROW=LITTLE:MUCH."
    ),
]

CostMapPath = Annotated[
    Path | None,
    typer.Option(
        "--cost-map",
        help="How predicted values make costs: a CSV file with a row for each variable, its name first, and a column "
        "for each predicted value. The costs of the model's file are added.",
    ),
]

Known = Annotated[
    str | None,
    typer.Option(
        "--known",
        help="Columns that are known when a decision is made, and differ by row: right-hand sides by the names of rows "
        "of the model, costs by those of variables, bounds as x.lb and x.ub.",
    ),
]

Base = Annotated[
    Path | None,
    typer.Option(
        "--base",
        "--base-forecast",
        help="Forecasts that are corrected: a CSV file with the same rows and cost columns, or a model file of pear.",
    ),
]

Groups = Annotated[
    str | None,
    typer.Option(
        help="The column of a long table, with a row for each predicted value, whose entries name the decisions."
    ),
]

Variables = Annotated[
    str | None,
    typer.Option(
        help="The column of a long table that names the variable of each row; left out, rows are in the model's order."
    ),
]


class Architecture(StrEnum):
    """The kind of forecaster that is trained."""

    linear = "linear"
    mlp = "mlp"


ModelKind = Annotated[Architecture, typer.Option("--model", help="The kind of forecaster that is trained.")]
