"""``pear stress``: random problems whose answers are checked, runs that are killed and resumed, and long training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from pear.cli.console import err, out
from pear.cli.csv_table import split_at_commas
from pear.cli.output_files import writable_output_folder, write_output_json
from pear_lab.benchmarks.text_table import TextTable
from pear_lab.cli.terminal import INTERRUPTED, print_terminal_table

if TYPE_CHECKING:
    from pear_lab.stress.examine_cvxpy import CvxpyVerdict, ExaminedCvxpy
    from pear_lab.stress.examine_milp import ExaminedMilp, MilpVerdict
    from pear_lab.stress.fuzz import FuzzResult, FuzzTally
    from pear_lab.stress.kill_sweep import KillCounts
    from pear_lab.stress.soak import SoakResult

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Look for wrong answers and lost work under difficult conditions.",
)

Workers = Annotated[int | None, typer.Option(help="The number of processes.", show_default="one for each core", min=1)]
Resume = Annotated[bool, typer.Option("--resume", help="Continue where the last run stopped.")]


@app.callback()
def _stress_group() -> None:
    pass


def _stress_command_bar(*more: Any) -> Progress:
    """Make a progress bar on stderr with description, count and elapsed time, and the further columns ``more``."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, *more, console=err)


@contextmanager
def _stress_command_counting_bar(total: int) -> Iterator[Callable[[CvxpyVerdict | MilpVerdict], None]]:
    """Show a progress bar that counts wrong and refused problems, while the block of the with statement runs.

    Yields:
        A function that adds a verdict to the bar.
    """
    with _stress_command_bar(TimeRemainingColumn()) as bar:
        task, wrong, refused = bar.add_task("", total=total), 0, 0

        def show(verdict: CvxpyVerdict | MilpVerdict) -> None:
            nonlocal wrong, refused
            wrong, refused = wrong + bool(verdict.wrong), refused + bool(verdict.refused)
            bar.update(task, advance=1, description=f"{wrong} wrong, {refused} refused")

        yield show


def _exit_stress_command(failure: str, success: str) -> None:
    """Print ``failure`` and exit with code 1 or, if ``failure`` is empty, print ``success``."""
    if failure:
        err.print(Text(failure, style="red"), soft_wrap=True)
        raise typer.Exit(1)
    out.print(Text(success, style="green"))


