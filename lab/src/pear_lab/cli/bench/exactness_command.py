"""``pear bench exactness``: how far off decisions and gradients are."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from pear.cli.comma_lists import split_at_commas
from pear.cli.console import err, out
from pear.cli.output_files import writable_file, write_json
from pear_lab.cli.terminal import print_table


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
    from pear.train.one_thread import one_thread  # imports torch, as the next line does
    from pear_lab.benchmarks import exactness_benchmark as benchmark

    if to is not None:
        writable_file(to)
    names = None if solvers is None else split_at_commas(solvers)
    with one_thread(), err.status("Solving …") as status:
        rows = benchmark.run(names, quick, seed, progress=lambda line: status.update(Text(line)))
    for table in benchmark.tables(rows):
        print_table(table)
    if to is not None:
        write_json(to, {"goals": benchmark.GOALS, "seed": seed, "quick": quick, "rows": [asdict(row) for row in rows]})
        out.print(Text(f"Numbers: {to}"), soft_wrap=True)
    missed = sum(not row.meets_goals for row in rows)
    if missed or not rows:
        err.print(Text(f"{missed} of {len(rows)} rows miss a goal." if rows else "Nothing was measured.", style="red"))
        raise typer.Exit(1)
    out.print(Text(f"All {len(rows)} rows meet their goals.", style="green"))
