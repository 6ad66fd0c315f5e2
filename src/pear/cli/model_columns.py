"""The model of a file, and the columns of a table that contain its predicted values and its features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pear
from pear.cli.csv_table import has_no_csv_heading, read_csv_table, select_csv_columns, split_at_commas
from pear.cli.long_csv_table import LongColumns, variables_in_long_table
from pear.errors import DataError
from pear.wording import list_names, suggest_name

if TYPE_CHECKING:
    import pandas


class ModelColumns(NamedTuple):
    """A model and a table of its samples, with the columns to predict and the columns to predict from.

    Attributes:
        model: the model from its file.
        table: the samples, with a row for each sample or, in a long table, for each value of a sample.
        features: the columns to predict from.
        predicted: the columns to predict: costs, then right-hand sides.
        side_count: the number of right-hand sides in ``predicted``.
        long: the columns that describe the rows of a long table, or None for another table.
    """

    model: pear.Model
    table: pandas.DataFrame
    features: list[str]
    predicted: list[str]
    side_count: int
    long: LongColumns | None


def read_model_columns(
    path: Path,
    data: Path,
    features: str | None,
    costs: str | None,
    cost_map: Path | None,
    known: str | None,
    dates: str | None,
    groups: str | None,
    variables: str | None,
) -> ModelColumns:
    """Return a model, the table of its samples, and the columns that the options name.

    ``path`` is the file of the model, and ``data`` the file of the table. The other arguments are options of
    ``pear train`` and ``pear compare``.

    Raises:
        DataError: model, columns and options do not fit together.
    """
    table, long = read_csv_table(data), read_long_columns(groups, variables)
    (named, priced), told = parse_cost_columns(split_at_commas(costs)), split_at_commas(known)
    if long is None:
        model, paid = read_wide_model_columns(path, named, table, priced, told, cost_map)
    elif cost_map is not None:
        raise DataError("--cost-map needs a table with a row for each sample; a long one (--groups) has costs in rows")
    else:
        model, paid = _read_long_model_columns(path, [*named, *priced], table, long, data, told)
    chosen = _choose_feature_columns(table, split_at_commas(features), model, paid, (dates, groups, variables))
    return ModelColumns(model, table, chosen, paid, len(priced), long)


def read_long_columns(groups: str | None, variables: str | None) -> LongColumns | None:
    """Return the columns that ``--groups`` and ``--variables`` name; None without groups, for a wide table."""
    if groups is None and variables is not None:
        raise DataError("--variables names a column of a long table; name --groups as well, the column of its groups")
    return None if groups is None else LongColumns(groups, variables)


Price = float | tuple[float, float]
"""The cost of a unit of violation of a row. An equality may have a pair, for too little and for too much."""


def parse_cost_columns(costs: list[str]) -> tuple[list[str], dict[str, Price]]:
    """Return the entries of ``--costs`` in two parts: the columns of costs, and rows of the model with their prices.

    The right-hand sides of these rows are predicted, too. A price is the cost of a unit of violation; a pair of prices
    is for too little and for too much.

    Raises:
        DataError: a price is not a number.

    Example:
        >>> parse_cost_columns(["wind", "demand=9", "balance=150:5"])
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
    """Return the price in a text such as "9" or "150:5"."""
    little, colon, much = text.partition(":")
    return (float(little), float(much)) if colon else float(little)