@app.command("fuzz")
def stress_fuzz_command(
    count: Annotated[int, typer.Option(help="Number of problems.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.", min=0)] = 0,
    families: Annotated[str | None, typer.Option(help="Names of families, separated by commas. Default: all.")] = None,
    workers: Workers = None,
    resume: Resume = False,
    to: Annotated[Path, typer.Option("--out", help="Folder for counterexamples and numbers.")] = Path(
        "pear-output/stress/fuzz"
    ),
) -> None:
    """Solve random problems and check every answer independently; exit code 1 if a goal is missed."""
    from pear.compile.thread_pools import thread_count as core_count  # imports torch, as the next line does
    from pear_lab.stress.fuzz import run_fuzz

    writable_output_folder(to)
    names = None if families is None else split_at_commas(families)
    with _stress_command_bar(TimeRemainingColumn()) as bar:
        task, wrong = bar.add_task("0 wrong", total=count), 0

        def show(tally: FuzzTally) -> None:
            nonlocal wrong
            wrong += tally.wrong
            bar.update(task, advance=tally.tried, description=f"{wrong} wrong")

        found = run_fuzz(count, seed, names, workers or core_count(), to, resume, show)
    shown, missed = stress_fuzz_command_table(found), found.missed()
    print_terminal_table(shown)
    rows = [vars(tally) for tally in found.tallies.values()]
    numbers = {"count": count, "seed": seed, "interrupted": found.interrupted, "missed": missed, "rows": rows}
    write_output_json(to / "results.json", numbers)
    (to / "table.md").write_text(shown.markdown(), encoding="utf-8")
    if found.files:
        out.print(Text(f"{len(found.files)} counterexamples: {to}"), soft_wrap=True)
    if found.interrupted:
        err.print(Text("Stopped; --resume goes on.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    _exit_stress_command(f"Goals missed: {'; '.join(missed)}." if missed else "", "Every goal is met.")


def stress_fuzz_command_table(found: FuzzResult) -> TextTable:
    """Return the table of verdicts, with a row for each family and a row for all."""
    names = ("tried", "right", "refused", "inaccurate", "wrong", "edge", "gradients")
    rows = [
        (one.family, *(f"{getattr(one, name):,}" for name in names), f"{one.slowest:.1f}")
        for one in (*found.tallies.values(), found.total())
    ]
    headings = tuple("refused rightly" if name == "refused" else name for name in names)
    return TextTable("Verdicts of the independent judge", ("family", *headings, "slowest / median"), rows)


@app.command("cvxpy")
def stress_cvxpy_command(
    count: Annotated[int, typer.Option(help="Number of problems.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.", min=0)] = 0,
    first: Annotated[int, typer.Option(help="Number of the first problem.", min=0)] = 0,
    workers: Workers = None,
) -> None:
    """Import random problems from CVXPY, decide, differentiate and train; exit code 1 if anything is wrong."""
    from pear.compile.thread_pools import thread_count as core_count
    from pear_lab.stress.examine_cvxpy import examine_cvxpy_numbers

    numbers = list(range(first, first + count))
    with _stress_command_counting_bar(count) as show:
        found = examine_cvxpy_numbers(numbers, seed, workers or core_count(), show)
    for table in stress_cvxpy_command_tables(found):
        print_terminal_table(table)
    if found.interrupted:
        err.print(Text("Stopped; --first names a problem to go on with.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    bad = [f"problem {one.number} of seed {seed} ({one.family}): {one.wrong}" for one in found.wrong]
    _exit_stress_command("\n".join(["Wrong:", *bad]) if bad else "", "Nothing is wrong.")


def stress_cvxpy_command_tables(found: ExaminedCvxpy) -> list[TextTable]:
    """Return a table of counts by family and, if problems were refused, a table of the reasons."""
    counts = found.counts()
    headings = ("family", *counts[0][1])
    rows = [(family, *(f"{number:,}" for number in numbers.values())) for family, numbers in counts]
    tables = [TextTable("Random problems written in CVXPY", headings, rows)]
    if reasons := found.reasons().most_common():
        tables.append(TextTable("Refused", ("problems", "sentence"), [(f"{k:,}", why) for why, k in reasons], left=2))
    return tables


@app.command("milp")
def stress_milp_command(
    count: Annotated[int, typer.Option(help="Number of programs.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the random programs.", min=0)] = 0,
    first: Annotated[int, typer.Option(help="Number of the first program.", min=0)] = 0,
    workers: Workers = None,
    resume: Resume = False,
    to: Annotated[Path, typer.Option("--out", help="Folder for verdicts and the table.")] = Path(
        "pear-output/stress/milp"
    ),
) -> None:
    """Solve random integer programs, also by HiGHS and SciPy; exit code 1 if anything is wrong or refused."""
    from pear.compile.thread_pools import thread_count as core_count
    from pear_lab.stress.examine_milp import examine_milp_numbers

    writable_output_folder(to)
    numbers = list(range(first, first + count))
    with _stress_command_counting_bar(count) as show:
        found = examine_milp_numbers(numbers, seed, workers or core_count(), to, resume, show)
    shown = stress_milp_command_table(found)
    print_terminal_table(shown)
    (to / "table.md").write_text(shown.markdown(), encoding="utf-8")
    if found.interrupted:
        err.print(Text("Stopped; --resume goes on.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    bad = [
        f"program {one.number} of seed {seed} ({one.family}): {one.wrong or f'{one.ours}, but both others solve it'}"
        for one in found.bad
    ]
    _exit_stress_command("\n".join(["Wrong or refused:", *bad]) if bad else "", "Nothing is wrong or refused.")


def stress_milp_command_table(found: ExaminedMilp) -> TextTable:
    """Return the table of counts, with a row for each family and a row for all."""
    counts = found.counts()
    rows = [(family, *numbers.values()) for family, numbers in counts]
    return TextTable("Random integer programs beside HiGHS and SciPy", ("family", *counts[0][1]), rows)


@app.command("kill")
def stress_kill_command(
    times: Annotated[int, typer.Option(help="Number of kills.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Seed that decides which process is killed, and when.", min=0)] = 0,
    engine: Annotated[str, typer.Option(help="The engine of the sweep: local or ray.")] = "local",
) -> None:
    """Kill a small sweep of runs again and again, resume it, and compare its rows; exit code 1 if anything differs."""
    from pear_lab.stress.kill_sweep import kill_and_compare  # only this command needs it

    with _stress_command_bar() as bar:
        task = bar.add_task("kills", total=times)
        found = kill_and_compare(times, seed, lambda now: bar.update(task, completed=sum(now.kills.values())), engine)
    print_terminal_table(stress_kill_command_table(found))
    failure = f"{found.bad} things differ. {'; '.join(found.examples[:5])}" if found.bad else ""
    _exit_stress_command(failure, "Nothing is lost, nothing is repeated, nothing is wrong.")


def stress_kill_command_table(found: KillCounts) -> TextTable:
    """Return the table of a sweep that was killed and resumed many times.

    It counts the kills, by killed process and moment, and what went wrong after them.
    """
    rows = [
        ("kills", sum(found.kills.values())),
        *((f"kills of {who}, {when}", count) for (who, when), count in sorted(found.kills.items())),
        ("commands started", found.commands),
        ("sweeps that came to their end", found.sweeps),
        ("rows compared with an undisturbed sweep", found.rows),
        ("lost", found.lost),
        ("repeated", found.repeated),
        ("wrong", found.wrong),
        ("workers that outlived their driver", found.orphans),
    ]
    return TextTable("A sweep that is killed", ("", "number"), [(what, f"{count:,}") for what, count in rows])


@app.command("soak")
def stress_soak_command(
    steps: Annotated[int, typer.Option(help="Number of training steps, over all structures.", min=1)] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of problems, samples and order.", min=0)] = 0,
) -> None:
    """Train for a long time through degenerate points; exit code 1 if memory or steps grow, or an answer is wrong."""
    from pear_lab.stress.soak import soak_all  # only this command needs it

    with _stress_command_bar(TimeRemainingColumn()) as bar:
        task = bar.add_task("steps", total=steps)
        found = soak_all(steps, seed, lambda name, done: bar.update(task, advance=done, description=name))
    print_terminal_table(stress_soak_command_table(found))
    missed = [why for one in found for why in one.missed()]
    failure = f"Goals missed: {'; '.join(missed[:5])}." if missed else ""
    _exit_stress_command(failure, "Memory is flat, steps take as long as at first, and no answer is wrong.")


def stress_soak_command_table(found: list[SoakResult]) -> TextTable:
    """Return the table of long trainings, with a row for each problem."""

    def statuses(one: SoakResult) -> str:
        return ", ".join(f"{count:,} {name.lower()}" for name, count in one.statuses.most_common())

    columns = {
        "structure": lambda one: one.structure,
        "statuses": statuses,
        "steps": lambda one: f"{one.steps:,}",
        "MiB after 10 %\n→ at the end": lambda one: (
            f"{one.early / 2**20:.1f} → {one.late / 2**20:.1f} ({one.growth:+.2%})"
        ),
        "ms a step at first → at last\n(by plain steps)": lambda one: (
            f"{1e3 * one.first:.2f} → {1e3 * one.last:.2f} (× {one.slowdown:.2f})"
        ),
        "judged": lambda one: f"{one.judged:,}, {one.gradients:,} gradients, {len(one.wrong):,} wrong",
    }
    return TextTable.of("Long training through degenerate points", found, columns, left=2)
