"""``pear compare``: forecasters compared over time, by what their decisions cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import pear
from pear.cli.compared_forecasters import KINDS, make_compared_forecasters
from pear.cli.console import err, out, print_plain
from pear.cli.csv_table import read_csv_dates, select_csv_columns, split_at_commas
from pear.cli.forecast_files import read_forecast_file
from pear.cli.long_csv_table import LongColumns, order_long_csv_table
from pear.cli.model_columns import read_model_columns
from pear.cli.options import Architecture, CostMapPath, Costs, Features, Groups, Known, ModelKind, ModelPath, Variables
from pear.cli.output_files import writable_output_folder, write_output_csv
from pear.cli.table_samples import read_known_columns
from pear.optional_packages import require_packages
from pear.wording import count_noun

if TYPE_CHECKING:
    import pandas

_INTERRUPTED = 130
_WIDE = 118  # characters in a line of a terminal that shows all columns of the table
_MAIN_COLUMNS = (0, 1, 4)  # the columns in narrower terminals: name, loss, difference


def compare_command(
    model: ModelPath,
    data: Annotated[Path, typer.Argument(help="The samples in time order: a CSV file, a row for each sample.")],
    features: Features = None,
    costs: Costs = None,
    cost_map: CostMapPath = None,
    known: Known = None,
    forecasts: Annotated[
        list[Path] | None,
        typer.Option(help="Your own forecasts: a CSV file with the cost columns and the rows of DATA. Repeatable."),
    ] = None,
    forecasters: Annotated[str, typer.Option(help="The forecasters to compare.")] = ",".join(KINDS),
    dates: Annotated[str | None, typer.Option(help="A column of dates, which must be in order.")] = None,
    splits: Annotated[
        int, typer.Option(help="The number of test folds; each is trained on the rows before it.", min=1)
    ] = 5,
    gap: Annotated[int, typer.Option(help="The number of rows that are left out before each test fold.", min=0)] = 0,
    window: Annotated[int | None, typer.Option(help="The largest number of rows to train on.", min=1)] = None,
    architecture: ModelKind = Architecture.linear,
    to: Annotated[Path, typer.Option("--out", help="Folder for the picture and the tables.")] = Path(
        "pear-output/compare"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the trees, the first weights and the batches.", min=0)] = 0,
    max_epochs: Annotated[
        int,
        typer.Option(
            help="The largest number of epochs for mse and pear; training stops early if more do not help.", min=1
        ),
    ] = 1000,
    time_cap: Annotated[float | None, typer.Option(help="Seconds for each training of mse and pear.")] = None,
    groups: Groups = None,
    variables: Variables = None,
) -> None:
    """Compare forecasters over time by what their decisions cost: ridge, LightGBM, MSE, PEAR and your own forecasts.

    Each forecaster is trained on the rows before a test fold, and decides for the rows of the fold. A constant
    forecast, the mean of the training costs, takes part too. Your own forecasts take part as they are, and corrected by
    PEAR. Differences are relative to the first forecaster: your own forecasts, or ridge if there are none.
    """
    from pear.compile.thread_pools import one_thread

    require_packages("the picture", "matplotlib")
    problem, table, chosen, paid, _, long = read_model_columns(
        model, data, features, costs, cost_map, known, dates, groups, variables
    )
    own = {
        path.stem: read_forecast_file(path, table, paid, data, long is not None, empty=True) for path in forecasts or ()
    }
    if long is not None:
        table = order_long_csv_table(table, long, problem.names, data)
        own = {name: one.loc[table.index] for name, one in own.items()}
    X, C = select_csv_columns(table, chosen, "features", data), select_csv_columns(table, paid, "costs", data)
    if dates is not None:
        X.index = C.index = read_csv_dates(table, dates, data)
    regressor = pear.DecisionRegressor(
        problem, architecture.value, max_epochs=max_epochs, time_cap=time_cap, random_state=seed
    )
    tables = {name: one.to_numpy() for name, one in own.items()}
    compared = make_compared_forecasters(split_at_commas(forecasters), X, tables, regressor, seed)
    folder = writable_output_folder(to)
    source = count_noun(len(chosen), "feature")
    print_plain(f"{problem.problem}\n{count_noun(problem.inputs, 'value')} are forecast from {source}.\n")
    with one_thread():
        found = _compare_with_progress_bar(
            problem=problem,
            X=X,
            C=C if long is None else C[paid[0]],
            forecasters=compared,
            splits=pear.TimeSplits(folds=splits, gap=gap, window=window),
            known=_read_compared_known_values(problem, table, data, X.index, long),
            groups=None if long is None else X.index if dates == long.groups else table[long.groups].to_numpy(),
        )
    _print_comparison(found)
    write_output_csv(found.to_frame(), folder / "comparison.csv")
    write_output_csv(found.to_frame("sample"), folder / "samples.csv", index=False)
    found.plot(folder / "comparison.png")
    print_plain(
        f"Picture: {folder / 'comparison.png'}\nTable: {folder / 'comparison.csv'}\n"
        f"Every decision: {folder / 'samples.csv'}"
    )


def _read_compared_known_values(
    problem: pear.Model, table: pandas.DataFrame, data: Path, index: pandas.Index[Any], long: LongColumns | None
) -> Any:
    """Return the known values of each sample: model data that differ by sample and are not forecast (``--known``).

    Args:
        problem: the model.
        table: the samples, in the order of the features.
        data: the file of the table, for error messages.
        index: the index of the features. The result has it, too, unless the table is long.
        long: the columns of a long table, or None.

    Returns:
        A DataFrame with a row for each sample, or None if the model has no known values.
    """
    told = read_known_columns(problem, table, data, None if long is None else long.groups)
    if told is None:
        return None
    told = told.set_axis(index)
    return told if long is None else told[~table[long.groups].duplicated().to_numpy()].reset_index(drop=True)


def _compare_with_progress_bar(**arguments: Any) -> pear.WalkForward:
    """Return the result of ``pear.walk_forward`` with these arguments, and show a progress bar.

    Ctrl-C exits without a result.
    """
    from pear.train.estimator.progress_display import progress_line_printer

    with Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=out,
    ) as bar:
        line, print_line = bar.add_task("training", total=None), progress_line_printer(bar)

        def show(now: Any) -> None:
            text = f"{now.forecaster}, fold {now.fold} of {now.folds}"
            bar.update(line, description=text, completed=now.done, total=now.total)
            print_line(text)

        try:
            return pear.walk_forward(**arguments, progress=show)
        except KeyboardInterrupt:
            print_plain("Stopped; nothing is saved.", "yellow", err)
            raise typer.Exit(_INTERRUPTED) from None


def _print_comparison(found: pear.WalkForward) -> None:
    """Print the table and the sentences of a comparison."""
    from pear.evaluation.comparison_text import comparison_lines

    headings, *lines = comparison_lines(found)
    shown = range(len(headings)) if out.width >= _WIDE else _MAIN_COLUMNS
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for j in shown:
        table.add_column(headings[j], justify="right" if j else "left", no_wrap=True)
    for line in lines:
        table.add_row(*(line[j] for j in shown))
    out.print(table)
    for sentence in found.sentences:
        print_plain(f"• {sentence}")
