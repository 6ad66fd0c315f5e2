"""``pear bench integers``: integer decisions beside a plain loop over HiGHS."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from pear.bench.plot import Series
from pear.bench.settings import Labels
from pear.bench.table import Table, number
from pear.cli.bench.session import Out, folder_for, measuring
from pear.cli.reproduce import numbers
from pear.errors import PearError


def integers(
    count: Annotated[int, typer.Option(help="Programs to solve.")] = 500,
    degrees: Annotated[str, typer.Option(help="Of the values, such as 8 or 2,8.")] = "8",
    seed: Annotated[int, typer.Option(help="Of weights and values.")] = 0,
    to: Out = None,
) -> None:
    """Time the integer programs of a validation beside a plain loop over HiGHS."""
    from pear.bench import integers as benchmark
    from pear.bench.record import Record

    if count < 1:
        raise PearError(f"--count must be at least 1; got {count}")
    chosen = tuple(numbers("degrees", degrees))
    settings = {"count": count, "degrees": chosen, "seed": seed}
    record = Record("integers", folder_for("integers", to), settings, tables)
    with measuring(record, Labels("Integer programs", "row", "seconds"), series) as say:
        say(f"{count:,} integer programs a degree …")
        for row in benchmark.run(programs=count, degrees=chosen, seed=seed, progress=say):
            record.add(row)


def tables(rows: list[Any]) -> list[Table]:
    """All fields of all rows."""
    names = [field.name for field in fields(rows[0])] if rows else []

    def cell(value: object) -> str:
        return number(value) if isinstance(value, float) else str(value)

    table = Table("Integer programs", tuple(name.replace("_", " ") for name in names))
    table.rows.extend(tuple(cell(getattr(row, name)) for name in names) for row in rows)
    return [table]


def series(rows: list[Any]) -> list[Series]:
    """Every field that holds seconds as a line over the rows."""
    names = [field.name for field in fields(rows[0]) if "seconds" in field.name]
    places = [float(place + 1) for place in range(len(rows))]
    return [Series(name, places, [float(getattr(row, name) or 0.0) for row in rows]) for name in names]
