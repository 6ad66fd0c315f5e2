"""``pear bench epoch``: an epoch of portfolio training beside qpth's layer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pear.cli.bench.session import Out, Quick, Rebuild, folder_for, measuring, prepare_peers, words


def epoch(
    data: Annotated[str, typer.Option(help="Prices: skfolio, sp100 of $PEAR_DATA, or a file.")] = "skfolio",
    batches: Annotated[int, typer.Option(help="Of 64 windows; an epoch is reckoned from them.")] = 4,
    repeats: Annotated[int, typer.Option(help="Measurements; the fastest counts.")] = 3,
    limit: Annotated[float, typer.Option(help="Seconds that one side may take.")] = 60.0,
    peers: Annotated[str | None, typer.Option(help="qpth.")] = None,
    rebuild: Rebuild = False,
    quick: Quick = False,
    seed: Annotated[int, typer.Option(help="Of the forecaster.")] = 0,
    to: Out = None,
) -> None:
    """Time an epoch of portfolio training, one thread each, beside the error of the gradients."""
    from pear.bench import clock, plot
    from pear.bench import epoch as benchmark
    from pear.bench.peers import PeerError
    from pear.bench.record import Record

    settings = benchmark.Settings(data, 1 if quick else batches, 1 if quick else repeats, limit, seed)
    named = words(peers)
    if any(name != "qpth" for name in named):
        raise PeerError(f"qpth alone takes part in `pear bench epoch`; got --peers {peers}")

    def draw(path: Path, rows: list[Any]) -> Path:
        title = "An epoch of portfolio training"
        return plot.draw(path, title, "in the order of the table", "seconds an epoch", benchmark.series(rows))

    record = Record("epoch", folder_for("epoch", to), asdict(settings), benchmark.tables)
    with clock.threads(1):
        ready = prepare_peers(named, "gradient", False, rebuild, record.note)
        with measuring(record, draw) as say:
            benchmark.run(settings, ready, record.add, record.note, say)
