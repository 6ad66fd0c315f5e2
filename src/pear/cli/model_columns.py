"""The model of a file, and the columns of a table that hold its numbers and its features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pear
from pear.cli.csv_table import read_csv_table, select_columns, split_at_commas
from pear.cli.training_table import LongColumns, variables_in
from pear.errors import DataError
from pear.wording import suggest_name

if TYPE_CHECKING:
    import pandas


class ModelTable(NamedTuple):
    """A model and a table of its samples, with the columns that are predicted and those to predict from.

    Attributes:
        model: the model from its file.
        table: a row for each sample, or for each value of a sample where ``long`` is given.
        features: the columns to predict from.
        paid: the columns of what is predicted: costs, then right-hand sides.
        sides: how many of the columns in ``paid`` are right-hand sides.
        long: the columns that make the table a long one, or None.
    """

    model: pear.Model
    table: pandas.DataFrame
    features: list[str]
    paid: list[str]
    sides: int
    long: LongColumns | None


def read_model_and_table(
    path: Path,
    data: Path,
    features: str | None,
    costs: str | None,
    cost_map: Path | None,
    known: str | None,
    dates: str | None,
    groups: str | None,
    variables: str | None,
) -> ModelTable:
    """Read a model and the table of its samples; the arguments are the options of ``pear train`` and ``pear compare``.

    Raises:
        DataError: model, columns and options do not go together.
    """
    table, long = read_csv_table(data), long_columns(groups, variables)
    (named, priced), told = parse_prices(split_at_commas(costs)), split_at_commas(known)
    if long is None:
        model, paid = read_model(path, named, table, priced, told, cost_map)
    elif cost_map is not None:
        raise DataError("--cost-map needs a table with a row for each sample; a long one (--groups) has costs in rows")
    else:
        model, paid = read_long_model(path, [*named, *priced], table, long, data, told)
    chosen = choose_features(table, split_at_commas(features), model, paid, (dates, groups, variables))
    return ModelTable(model, table, chosen, paid, len(priced), long)


def long_columns(groups: str | None, variables: str | None) -> LongColumns | None:
    """The columns of a long table; None for a table with a row for each sample."""
    if groups is None and variables is not None:
        raise DataError("--variables names a column of a long table; name --groups as well, the column of its groups")
    return None if groups is None else LongColumns(groups, variables)


Price = float | tuple[float, float]
"""What a unit of violation of a row costs; of an equality also a pair, for too little and for too much."""


def parse_prices(costs: list[str]) -> tuple[list[str], dict[str, Price]]:
    """Split the entries of ``--costs`` into columns of costs, and rows of the model with their prices.

    Example:
        >>> parse_prices(["wind", "demand=9", "balance=150:5"])
        (['wind'], {'demand': 9.0, 'balance': (150.0, 5.0)})
    """
    rows = dict(word.rsplit("=", 1) for word in costs if "=" in word)
    try:
        prices = {name: _read_price(price) for name, price in rows.items()}
    except ValueError as error:
        raise DataError(
            f"--costs: expected ROW=PRICE, a row of the model and a number, or ROW=LITTLE:MUCH, two numbers; {error}"
        ) from error
    return [word for word in costs if "=" not in word], prices


def _read_price(text: str) -> Price:
    little, colon, much = text.partition(":")
    return (float(little), float(much)) if colon else float(little)


def read_model(
    path: Path,
    costs: list[str],
    table: pandas.DataFrame,
    priced: dict[str, Price],
    given: Sequence[str] = (),
    cost_map: Path | None = None,
) -> tuple[pear.Model, list[str]]:
    """Read a model from a file, and find the columns of a table that hold its inputs: costs, then right-hand sides.

    Args:
        path: the model file.
        costs: names of the columns of costs; empty if the user names none.
        table: the samples.
        priced: rows with predicted right-hand sides, and the price of a unit of violation of each.
        given: names of rows and variables whose numbers are known for every row of the table.
        cost_map: a file that says how predicted values make costs; None where the costs themselves are predicted.

    Raises:
        DataError: columns, variables and rows do not go together.
    """
    if cost_map is not None:
        return _read_mapped_model(path, costs, priced, given, cost_map)
    everything = pear.from_file(path)
    variables = everything.variables
    named = costs or [name for name in variables if name in table.columns and name not in given and not priced]
    if not named and not priced:
        raise DataError(
            f"no column of the table is named as a variable of {path}{suggest_name('', variables)}; name the columns "
            "of costs with --costs, one for every variable in their order"
        )
    unknown = [name for name in named if name not in variables]
    by_order = bool(named) and len(unknown) == len(named) == len(variables)
    if unknown and not by_order:
        raise DataError(_describe_unknown(unknown[0], everything, path))
    predicted = None if by_order or tuple(named) == variables else named
    options = {"predicted": predicted, "known": list(given) or None}
    if priced:
        return pear.from_file(path, rows=list(priced), recourse=priced, **options), [*named, *priced]
    return (everything if predicted is None and not given else pear.from_file(path, **options)), named


def _describe_unknown(name: str, model: pear.Model, path: Path) -> str:
    """Say why a name in ``--costs`` is not a cost: it is the name of a row, or of nothing."""
    if name in model.rows:
        return (
            f"--costs: {name!r} is a row of {path}; to predict its right-hand side, write {name}=PRICE, with what a "
            "unit of its violation costs"
        )
    variables = model.variables
    return (
        f"--costs: {path} has no variable {name!r}{suggest_name(name, [*variables, *model.rows])}; name the columns as "
        f"the variables, or name {len(variables)} columns, one for every variable in their order"
    )


def _read_mapped_model(
    path: Path, costs: list[str], priced: dict[str, Price], given: Sequence[str], file: Path
) -> tuple[pear.Model, list[str]]:
    """Read a model whose costs are ``M ŷ`` plus those of its file; M comes from the file of the cost map."""
    if priced:
        raise DataError("--cost-map makes costs, and right-hand sides (ROW=PRICE) cannot be predicted beside it")
    model = pear.from_file(path, known=list(given) or None)
    if model.cost_map is not None:
        raise DataError("--cost-map and --known both make costs; let --known name right-hand sides and bounds alone")
    table = read_csv_table(file)
    first, *values = [str(name) for name in table.columns]
    if not values:
        raise DataError(f"{file} has the column {first!r} alone; expected variables, and a column for each value")
    if costs and costs != values:
        raise DataError(
            f"--costs names {', '.join(costs)} and {file} the values {', '.join(values)}; leave out --costs"
        )
    matrix = select_columns(table, values, "coefficients", file).set_axis(table[first].astype(str))
    for name in matrix.index:
        if name not in model.variables:
            raise DataError(f"{file}: {path} has no variable {name!r}{suggest_name(name, list(model.variables))}")
    if (twice := matrix.index.duplicated()).any():
        raise DataError(f"{file} has a row for {matrix.index[twice][0]!r} twice; keep one")
    M = matrix.reindex(list(model.variables), fill_value=0.0).to_numpy()
    return replace(model, cost_map=pear.CostMap(M, known=model.known, names=values)), values


def read_long_model(
    path: Path, costs: list[str], table: pandas.DataFrame, long: LongColumns, data: Path, given: Sequence[str] = ()
) -> tuple[pear.Model, list[str]]:
    """Read a model whose costs are in the rows of a long table; returns it with the column of true values.

    ``given`` are the names in ``--known``.
    """
    if len(costs) != 1:
        raise DataError(f"--costs must name one column of a long table, that of the true values; got {costs}")
    everything = pear.from_file(path)
    names = variables_in(table, long, everything.variables, data)
    if tuple(names) == everything.variables and not given:
        return everything, costs
    return pear.from_file(path, predicted=names, known=given or None), costs


def choose_features(
    table: pandas.DataFrame, named: list[str], problem: pear.Model, paid: list[str], other: Sequence[str | None] = ()
) -> list[str]:
    """The columns to predict from: those that are named, or all that are nothing else.

    Args:
        table: the samples.
        named: the user's; empty where all are wanted.
        problem: the model, whose known numbers are not features.
        paid: columns of what is predicted.
        other: further columns that are not features.

    Raises:
        DataError: a feature is also predicted, or a column that the user did not name is called like a part of the
            model, but perhaps for capital letters, and may hold what comes true after the decision.
    """
    if both := [name for name in named if name in paid]:
        raise DataError(f"column {both[0]!r} is a feature and predicted; nobody knows what comes true beforehand")
    if named:
        return named
    told = () if problem.known_map is None else problem.known_map.names
    found = [str(name) for name in table.columns if name not in {*paid, *told, *other}]
    for what, names in (("row", problem.rows), ("variable", problem.variables)):
        if mine := [name for name in found if name in names]:
            predict = f"{mine[0]}=PRICE" if what == "row" else mine[0]
            raise DataError(
                f"column {mine[0]!r} is called like a {what} of the model, and may hold what comes true after the "
                f"decision; predict it (--costs {predict}), or say that it is known (--known {mine[0]}), or name all "
                "columns to predict from (--features)"
            )
        alike = {name.casefold(): name for name in names if name not in paid}
        if mine := [name for name in found if name.casefold() in alike]:
            raise DataError(
                f"column {mine[0]!r} differs from the {what} {alike[mine[0].casefold()]!r} of the model in capital "
                "letters alone, and may hold what comes true after the decision; rename it, or name all columns to "
                "predict from (--features)"
            )
    return found
