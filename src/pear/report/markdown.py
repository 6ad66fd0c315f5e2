"""The tables as Markdown: two lines for each line of the paper, ours and what is printed."""

from __future__ import annotations

from collections.abc import Sequence

from pear.report import portfolio_text
from pear.report.bootstrap import DEFINITION as PAIRED
from pear.report.cells import Cell
from pear.report.compare import DEFINITION, Verdict
from pear.report.database import Runs
from pear.report.portfolio import market_sections
from pear.report.published import SEEDS
from pear.report.tables import Block, Table
from pear.report.text import CITATION, deviation_words, difference_words, failures, number, summary

_MARKS = {0: "{}", 1: "**{}**", 2: "<u>{}</u>"}


def markdown(runs: Runs, tables: Sequence[Table]) -> str:
    """All tables, as one document."""
    parts = ["# The LP experiments beside the paper", summary(runs, tables), DEFINITION, f"Published: {CITATION}"]
    for table in tables:
        layout = table.layout
        parts.append(f"## {layout.title}")
        parts.append(f"{layout.caption} {deviation_words(layout.ddof, layout.as_published)}")
        if all(cell.verdict is Verdict.NOT_RUN for cell in table.cells):
            parts.append("*This table has not been run; the published numbers follow.*")
        for block in table.blocks:
            parts += [f"### {block.title}", _table(block)]
        if table.differences:
            parts += ["### Paired differences to PEAR", PAIRED, _differences(table)]
    parts += portfolio_text.markdown(market_sections(runs))
    if runs.failed:
        rows = [f"| {_plain(what)} | {seeds} | {_plain(reason)} |" for what, seeds, reason in failures(runs)]
        parts += [
            f"## Failed runs ({len(runs.failed)})",
            "\n".join(["| Runs of | Seeds | Reason |", "|---|---|---|", *rows]),
        ]
    return "\n\n".join(parts) + "\n"


def _table(block: Block) -> str:
    lines = [_line([block.heading, "", *block.columns]), _line(["---"] * (2 + len(block.columns)))]
    for name, row in zip(block.rows, block.cells, strict=True):
        lines.append(_line([name, "ours", *(_ours(cell) for cell in row)]))
        lines.append(_line(["", "paper", *(_paper(cell) for cell in row)]))
    return "\n".join(lines)


def _differences(table: Table) -> str:
    lines = [_line(["Method", "", "Difference, points", "Interval", "Of"]), _line(["---"] * 5)]
    for difference in table.differences:
        estimate, interval, basis = difference_words(difference)
        shown = f"**{estimate}**" if difference.points.clear else estimate
        lines.append(_line([difference.row, difference.column, shown, interval, basis]))
    return "\n".join(lines)


def _line(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"


def _ours(cell: Cell) -> str:
    failed = f", {cell.failed} failed" if cell.failed else ""
    if cell.mean is None:
        return f"not run{failed}"
    shown = _MARKS[cell.place].format(number(cell.mean, cell.std, cell.published.decimals))
    seeds = () if len(cell.values) != SEEDS else (f"{SEEDS} seeds",)
    return f"{shown} *{cell.verdict.value}* ({', '.join((*seeds, *cell.notes))}{failed})"


def _paper(cell: Cell) -> str:
    printed = cell.published
    if printed.mean is None:
        return "–"
    return _MARKS[cell.published_place].format(number(printed.mean, printed.std, printed.decimals))


def _plain(text: str) -> str:
    """A text of any kind in one line of a table."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
