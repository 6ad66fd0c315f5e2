"""Writing the report: its sections, as one HTML page and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pear.errors import PearError
from pear.optional_packages import require_packages
from pear.pages.page import PageGrid, PageSection, render_page_template
from pear_lab.experiments.catalogue import METHODS, SEEDS, TASKS
from pear_lab.experiments.experiment_errors import DatabaseError
from pear_lab.experiments.run_record import RunRecord
from pear_lab.report.paired_comparison import comparison_section
from pear_lab.report.paper_tables import table_sections, time_cap_section
from pear_lab.report.portfolio_section import portfolio_sections
from pear_lab.report.published_numbers import DEFINITION, CellVerdict
from pear_lab.report.table_cells import StoredRuns

PAGE, TABLES = "report.html", "report.md"
"""The names of the two files."""

CITATION = (
    "Junhyeong Lee, Sangjin Jin, Yongjae Lee: Decision-Focused Learning via Tangent-Space Projection of Prediction "
    "Error, ICML 2026."
)
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)
"""The errors that invalid settings or metrics of a record may raise."""
_MAIN = (CellVerdict.WITHIN, CellVerdict.BETTER, CellVerdict.WORSE, CellVerdict.NOT_RUN)


class ReportFiles(NamedTuple):
    """The result of :func:`write_report`: the paths of page and Markdown tables, and a summary of the runs in words."""

    page: Path
    tables: Path
    summary: str


def write_report(runs: StoredRuns, folder: Path) -> ReportFiles:
    """Write the page, the Markdown tables, and the figures that have files of their own.

    Args:
        runs: runs of the database, from :func:`pear_lab.report.read`.
        folder: an existing folder that can be written to.

    Raises:
        DatabaseError: a row holds invalid settings or metrics; the message names the row if one alone is the cause.
        MissingExtraError: jinja2 or matplotlib, which write and draw the page, is not installed.
    """
    require_packages("the report", "jinja2", "matplotlib")
    try:
        texts, sections, words = _render_report(runs)
    except PearError:
        raise
    except _UNREADABLE as error:
        raise DatabaseError(
            f"{runs.path} cannot be shown: {_name_unreadable_run(runs)} ({repr(error)[:200]}); restore the database, "
            "or delete what is wrong and run pear reproduce again"
        ) from error
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for section in sections:
        if section.save is not None:
            section.save(folder / f"{section.name}.svg")
    return ReportFiles(folder / PAGE, folder / TABLES, words)


def _render_report(runs: StoredRuns) -> tuple[dict[str, str], list[PageSection], str]:
    """Return the texts of the report's files by name, the sections in them, and the summary."""
    compared = table_sections(runs)
    others = [section for section in (comparison_section(runs), time_cap_section(runs)) if section is not None]
    sections = [*compared, *portfolio_sections(runs), *others, _failed_runs_section(runs), machines_section(runs)]
    words = summarise_report(runs, compared)
    values: dict[str, Any] = {
        "title": "The LP experiments beside the paper",
        "summary": words,
        "definition": DEFINITION,
        "citation": CITATION,
        "footer": f"Published numbers: {CITATION}",
        "seeds": len(SEEDS),
        "runs": runs,
        "compared": compared,
        "sections": sections,
        "counts": count_report_verdicts,
        "verdicts": [
            verdict for verdict in CellVerdict if verdict in _MAIN or count_report_verdicts(compared)[verdict]
        ],
    }
    return {name: render_page_template(name, values, "pear_lab.report") for name in (PAGE, TABLES)}, sections, words


def _name_unreadable_run(runs: StoredRuns) -> str:
    """Return a phrase that names a row which makes the report fail on its own, or says that no single row does.

    The row is found by halving the rows.
    """
    suspects = [*runs.done, *runs.failed]
    while len(suspects) > 1:
        halves = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
        suspects = next((half for half in halves if not _report_can_be_rendered(half, runs)), [])
    if not suspects:
        return "its rows do not fit together"
    return f"the settings or metrics of the row with the key {suspects[0].key[:80]!r} are not those of a run"


