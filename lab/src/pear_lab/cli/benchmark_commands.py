"""The commands of the benchmarks: their options, their progress line, and the output of their results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import Field, asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

import typer
from rich.text import Text

from pear.cli.console import err, out
from pear.cli.csv_table import split_at_commas
from pear.cli.output_files import writable_output_file, writable_output_folder, write_output_json
from pear.errors import PearError
from pear_lab.benchmarks.bench_record import BenchmarkRecord
from pear_lab.benchmarks.bench_settings import BenchSettings
from pear_lab.benchmarks.benchmark import Benchmark, Callbacks
from pear_lab.benchmarks.series_plot import draw_series
from pear_lab.benchmarks.timing import use_timing_threads
from pear_lab.cli.dataclass_options import (
    dataclass_parameters,
    make_option_command,
    option_parameter,
    parse_numbers_option,
)
from pear_lab.cli.terminal import INTERRUPTED, print_terminal_table
from pear_lab.experiments.experiment_errors import ExperimentError
from pear_lab.peers import Peer, PeerError, choose_peers, peer_interpreter

Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for numbers, table and figure.", show_default="pear-output/bench/NAME"),
]
Quick = Annotated[bool, typer.Option("--quick", help="Measure a few small points, in a minute.")]


@dataclass(frozen=True)
class BenchmarkCommandPeers:
    """The options of a benchmark that also measures other libraries, which are called peers.

    Attributes:
        peers: the names of the peers, or "all", which leaves out peers that cannot be installed.
        peers_here: whether to import the peers from this environment. If not, each peer has an environment of its own.
        rebuild: whether to make the environments of the peers again.
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
        """Return pairs of a peer and the path of a Python interpreter that can import it.

        Environments that are missing are made.

        Args:
            command: the name of the benchmark.
            device: the device of the computations.
            on_note: function that is called with a sentence for each peer that is left out.

        Raises:
            PeerError: a peer given by name is unknown, does not support the benchmark, or cannot be installed.
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


def benchmark_command(name: str, benchmark: type[Benchmark[Any, Any]]) -> Callable[..., None]:
    """Return the command of a benchmark. Its options are the fields of the benchmark's settings, and some common ones.

    Args:
        name: the name of the benchmark, and of its folder in ``pear-output/bench``, the default for results.
        benchmark: the benchmark.
    """
    peers = benchmark.peer_command

    def run_benchmark_command(to: Path | None, quick: bool, **given: Any) -> None:
        others = BenchmarkCommandPeers(
            **{one.name: given.pop(one.name) for one in fields(BenchmarkCommandPeers)} if peers else {}
        )
        settings = _benchmark_command_settings(benchmark.options, given, quick)
        device = getattr(settings, "device", "cpu")
        folder = writable_output_folder(Path("pear-output/bench") / name if to is None else to)
        record = BenchmarkRecord(name, folder, asdict(settings), benchmark.tables, device)
        with use_timing_threads(getattr(settings, "threads", 1)):
            ready = others.prepare(peers, device, record.note) if peers else []
            with _recording_benchmark_command(record, benchmark) as say:
                benchmark(settings, Callbacks(record.add, record.note, say), ready).run()
        if reason := benchmark.failed(record.rows):
            err.print(Text(reason, style="red"), soft_wrap=True)
            raise typer.Exit(1)

    options = [_benchmark_command_option(one, kind) for one, kind in _benchmark_command_fields(benchmark.options)]
    options += dataclass_parameters(BenchmarkCommandPeers) if peers else []
    options += [option_parameter("quick", Quick, False), option_parameter("to", Out, None)]
    return make_option_command(run_benchmark_command, benchmark.options.__doc__, options)


def _benchmark_command_fields(settings: type[BenchSettings]) -> list[tuple[Field[Any], str]]:
    """Return the fields of the settings except ``quick``, each with the text of its type annotation."""
    kinds = get_type_hints(settings)
    return [(one, str(kinds[one.name])) for one in fields(settings) if one.name != "quick"]


def _benchmark_command_option(one: Field[Any], kind: str) -> inspect.Parameter:
    """Return the option for a field of the settings, as a parameter of the command's function.

    The value of the option is a single text if the field holds several values. If the option is not given, the value
    is False for a flag, and None otherwise.
    """
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


def _benchmark_command_settings(cls: type[BenchSettings], given: dict[str, Any], quick: bool) -> BenchSettings:
    """Return the settings of a benchmark with the values of the given options.

    A field whose option is not given has its default or, if ``quick``, its value for ``--quick``.
    """
    chosen: dict[str, Any] = {"quick": quick} if "quick" in cls.__dataclass_fields__ else {}
    for one, kind in _benchmark_command_fields(cls):
        value = given[one.name]
        if value is None and quick:
            value = one.metadata["quick"]
        elif isinstance(value, str) and "tuple" in kind:
            value = _parse_benchmark_command_option(one.name, value, kind)
        if value is not None:
            chosen[one.name] = value
    return cls(**chosen)


def _parse_benchmark_command_option(name: str, text: str, kind: str) -> tuple[Any, ...]:
    """Return the values that an option lists, separated by commas.

    They are texts if ``kind`` contains "str", decimal numbers if it contains "float", and otherwise integers. For
    integers, the text "none" gives an empty tuple.
    """
    if "str" in kind:
        return tuple(split_at_commas(text))
    if "float" in kind:
        try:
            return tuple(float(word) for word in split_at_commas(text))
        except ValueError:
            raise ExperimentError(
                f"--{name} must be numbers, separated by commas, such as 1e6,1e8; got {text!r}"
            ) from None
    return () if text.strip() == "none" else tuple(parse_numbers_option(name, text))


@contextmanager
def _recording_benchmark_command(
    record: BenchmarkRecord, benchmark: type[Benchmark[Any, Any]]
) -> Iterator[Callable[[str], None]]:
    """Save and print the rows that the body of the with statement adds to the record.

    Rows are also printed if the body raises a ``PearError`` or the user stops it. The command exits with code 1 if
    there are no rows, and with ``INTERRUPTED`` if the user stopped it.

    Yields:
        A function that shows a text in a progress line on stderr.
    """
    try:
        with err.status("Starting …") as status:
            yield lambda line: status.update(Text(line))
    except KeyboardInterrupt:
        record.interrupted = True
        record.note("stopped by the user before the end")
    except PearError:
        _finish_benchmark_command(record, benchmark)
        raise
    _finish_benchmark_command(record, benchmark)
    if record.interrupted:
        err.print(Text("Stopped; what was measured is kept.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    if not record.rows:
        err.print(Text("Nothing was measured.", style="red"))
        raise typer.Exit(1)


def _finish_benchmark_command(record: BenchmarkRecord, benchmark: type[Benchmark[Any, Any]]) -> None:
    """Save the record of a benchmark, print its tables and notes, and draw its figure."""
    files, labels = record.save(), benchmark.labels
    if record.rows:
        for table in record.tables(record.rows):
            print_terminal_table(table)
        try:
            path = record.folder / "plot.svg"
            files.append(draw_series(path, labels.title, labels.x, labels.y, benchmark.series(record.rows)))
        except ModuleNotFoundError as error:
            record.note(f"no figure: {error.name} is missing; run pip install 'pear-dfl[cli]'")
    for note in record.notes:
        out.print(Text(f"• {note}"), soft_wrap=True)
    out.print(Text(f"Written: {', '.join(str(path) for path in files)}"), soft_wrap=True)


def exactness_command(
    solvers: Annotated[
        str | None,
        typer.Option(help="Names that `pear solvers` lists, separated by commas. Default: all that are installed."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Solve a tenth of the problems.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.")] = 0,
    to: Annotated[Path | None, typer.Option("--out", help="Write the numbers to this JSON file, too.")] = None,
) -> None:
    """Compare decisions and gradients with independent references; exit code 1 if a goal is missed."""
    from pear.compile.thread_pools import one_thread  # imports torch, as the next line does
    from pear_lab.benchmarks import exactness_benchmark as benchmark

    if to is not None:
        writable_output_file(to)
    names = None if solvers is None else split_at_commas(solvers)
    with one_thread(), err.status("Solving …") as status:
        rows = benchmark.measure_exactness(names, quick, seed, progress=lambda line: status.update(Text(line)))
    for table in benchmark.exactness_tables(rows):
        print_terminal_table(table)
    if to is not None:
        write_output_json(
            to, {"goals": benchmark.GOALS, "seed": seed, "quick": quick, "rows": [asdict(row) for row in rows]}
        )
        out.print(Text(f"Numbers: {to}"), soft_wrap=True)
    missed = sum(not row.meets_goals for row in rows)
    if missed or not rows:
        err.print(
            Text(
                f"{missed} of {len(rows)} rows miss a goal." if rows else "Nothing was measured.",
                style="red",
            )
        )
        raise typer.Exit(1)
    out.print(Text(f"All {len(rows)} rows meet their goals.", style="green"))
