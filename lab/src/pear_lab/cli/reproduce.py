"""``pear reproduce``: runs the paper's experiments, and continues stopped ones."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from pear.cli.console import err, out
from pear.cli.csv_table import split_at_commas
from pear.cli.output_files import writable_output_file, write_output_json
from pear.compile.thread_pools import thread_count
from pear.engines import Engine
from pear.engines.engine_table import check_engine_name
from pear.wording import format_two_decimal_percent
from pear_lab import experiments
from pear_lab.cli.dataclass_options import dataclass_parameters, make_option_command, parse_numbers_option
from pear_lab.cli.terminal import make_terminal_table
from pear_lab.data.data_files import VARIABLE
from pear_lab.data.prices import Gaps
from pear_lab.experiments import (
    FILE_NAME,
    Database,
    Estimate,
    Event,
    ExperimentError,
    RunSpec,
    Selection,
    unfinished_runs,
)
from pear_lab.experiments.catalogue import (
    COMPARISONS,
    DEGREES,
    EXPERIMENTS,
    METHODS,
    PORTFOLIO_METHODS,
    TASKS,
    Comparison,
    Experiment,
)
from pear_lab.experiments.processes import start_engine
from pear_lab.experiments.run_spec import dashed_name
from pear_lab.experiments.time_estimate import duration_in_words
from pear_lab.field import field_runs
from pear_lab.field.field_methods import field_methods
from pear_lab.field.field_protocol import NOT_APPLICABLE
from pear_lab.field.field_tasks import field_tasks

_MAX_LINES = 16
"""The largest number of runs that are shown at once. A cluster does more runs at once than a terminal has lines."""


@dataclass(frozen=True)
class ReproduceOptions:
    """Run the paper's experiments. Runs whose results are in the database already are not repeated."""

    names: Annotated[
        list[str] | None, typer.Argument(help="Names of experiments, or all; --list shows them.", metavar="NAME...")
    ] = None
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False
    tasks: Annotated[
        str | None, typer.Option(help="Names of tasks (shortest-path, …), separated by commas; --list shows them.")
    ] = None
    methods: Annotated[str | None, typer.Option(help="Names of methods (mse, spo+, pear, …), separated by commas.")] = (
        None
    )
    degrees: Annotated[str | None, typer.Option(help="Degrees of the costs, among 2,4,6,8.")] = None
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as 0-4 or 0,2. Default: 0-4.")] = None
    time_cap: Annotated[
        float | None,
        typer.Option(help="The time limit of a training in seconds. Default: 600 (field: 0.8, of processor time)."),
    ] = None
    jobs: Annotated[int | None, typer.Option(help="The number of runs at a time. Default: one per core.")] = None
    engine: Annotated[str, typer.Option(help="The engine of the runs: local, ray or ray://HOST:PORT.")] = "local"
    quick: Annotated[bool, typer.Option("--quick", help="Run a reduced grid on small problems, in minutes.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and for how long, and exit.")] = False
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Repeat runs that failed before.")] = False
    to: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of the database and the weights. Default: pear-output/lp, or pear-output/field."
        ),
    ] = None
    data: Annotated[
        str | None,
        typer.Option(
            help="Folder of real data. Default: $PEAR_DATA. For portfolios also skfolio, sp100 or a file of prices."
        ),
    ] = None
    gaps: Annotated[str, typer.Option(help="What to do about missing prices: error, drop-names or drop-days.")] = (
        "error"
    )
    export: Annotated[
        Path | None, typer.Option(help="Write the database of --out, of any version, to this JSON file.")
    ] = None
    merge: Annotated[
        list[Path] | None,
        typer.Option(help="Copy the runs of this database, or folder, into that of --out; repeatable."),
    ] = None

    @property
    def folder(self) -> Path:
        """The folder of the database."""
        return Path("pear-output") / (field_runs.NAME if self.is_field else "lp") if self.to is None else self.to

    @property
    def is_field(self) -> bool:
        """Whether the names include "field", which stands for the comparison of all methods on the public tasks."""
        return field_runs.NAME in (self.names or ())

    def runs(self) -> list[RunSpec]:
        """Return the specifications of the runs that the names and options select."""
        if not self.is_field:
            return experiments.expand(self.names or (), self.selection())
        if self.names != [field_runs.NAME] or self.degrees is not None:
            raise ExperimentError("field is run alone, and its tasks have no degrees: leave out other names, --degrees")
        _set_reproduce_data(self.data)
        return field_runs.expand_field_runs(
            field_runs.FieldSelection(
                tasks=None if self.tasks is None else split_at_commas(self.tasks),
                methods=None if self.methods is None else [name.lower() for name in split_at_commas(self.methods)],
                seeds=None if self.seeds is None else parse_numbers_option("seeds", self.seeds),
                time_cap=self.time_cap,
                quick=self.quick,
            )
        )

    def selection(self) -> Selection:
        """Return the options that select a part of the experiments.

        If ``--data`` is a folder, ``$PEAR_DATA`` is set to it.
        """
        return Selection(
            tasks=None if self.tasks is None else [name.replace("-", "_") for name in split_at_commas(self.tasks)],
            methods=None if self.methods is None else [name.lower() for name in split_at_commas(self.methods)],
            degrees=None if self.degrees is None else parse_numbers_option("degrees", self.degrees),
            seeds=None if self.seeds is None else parse_numbers_option("seeds", self.seeds),
            time_cap=self.time_cap,
            quick=self.quick,
            data=_set_reproduce_data(self.data),
            gaps=cast(Gaps, self.gaps),
        )


