"""``pear bench integers``: integer decisions beside a plain loop over HiGHS."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pear.cli.bench.session import Out, folder_for, measuring
from pear.cli.reproduce import numbers
from pear.errors import PearError

_MODULE = "pear.bench.integers"


def integers(
    count: Annotated[int, typer.Option(help="Programs to solve.")] = 500,
    degrees: Annotated[str, typer.Option(help="Of the values, such as 8 or 2,8.")] = "8",
    seed: Annotated[int, typer.Option(help="Of weights and values.")] = 0,
    to: Out = None,
) -> None:
    """Time the integer programs of a validation beside a plain loop over HiGHS."""
    from pear.bench import plot
    from pear.bench.record import Record

    if importlib.util.find_spec(_MODULE) is None:
        raise PearError("this version of PEAR has no benchmark of integer programs; update it with pip install -U")
    if count < 1:
        raise PearError(f"--count must be at least 1; got {count}")
    benchmark = importlib.import_module(_MODULE)
    settings = {"count": count, "degrees": tuple(numbers("degrees", degrees)), "seed": seed}

    def draw(path: Path, rows: list[Any]) -> Path:
        return plot.draw(path, "Integer programs", "row", "seconds", series(rows))

    record = Record("integers", folder_for("integers", to), settings, tables)
    with measuring(record, draw) as say:
        say(f"{count:,} integer programs a degree …")
        for row in benchmark.run(**_arguments(benchmark.run, settings, say)):
            record.add(row)


def _arguments(run: Callable[..., Any], settings: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The settings by the names that the benchmark has for them: how many is ``count`` or ``programs``."""
    known = inspect.signature(run).parameters
    named = {"programs" if name == "count" and "count" not in known else name: v for name, v in settings.items()}
    return named | ({"progress": say} if "progress" in known else {})


def tables(rows: list[Any]) -> list[Any]:
    """All fields of all rows."""
    from dataclasses import fields

    from pear.bench.table import Table, number

    names = [field.name for field in fields(rows[0])] if rows else []

    def cell(value: object) -> str:
        return number(value) if isinstance(value, float) else str(value)

    table = Table("Integer programs", tuple(name.replace("_", " ") for name in names))
    table.rows.extend(tuple(cell(getattr(row, name)) for name in names) for row in rows)
    return [table]


def series(rows: list[Any]) -> list[Any]:
    """Every field that holds seconds as a line over the rows."""
    from dataclasses import fields

    from pear.bench.plot import Series

    names = [field.name for field in fields(rows[0]) if "seconds" in field.name]
    places = [float(place + 1) for place in range(len(rows))]
    return [Series(name, places, [float(getattr(row, name) or 0.0) for row in rows]) for name in names]
