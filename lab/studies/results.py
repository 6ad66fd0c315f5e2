"""The tables of README.md, docs/index.md, docs/results.md, docs/reproduction.md and docs/portfolio.md, and a figure.

    pear reproduce --merge FOLDER --merge FOLDER --out docs/results              # comparisons: results.sqlite
    pear reproduce --merge FOLDER --out docs/results/published                   # seeds 0 to 4, the paper's tables
    pear reproduce --merge FOLDER --merge FOLDER --out docs/results/portfolio    # seeds 0 to 4, its portfolios
    python lab/studies/results.py

The first three commands make databases, from which the last command writes the tables. A test compares the tables with
the databases, so that no number in them is written by hand.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

from pear.pages.page import PageGrid, PageSection
from pear_lab.experiments import FILE_NAME
from pear_lab.experiments.catalogue import OURS, REFERENCE, TASKS
from pear_lab.report import read
from pear_lab.report.paired_comparison import comparison_lines, comparison_section
from pear_lab.report.paper_tables import table_sections, time_cap_section
from pear_lab.report.portfolio_section import METHODS, portfolio_sections
from pear_lab.report.published_numbers import DEFINITION
from pear_lab.report.report_files import machines_section, report_section_markdown
from pear_lab.report.report_files import summarise_report as state
from pear_lab.report.table_cells import StoredRuns

ROOT = Path(__file__).resolve().parents[2]
FRONTS = ROOT / "README.md", ROOT / "docs" / "index.md"
PAGE, FOLDER = ROOT / "docs" / "results.md", ROOT / "docs" / "results"
REPRODUCTION, PUBLISHED = ROOT / "docs" / "reproduction.md", FOLDER / "published" / FILE_NAME
PORTFOLIO, MARKETS = ROOT / "docs" / "portfolio.md", FOLDER / "portfolio" / FILE_NAME
SHOWN = {"degree 2": "degree 2", "degree 8": "degree 8", "noise 0.5": "degree 8 with noise"}
CAPPED = [("knapsack", method) for method in ("spo+", "pfyl", "dbb")]
SHORT = {"spo+relaxed": "spo+"}
BEGIN, END = "<!-- from the database: begin -->", "<!-- from the database: end -->"


def generated(database: Path = FOLDER / FILE_NAME, figure: Path | None = None) -> str:
    """Return the tables of the page on results, as the text between its marks.

    Args:
        database: the file of the runs.
        figure: the file to which the figure is saved; None saves none.

    Raises:
        SystemExit: the database holds no comparison.
    """
    runs = read(database)
    section = comparison_section(runs)
    if section is None:
        raise SystemExit(f"{database} holds no cell in which every method of a comparison has run on two seeds")
    if figure is not None and section.save is not None:
        section.save(figure)
    return "\n\n".join(map(report_section_markdown, (section, machines_section(runs))))


def summary(database: Path = FOLDER / FILE_NAME) -> str:
    """Return the table of README.md and docs/index.md: mean test regrets in percent of four methods, by task."""
    lines = ["| | MSE | SPO+ | PEAR as published | PEAR, our defaults |", "|---|---:|---:|---:|---:|"]
    for task, found in comparison_lines(read(database)).items():
        for line in found:
            if line.label in SHOWN or task not in ("shortest_path", "knapsack"):
                means = {SHORT.get(method, method): mean for method, mean in line.means.items()}
                best = min(means.values())
                cells = [
                    "" if mean is None else f"**{mean:.2f}**" if mean == best else f"{mean:.2f}"
                    for mean in (means.get(method) for method in ("mse", "spo+", REFERENCE, OURS))
                ]
                name = f"{TASKS[task].title}, {SHOWN.get(line.label, line.label)}"
                lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def reproduction(database: Path = PUBLISHED) -> str:
    """Return the tables of PEAR's paper beside ours, with a verdict for every cell.

    A table without runs is left out.
    """
    runs = read(database)
    compared = table_sections(runs)
    shown = [section for section in compared if any(cell.values for cell in section.cells)]
    caps = time_cap_section(runs)
    shown += [section for section in (caps, times(runs), machines_section(runs)) if section is not None]
    return "\n\n".join([state(runs, compared), DEFINITION, *map(report_section_markdown, shown)])


def times(runs: StoredRuns) -> PageSection:
    """Return the section on the time of the runs by task, method and time cap.

    A sentence gives the total without building, and without the tasks and methods in ``CAPPED``.
    """
    spent: dict[tuple[str, str, float], list[float]] = {}
    for run in (*runs.done, *runs.failed):
        seconds = spent.setdefault((run.task, run.method, run.settings["time_cap"]), [])
        seconds.append(sum(run.timings.get(name, 0.0) for name in ("total", "test")))
    rows = [
        (TASKS[task].title, TASKS[task].methods[method], f"{cap:g}", str(len(found)), f"{sum(found) / 60:.0f}")
        for (task, method, cap), found in sorted(spent.items())
    ]
    light = [found for (task, method, _), found in spent.items() if task != "building" and (task, method) not in CAPPED]
    count, minutes = sum(map(len, light)), sum(map(sum, light)) / 60
    words = (
        f"Minutes of one core, training and test. All tables of paths and knapsacks without SPO+, PFYL and DBB on "
        f"knapsacks, which solve integer programs: {count:,} runs, {minutes:.0f} minutes, {minutes / 2:.0f} with two "
        "cores at work."
    )
    header = ("Task", "Method", "Time cap, s", "Runs", "Minutes")
    return PageSection("times", "What the runs took", (words,), (PageGrid("By task and method", header, tuple(rows)),))


def portfolio(database: Path = MARKETS) -> str:
    """Return the portfolio tables of PEAR's paper beside ours.

    The table of paired differences keeps only the rows that compare exact PEAR with another method.

    Raises:
        SystemExit: the database holds runs of no market, or of more than one market or setting.
    """
    runs = read(database)
    found = portfolio_sections(runs)
    if len(found) != 1:
        raise SystemExit(
            f"{database} must hold the portfolios of one set of prices and settings; it holds {len(found)}"
        )
    ours = METHODS["pear-exact"]
    grids = [
        replace(grid, title=f"{grid.title}: {ours}", rows=tuple(row for row in grid.rows if ours in row[0]))
        if grid.title.startswith("Differences")
        else grid
        for grid in found[0].grids
        if grid.rows
    ]
    section = replace(found[0], sentences=found[0].sentences[:1], grids=tuple(grids))
    return "\n\n".join(map(report_section_markdown, (section, machines_section(runs))))


def updated(page: str, text: str) -> str:
    """Return the page with a new text between the marks."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}"


def single_file(database: Path = FOLDER / FILE_NAME) -> None:
    """Turn off the write-ahead log of a database, so that programs that read it create no files beside it."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def main() -> None:
    """Write all tables, and the figure."""
    for database in (FOLDER / FILE_NAME, PUBLISHED, MARKETS):
        single_file(database)
    texts = {PAGE: generated(figure=FOLDER / "comparison.svg"), REPRODUCTION: reproduction(), PORTFOLIO: portfolio()}
    for page, text in {**texts, **dict.fromkeys(FRONTS, summary())}.items():
        page.write_text(updated(page.read_text("utf-8"), text), encoding="utf-8")
        print(f"wrote the tables of {page}")
    print(f"drew {FOLDER / 'comparison.svg'}")


if __name__ == "__main__":
    main()
