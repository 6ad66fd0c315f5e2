"""``pear calibrate``: adds planned and realised costs of decisions to a model file, so that costs can be bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pear.cli.console import print_plain
from pear.cli.options import Base, Groups, Variables
from pear.cli.table_samples import read_estimator_samples
from pear.errors import DataError
from pear.wording import count_noun


def calibrate_command(
    model: Annotated[Path, typer.Argument(help="A model file that pear train wrote; the calibration is added to it.")],
    data: Annotated[
        Path, typer.Argument(help="A CSV file with features and true costs of rows that training has not seen.")
    ],
    groups: Groups = None,
    variables: Variables = None,
    base: Base = None,
    append: Annotated[bool, typer.Option("--append", help="Keep the rows of an earlier calibration.")] = False,
) -> None:
    """Compare planned with realised costs of decisions, so that pear decide --interval can bound future costs.

    Rows are in time order; the last one is the latest.
    """
    from pear.train.estimator.regressor import DecisionRegressor  # which needs an extra, and says so

    estimator = DecisionRegressor.load(model)
    if append and not hasattr(estimator, "intervals_"):
        raise DataError(f"--append keeps the rows of an earlier calibration, and {model} has none; leave it out")
    samples = read_estimator_samples(estimator, model, data, groups, variables, base, with_costs=True)
    estimator.calibrate(samples.features, samples.costs, append=append, **samples.options())
    estimator.save(model)
    count = count_noun(len(estimator.intervals_.planned), "sample")
    print_plain(f"Calibrated with {count}: {model}. pear decide {model} … --interval 0.9 bounds what decisions cost.")
