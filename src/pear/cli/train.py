"""``pear train``: trains forecasters on samples from a table, and tests their decisions on other rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import pear
from pear.cli.console import err, out, print_plain
from pear.cli.csv_table import read_csv_dates, select_csv_columns
from pear.cli.forecast_files import read_base_forecasts
from pear.cli.gain_sentence import gain_sentence
from pear.cli.long_csv_table import LongColumns, order_long_csv_table
from pear.cli.model_columns import read_model_columns
from pear.cli.options import (
    Architecture,
    Base,
    CostMapPath,
    Costs,
    Features,
    Groups,
    Known,
    ModelKind,
    ModelPath,
    Variables,
)
from pear.cli.output_files import writable_output_file
from pear.cli.table_samples import (
    SplitTableSamples,
    TableSamples,
    read_known_columns,
    split_table_samples,
    table_values,
)
from pear.errors import DataError
from pear.wording import count_noun, format_two_decimal_percent

if TYPE_CHECKING:
    import pandas

    from pear.losses.regret_outcome import RegretOutcome
    from pear.train.estimator.regressor import DecisionRegressor

GIVEN = "the given forecasts"
_INTERRUPTED = 130
_OURS = "pear-guided"


def train_command(
    model: ModelPath,
    data: Annotated[Path, typer.Argument(help="The samples: a CSV file with a row for each sample.")],
    features: Features = None,
    costs: Costs = None,
    cost_map: CostMapPath = None,
    known: Known = None,
    architecture: ModelKind = Architecture.linear,
    loss: Annotated[str, typer.Option(help="The method to compare with MSE; it may come from a plug-in.")] = _OURS,
    to: Annotated[Path, typer.Option("--out", help="The model file to write.")] = Path("model.pear"),
    test_share: Annotated[
        float, typer.Option(help="The share of the rows, the last ones, on which decisions are compared.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the first weights and of the batches.", min=0)] = 0,
    max_epochs: Annotated[
        int, typer.Option(help="The largest number of epochs; training stops early if more do not help.", min=1)
    ] = 1000,
    learning_rate: Annotated[float, typer.Option(help="The learning rate of Adam.")] = 1e-2,
    time_cap: Annotated[float | None, typer.Option(help="Seconds that each of the two trainings may take.")] = None,
    groups: Groups = None,
    variables: Variables = None,
    dates: Annotated[
        str | None,
        typer.Option(help="A column of dates; the test rows are those with the latest dates."),
    ] = None,
    gap: Annotated[
        int,
        typer.Option(
            help="The number of rows beside held-out rows that training leaves out, for values that overlap.",
            min=0,
        ),
    ] = 0,
    base: Base = None,
) -> None:
    """Train a forecaster of costs on its error (MSE) and on its decisions (--loss), compare both, and save the second.

    A cost that the table does not hold is taken from the model's file.

    Ctrl-C ends a training and keeps the best weights so far.
    """
    from pear.compile.thread_pools import one_thread
    from pear.train.estimator.regressor import DecisionRegressor  # which needs an extra, and says so

    losses = _losses_to_train(loss)
    problem, table, chosen, paid, sides, long = read_model_columns(
        model, data, features, costs, cost_map, known, dates, groups, variables
    )
    when = None if dates is None else read_csv_dates(table, dates, data)
    everything = _read_training_samples(problem, table, chosen, paid, long, base, data)
    if when is not None:
        everything = everything.by_date(when[table.index.get_indexer(everything.features.index)])
    samples = split_table_samples(everything, 1 if long is None else problem.inputs, test_share, data)
    writable_output_file(to)
    print_plain(_describe_training(problem, samples, chosen, sides))
    settings: dict[str, Any] = {
        "max_epochs": max_epochs,
        "learning_rate": learning_rate,
        "gap": gap,
        "time_cap": time_cap,
        "random_state": seed,
        "verbose": True,
    }
    with one_thread():
        trained, stopped = _train_with_each_loss(
            partial(DecisionRegressor, problem, architecture.value, **settings), samples.train, losses
        )
        judged = {
            name: _judge_trained_forecaster(problem, estimator, samples.test) for name, estimator in trained.items()
        }
        given = _judge_given_forecast(problem, samples.test)
    if judged:
        _print_training_outcomes(given | judged, trained)
        kept = list(trained)[-1]
        trained[kept].save(to)
        print_plain(
            f"Model file, trained with {kept}: {to}\nDecisions for other rows: {_suggest_next_command(to, data, long)}"
        )
    if stopped:
        print_plain(
            f"Stopped while {stopped} was trained; {_describe_stopped_training(stopped, trained)}.", "yellow", err
        )
        raise typer.Exit(_INTERRUPTED)


def _describe_stopped_training(stopped: str, trained: dict[str, DecisionRegressor]) -> str:
    """Return words that say what is saved after Ctrl-C.

    Args:
        stopped: the name of the loss whose training was stopped.
        trained: the forecasters whose weights were checked on held-out samples, by the names of their losses.
    """
    if stopped in trained:
        return "the best weights so far are kept"
    if not trained:
        return "nothing is saved, for no weights were checked yet"
    kept = list(trained)[-1]
    return f"none of its weights were checked yet, and the model file holds the forecaster trained with {kept}"


def _read_training_samples(
    problem: pear.Model,
    table: pandas.DataFrame,
    chosen: list[str],
    paid: list[str],
    long: LongColumns | None,
    base: Path | None,
    data: Path,
) -> TableSamples:
    """Return the samples of a table. Rows of a long table are ordered by groups and values.

    Args:
        problem: the model.
        table: the samples.
        chosen: the columns to predict from.
        paid: the columns to predict.
        long: the columns that describe the rows of a long table, or None.
        base: a file with forecasts to correct, or None.
        data: the file of the table, for error messages.
    """
    forecast = None if base is None else read_base_forecasts(base, table, paid, data, long is not None)
    if long is None:
        costs = select_csv_columns(table, paid, "costs", data)
        told = read_known_columns(problem, table, data)
        return TableSamples(select_csv_columns(table, chosen, "features", data), costs, None, forecast, told)
    table = order_long_csv_table(table, long, problem.names, data)
    return TableSamples(
        select_csv_columns(table, chosen, "features", data),
        select_csv_columns(table, paid, "costs", data)[paid[0]],
        table[long.groups],
        None if forecast is None else forecast.loc[table.index],
        read_known_columns(problem, table, data, long.groups),
    )


def _suggest_next_command(to: Path, data: Path, long: LongColumns | None) -> str:
    """Return the ``pear decide`` command for other rows, with the model file ``to`` and the options of a long table."""
    options = "" if long is None else f" --groups {long.groups}"
    options += "" if long is None or long.variables is None else f" --variables {long.variables}"
    return f"pear decide {to} {data}{options}"


def _losses_to_train(loss: str) -> dict[str, str]:
    """Return the losses to train with, by the names in the table of results: the squared error, then ``loss``.

    Raises:
        DataError: there is no such method, or ``loss`` is the squared error.
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
    make: Callable[..., DecisionRegressor], samples: TableSamples, losses: dict[str, str]
) -> tuple[dict[str, DecisionRegressor], str]:
    """Train a forecaster with each loss, until Ctrl-C ends a training.

    Args:
        make: a function that makes an untrained forecaster with the argument ``loss``.
        samples: the samples to train on.
        losses: the losses, by the names in the table of results.

    Returns:
        The forecasters with weights that were checked on held-out samples, by the names of their losses; and the name
        of the loss whose training Ctrl-C ended, or "".
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


def _judge_trained_forecaster(
    problem: pear.Model, estimator: DecisionRegressor, samples: TableSamples
) -> RegretOutcome:
    """Return the regrets of a trained forecaster's decisions on the test samples."""
    from pear.losses.regret_outcome import regret_outcome_of_forecast

    predicted = estimator.predict(samples.features, base_forecast=samples.forecast)
    forecast, true = (table_values(part, problem.inputs) for part in (predicted, samples.costs))
    return regret_outcome_of_forecast(problem, forecast, true, known=samples.known_samples())


