"""The tables of ``docs/results.md`` with their figure, of ``docs/reproduction.md`` and of both front pages.

    pear reproduce --merge FOLDER --merge FOLDER --out docs/results              # comparisons: results.sqlite
    pear reproduce --merge FOLDER --out docs/results/published                   # seeds 0 to 4, the paper's tables
    python tools/results.py

A test compares them with the databases, so that no number in them is written by hand.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from pear.experiments import FILE_NAME
from pear.experiments.catalogue import OURS, REFERENCE, TASKS
from pear.report import read
from pear.report.caps import caps_section
from pear.report.compare import DEFINITION
from pear.report.comparison import comparison_lines, comparison_section
from pear.report.tables import table_sections
from pear.report.write import machines_section, section_markdown
from pear.report.write import summary as state

ROOT = Path(__file__).resolve().parents[1]
FRONTS = ROOT / "README.md", ROOT / "docs" / "index.md"
PAGE, FOLDER = ROOT / "docs" / "results.md", ROOT / "docs" / "results"
REPRODUCTION, PUBLISHED = ROOT / "docs" / "reproduction.md", FOLDER / "published" / FILE_NAME
SHOWN = {"degree 2": "degree 2", "degree 8": "degree 8", "noise 0.5": "degree 8 with noise"}
SHORT = {"spo+relaxed": "spo+"}
BEGIN, END = "<!-- from the database: begin -->", "<!-- from the database: end -->"


def generated(database: Path = FOLDER / FILE_NAME, figure: Path | None = None) -> str:
    """What stands between the marks of the page.

    Args:
        database: the runs.
        figure: where the figure is saved; nowhere if left out.

    Raises:
        SystemExit: the database holds no comparison.
    """
    runs = read(database)
    section = comparison_section(runs)
    if section is None:
        raise SystemExit(f"{database} holds no cell in which every method of a comparison has run on two seeds")
    if figure is not None and section.save is not None:
        section.save(figure)
    return "\n\n".join(map(section_markdown, (section, machines_section(runs))))


def summary(database: Path = FOLDER / FILE_NAME) -> str:
    """The table of both front pages: mean test regret in % where costs are nearly linear, far from it, and noisy."""
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
    """The paper's tables beside ours, with a verdict for every cell; tables without a run are left out."""
    runs = read(database)
    compared = table_sections(runs)
    shown = [section for section in compared if any(cell.values for cell in section.cells)]
    caps = caps_section(runs)
    shown += [section for section in (caps, machines_section(runs)) if section is not None]
    return "\n\n".join([state(runs, compared), DEFINITION, *map(section_markdown, shown)])


def updated(page: str, text: str) -> str:
    """The page with another text between the marks."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}"


def single_file(database: Path = FOLDER / FILE_NAME) -> None:
    """Without a write-ahead log, so that whoever reads the file leaves nothing beside it."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


if __name__ == "__main__":
    single_file()
    single_file(PUBLISHED)
    found = generated(figure=FOLDER / "comparison.svg")
    PAGE.write_text(updated(PAGE.read_text("utf-8"), found), encoding="utf-8")
    REPRODUCTION.write_text(updated(REPRODUCTION.read_text("utf-8"), reproduction()), encoding="utf-8")
    for front in FRONTS:
        front.write_text(updated(front.read_text("utf-8"), summary()), encoding="utf-8")
    print(
        f"wrote the tables of {PAGE}, {REPRODUCTION}, {' and '.join(map(str, FRONTS))}, and {FOLDER / 'comparison.svg'}"
    )
