"""Commands of the benchmarks: their options, their progress line, and their output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import Field, asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, cast, get_type_hints

import typer
from rich.text import Text

from pear.cli.console import err, out
from pear.cli.csv_table import split_at_commas
from pear.cli.output_files import writable_output_file, writable_output_folder, write_output_json
from pear.errors import PearError
from pear_lab.benchmarks.bench_record import BenchmarkRecord
from pear_lab.benchmarks.bench_settings import Callbacks, Settings
from pear_lab.benchmarks.series_plot import draw_series
from pear_lab.benchmarks.timing import use_timing_threads
from pear_lab.cli.dataclass_options import dataclass_parameters, make_command, option_parameter, parse_numbers
from pear_lab.cli.terminal import INTERRUPTED, print_table
from pear_lab.peers import Peer, PeerError, choose_peers, peer_interpreter

Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for numbers, table and figure.", show_default="pear-output/bench/NAME"),
]
Quick = Annotated[bool, typer.Option("--quick", help="Measure a few small points, in a minute.")]


@dataclass(frozen=True)
class PeerOptions:
    """The options of a benchmark in which other libraries take part.

    Attributes:
        peers: names, or "all": then those that cannot be had are left out with a note.
        peers_here: they are installed in this environment.
        rebuild: make their environments anew.
    """

    peers: Annotated[
        str | None,
        typer.Option(
            help="Libraries to compare with: dqp, moreau, qpth, cvxpylayers, qpax, mpax, qpsolvers (for training and "
            "methods: pyepo), or all."
        ),
    ] = None
    peers_here: Annotated[
        bool, typer.Option("--peers-here", help="Use the libraries that are installed here; make no environments.")
    ] = False
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the environments of these libraries again.")] = False

    def prepare(self, command: str, device: str, on_note: Callable[[str], None]) -> list[tuple[Peer, Path]]:
        """Find a Python that can import each peer; environments are made where there are none.

        Args:
            command: name of the benchmark that the peers take part in.
            device: device that they compute on.
            on_note: called with a sentence for each peer that is left out.

        Raises:
            PeerError: a peer that was asked for by name is unknown, does not fit or cannot be had.
        """
        ready, names = [], split_at_commas(self.peers)
        with err.status("Looking for the peers …") as status:
            for peer in choose_peers(names, command, device):
                try:
                    python = peer_interpreter(
                        peer, self.peers_here, self.rebuild, lambda line: status.update(Text(line))
                    )
                    ready.append((peer, python))
                except PeerError as error:
                    if "all" not in names:
                        raise
                    on_note(f"{peer.title} left out: {error}")
        return ready


def benchmark_command(benchmark: ModuleType) -> Callable[..., None]:
    """Make the command of a benchmark: an option for every field of its settings, and those that all share.

    Args:
        benchmark: module with the parts that ``pear_lab.benchmarks.bench_settings`` describes.
    """
    name = benchmark.__name__.rpartition(".")[2]
    peers = getattr(benchmark, "PEERS", None)

    def measured(to: Path | None, quick: bool, **given: Any) -> None:
        others = PeerOptions(**{one.name: given.pop(one.name) for one in fields(PeerOptions)} if peers else {})
        settings = _make_settings(benchmark.SETTINGS, given, quick)
        device = getattr(settings, "device", "cpu")
        folder = writable_output_folder(Path("pear-output/bench") / name if to is None else to)
        record = BenchmarkRecord(name, folder, asdict(settings), benchmark.tables, device)
        with use_timing_threads(getattr(settings, "threads", 1)):
            ready = [others.prepare(peers, device, record.note)] if peers else []
            with record_rows(record, benchmark) as say:
                benchmark.run(settings, Callbacks(record.add, record.note, say), *ready)
        if hasattr(benchmark, "failed") and (reason := benchmark.failed(record.rows)):
            err.print(Text(reason, style="red"), soft_wrap=True)
            raise typer.Exit(1)

    options = [_make_option(one, kind) for one, kind in _option_fields(benchmark.SETTINGS)]
    options += dataclass_parameters(PeerOptions) if peers else []
    options += [option_parameter("quick", Quick, False), option_parameter("to", Out, None)]
    return make_command(measured, benchmark.SETTINGS.__doc__, options)


def _option_fields(settings: type[Settings]) -> list[tuple[Field[Any], str]]:
    """Return the fields of the settings that become options, with their types, without ``quick``, which all have."""
    kinds = get_type_hints(settings)
    return [(one, str(kinds[one.name])) for one in fields(settings) if one.name != "quick"]


def _make_option(one: Field[Any], kind: str) -> inspect.Parameter:
    """Make the option of a field. It is None if not given, and one text if the field takes several values."""
    help, shown = one.metadata["help"], one.metadata["shown"]
    if one.metadata["argument"]:
        return option_parameter(one.name, Annotated[str, typer.Argument(help=help)], inspect.Parameter.empty)
    if "bool" in kind:
        flag = typer.Option(f"--{one.name.replace('_', '-')}", help=help)
        return option_parameter(one.name, Annotated[bool, flag], False)
    several = "tuple" in kind
    shown = shown or (",".join(map(str, cast("tuple[Any, ...]", one.default))) if several else str(one.default))
    read_as = str if several or "str" in kind else int if "int" in kind else float
    return option_parameter(one.name, Annotated[read_as | None, typer.Option(help=help, show_default=shown)], None)


def _make_settings(cls: type[Settings], given: dict[str, Any], quick: bool) -> Settings:
    """Make the settings from the given options. The others have their defaults, or those of ``--quick``."""
    chosen: dict[str, Any] = {"quick": quick} if "quick" in cls.__dataclass_fields__ else {}
    for one, kind in _option_fields(cls):
        value = given[one.name]
        if value is None and quick:
            value = one.metadata["quick"]
        elif isinstance(value, str) and "tuple" in kind:
            value = _parse_several(one.name, value, kind)
        if value is not None:
            chosen[one.name] = value
    return cls(**chosen)


def _parse_several(name: str, text: str, kind: str) -> tuple[Any, ...]:
    """Parse the text of an option that takes several texts or numbers, separated by commas."""
    if "str" in kind:
        return tuple(split_at_commas(text))
    return () if text.strip() == "none" else tuple(parse_numbers(name, text))


@contextmanager
def record_rows(record: BenchmarkRecord, benchmark: ModuleType) -> Iterator[Callable[[str], None]]:
    """Run the body, which adds rows to the record. The rows so far are printed and saved even if it fails.

    Yields:
        A function that shows what is being done, in a progress line on stderr.
    """
    try:
        with err.status("Starting …") as status:
            yield lambda line: status.update(Text(line))
    except KeyboardInterrupt:
        record.interrupted = True
        record.note("stopped by the user before the end")
    except PearError:
        _finish_record(record, benchmark)
        raise
    _finish_record(record, benchmark)
    if record.interrupted:
        err.print(Text("Stopped; what was measured is kept.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    if not record.rows:
        err.print(Text("Nothing was measured.", style="red"))
        raise typer.Exit(1)


def _finish_record(record: BenchmarkRecord, benchmark: ModuleType) -> None:
    """Save a benchmark's record, print its tables and notes, and draw its figure."""
    files, labels = record.save(), benchmark.LABELS
    if record.rows:
        for table in record.tables(record.rows):
            print_table(table)
        try:
            path = record.folder / "plot.svg"
            files.append(draw_series(path, labels.title, labels.x, labels.y, benchmark.series(record.rows)))
        except ModuleNotFoundError as error:
            record.note(f"no figure: {error.name} is missing; run pip install 'pear-dfl[cli]'")
    for note in record.notes:
        out.print(Text(f"• {note}"), soft_wrap=True)
    out.print(Text(f"Written: {', '.join(str(path) for path in files)}"), soft_wrap=True)


