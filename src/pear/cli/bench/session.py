"""What the speed benchmarks share: progress while they run, and what they print and leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pear.cli.console import err, out
from pear.errors import PearError

if TYPE_CHECKING:
    from pear.bench import table as plain
    from pear.bench.peers import Peer
    from pear.bench.record import Record

Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for numbers, table and picture.", show_default="pear-output/bench/NAME"),
]
Peers = Annotated[str | None, typer.Option(help="dqp, moreau, qpth, cvxpylayers (for training: pyepo), or all.")]
PeersHere = Annotated[bool, typer.Option("--peers-here", help="Peers are installed here; make no environments.")]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Make the environments of the peers anew.")]
Threads = Annotated[int, typer.Option(help="For every side.")]
Quick = Annotated[bool, typer.Option("--quick", help="A few small points, in a minute.")]

INTERRUPTED = 130
"""Exit code of a command that the user stopped."""


def folder_for(name: str, given: Path | None) -> Path:
    """Where a benchmark writes, made and tried."""
    from pear.cli.output import writable_folder

    return writable_folder(Path("pear-output/bench") / name if given is None else given)


def words(text: str | None) -> list[str]:
    """What stands between commas.

    Example:
        >>> words("a, b,"), words(None)
        (['a', 'b'], [])
    """
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def prepare_peers(
    names: list[str], command: str, here: bool, rebuild: bool, on_note: Callable[[str], None], device: str = "cpu"
) -> list[tuple[Peer, Path]]:
    """Every peer with a Python that can import it; environments are made where there are none.

    Args:
        names: of peers; where "all" is among them, those that cannot be had are left out with a note.
        command: that they take part in.
        here: they are installed in this environment.
        rebuild: make environments anew.
        on_note: called with what is left out.
        device: where they compute.

    Raises:
        PeerError: a peer that was asked for by name is unknown, does not fit or cannot be had.
    """
    from pear.bench.peers import PeerError, choose, interpreter

    ready = []
    with err.status("Looking for the peers …") as status:
        for peer in choose(names, command, device):
            try:
                ready.append((peer, interpreter(peer, here, rebuild, lambda line: status.update(Text(line)))))
            except PeerError as error:
                if "all" not in names:
                    raise
                on_note(f"{peer.title} left out: {error}")
    return ready


@contextmanager
def measuring(record: Record, draw: Callable[[Path, list[Any]], Path]) -> Iterator[Callable[[str], None]]:
    """Run the body with a progress line on stderr; whatever happens, what was measured is shown and kept.

    Args:
        record: that the body adds its rows to.
        draw: makes the picture of the rows at a path.

    Yields:
        A function that shows what is being done.
    """
    try:
        with err.status("Starting …") as status:
            yield lambda line: status.update(Text(line))
    except KeyboardInterrupt:
        record.interrupted = True
        record.note("stopped by the user before the end")
    except PearError:
        _finish(record, draw)
        raise
    _finish(record, draw)
    if record.interrupted:
        err.print(Text("Stopped; what was measured is kept.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    if not record.rows:
        err.print(Text("Nothing was measured.", style="red"))
        raise typer.Exit(1)


def _finish(record: Record, draw: Callable[[Path, list[Any]], Path]) -> None:
    files = record.save()
    if record.rows:
        for table in record.tables(record.rows):
            out.print(Text(f"\n{table.title}", style="bold"))
            out.print(rich_table(table))
        try:
            files.append(draw(record.folder / "plot.svg", record.rows))
        except ModuleNotFoundError as error:
            record.note(f"no picture: {error.name} is missing; run pip install 'pear-dfl[cli]'")
    for note in record.notes:
        out.print(Text(f"• {note}"), soft_wrap=True)
    out.print(Text(f"Written: {', '.join(str(path) for path in files)}"), soft_wrap=True)


def rich_table(table: plain.Table) -> Table:
    """The same table for a terminal."""
    shown = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for i, heading in enumerate(table.headings):
        words = i < table.left
        shown.add_column(heading, justify="left" if words else "right", no_wrap=words, overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown
