"""``pear decide``: decisions for the rows of a table, by a model file that ``pear train`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import pear
from pear.cli.console import err, out, print_plain
from pear.cli.options import Base, Groups, Variables
from pear.cli.output_files import STANDARD_OUTPUT, writable_output_file, write_output_csv
from pear.cli.table_samples import TableSamples, read_estimator_samples, table_values
from pear.errors import DataError
from pear.wording import format_percent

if TYPE_CHECKING:
    import pandas

    from pear.train.estimator.regressor import DecisionRegressor


def decide_command(
    model: Annotated[Path, typer.Argument(help="A model file that pear train wrote.")],
    data: Annotated[
        Path,
        typer.Argument(help="A CSV file with the features that the model was trained on, and its --known columns."),
    ],
    to: Annotated[Path, typer.Option("--out", help="The CSV file of decisions; - is the standard output.")] = Path(
        "decisions.csv"
    ),
    groups: Groups = None,
    variables: Variables = None,
    base: Base = None,
    forecasts: Annotated[
        Path | None,
        typer.Option(help="Decide under these forecasts instead of the model's: a CSV file with the rows of DATA."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(help="Also write bounds that hold with this probability, such as 0.9. Run pear calibrate first."),
    ] = None,
) -> None:
    """Forecast the costs of every row, and write the best decision under them, with a column for every variable."""
    from pear.problem.model import problem_of_model
    from pear.train.estimator.regressor import DecisionRegressor  # which needs an extra, and says so

    estimator = DecisionRegressor.load(model)
    if forecasts is None:
        samples = read_estimator_samples(estimator, model, data, groups, variables, base)
        writable_output_file(to)
        found = estimator.decide(samples.features, interval=interval, **samples.options())
        decisions = found if interval is None else found.to_frame()
    else:
        if interval is not None:
            raise DataError("--interval bounds the costs under the model's own forecasts; leave out --forecasts")
        if base is not None:
            raise DataError("--forecasts are decided under as they come; --base is what a model corrects: name one")
        samples = read_estimator_samples(estimator, None, data, groups, variables, forecasts)
        writable_output_file(to)
        decisions = _decide_under_forecasts(estimator, samples)
    decisions = _cast_integer_decisions(estimator, decisions)
    write_output_csv(decisions, to, index=groups is not None)
    what = "row" if groups is None else "group"
    rows = f"1 {what}" if len(decisions) == 1 else f"{len(decisions):,} {what}s"
    count = problem_of_model(estimator.problem).n
    bounds = "" if interval is None else f", with bounds that hold with probability {format_percent(interval)}"
    print_plain(f"Decisions for {rows}, {count} variables each{bounds}: {to}", to=err if to == STANDARD_OUTPUT else out)


def _decide_under_forecasts(estimator: DecisionRegressor, samples: TableSamples) -> pandas.DataFrame:
    """Return the best decisions under the user's forecasts, as a table like that of ``DecisionRegressor.decide``."""
    import pandas

    from pear.problem.model import model_input_count

    problem = estimator.problem
    values = table_values(samples.forecast, model_input_count(problem))
    found = pear.solve(problem, values, known=samples.known_samples()).x.cpu().numpy()
    names = list(problem.variables if isinstance(problem, pear.Model) else estimator._columns or range(problem.n))
    ids = None if samples.groups is None else samples.groups.drop_duplicates()
    return pandas.DataFrame(found, columns=names, index=ids)


def _cast_integer_decisions(estimator: DecisionRegressor, decisions: pandas.DataFrame) -> pandas.DataFrame:
    """Return decisions whose integer variables have an integer type, so that a file shows 1 instead of 1.0."""
    from pear.problem.model import problem_of_model

    integer = problem_of_model(estimator.problem).integer
    if integer is None:
        return decisions
    variables = decisions.columns[len(decisions.columns) - len(integer) :]  # bounds may come before the variables
    whole = [name for name, marked in zip(variables, integer.tolist(), strict=True) if marked]
    return decisions.round(dict.fromkeys(whole, 0)).astype(dict.fromkeys(whole, "int64"))