def _judge_given_forecast(problem: pear.Model, samples: TableSamples) -> dict[str, RegretOutcome]:
    """Return the regrets of the user's forecasts, by their name in the table of results; empty without forecasts."""
    from pear.losses.regret_outcome import regret_outcome_of_forecast

    if samples.forecast is None:
        return {}
    forecast, true = (table_values(part, problem.inputs) for part in (samples.forecast, samples.costs))
    return {GIVEN: regret_outcome_of_forecast(problem, forecast, true, known=samples.known_samples())}


def _describe_training(problem: pear.Model, samples: SplitTableSamples, features: list[str], rows: int) -> str:
    """Return sentences on the problem, its predicted values and features, and the numbers of samples.

    Args:
        problem: the model.
        samples: the samples to train on and to test on.
        features: the columns to predict from.
        rows: the number of predicted right-hand sides.
    """
    costs = problem.inputs - rows
    rest = problem.problem.n - costs
    others = "the other one is that" if rest == 1 else f"the other {rest} are those"
    fixed = f"; {others} of the file" if rest else ""
    sides = f" and {rows} of its right-hand sides" if rows else ""
    size, what = (1, "rows") if samples.train.groups is None else (problem.inputs, "groups")
    counts = [len(part.features) // size for part in samples]
    source = count_noun(len(features), "feature")
    return (
        f"{problem.problem}\n{costs} of its {problem.problem.n} costs{sides} are predicted from {source}{fixed}.\n"
        f"{counts[0]:,} {what} train and choose the weights, the last {counts[1]:,} judge the decisions.\n"
    )


def _print_training_outcomes(judged: dict[str, RegretOutcome], trained: dict[str, DecisionRegressor]) -> None:
    """Print a table of regrets, and what the method other than MSE gains over MSE and over the user's forecasts.

    Args:
        judged: the regrets by the names of the losses, and those of the user's forecasts.
        trained: the trained forecasters by the names of their losses.
    """
    table = Table()
    for heading in ("trained with", "regret", "lost a row", "lost in all", "epochs"):
        table.add_column(heading, justify="left" if heading == "trained with" else "right")
    for name, found in judged.items():
        lost = f"{float(found.regret.mean()):.6g}", f"{float(found.regret.sum()):.6g}"
        epochs = str(trained[name].n_iter_) if name in trained else ""
        table.add_row(name, format_two_decimal_percent(found.normalized), *lost, epochs)
    best = judged["MSE"].best
    table.add_row("true costs known", format_two_decimal_percent(0.0), "0", "0", "", style="dim")
    out.print(table)
    print_plain(f"The best decisions are worth {float(best.mean()):.6g} a row.")
    for kept in [name for name in trained if name != "MSE" and name in judged]:
        ours, own = judged[kept], _was_trained_on_decisions(trained[kept])
        if own:
            print_plain(gain_sentence(judged["MSE"].normalized, ours.normalized, kept), "bold")
        else:
            print_plain(f"Nothing was gained here: no training with {kept} was clearly better than its start.", "bold")
        for name in ("MSE", GIVEN) if own else (GIVEN,):
            if name in judged:
                gained = float((judged[name].regret - ours.regret).mean())
                print_plain(f"Gained over {name}: {gained:.6g} a row, in the unit of the objective.")


def _was_trained_on_decisions(estimator: DecisionRegressor) -> bool:
    """Return whether the weights of a forecaster come from a training on its loss.

    The default training, a race, keeps the weights with which it started if no training is clearly better.
    """
    history = estimator.history_
    return not history.race or history.epochs > 0