def exactness(
    solvers: Annotated[
        str | None,
        typer.Option(help="Names that `pear solvers` lists, separated by commas. Default: all that are installed."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Solve a tenth of the problems.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.")] = 0,
    to: Annotated[Path | None, typer.Option("--out", help="Write the numbers to this JSON file, too.")] = None,
) -> None:
    """Compare decisions and gradients with independent references; exit code 1 where a goal is missed."""
    from pear.compile.thread_pools import one_thread  # imports torch, as the next line does
    from pear_lab.benchmarks import exactness_benchmark as benchmark

    if to is not None:
        writable_output_file(to)
    names = None if solvers is None else split_at_commas(solvers)
    with one_thread(), err.status("Solving …") as status:
        rows = benchmark.run(names, quick, seed, progress=lambda line: status.update(Text(line)))
    for table in benchmark.tables(rows):
        print_table(table)
    if to is not None:
        write_output_json(
            to, {"goals": benchmark.GOALS, "seed": seed, "quick": quick, "rows": [asdict(row) for row in rows]}
        )
        out.print(Text(f"Numbers: {to}"), soft_wrap=True)
    missed = sum(not row.meets_goals for row in rows)
    if missed or not rows:
        err.print(Text(f"{missed} of {len(rows)} rows miss a goal." if rows else "Nothing was measured.", style="red"))
        raise typer.Exit(1)
    out.print(Text(f"All {len(rows)} rows meet their goals.", style="green"))
