"""``pear stress``: awkward problems, problems of CVXPY and integer programs under a judge, kills, and long training."""

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
from pear_lab.cli.terminal import INTERRUPTED, print_table

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


def _stress_progress_bar(*more: Any) -> Progress:
    """Make a progress bar on stderr with the task, the count and the elapsed time; ``more`` are further columns."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, *more, console=err)


@contextmanager
def _counting_progress_bar(total: int) -> Iterator[Callable[[CvxpyVerdict | MilpVerdict], None]]:
    """A context with a progress bar that counts problems that are wrong or refused, and a function that takes each."""
    with _stress_progress_bar(TimeRemainingColumn()) as bar:
        task, wrong, refused = bar.add_task("", total=total), 0, 0

        def show(verdict: CvxpyVerdict | MilpVerdict) -> None:
            nonlocal wrong, refused
            wrong, refused = wrong + bool(verdict.wrong), refused + bool(verdict.refused)
            bar.update(task, advance=1, description=f"{wrong} wrong, {refused} refused")

        yield show


def _exit_by_stress_result(failure: str, success: str) -> None:
    """Print what failed, and exit with code 1; an empty ``failure`` means that all is well."""
    if failure:
        err.print(Text(failure, style="red"), soft_wrap=True)
        raise typer.Exit(1)
    out.print(Text(success, style="green"))


@app.command("fuzz")
def fuzz(
    count: Annotated[int, typer.Option(help="Number of problems.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.", min=0)] = 0,
    families: Annotated[str | None, typer.Option(help="Names of families, separated by commas. Default: all.")] = None,
    workers: Workers = None,
    resume: Resume = False,
    to: Annotated[Path, typer.Option("--out", help="Folder for counterexamples and numbers.")] = Path(
        "pear-output/stress/fuzz"
    ),
) -> None:
    """Solve random problems and judge every answer independently; exit code 1 where a goal is missed."""
    from pear.compile.thread_pools import thread_count as core_count  # imports torch, as the next line does
    from pear_lab.stress.fuzz import run_fuzz

    writable_output_folder(to)
    names = None if families is None else split_at_commas(families)
    with _stress_progress_bar(TimeRemainingColumn()) as bar:
        task, wrong = bar.add_task("0 wrong", total=count), 0

        def show(tally: FuzzTally) -> None:
            nonlocal wrong
            wrong += tally.wrong
            bar.update(task, advance=tally.tried, description=f"{wrong} wrong")

        found = run_fuzz(count, seed, names, workers or core_count(), to, resume, show)
    shown, missed = fuzz_table(found), found.missed()
    print_table(shown)
    rows = [vars(tally) for tally in found.tallies.values()]
    numbers = {"count": count, "seed": seed, "interrupted": found.interrupted, "missed": missed, "rows": rows}
    write_output_json(to / "results.json", numbers)
    (to / "table.md").write_text(shown.markdown(), encoding="utf-8")
    if found.files:
        out.print(Text(f"{len(found.files)} counterexamples: {to}"), soft_wrap=True)
    if found.interrupted:
        err.print(Text("Stopped; --resume goes on.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    _exit_by_stress_result(f"Goals missed: {'; '.join(missed)}." if missed else "", "Every goal is met.")


def fuzz_table(found: FuzzResult) -> TextTable:
    """Make the table of a fuzz run: one row for each family, and one for all."""
    names = ("tried", "right", "refused", "inaccurate", "wrong", "edge", "gradients")
    rows = [
        (one.family, *(f"{getattr(one, name):,}" for name in names), f"{one.slowest:.1f}")
        for one in (*found.tallies.values(), found.total())
    ]
    headings = tuple("refused rightly" if name == "refused" else name for name in names)
    return TextTable("Verdicts of the independent judge", ("family", *headings, "slowest / median"), rows)


@app.command("cvxpy")
def cvxpy(
    count: Annotated[int, typer.Option(help="Number of problems.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.", min=0)] = 0,
    first: Annotated[int, typer.Option(help="Number of the first problem.", min=0)] = 0,
    workers: Workers = None,
) -> None:
    """Import random problems of CVXPY, decide, differentiate and train; exit code 1 where anything is wrong."""
    from pear.compile.thread_pools import thread_count as core_count
    from pear_lab.stress.examine_cvxpy import examine_cvxpy_numbers

    numbers = list(range(first, first + count))
    with _counting_progress_bar(count) as show:
        found = examine_cvxpy_numbers(numbers, seed, workers or core_count(), show)
    for table in cvxpy_tables(found):
        print_table(table)
    if found.interrupted:
        err.print(Text("Stopped; --first names a problem to go on with.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    bad = [f"problem {one.number} of seed {seed} ({one.family}): {one.wrong}" for one in found.wrong]
    _exit_by_stress_result("\n".join(["Wrong:", *bad]) if bad else "", "Nothing is wrong.")


def cvxpy_tables(found: ExaminedCvxpy) -> list[TextTable]:
    """Make the tables of a run on problems of CVXPY: the counts of every family, and the reasons of refusals."""
    counts = found.counts()
    headings = ("family", *counts[0][1])
    rows = [(family, *(f"{number:,}" for number in numbers.values())) for family, numbers in counts]
    tables = [TextTable("Random problems written in CVXPY", headings, rows)]
    if reasons := found.reasons().most_common():
        tables.append(TextTable("Refused", ("problems", "sentence"), [(f"{k:,}", why) for why, k in reasons], left=2))
    return tables


@app.command("milp")
def milp(
    count: Annotated[int, typer.Option(help="Number of programs.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the random programs.", min=0)] = 0,
    first: Annotated[int, typer.Option(help="Number of the first program.", min=0)] = 0,
    workers: Workers = None,
    resume: Resume = False,
    to: Annotated[Path, typer.Option("--out", help="Folder for verdicts and the table.")] = Path(
        "pear-output/stress/milp"
    ),
) -> None:
    """Solve random integer programs, also by HiGHS and SciPy; exit code 1 where anything is wrong or refused."""
    from pear.compile.thread_pools import thread_count as core_count
    from pear_lab.stress.examine_milp import examine_milp_numbers

    writable_output_folder(to)
    numbers = list(range(first, first + count))
    with _counting_progress_bar(count) as show:
        found = examine_milp_numbers(numbers, seed, workers or core_count(), to, resume, show)
    shown = milp_table(found)
    print_table(shown)
    (to / "table.md").write_text(shown.markdown(), encoding="utf-8")
    if found.interrupted:
        err.print(Text("Stopped; --resume goes on.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    bad = [
        f"program {one.number} of seed {seed} ({one.family}): {one.wrong or f'{one.ours}, but both others solve it'}"
        for one in found.bad
    ]
    _exit_by_stress_result("\n".join(["Wrong or refused:", *bad]) if bad else "", "Nothing is wrong or refused.")


def milp_table(found: ExaminedMilp) -> TextTable:
    """Make the table of a run on integer programs: the counts of every family, and of all."""
    counts = found.counts()
    rows = [(family, *numbers.values()) for family, numbers in counts]
    return TextTable("Random integer programs beside HiGHS and SciPy", ("family", *counts[0][1]), rows)


@app.command("kill")
def kill(
    times: Annotated[int, typer.Option(help="Number of kills.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Seed that decides which process is killed, and when.", min=0)] = 0,
    engine: Annotated[str, typer.Option(help="The engine of the sweep: local or ray.")] = "local",
) -> None:
    """Kill a small sweep again and again, resume it, and compare its rows; exit code 1 where anything differs."""
    from pear_lab.stress.kill_sweep import kill_and_compare  # only this command needs it

    with _stress_progress_bar() as bar:
        task = bar.add_task("kills", total=times)
        found = kill_and_compare(times, seed, lambda now: bar.update(task, completed=sum(now.kills.values())), engine)
    print_table(kill_table(found))
    failure = f"{found.bad} things differ. {'; '.join(found.examples[:5])}" if found.bad else ""
    _exit_by_stress_result(failure, "Nothing is lost, nothing is repeated, nothing is wrong.")


def kill_table(found: KillCounts) -> TextTable:
    """Make the table of a killed sweep: the number of kills of each kind, and the rows that were lost or wrong."""
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
def soak(
    steps: Annotated[int, typer.Option(help="Number of training steps, over all structures.", min=1)] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of problems, samples and order.", min=0)] = 0,
) -> None:
    """Train for a long time through degenerate points; exit code 1 if memory or steps grow, or an answer is wrong."""
    from pear_lab.stress.soak import soak_all  # only this command needs it

    with _stress_progress_bar(TimeRemainingColumn()) as bar:
        task = bar.add_task("steps", total=steps)
        found = soak_all(steps, seed, lambda name, done: bar.update(task, advance=done, description=name))
    print_table(soak_table(found))
    missed = [why for one in found for why in one.missed()]
    failure = f"Goals missed: {'; '.join(missed[:5])}." if missed else ""
    _exit_by_stress_result(failure, "Memory is flat, steps take as long as at first, and no answer is wrong.")


def soak_table(found: list[SoakResult]) -> TextTable:
    """Make the table of a soak run: one row for each structure."""

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
