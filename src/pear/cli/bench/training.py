"""``pear bench training``: an epoch, or a whole run, beside a plain loop that follows the same protocol."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pear.cli.bench.session import Out, Peers, PeersHere, Rebuild, Threads, folder_for, measuring, prepare_peers, words
from pear.cli.reproduce import numbers


def training(
    tasks: Annotated[str, typer.Option(help="paths, knapsack, separated by commas.")] = "paths,knapsack",
    degree: Annotated[int, typer.Option(help="Of the costs: 2, 4, 6 or 8.")] = 8,
    seeds: Annotated[str, typer.Option(help="Such as 0-4 or 0,2.")] = "0-4",
    epochs: Annotated[int, typer.Option(help="Epochs to time.")] = 5,
    full: Annotated[bool, typer.Option("--full", help="Whole runs with early stopping instead.")] = False,
    cap: Annotated[float, typer.Option(help="Seconds that a run may take.")] = 600.0,
    threads: Threads = 1,
    peers: Peers = None,
    peers_here: PeersHere = False,
    rebuild: Rebuild = False,
    profile: Annotated[bool, typer.Option("--profile", help="Also show where the time goes.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller problems and one seed.")] = False,
    to: Out = None,
) -> None:
    """Time training with PEAR beside a plain loop that solves one sample after the other, with the regrets of both."""
    from pear.bench import clock, plot, training_table
    from pear.bench import training as benchmark
    from pear.bench.record import Record

    settings = benchmark.Settings(
        tasks=tuple(words(tasks)),
        degree=degree,
        seeds=tuple(numbers("seeds", seeds))[: 1 if quick else None],
        epochs=epochs,
        full=full,
        cap=cap,
        threads=threads,
        quick=quick,
    )

    def draw(path: Path, rows: list[Any]) -> Path:
        title = "Training under the paper's protocol"
        return plot.draw(path, title, "seconds an epoch", "test regret", training_table.series(rows))

    tables = partial(training_table.tables, full=full, profile=profile)
    record = Record("training", folder_for("training", to), asdict(settings), tables)
    with clock.threads(threads):
        ready = prepare_peers(words(peers), "training", peers_here, rebuild, record.note)
        with measuring(record, draw) as say:
            benchmark.run(settings, ready, record.add, record.note, say)