def read_wide_model_columns(
    path: Path,
    costs: list[str],
    table: pandas.DataFrame,
    priced: dict[str, Price],
    given: Sequence[str] = (),
    cost_map: Path | None = None,
) -> tuple[pear.Model, list[str]]:
    """Return a model, read from its file, and the columns of a table with its predicted values.

    Args:
        path: the model file.
        costs: names of the columns of costs. If there are none, the costs are the columns with the name of a variable
            that is not in ``given``. If ``priced`` has rows, no cost is then predicted.
        table: the samples, with a row for each sample.
        priced: rows with predicted right-hand sides, each with the price of a unit of violation.
        given: names of rows and variables whose numbers are known for every sample.
        cost_map: a file with the matrix that maps predicted values to costs; None if the costs are predicted.

    Returns:
        The model, and the columns to predict: costs, then right-hand sides.

    Raises:
        DataError: columns, variables and rows do not fit together.
    """
    if cost_map is not None:
        return _read_mapped_model_columns(path, costs, priced, given, cost_map)
    everything = pear.from_file(path)
    variables = everything.variables
    named = costs or [name for name in variables if name in table.columns and name not in given and not priced]
    if not named and not priced:
        raise DataError(
            f"no column of the table ({list_names(list(table.columns))}) is named as a variable of {path} "
            f"({list_names(list(variables))}); name the columns of costs with --costs, one for every variable in "
            "their order"
        )
    unknown = [name for name in named if name not in variables]
    by_order = bool(named) and len(unknown) == len(named) == len(variables)
    if unknown and not by_order:
        raise DataError(_describe_unknown_column(unknown[0], everything, path))
    predicted = None if by_order or tuple(named) == variables else named
    options = {"predicted": predicted, "known": list(given) or None}
    if priced:
        return pear.from_file(path, rows=list(priced), recourse=priced, **options), [*named, *priced]
    return (everything if predicted is None and not given else pear.from_file(path, **options)), named


def _describe_unknown_column(name: str, model: pear.Model, path: Path) -> str:
    """Return the error message for a name in ``--costs`` that is not the name of a variable."""
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


def _read_mapped_model_columns(
    path: Path, costs: list[str], priced: dict[str, Price], given: Sequence[str], file: Path
) -> tuple[pear.Model, list[str]]:
    """Return a model whose costs are M times the predicted values plus the costs in the model file.

    The arguments and the result are those of ``read_wide_model_columns``. ``file`` is the CSV file that contains M.
    """
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
    matrix = select_csv_columns(table, values, "coefficients", file).set_axis(table[first].astype(str))
    for name in matrix.index:
        if name not in model.variables:
            raise DataError(f"{file}: {path} has no variable {name!r}{suggest_name(name, list(model.variables))}")
    if (twice := matrix.index.duplicated()).any():
        raise DataError(f"{file} has a row for {matrix.index[twice][0]!r} twice; keep one")
    M = matrix.reindex(list(model.variables), fill_value=0.0).to_numpy()
    return replace(model, cost_map=pear.CostMap(M, known=model.known, names=values)), values


def _read_long_model_columns(
    path: Path, costs: list[str], table: pandas.DataFrame, long: LongColumns, data: Path, given: Sequence[str] = ()
) -> tuple[pear.Model, list[str]]:
    """Return a model, read from its file, whose costs are in the rows of a long table.

    Args:
        path: the model file.
        costs: the entries of ``--costs``.
        table: the samples.
        long: the columns that describe the rows of the table.
        data: the file of the table, for error messages.
        given: the names in ``--known``.

    Returns:
        The model, and a list with the column of the true values.
    """
    if len(costs) != 1:
        raise DataError(f"--costs must name one column of a long table, that of the true values; got {costs}")
    everything = pear.from_file(path)
    names = variables_in_long_table(table, long, everything.variables, data)
    if tuple(names) == everything.variables and not given:
        return everything, costs
    return pear.from_file(path, predicted=names, known=given or None), costs


def _choose_feature_columns(
    table: pandas.DataFrame, named: list[str], problem: pear.Model, paid: list[str], other: Sequence[str | None] = ()
) -> list[str]:
    """Return the columns to predict from: the columns that the user names, or all columns without another use.

    Args:
        table: the samples.
        named: the columns that the user names, or an empty list.
        problem: the model, whose known numbers are not features.
        paid: the columns to predict.
        other: further columns that are not features.

    Raises:
        DataError: a column that the user names as a feature is also predicted. Or the user names no features, and a
            column has no heading and may only number the rows, or has the name of a row or variable (in upper or lower
            case) and may contain values that are not known before the decision.
    """
    if both := [name for name in named if name in paid]:
        raise DataError(f"column {both[0]!r} is a feature and predicted; nobody knows what comes true beforehand")
    if named:
        return named
    told = () if problem.known_map is None else problem.known_map.names
    found = [str(name) for name in table.columns if name not in {*paid, *told, *other}]
    if bare := [name for name in found if has_no_csv_heading(name)]:
        raise DataError(
            f"column {int(bare[0].split()[1]) + 1} of the table has no heading, and may only count the "
            "rows; give it a heading, drop it, or name all columns to predict from (--features)"
        )
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