def _reproduce(options: ReproduceOptions) -> None:
    """List, export, merge, estimate or run experiments, depending on the options."""
    if options.show_list:
        _print_reproduce_list()
        return
    if options.export is not None:
        _reproduce_export(options.folder, options.export)
        return
    if options.merge:
        _reproduce_merge(options.merge, options.folder)
        return
    if not options.names:
        options.selection()
        raise ExperimentError(f"name an experiment: {', '.join((*EXPERIMENTS, *COMPARISONS, field_runs.NAME, 'all'))}")
    wanted = options.runs()
    if options.jobs is not None and options.jobs < 1:
        raise ExperimentError(f"--jobs must be at least 1; got {options.jobs}")
    check_engine_name(options.engine)
    if options.dry_run:
        _print_reproduce_dry_run(
            wanted, options.folder, thread_count() if options.jobs is None else options.jobs, options.retry_failed
        )
        return
    with err.status("Looking at what the runs need …") as status:
        experiments.check_data_of_runs(wanted, lambda line: status.update(Text(line)))
    with experiments.open_folder(options.folder) as database:
        _reproduce_runs(wanted, database, options)


reproduce = make_option_command(
    lambda **given: _reproduce(ReproduceOptions(**given)),
    ReproduceOptions.__doc__,
    dataclass_parameters(ReproduceOptions),
)
app = typer.Typer(add_completion=False)
app.command("reproduce")(reproduce)


def _set_reproduce_data(given: str | None) -> str | None:
    """Return the source of prices that ``--data`` names; None for the default source.

    If ``--data`` is a folder, ``$PEAR_DATA`` is set to it. The source of prices is then "sp100" if the folder contains
    a folder of this name, and otherwise the default source.
    """
    if given is None or not Path(given).is_dir():
        return given
    os.environ[VARIABLE] = str(Path(given).resolve())  # worker processes inherit the environment
    return "sp100" if (Path(given) / "sp100").is_dir() else None


def _reproduce_export(folder: Path, to: Path) -> None:
    """Write all rows of a database to a JSON file."""
    data = experiments.export_database(folder if folder.is_file() else folder / FILE_NAME)
    write_output_json(writable_output_file(to), data)
    counted = ", ".join(f"{len(rows):,} rows of {name}" for name, rows in data["tables"].items())
    out.print(Text(f"Exported {counted or 'nothing'} to {to}"), soft_wrap=True)


