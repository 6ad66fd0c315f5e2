"""``pear report``: compares our runs with the paper's numbers, on an HTML page and in Markdown tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pear.cli.console import print_plain
from pear.cli.output_files import writable_output_folder
from pear_lab.experiments import FILE_NAME
from pear_lab.report import read, write_report

app = typer.Typer(add_completion=False)


@app.command("report")
def report(
    database: Annotated[Path, typer.Option("--db", help="The database of runs, or its folder.")] = Path(
        "pear-output/lp"
    ),
    to: Annotated[Path, typer.Option("--out", help="Folder for the page and the tables.")] = Path("pear-output/report"),
) -> None:
    """Compare the runs of a database with the paper's numbers: one HTML page, and the tables as Markdown."""
    runs = read(database / FILE_NAME if database.is_dir() or not database.suffix else database)
    page, tables, summary = write_report(runs, writable_output_folder(to))
    print_plain(f"{summary}\nPage:   {page}\nTables: {tables}")
