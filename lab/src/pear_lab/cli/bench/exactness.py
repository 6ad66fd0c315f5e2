"""``pear bench exactness``: how far off decisions and gradients are."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pear.cli.console import err, out
from pear.cli.options import words
from pear.cli.output import writable_file, write_json
from pear.train.threads import one_thread

if TYPE_CHECKING:
    from pear_lab.benchmarks.exactness import ExactnessRow


def exactness(
    solvers: Annotated[
        str | None,
        typer.Option(help="Names that `pear solvers` lists, separated by commas; all installed ones if left out."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the problems.")] = False,
    seed: Annotated[int, typer.Option(help="Of the random problems.")] = 0,
    to: Annotated[Path | None, typer.Option("--out", help="Write the numbers to this JSON file, too.")] = None,
) -> None:
    """Compare decisions and gradients with independent references; exit code 1 where a goal is missed."""
    from pear_lab.benchmarks import exactness as benchmark  # only this command needs it

    if to is not None:
        writable_file(to)
    names = None if solvers is None else words(solvers)
    with one_thread(), err.status("Solving …") as status:
        rows = benchmark.run(names, quick, seed, progress=lambda line: status.update(Text(line)))
    out.print(_table(rows, benchmark.GOALS))
    if to is not None:
        write_json(to, {"goals": benchmark.GOALS, "seed": seed, "quick": quick, "rows": [asdict(row) for row in rows]})
        out.print(Text(f"Numbers: {to}"), soft_wrap=True)
    missed = sum(not row.meets_goals for row in rows)
    if missed or not rows:
        err.print(Text(f"{missed} of {len(rows)} rows miss a goal." if rows else "Nothing was measured.", style="red"))
        raise typer.Exit(1)
    out.print(Text(f"All {len(rows)} rows meet their goals.", style="green"))


def _table(rows: list[ExactnessRow], goals: dict[str, float]) -> Table:
    title = "Exactness: the largest error over all problems of a family"
    table = Table(box=SIMPLE_HEAD, padding=0, title=title, title_justify="left")
    table.add_column("solver", no_wrap=True)
    table.add_column("family")
    table.add_column("prob-\nlems", justify="right", no_wrap=True)
    for name, heading in _HEADINGS.items():
        table.add_column(f"{heading}\n≤ {goals[name]:.0e}", justify="right", no_wrap=True)
    for heading in ("re-\npaired", "degen-\nerate", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        verdict = Text("good", style="green") if row.meets_goals else Text("missed", style="bold red")
        errors = [_error(getattr(row, name), goals[name]) for name in _HEADINGS]
        shares = (f"{row.repaired_share:.0%}", f"{row.degenerate_share:.0%}")
        table.add_row(row.solver, row.family, f"{row.problems:,}", *errors, *shares, verdict)
    return table


_HEADINGS = {"kkt_residual": "KKT\nresidual", "reference_error": "against\nreference", "fd_error": "finite\ndiffs"}


def _error(value: float, goal: float) -> Text:
    return Text(f"{value:.1e}", style="" if value <= goal else "bold red")