def _reproduce_merge(sources: list[Path], folder: Path) -> None:
    """Copy the runs of the databases ``sources`` into the database in ``folder``."""
    with Database(folder / FILE_NAME) as database:
        database.claim()
        copied = experiments.merge_databases([one / FILE_NAME if one.is_dir() else one for one in sources], database)
        out.print(Text(f"Copied {copied:,} runs to {database.path}, without their weights"), soft_wrap=True)


def _print_reproduce_list() -> None:
    """Print the experiments, and the names of the tasks, methods and degrees that options can select."""
    table = make_terminal_table("experiment", "what it shows", numbers=("trainings",))
    there: list[Experiment | Comparison] = [*EXPERIMENTS.values(), *COMPARISONS.values()]
    for one in there:
        table.add_row(one.name, one.title, str(one.count))
    table.add_row(field_runs.NAME, field_runs.TITLE, str(field_runs.count_field_runs()))
    out.print(table)
    options = {"tasks": TASKS, "methods": METHODS, "degrees": DEGREES, "methods of portfolios": PORTFOLIO_METHODS}
    options |= {"tasks of field": field_tasks(), "methods of field": field_methods()}
    for what, names in options.items():
        out.print(f"--{what}: {', '.join(dashed_name(str(name)) for name in names)}", highlight=False)
    out.print(
        "all: every experiment of the paper that needs no data files. A training that several share is done once.",
        highlight=False,
    )


def _print_reproduce_dry_run(wanted: list[RunSpec], folder: Path, jobs: int, retry_failed: bool) -> None:
    """Print a table of the runs that would be done, and an estimate of their time. The database is only read."""
    statuses: dict[str, str] = {}
    estimate = Estimate([])
    if (folder / FILE_NAME).exists():
        with Database(folder / FILE_NAME, read_only=True) as database:
            statuses, estimate = database.statuses(), Estimate(database.timings())
    todo = {run.key for run in unfinished_runs(wanted, statuses, retry_failed)}
    groups: dict[tuple[str, ...], list[RunSpec]] = {}
    for run in wanted:
        groups.setdefault((run.experiment, run.task.replace("_", "-"), run.method), []).append(run)
    table = make_terminal_table(
        "experiment", "task", "method", numbers=("train", "measure", "done", "failed", "core time")
    )
    for group, runs in groups.items():
        left = [run for run in runs if run.key in todo]
        kinds = Counter(run.variant is None for run in left)
        there = Counter(statuses.get(run.key) for run in runs)
        counts = (kinds[True], kinds[False], there["done"], there["failed"])
        table.add_row(*group, *map(str, counts), duration_in_words(sum(map(estimate.seconds, left))) if left else "")
    out.print(table)
    _print_reproduce_estimate([run for run in wanted if run.key in todo], len(wanted), estimate, jobs)


def _print_reproduce_estimate(left: list[RunSpec], total: int, estimate: Estimate, jobs: int) -> None:
    """Print how many runs are left and about how long they take."""
    processes = "1 process" if jobs == 1 else f"{jobs} processes"
    words = duration_in_words(estimate.wall_seconds(left, jobs))
    out.print(f"{len(left)} of {total} runs to do, about {words} with {processes}.", highlight=False)
    if left and estimate.is_rough(left):
        out.print(
            "Part of that is a rough guess, off by a factor of three on other machines: the database holds no finished "
            "run of the same kind yet.",
            highlight=False,
        )


def _reproduce_runs(wanted: list[RunSpec], database: Database, options: ReproduceOptions) -> None:
    """Do the unfinished runs with a progress bar. After Ctrl-C the finished runs remain in the database."""
    todo = unfinished_runs(wanted, database.statuses(), options.retry_failed)
    estimate = Estimate(database.timings())
    try:
        with _start_reproduce_engine(options, bool(todo)) as engine:
            _print_reproduce_estimate(todo, len(wanted), estimate, engine.slots)
            with _ReproduceProgressBar(todo, estimate, engine) as bar:
                experiments.run_all(todo, database, listen=bar.show_event, engine=engine)
    except KeyboardInterrupt:
        done = len(todo) - len(unfinished_runs(todo, database.statuses(), options.retry_failed))
        out.print(f"Stopped. {done} finished runs are kept; the same command goes on from there.", highlight=False)
        raise typer.Exit(130) from None
    _print_reproduce_failures(wanted, database)


