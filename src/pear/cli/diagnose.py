"""``pear diagnose``: what the errors of predictions cost, in sentences, tables and as a page."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from pear.cli.console import out, print_plain
from pear.cli.csv_table import (
    check_csv_samples_match,
    csv_line_numbers,
    read_csv_table,
    select_csv_columns,
    split_at_commas,
)
from pear.cli.model_columns import parse_cost_columns, read_wide_model_columns
from pear.cli.options import CostMapPath, Known, ModelPath
from pear.cli.output_files import writable_output_file
from pear.cli.table_samples import read_known_columns
from pear.errors import DataError
from pear.optional_packages import require_packages
from pear.wording import suggest_name

if TYPE_CHECKING:
    import pandas

    import pear
    from pear.pages.page import PageGrid

_ROWS = 5  # of a table in the terminal, and names in a list; the page has more


def diagnose_command(
    model: ModelPath,
    costs: Annotated[Path, typer.Argument(help="The true costs: a CSV file with a row for each sample.")],
    predictions: Annotated[
        Path, typer.Argument(help="The predicted costs: a CSV file with the same columns and rows.")
    ],
    named: Annotated[
        str | None,
        typer.Option(
            "--costs", help="Columns of costs, named like variables of the model; also right-hand sides as ROW=PRICE."
        ),
    ] = None,
    cost_map: CostMapPath = None,
    known: Known = None,
    groups: Annotated[
        str | None,
        typer.Option(help="A column of labels or dates to sum losses by. Dates are grouped by hour, month or weekday."),
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("diagnosis.html"),
) -> None:
    """Report what prediction errors cost, by predicted value, sample and part of the error, and write a page."""
    from pear.compile.thread_pools import one_thread
    from pear.diagnosis.diagnose import diagnose
    from pear.diagnosis.diagnosis_page import make_page_grids

    require_packages("the page", "jinja2", "matplotlib")
    truth, forecast = read_csv_table(costs), read_csv_table(predictions)
    columns, priced = parse_cost_columns(split_at_commas(named))
    problem, paid = read_wide_model_columns(model, columns, truth, priced, split_at_commas(known), cost_map)
    told = read_known_columns(problem, truth, costs)
    labels = None if groups is None else _read_diagnosis_labels(groups, truth, forecast, costs, predictions)
    true, predicted = (
        select_csv_columns(truth, paid, "costs", costs),
        select_csv_columns(forecast, paid, "predicted costs", predictions),
    )
    check_csv_samples_match(truth, forecast, [*paid, *problem.variables], costs, predictions)
    writable_output_file(to)
    with one_thread():
        found = diagnose(problem, predicted.to_numpy(), true.to_numpy(), labels, paid, known=told)
    print_plain(_describe_diagnosed_costs(problem, paid, list(priced), model))
    for sentence in found.sentences:
        print_plain(f"• {sentence}")
    for grid in make_page_grids(found, _ROWS).values():
        out.print()
        _print_diagnosis_grid(grid)
    found.save_html(to)
    print_plain(f"\nPage: {to}")


def _read_diagnosis_labels(
    name: str, truth: pandas.DataFrame, forecast: pandas.DataFrame, costs: Path, predictions: Path
) -> pandas.Series[Any]:
    """Return the column ``name`` of labels, as dates if possible. It is in ``truth``, or otherwise in ``forecast``.

    Raises:
        DataError: neither table has the column, or a cell of it is empty.
    """
    import pandas

    table = next((one for one in (truth, forecast) if name in one.columns), None)
    if table is None:
        there = list(dict.fromkeys([*truth.columns, *forecast.columns]))
        raise DataError(f"--groups: neither {costs} nor {predictions} has a column {name!r}{suggest_name(name, there)}")
    column = table[name]
    if column.isna().any():
        line = csv_line_numbers(costs if table is truth else predictions, [column.isna().to_numpy().argmax()])[0]
        raise DataError(f"--groups: column {name!r} is empty in line {line}; give every sample a label")
    if pandas.api.types.is_numeric_dtype(column):
        return column
    texts = column.astype(str)
    try:
        # The local time, whatever its time zone.
        dates = [datetime.fromisoformat(text).replace(tzinfo=None) for text in texts]
    except ValueError:
        return pandas.Series(texts.to_numpy(dtype=object), name=name)
    return pandas.Series(dates, name=name, dtype="datetime64[ns]")


def _describe_diagnosed_costs(problem: pear.Model, paid: list[str], rows: list[str], model: Path) -> str:
    """Return a sentence: which costs and right-hand sides come from the tables, and which costs from the model file.

    Args:
        problem: the model.
        paid: names of the costs and right-hand sides in the tables.
        rows: names of the rows whose right-hand sides are in the tables.
        model: the model file.
    """
    from pear.wording import list_names

    count, costs = problem.problem.n, [name for name in paid if name not in rows]
    rest = [name for name in problem.variables if name not in costs] if len(costs) < count else []
    fixed = f"; the file's own cost is that of {list_names(rest, _ROWS)}" if rest else ""
    sides = f", and the right-hand sides of {list_names(rows, _ROWS)}," if rows else ""
    return f"{len(costs)} of the {count} costs of {model}{sides} are taken from the tables{fixed}.\n"


def _print_diagnosis_grid(grid: PageGrid) -> None:
    """Print a table of a diagnosis in the terminal."""
    table = Table(title=Text(grid.title), title_justify="left")
    for i, heading in enumerate(grid.header):
        words = i == 0 or heading in ("why", "kind")
        table.add_column(Text(heading), justify="left" if words else "right", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(entry) for entry in row))
    out.print(table)
