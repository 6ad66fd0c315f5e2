"""``pear bench gradient``: the gradient of a portfolio's regret, timed beside the peers and judged."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pear.cli.bench.session import (
    Out,
    Peers,
    PeersHere,
    Quick,
    Rebuild,
    Threads,
    folder_for,
    measuring,
    prepare_peers,
    words,
)
from pear.cli.reproduce import numbers


def gradient(
    sizes: Annotated[str | None, typer.Option(help="Numbers of assets.", show_default="20,100,500")] = None,
    batches: Annotated[
        str | None, typer.Option(help="Numbers of samples.", show_default="1,64,512; cuda: 1,16,64,512,4096")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Threads = 1,
    repeats: Annotated[int, typer.Option(help="Measurements of each point; the fastest counts.")] = 7,
    limit: Annotated[float, typer.Option(help="Seconds that one side may take for one point.")] = 60.0,
    peers: Peers = None,
    peers_here: PeersHere = False,
    rebuild: Rebuild = False,
    profile: Annotated[bool, typer.Option("--profile", help="Also show where our time goes.")] = False,
    quick: Quick = False,
    seed: Annotated[int, typer.Option(help="Of the portfolios.")] = 0,
    to: Out = None,
) -> None:
    """Time gradients of a portfolio's regret, forward and backward, beside their errors and beside other libraries."""
    from pear.bench import clock, gradient_table, plot
    from pear.bench import gradient as benchmark
    from pear.bench.record import Record

    settings = benchmark.Settings(
        sizes=None if sizes is None else tuple(numbers("sizes", sizes)),
        batches=None if batches is None else tuple(numbers("batches", batches)),
        device=clock.check_device(device),
        threads=threads,
        repeats=min(repeats, 3) if quick else repeats,
        limit=limit,
        seed=seed,
        profile=profile,
        quick=quick,
    )

    def draw(path: Path, rows: list[Any]) -> Path:
        title = "Gradient of a portfolio's regret, forward and backward"
        return plot.draw(path, title, "samples in a batch", "seconds a batch", gradient_table.series(rows))

    record = Record("gradient", folder_for("gradient", to), asdict(settings), gradient_table.tables, device)
    with clock.threads(threads):
        ready = prepare_peers(words(peers), "gradient", peers_here, rebuild, record.note, device)
        with measuring(record, draw) as say:
            benchmark.run(settings, ready, record.add, record.note, say)
