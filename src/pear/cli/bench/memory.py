"""``pear bench memory``: the peak memory of typical jobs, each in a process of its own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pear.cli.bench.session import Out, folder_for, measuring


def memory(
    grid: Annotated[int, typer.Option(help="Side of the grid.")] = 200,
    grid_batch: Annotated[int, typer.Option(help="Its samples.")] = 32,
    assets: Annotated[int, typer.Option(help="Of the portfolios.")] = 100,
    portfolio_batch: Annotated[int, typer.Option(help="Their number.")] = 4096,
    epochs: Annotated[int, typer.Option(help="Of the training, at most.")] = 10_000,
    limit: Annotated[float, typer.Option(help="Seconds that one job may take.")] = 600.0,
    cap: Annotated[
        float | None, typer.Option(help="MiB of address space a job may take.", show_default="80 % of what is free")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small jobs.")] = False,
    seed: Annotated[int, typer.Option(help="Of the data.")] = 0,
    to: Out = None,
) -> None:
    """Measure the peak memory of a large grid, a large batch and a training, beside that of the import alone."""
    from pear.bench import memory as benchmark
    from pear.bench import plot
    from pear.bench.record import Record

    if quick:
        grid, grid_batch, assets, portfolio_batch, epochs = 5, 4, 10, 16, 1
    settings = benchmark.Settings(grid, grid_batch, assets, portfolio_batch, epochs, limit, cap, seed)

    def draw(path: Path, rows: list[Any]) -> Path:
        return plot.draw(path, "Largest resident memory", "seconds", "MiB", benchmark.series(rows))

    record = Record("memory", folder_for("memory", to), asdict(settings), benchmark.tables)
    with measuring(record, draw) as say:
        benchmark.run(settings, record.add, record.note, say)
