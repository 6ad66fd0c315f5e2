"""``pear stress``: awkward problems under an independent judge, sweeps that are killed, and long training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from pear.cli.console import err, out
from pear.cli.options import words
from pear.cli.output import writable_folder, write_json
from pear.compile.threads import count as core_count
from pear_lab.benchmarks.table import Table
from pear_lab.cli.bench.session import INTERRUPTED, rich_table

if TYPE_CHECKING:
    from pear_lab.stress.kill import Verdict
    from pear_lab.stress.runner import Run, Tally
    from pear_lab.stress.soak import Soaked

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Try to break this installation.")


@app.callback()
def _group() -> None:
    pass


@app.command("fuzz")
def fuzz(
    count: Annotated[int, typer.Option(help="Number of problems.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the random problems.", min=0)] = 0,
    families: Annotated[str | None, typer.Option(help="Names, separated by commas; all if left out.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes.", show_default="one for each core", min=1)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last run was stopped.")] = False,
    to: Annotated[Path, typer.Option("--out", help="Folder for counterexamples and numbers.")] = Path(
        "pear-output/stress/fuzz"
    ),
) -> None:
    """Solve random problems and judge every answer independently; exit code 1 where a goal is missed."""
    from pear_lab.stress import runner  # only this command needs it

    writable_folder(to)
    names = None if families is None else words(families)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=err) as bar:
        task, wrong = bar.add_task("0 wrong", total=count), 0

        def show(tally: Tally) -> None:
            nonlocal wrong
            wrong += tally.wrong
            bar.update(task, advance=tally.tried, description=f"{wrong} wrong")

        found = runner.run(count, seed, names, workers or core_count(), to, resume, show)
    _report(found, to, {"count": count, "seed": seed})


@app.command("kill")
def kill(
    times: Annotated[int, typer.Option(help="Number of kills.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Of who is killed and when.", min=0)] = 0,
    engine: Annotated[str, typer.Option(help="What runs the sweep: local or ray.")] = "local",
) -> None:
    """Kill a small sweep again and again, resume it, and compare its rows; exit code 1 where anything differs."""
    from pear_lab.stress.kill import kill_and_compare  # only this command needs it

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("kills", total=times)
        found = kill_and_compare(times, seed, lambda now: bar.update(task, completed=sum(now.kills.values())), engine)
    shown = kill_table(found)
    out.print(Text(f"\n{shown.title}", style="bold"))
    out.print(rich_table(shown))
    if found.bad:
        err.print(Text(f"{found.bad} things differ. {'; '.join(found.examples[:5])}", style="red"), soft_wrap=True)
        raise typer.Exit(1)
    out.print(Text("Nothing is lost, nothing is repeated, nothing is wrong.", style="green"))


def kill_table(found: Verdict) -> Table:
    """What was killed how often, and what came of it."""
    kills = [(f"kills of {who}, {when}", count) for (who, when), count in sorted(found.kills.items())]
    rows = [
        ("kills", sum(found.kills.values())),
        *kills,
        ("commands started", found.commands),
        ("sweeps that came to their end", found.sweeps),
        ("rows compared with an undisturbed sweep", found.rows),
        ("lost", found.lost),
        ("repeated", found.repeated),
        ("wrong", found.wrong),
        ("workers that outlived their driver", found.orphans),
    ]
    return Table("A sweep that is killed", ("", "number"), [(what, f"{count:,}") for what, count in rows])


@app.command("soak")
def soak(
    steps: Annotated[int, typer.Option(help="Number of training steps, over all structures.", min=1)] = 20_000,
    seed: Annotated[int, typer.Option(help="Of problems, samples and order.", min=0)] = 0,
) -> None:
    """Train for long through degenerate points; exit code 1 where memory or steps grow, or an answer is wrong."""
    from pear_lab.stress.soak import soak_all  # only this command needs it

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=err) as bar:
        task = bar.add_task("steps", total=steps)
        found = soak_all(steps, seed, lambda name, done: bar.update(task, advance=done, description=name))
    shown = soak_table(found)
    out.print(Text(f"\n{shown.title}", style="bold"))
    out.print(rich_table(shown))
    missed = [why for one in found for why in one.missed()]
    if missed:
        err.print(Text(f"Goals missed: {'; '.join(missed[:5])}.", style="red"), soft_wrap=True)
        raise typer.Exit(1)
    out.print(Text("Memory is flat, steps take as long as at first, and no answer is wrong.", style="green"))


def soak_table(found: list[Soaked]) -> Table:
    """One row for each structure."""
    headings = (
        "structure",
        "statuses",
        "steps",
        "MiB after 10 %\n→ at the end",
        "ms a step at first → at last\n(by plain steps)",
        "judged",
    )
    rows: list[tuple[str, ...]] = []
    for one in found:
        statuses = ", ".join(f"{count:,} {name.lower()}" for name, count in one.statuses.most_common())
        memory = f"{one.early / 2**20:.1f} → {one.late / 2**20:.1f} ({one.growth:+.2%})"
        times = f"{1e3 * one.first:.2f} → {1e3 * one.last:.2f} (× {one.slowdown:.2f})"
        judged = f"{one.judged:,}, {one.gradients:,} gradients, {len(one.wrong):,} wrong"
        rows.append((one.structure, statuses, f"{one.steps:,}", memory, times, judged))
    return Table("Long training through degenerate points", headings, rows, left=2)


def _report(found: Run, to: Path, settings: dict[str, int]) -> None:
    shown = table(found)
    out.print(Text(f"\n{shown.title}", style="bold"))
    out.print(rich_table(shown))
    missed = found.missed()
    rows = [vars(tally) for tally in found.tallies.values()]
    write_json(to / "results.json", {**settings, "interrupted": found.interrupted, "missed": missed, "rows": rows})
    (to / "table.md").write_text(shown.markdown(), encoding="utf-8")
    if found.files:
        out.print(Text(f"{len(found.files)} counterexamples: {to}"), soft_wrap=True)
    if found.interrupted:
        err.print(Text("Stopped; --resume goes on.", style="yellow"))
        raise typer.Exit(INTERRUPTED)
    if missed:
        err.print(Text(f"Goals missed: {'; '.join(missed)}.", style="red"), soft_wrap=True)
        raise typer.Exit(1)
    out.print(Text("Every goal is met.", style="green"))


def table(found: Run) -> Table:
    """One row for each family, and one for all."""
    headings = (
        "family",
        "tried",
        "right",
        "refused rightly",
        "inaccurate",
        "wrong",
        "edge",
        "gradients",
        "slowest / median",
    )
    rows = []
    for one in (*found.tallies.values(), found.total()):
        counts = (one.tried, one.right, one.refused, one.inaccurate, one.wrong, one.edge, one.gradients)
        rows.append((one.family, *(f"{count:,}" for count in counts), f"{one.slowest:.1f}"))
    return Table("Verdicts of the independent judge", headings, rows)
