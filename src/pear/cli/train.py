"""``pear train``: a forecaster for a model from a file and samples from a table, judged on rows it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import pear
from pear.cli.console import err, out, print_plain, two_decimal_percent
from pear.cli.csv_table import read_csv_table, read_dates, select_columns, split_at_commas, suggest_name
from pear.cli.demo import gain_sentence
from pear.cli.output_files import writable_file
from pear.cli.training_table import (
    LongColumns,
    RowSplit,
    SampleRows,
    order_long_table,
    read_forecasts,
    read_known_columns,
    split_samples,
    values_of_samples,
    variables_in,
)
from pear.errors import DataError

if TYPE_CHECKING:
    import pandas

    from pear.losses.regret_metrics import Outcome
    from pear.train.estimator.regressor import DecisionRegressor

GIVEN = "the given forecasts"
_INTERRUPTED = 130
_OURS = "pear-guided"


class Architecture(StrEnum):
    """The kind of forecaster that is trained."""

    linear = "linear"
    mlp = "mlp"


def train(
    model: Annotated[
        Path,
        typer.Argument(help="What is decided: an MPS, QPS or LP file, also with .gz; or one that a plug-in reads."),
    ],
    data: Annotated[Path, typer.Argument(help="Samples: a CSV file with a row for each.")],
    features: Annotated[
        str | None, typer.Option(help="Columns to predict from; all that are no costs if left out.")
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            help="Columns of true costs, named as variables of the model; all that are if left out. Also right-hand "
            "sides, as ROW=PRICE: a row of the model, and what a unit of its violation costs."
        ),
    ] = None,
    known_columns: Annotated[
        str | None,
        typer.Option(
            "--known",
            help="Columns that are known when a decision is made, and differ by row: right-hand sides by the names of "
            "rows of the model, costs by those of variables, bounds as x.lb and x.ub.",
        ),
    ] = None,
    architecture: Annotated[Architecture, typer.Option("--model", help="What is trained.")] = Architecture.linear,
    loss: Annotated[str, typer.Option(help="The method that is trained beside MSE, also of a plug-in.")] = _OURS,
    to: Annotated[Path, typer.Option("--out", help="The model file.")] = Path("model.pear"),
    test_share: Annotated[float, typer.Option(help="Share of the rows, the last ones, to judge by.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of first weights and batches.", min=0)] = 0,
    max_epochs: Annotated[int, typer.Option(help="At most so many; early stopping ends sooner.", min=1)] = 1000,
    time_cap: Annotated[float | None, typer.Option(help="Seconds that each of the two trainings may take.")] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="A long table, with a row for each predicted value: the column that says which rows belong to one "
            "decision. --costs then names the column of true values."
        ),
    ] = None,
    variables: Annotated[
        str | None,
        typer.Option(help="Of a long table, the column that names the variable of each row; else in their order."),
    ] = None,
    dates: Annotated[
        str | None,
        typer.Option(help="A column of dates; the test rows are the last ones by these."),
    ] = None,
    base_forecast: Annotated[
        Path | None, typer.Option(help="Forecasts that are corrected: a CSV file with the same rows and cost columns.")
    ] = None,
) -> None:
    """Train a forecaster of costs on its error (MSE) and on its decisions (--loss), judge both, and save the latter.

    A cost that the table does not hold is taken from the model's file. Ctrl-C ends a training and keeps the best
    weights so far.
    """
    from pear.compile.thread_pools import one_thread
    from pear.train.estimator.regressor import DecisionRegressor  # which needs an extra, and says so

    losses = _named_losses(loss)
    table, long = read_csv_table(data), long_columns(groups, variables)
    named, priced = parse_prices(split_at_commas(costs))
    if long is None:
        problem, paid = read_model(model, named, table, priced, split_at_commas(known_columns))
    else:
        problem, paid = read_long_model(model, [*named, *priced], table, long, data, split_at_commas(known_columns))
    told = () if problem.known_map is None else problem.known_map.names
    other = (*paid, *told, dates, groups, variables)
    known = split_at_commas(features) or [name for name in table.columns if name not in other]
    if both := [name for name in known if name in paid]:
        raise DataError(f"column {both[0]!r} is a feature and predicted; nobody knows what comes true beforehand")
    when = None if dates is None else read_dates(table, dates, data)
    everything = _read_samples(problem, table, known, paid, long, base_forecast, data)
    if when is not None:
        everything = everything.by_date(when[table.index.get_indexer(everything.features.index)])
    samples = split_samples(everything, 1 if long is None else problem.inputs, test_share, data)
    writable_file(to)
    print_plain(_describe_training(problem, samples, known, len(priced)))
    settings: dict[str, Any] = {"max_epochs": max_epochs, "time_cap": time_cap, "random_state": seed, "verbose": True}
    with one_thread():
        trained, stopped = _train_with_each_loss(
            partial(DecisionRegressor, problem, architecture.value, **settings), samples.train, losses
        )
        judged = {name: _judge_on_test_rows(problem, estimator, samples.test) for name, estimator in trained.items()}
        given = _judge_given_forecast(problem, samples.test)
    if judged:
        _print_outcomes(given | judged, trained)
        kept = list(trained)[-1]
        trained[kept].save(to)
        print_plain(
            f"Model file, trained with {kept}: {to}\nDecisions for other rows: {_decide_command(to, data, long)}"
        )
    if stopped:
        kept = "the best weights so far are kept" if judged else "nothing is saved, for no weights were checked yet"
        print_plain(f"Stopped while {stopped} was trained; {kept}.", "yellow", err)
        raise typer.Exit(_INTERRUPTED)


def long_columns(groups: str | None, variables: str | None) -> LongColumns | None:
    """The columns of a long table; None for a table with a row for each sample."""
    if groups is None and variables is not None:
        raise DataError("--variables names a column of a long table; name --groups as well, the column of its groups")
    return None if groups is None else LongColumns(groups, variables)


def read_long_model(
    path: Path,
    costs: list[str],
    table: pandas.DataFrame,
    long: LongColumns,
    data: Path,
    given: Sequence[str] = (),
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


def _read_samples(
    problem: pear.Model,
    table: pandas.DataFrame,
    known: list[str],
    paid: list[str],
    long: LongColumns | None,
    base_forecast: Path | None,
    data: Path,
) -> SampleRows:
    """Select features, costs and forecasts; those of a long table are brought into the order of groups and values."""
    forecast = None
    if base_forecast is not None:
        forecast = read_forecasts(base_forecast, table, paid, data, long is not None)
    if long is None:
        costs = select_columns(table, paid, "costs", data)
        told = read_known_columns(problem, table, data)
        return SampleRows(select_columns(table, known, "features", data), costs, None, forecast, told)
    table = order_long_table(table, long, problem.names, data)
    return SampleRows(
        select_columns(table, known, "features", data),
        select_columns(table, paid, "costs", data)[paid[0]],
        table[long.groups],
        None if forecast is None else forecast.loc[table.index],
        read_known_columns(problem, table, data, long.groups),
    )


def _decide_command(to: Path, data: Path, long: LongColumns | None) -> str:
    """The command that decides for other rows of a table like this one."""
    options = "" if long is None else f" --groups {long.groups}"
    options += "" if long is None or long.variables is None else f" --variables {long.variables}"
    return f"pear decide {to} {data}{options}"


def _named_losses(loss: str) -> dict[str, str]:
    """The losses to train with, by the names that tables show: the squared error, then the one the user wants.

    Raises:
        DataError: there is no such method, or it is the squared error.
    """
    if loss == _OURS:
        return {"MSE": "mse", "PEAR": loss}
    from pear.losses.methods import method

    try:
        title = method(loss).title
    except pear.ProblemError as error:
        raise DataError(f"--loss: {error}") from error
    if title == "MSE":
        raise DataError("--loss names what is trained beside the squared error, which is always there; got 'mse'")
    return {"MSE": "mse", title: loss}


def _train_with_each_loss(
    make: Callable[..., DecisionRegressor], samples: SampleRows, losses: dict[str, str]
) -> tuple[dict[str, DecisionRegressor], str]:
    """Train with each loss.

    Args:
        make: makes an untrained forecaster, given its loss.
        samples: the rows to train on.
        losses: the names of the losses, by the names that tables show.

    Returns:
        The trained forecasters by the name of their loss, and the name of the training that Ctrl-C ended, or "".
    """
    trained: dict[str, DecisionRegressor] = {}
    for name, loss in losses.items():
        out.print(f"{name}:", end=" ", highlight=False)
        estimator = make(loss=loss).fit(samples.features, samples.costs, **samples.options())
        if estimator.history_.best is not None:
            trained[name] = estimator
        if estimator.history_.interrupted:
            return trained, name
    return trained, ""


def parse_prices(costs: list[str]) -> tuple[list[str], dict[str, float]]:
    """Split the entries of ``--costs`` into columns of costs, and rows of the model with their prices."""
    rows = dict(word.rsplit("=", 1) for word in costs if "=" in word)
    try:
        prices = {name: float(price) for name, price in rows.items()}
    except ValueError as error:
        raise DataError(f"--costs: expected ROW=PRICE, a row of the model and a number; {error}") from error
    return [word for word in costs if "=" not in word], prices


def read_model(
    path: Path, costs: list[str], table: pandas.DataFrame, priced: dict[str, float], given: Sequence[str] = ()
) -> tuple[pear.Model, list[str]]:
    """Read a model from a file, and find the columns of a table that hold its inputs: costs, then right-hand sides.

    Args:
        path: the model file.
        costs: names of the columns of costs; empty if the user names none.
        table: the samples.
        priced: rows with predicted right-hand sides, and the price of a unit of violation of each.
        given: names of rows and variables whose numbers are known for every row of the table.

    Raises:
        DataError: columns, variables and rows do not go together.
    """
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
        raise DataError(
            f"--costs: {path} has no variable {unknown[0]!r}{suggest_name(unknown[0], variables)}; name the columns as "
            f"the variables, or name {len(variables)} columns, one for every variable in their order"
        )
    predicted = None if by_order or tuple(named) == variables else named
    options = {"predicted": predicted, "known": list(given) or None}
    if priced:
        return pear.from_file(path, rows=list(priced), recourse=priced, **options), [*named, *priced]
    return (everything if predicted is None and not given else pear.from_file(path, **options)), named


def _judge_on_test_rows(problem: pear.Model, estimator: DecisionRegressor, samples: SampleRows) -> Outcome:
    """Judge the decisions on the test rows, in the unit of the objective."""
    from pear.losses.regret_metrics import outcome_of_forecast

    predicted = estimator.predict(samples.features, base_forecast=samples.forecast)
    forecast, true = (values_of_samples(part, problem.inputs) for part in (predicted, samples.costs))
    return outcome_of_forecast(problem, forecast, true, known=samples.known_samples())


def _judge_given_forecast(problem: pear.Model, samples: SampleRows) -> dict[str, Outcome]:
    """Judge the forecasts that were given, under the name that the table of results shows; {} where there are none."""
    from pear.losses.regret_metrics import outcome_of_forecast

    if samples.forecast is None:
        return {}
    forecast, true = (values_of_samples(part, problem.inputs) for part in (samples.forecast, samples.costs))
    return {GIVEN: outcome_of_forecast(problem, forecast, true, known=samples.known_samples())}


def _describe_training(problem: pear.Model, samples: RowSplit, features: list[str], rows: int) -> str:
    """Describe the problem, what is predicted from what, and the numbers of rows to train on and to judge by."""
    costs = problem.inputs - rows
    rest = problem.problem.n - costs
    fixed = f"; the other {rest} are those of the file" if rest else ""
    sides = f" and {rows} of its right-hand sides" if rows else ""
    size, what = (1, "rows") if samples.train.groups is None else (problem.inputs, "groups")
    counts = [len(part.features) // size for part in samples]
    return (
        f"{problem.problem}\n{costs} of its {problem.problem.n} costs{sides} are predicted from {len(features)} "
        f"features{fixed}.\n{counts[0]:,} {what} train and choose the weights, the last {counts[1]:,} judge the "
        "decisions.\n"
    )


def _print_outcomes(judged: dict[str, Outcome], trained: dict[str, DecisionRegressor]) -> None:
    """Print the regret of each trained forecaster as a table, and what the other method gains over MSE."""
    table = Table()
    for heading in ("trained with", "regret", "lost a row", "lost in all", "epochs"):
        table.add_column(heading, justify="left" if heading == "trained with" else "right")
    for name, found in judged.items():
        lost = f"{float(found.regret.mean()):.6g}", f"{float(found.regret.sum()):.6g}"
        epochs = str(trained[name].n_iter_) if name in trained else ""
        table.add_row(name, two_decimal_percent(found.normalized), *lost, epochs)
    best = judged["MSE"].best
    table.add_row("true costs known", two_decimal_percent(0.0), "0", "0", "", style="dim")
    out.print(table)
    print_plain(f"The best decisions are worth {float(best.mean()):.6g} a row.")
    for kept in [name for name in trained if name != "MSE" and name in judged]:
        mse, ours = judged["MSE"], judged[kept]
        print_plain(gain_sentence(mse.normalized, ours.normalized, kept), "bold")
        for name in ("MSE", GIVEN):
            if name in judged:
                gained = float((judged[name].regret - ours.regret).mean())
                print_plain(f"Gained over {name}: {gained:.6g} a row, in the unit of the objective.")
