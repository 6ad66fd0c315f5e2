"""``pear bench scaling``: how time grows with the size of the problem."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pear.cli.bench.session import Out, Quick, Threads, folder_for, measuring
from pear.cli.reproduce import numbers


def scaling(
    grids: Annotated[
        str | None, typer.Option(help="Sides of square grids, or none.", show_default="20,40,60,100,140,200")
    ] = None,
    qps: Annotated[
        str | None,
        typer.Option(help="Variables of random sparse programs, or none.", show_default="1000,3000,10000,30000,100000"),
    ] = None,
    spread: Annotated[
        int, typer.Option(help="How far apart the variables of a row of those may lie; 0 for anywhere.")
    ] = 20,
    batch: Annotated[int, typer.Option(help="Samples a measurement.")] = 1,
    repeats: Annotated[int, typer.Option(help="Measurements of each point; the fastest counts.")] = 3,
    limit: Annotated[float, typer.Option(help="After a point of more seconds, larger ones are left out.")] = 60.0,
    threads: Threads = 1,
    quick: Quick = False,
    seed: Annotated[int, typer.Option(help="Of costs and programs.")] = 0,
    to: Out = None,
) -> None:
    """Time regret and gradient of ever larger grids and sparse programs, and fit the exponent of its growth."""
    from pear.bench import clock, plot
    from pear.bench import scaling as benchmark
    from pear.bench.record import Record

    settings = benchmark.Settings(
        grids=_sizes("grids", grids, benchmark.QUICK_GRIDS if quick else benchmark.GRIDS),
        qps=_sizes("qps", qps, benchmark.QUICK_QPS if quick else benchmark.QPS),
        spread=spread,
        batch=batch,
        repeats=repeats,
        limit=limit,
        threads=threads,
        seed=seed,
    )

    def draw(path: Path, rows: list[Any]) -> Path:
        title = "PEARLoss, forward and backward"
        return plot.draw(path, title, "variables", "seconds a sample", benchmark.series(rows))

    record = Record("scaling", folder_for("scaling", to), asdict(settings), benchmark.tables)
    with clock.threads(threads), measuring(record, draw) as say:
        benchmark.run(settings, record.add, record.note, say)


def _sizes(name: str, given: str | None, usual: tuple[int, ...]) -> tuple[int, ...]:
    if given is None:
        return usual
    return () if given.strip() == "none" else tuple(numbers(name, given))
