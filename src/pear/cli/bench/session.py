"""What the speed benchmarks share: their options, progress while they run, and what they print and leave behind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pear.bench import plot
from pear.bench import table as plain
from pear.bench.clock import threads
from pear.bench.peers import Peer, PeerError, choose, interpreter
from pear.bench.record import Record
from pear.bench.settings import Callbacks, Labels, Settings
from pear.cli.console import err, out
from pear.cli.reproduce import numbers
from pear.errors import PearError

Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for numbers, table and picture.", show_default="pear-output/bench/NAME"),
]
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


@dataclass(frozen=True)
class PeerOptions:
    """The options of a benchmark in which other libraries take part.

    Attributes:
        peers: names, or "all": then those that cannot be had are left out with a note.
        peers_here: they are installed in this environment.
        rebuild: make their environments anew.
    """

    peers: Annotated[str | None, typer.Option(help="dqp, moreau, qpth, cvxpylayers (for training: pyepo), or all.")] = (
        None
    )
    peers_here: Annotated[
        bool, typer.Option("--peers-here", help="Peers are installed here; make no environments.")
    ] = False
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the environments of the peers anew.")] = False

    def prepare(self, command: str, device: str, on_note: Callable[[str], None]) -> list[tuple[Peer, Path]]:
        """Every peer with a Python that can import it; environments are made where there are none.

        Args:
            command: that they take part in.
            device: where they compute.
            on_note: called with what is left out.

        Raises:
            PeerError: a peer that was asked for by name is unknown, does not fit or cannot be had.
        """
        ready, names = [], words(self.peers)
        with err.status("Looking for the peers …") as status:
            for peer in choose(names, command, device):
                try:
                    python = interpreter(peer, self.peers_here, self.rebuild, lambda line: status.update(Text(line)))
                    ready.append((peer, python))
                except PeerError as error:
                    if "all" not in names:
                        raise
                    on_note(f"{peer.title} left out: {error}")
        return ready


def command(benchmark: ModuleType) -> Callable[..., None]:
    """The command of a benchmark: an option for every field of its settings, and those that all benchmarks share.

    Args:
        benchmark: as ``pear.bench.settings`` describes.
    """
    name = benchmark.__name__.rpartition(".")[2]
    peers = getattr(benchmark, "PEERS", None)

    def measured(to: Path | None, quick: bool, **given: Any) -> None:
        others = PeerOptions(**{one.name: given.pop(one.name) for one in fields(PeerOptions)} if peers else {})
        settings = _settings(benchmark.SETTINGS, given, quick)
        device = getattr(settings, "device", "cpu")
        record = Record(name, folder_for(name, to), asdict(settings), benchmark.tables, device)
        with threads(getattr(settings, "threads", 1)):
            ready = [others.prepare(peers, device, record.note)] if peers else []
            with measuring(record, benchmark.LABELS, benchmark.series) as say:
                benchmark.run(settings, Callbacks(record.add, record.note, say), *ready)

    options = [_option(one.name, hint, one.metadata, one.default) for one, hint in _described(benchmark.SETTINGS)]
    if peers:
        hints = get_type_hints(PeerOptions, include_extras=True)
        options += [_parameter(one.name, hints[one.name], one.default) for one in fields(PeerOptions)]
    options += [_parameter("quick", Quick, False), _parameter("to", Out, None)]
    measured.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    measured.__doc__ = benchmark.SETTINGS.__doc__
    return measured


def _described(settings: type[Settings]) -> list[tuple[Any, Any]]:
    """The fields that are options of their own, with their types; ``quick`` is an option of every benchmark."""
    hints = get_type_hints(settings)
    return [(one, hints[one.name]) for one in fields(settings) if one.name != "quick"]


def _option(name: str, hint: Any, about: Any, default: Any) -> inspect.Parameter:
    """An option that is None where it is not given; several values are one text."""
    if hint is bool:
        flag = typer.Option(f"--{name.replace('_', '-')}", help=about["help"])
        return _parameter(name, Annotated[bool, flag], False)
    several = "tuple" in str(hint)
    shown = about["shown"] or (",".join(map(str, default)) if several else str(default))
    kind = str if several or hint is str else int if hint is int else float
    return _parameter(name, Annotated[kind | None, typer.Option(help=about["help"], show_default=shown)], None)


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _settings(cls: type[Settings], given: dict[str, Any], quick: bool) -> Settings:
    """What was asked for; what was not is as the benchmark has it, or as ``--quick`` does."""
    chosen: dict[str, Any] = {"quick": quick} if "quick" in cls.__dataclass_fields__ else {}
    for one, hint in _described(cls):
        value = given[one.name]
        if value is None and quick:
            value = one.metadata["quick"]
        elif isinstance(value, str) and "tuple" in str(hint):
            value = _several(one.name, value, str(hint))
        if value is not None:
            chosen[one.name] = value
    return cls(**chosen)


def _several(name: str, text: str, hint: str) -> tuple[Any, ...]:
    if "str" in hint:
        return tuple(words(text))
    return () if text.strip() == "none" else tuple(numbers(name, text))


@contextmanager
def measuring(
    record: Record, labels: Labels, series: Callable[[list[Any]], list[plot.Series]]
) -> Iterator[Callable[[str], None]]:
    """Run the body with a progress line on stderr; whatever happens, what was measured is shown and kept.

    Args:
        record: that the body adds its rows to.
        labels, series: of the figure.

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
        _finish(record, labels, series)
        raise
    _finish(record, labels, series)
    if record.interrupted:
        err.print(Text("Stopped; what was measured is kept.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    if not record.rows:
        err.print(Text("Nothing was measured.", style="red"))
        raise typer.Exit(1)


def _finish(record: Record, labels: Labels, series: Callable[[list[Any]], list[plot.Series]]) -> None:
    files = record.save()
    if record.rows:
        for table in record.tables(record.rows):
            out.print(Text(f"\n{table.title}", style="bold"))
            out.print(rich_table(table))
        try:
            path = record.folder / "plot.svg"
            files.append(plot.draw(path, labels.title, labels.x, labels.y, series(record.rows)))
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