def _start_reproduce_engine(options: ReproduceOptions, needed: bool) -> Engine:
    """Start the engine that the options name. If it is not ``needed``, because no run is left, start the local one."""
    with err.status(Text(f"Starting the engine {options.engine} …")):
        return start_engine(options.engine, options.jobs) if needed else start_engine()


def _print_reproduce_failures(wanted: list[RunSpec], database: Database) -> None:
    """Print the number of finished runs, and up to ten failed runs. Exit with code 1 if a run failed.

    A run whose method does not apply to its task is counted separately, and does not count as failed.
    """
    statuses = database.statuses()
    reasons = [
        (run, record.reason)
        for run in wanted
        if statuses.get(run.key) == "failed" and (record := database.get(run.key)) is not None
    ]
    broken = [(run, reason) for run, reason in reasons if not reason.startswith(NOT_APPLICABLE)]
    done = sum(statuses.get(run.key) == "done" for run in wanted)
    out.print(Text(f"{done} of {len(wanted)} runs are in {database.path}"), soft_wrap=True)
    if len(broken) < len(reasons):
        out.print(f"{len(reasons) - len(broken)} runs are of methods that do not apply to their task.", highlight=False)
    if not broken:
        return
    for run, reason in broken[:10]:
        err.print(Text(f"failed: {run}: {reason}", style="red"), soft_wrap=True)
    more = f" ({len(broken) - 10} more)" if len(broken) > 10 else ""
    err.print(Text(f"{len(broken)} runs failed{more}; --retry-failed tries them again.", style="red"))
    raise typer.Exit(1)


class _ReproduceProgressBar:
    """A progress bar of all runs with the time left, and a line for each of up to ``_MAX_LINES`` active runs."""

    def __init__(self, runs: list[RunSpec], estimate: Estimate, engine: Engine) -> None:
        self.estimate, self.engine, self.done = estimate, engine, 0
        self._left = {run.key: run for run in runs}
        self._lines: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            console=out,
        )
        self._all = self._progress.add_task("all", total=len(runs), state=self._time_left())

    def __enter__(self) -> _ReproduceProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        for line in self._lines.values():
            self._progress.remove_task(line)
        self._progress.stop()

    def show_event(self, event: Event) -> None:
        """Show the start, the progress or the end of a run."""
        run, now = event.run, event.progress
        if event.record is not None:
            self._show_finished_run(event)
        elif now is None and run.key in self._lines:  # the run begins again
            self._progress.update(self._lines[run.key], completed=0, state="")
        elif now is None and len(self._lines) < _MAX_LINES:
            total = run.settings["max_epochs"] if run.variant is None else 1
            self._lines[run.key] = self._progress.add_task(str(run), total=total, state="")
        elif now is not None and run.key in self._lines:
            regret = "" if now.metric != now.metric else f"validation regret {format_two_decimal_percent(now.metric)}"
            self._progress.update(self._lines[run.key], completed=now.epoch, state=regret)

    def _show_finished_run(self, event: Event) -> None:
        """Show that a run is finished or has failed, and update the time left."""
        run, record = event.run, event.record
        self._left.pop(run.key, None)
        self.done += 1
        if run.key in self._lines:
            self._progress.remove_task(self._lines.pop(run.key))
        if record is not None and record.status == "done":
            self.estimate.add(run, record.timings)
            regret = record.metrics.get("normalized_regret")
            tail = "" if regret is None else f": test regret {format_two_decimal_percent(regret)}"
            self._progress.console.print(Text(f"{run}{tail}, {record.timings['total']:.1f} s"), highlight=False)
        elif record is not None:
            self._progress.console.print(Text(f"{run}: failed: {record.reason}", style="red"))
        self._progress.update(self._all, completed=self.done, state=self._time_left())

    def _time_left(self) -> str:
        """Return the estimated time left in words."""
        return (
            f"about {duration_in_words(self.estimate.wall_seconds(list(self._left.values()), self.engine.slots))} left"
        )