def _report_can_be_rendered(rows: Sequence[RunRecord], runs: StoredRuns) -> bool:
    """Return whether a report of these runs alone can be rendered."""
    done, failed = ([row for row in rows if (row.status == "done") is which] for which in (True, False))
    try:
        _render_report(StoredRuns(runs.path, tuple(done), tuple(failed)))
    except _UNREADABLE:
        return False
    return True


def report_section_markdown(section: PageSection) -> str:
    """Return one section in Markdown, for documents that show a part of the report."""
    return render_page_template("section.md", {"section": section, "seeds": len(SEEDS)}, "pear_lab.report").strip()


def count_report_verdicts(sections: Sequence[PageSection]) -> Counter[CellVerdict]:
    """Return the number of cells with each verdict.

    Cells that the paper does not have are not counted. Times are not counted either, because they were measured on
    different machines.
    """
    cells = (cell for section in sections for cell in section.cells)
    return Counter(
        cell.verdict for cell in cells if cell.published.mean is not None and cell.published.metric != "train_seconds"
    )


def summarise_report(runs: StoredRuns, compared: Sequence[PageSection]) -> str:
    """Return two sentences: how many runs there are, and how our cells compare with the published ones."""
    found = count_report_verdicts(compared)
    words = ", ".join(
        f"{found[verdict]} {verdict.value}" for verdict in CellVerdict if found[verdict] or verdict in _MAIN
    )
    return (
        f"{len(runs.done):,} finished and {len(runs.failed):,} failed runs in {runs.path.name}. "
        f"Of the {found.total()} published cells, times not counted: {words}."
    )


def _failed_runs_section(runs: StoredRuns) -> PageSection:
    """Return the section of failed runs. Runs with the same settings and reason share a line."""
    if not runs.failed:
        return PageSection("failed", "Failed runs", ("None.",))
    found: dict[tuple[str, str], list[int]] = {}
    for run in runs.failed:
        found.setdefault((_describe_failed_run(run), run.reason or "no reason was given"), []).append(run.seed)
    rows = tuple((what, ", ".join(map(str, sorted(seeds))), reason) for (what, reason), seeds in found.items())
    grid = PageGrid("By settings and reason", ("Runs of", "Seeds", "Reason"), rows)
    return PageSection("failed", f"Failed runs ({len(runs.failed)})", grids=(grid,))


def _describe_failed_run(run: RunRecord) -> str:
    """Return task, method and settings of a failed run in words."""
    names = {"degree": "degree", "noise": "noise", "smoothing": "λ", "injection": "β", "variant": "variant"}
    names |= {"version": "budget by", "capacity": "capacity", "fold": "fold"}
    settings = [f"{word} {run.settings[name]}" for name, word in names.items() if run.settings.get(name) is not None]
    task = TASKS[run.task].title if run.task in TASKS else run.task
    methods = TASKS[run.task].methods if run.task in TASKS else METHODS
    return ", ".join([task, methods.get(run.method, run.method), *settings])


def machines_section(runs: StoredRuns) -> PageSection:
    """Return the section on the machines that made the runs, and on their package versions."""
    every = (*runs.done, *runs.failed)
    found = Counter(
        (run.machine or "unknown machine", ", ".join(f"{name} {v}" for name, v in sorted(run.versions.items())))
        for run in every
    )
    dates = sorted(run.created[:10] for run in every if run.created)
    rows = tuple((machine, versions, f"{count:,}") for (machine, versions), count in found.most_common())
    grid = PageGrid("Runs by machine", ("Machine", "Versions", "Runs"), rows)
    return PageSection(
        "machines", "Machines and versions", (f"Runs of {dates[0]} to {dates[-1]}.",) if dates else (), (grid,)
    )
