"""The page: one HTML file with its style and pictures inside, and nothing to fetch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from pear.report import portfolio_text
from pear.report.bootstrap import DEFINITION as PAIRED
from pear.report.cells import Cell
from pear.report.compare import DEFINITION, Verdict
from pear.report.database import Runs
from pear.report.figures import METHOD_COLORS, PARTS, with_own_ids
from pear.report.pictures import Picture
from pear.report.portfolio import market_sections
from pear.report.published import SEEDS
from pear.report.tables import METHODS, Block, Table
from pear.report.text import CITATION, counts, deviation_words, difference_words, failures, number, summary

_CLASS = {Verdict.WITHIN: "within", Verdict.BETTER: "better", Verdict.WORSE: "worse"}
_MARKS = {0: "{}", 1: "<b>{}</b>", 2: "<u>{}</u>"}
_MAIN = (Verdict.WITHIN, Verdict.BETTER, Verdict.WORSE, Verdict.NOT_RUN)
_TITLE = "The LP experiments beside the paper"


def page(runs: Runs, tables: Sequence[Table], pictures: Sequence[Picture]) -> str:
    """The whole page."""
    style = files("pear.report").joinpath("style.css").read_text("utf-8")
    drawn = [_figure(picture, f"p{place}") for place, picture in enumerate(pictures)]
    sections = [
        _section(
            table, [html for html, picture in zip(drawn, pictures, strict=True) if picture.table == table.layout.name]
        )
        for table in tables
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>PEAR: {_TITLE}</title>",
            # An icon of its own: without one, browsers ask the server for it.
            '<link rel="icon" href="data:,">',
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<h1>{_TITLE}</h1>",
            f'<p class="muted">{escape(summary(runs, tables))}</p>',
            _tiles(runs, tables),
            _overview(tables),
            *sections,
            *portfolio_text.html(market_sections(runs)),
            _failed(runs),
            _machines(runs),
            f"<footer>Published numbers: {escape(CITATION)}</footer>",
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _tiles(runs: Runs, tables: Sequence[Table]) -> str:
    found = counts(tables)
    tiles = [("", len(runs.done), "runs finished"), ("worse" if runs.failed else "", len(runs.failed), "runs failed")]
    tiles += [(_CLASS.get(verdict, ""), found[verdict], f"cells {verdict.value}") for verdict in _MAIN]
    if found[Verdict.REDUCED]:
        tiles.append(("", found[Verdict.REDUCED], f"cells {Verdict.REDUCED.value}"))
    inner = "\n".join(
        f'<div class="tile {kind}"><b>{n:,}</b><span>{escape(word)}</span></div>' for kind, n, word in tiles
    )
    return f'<div class="tiles">\n{inner}\n</div>'


def _overview(tables: Sequence[Table]) -> str:
    verdicts = [v for v in Verdict if v in _MAIN or counts(tables)[v]]
    heads = "".join(f'<th class="num" scope="col">{escape(v.value)}</th>' for v in verdicts)
    lines = []
    for table in tables:
        found = counts([table])
        link = f'<a href="#{table.layout.name}">{escape(table.layout.title)}</a>'
        numbers = "".join(f'<td class="num">{found[v] or "–"}</td>' for v in verdicts)
        lines.append(f'<tr><th scope="row">{link}</th>{numbers}</tr>')
    return (
        '<section id="overview"><h2>All tables</h2>\n<div class="scroll"><table class="overview">'
        f'<thead><tr><th scope="col">Table</th>{heads}</tr></thead>\n<tbody>{"".join(lines)}</tbody></table></div>\n'
        f'<h3>How a verdict is reached</h3><p class="muted">{escape(DEFINITION)}</p>\n'
        '<p class="muted">In each column the best is <b>bold</b> and the second best <u>underlined</u>, among ours and '
        f"among the paper's. Published cells are over {SEEDS} seeds; n is the number of ours. "
        "Training times are not counted here: they are of different machines.</p></section>"
    )


def _section(table: Table, drawn: Sequence[str]) -> str:
    layout = table.layout
    parts = [
        f'<section id="{layout.name}"><h2>{escape(layout.title)}</h2>',
        f'<p class="muted">{escape(layout.caption)} {escape(deviation_words(layout.ddof, layout.as_published))}</p>',
    ]
    if all(cell.verdict is Verdict.NOT_RUN for cell in table.cells):
        parts.append('<p class="none"><span class="chip">not run</span> This table has not been run.</p>')
    parts += [_block(block) for block in table.blocks]
    if table.differences:
        parts.append(_differences(table))
    if drawn:
        parts.append(f'<div class="figures">{"".join(drawn)}</div>')
    return "\n".join([*parts, "</section>"])


def _block(block: Block) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in (block.heading, *block.columns))
    lines = [
        f'<tr><th scope="row">{escape(name)}</th>{"".join(_cell(cell) for cell in row)}</tr>'
        for name, row in zip(block.rows, block.cells, strict=True)
    ]
    body = "\n".join(lines)
    return (
        f'<h3>{escape(block.title)}</h3>\n<div class="scroll"><table><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _differences(table: Table) -> str:
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("Method", "", "Difference, points", "Interval", "Of"))
    lines = []
    for difference in table.differences:
        estimate, interval, basis = (escape(word) for word in difference_words(difference))
        shown = f"<b>{estimate}</b>" if difference.points.clear else estimate
        cells = "".join(f"<td>{word}</td>" for word in (escape(difference.column), shown, interval, basis))
        lines.append(f'<tr><th scope="row">{escape(difference.row)}</th>{cells}</tr>')
    body = "\n".join(lines)
    return (
        f'<h3>Paired differences to PEAR</h3>\n<p class="muted">{escape(PAIRED)}</p>\n<div class="scroll"><table>'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    printed = cell.published
    ours = "–" if cell.mean is None else number(cell.mean, cell.std, printed.decimals)
    paper = "–" if printed.mean is None else number(printed.mean, printed.std, printed.decimals)
    seeds = f'<span class="seeds">n = {len(cell.values)}</span>' if cell.values else ""
    notes = [*cell.notes, *([f"{cell.failed} failed"] if cell.failed else [])]
    return (
        f'<td class="cell {_CLASS.get(cell.verdict, "none")}">'
        f'<span class="ours">{_MARKS[cell.place].format(escape(ours))}</span>'
        f'<span class="paper">paper {_MARKS[cell.published_place].format(escape(paper))}</span>'
        f'<span class="state"><span class="chip">{escape(cell.verdict.value)}</span>{seeds}</span>'
        + "".join(f'<span class="note">{escape(note)}</span>' for note in notes)
        + "</td>"
    )


def _figure(picture: Picture, prefix: str) -> str:
    head = f"<figure><h4>{escape(picture.title)}</h4>"
    if not picture.svg:
        return f'{head}<div class="empty">{Verdict.NOT_RUN.value}</div></figure>'
    keys = {METHODS.get(name, name): METHOD_COLORS.get(name, "--ink") for name in picture.methods}
    if picture.parts:
        keys = {part: f"--{part}" for part in PARTS}
    marks = "".join(f'<li><i style="background:var({color})"></i>{escape(name)}</li>' for name, color in keys.items())
    legend = f'<ul class="legend">{marks}</ul>' if marks else ""
    label = f'<svg role="img" aria-label="{escape(picture.title)}"'
    svg = with_own_ids(picture.svg, prefix).replace("<svg", label, 1)
    return f"{head}{legend}{svg}<figcaption>{escape(picture.caption)}</figcaption></figure>"


def _failed(runs: Runs) -> str:
    if not runs.failed:
        return '<section id="failed"><h2>Failed runs</h2><p class="muted">None.</p></section>'
    lines = "\n".join(
        f'<tr><td>{escape(what)}</td><td>{escape(seeds)}</td><td class="reason">{escape(reason)}</td></tr>'
        for what, seeds, reason in failures(runs)
    )
    return (
        f'<section id="failed"><h2>Failed runs ({len(runs.failed)})</h2>\n<div class="scroll"><table><thead><tr>'
        '<th scope="col">Runs of</th><th scope="col">Seeds</th><th scope="col">Reason</th></tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div></section>"
    )


def _machines(runs: Runs) -> str:
    """Where and with what the runs were made."""
    every = (*runs.done, *runs.failed)
    found = Counter(
        (
            run.machine or "unknown machine",
            ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items())),
        )
        for run in every
    )
    dates = sorted(run.created[:10] for run in every if run.created)
    when = f"<p class='muted'>Runs of {escape(dates[0])} to {escape(dates[-1])}.</p>" if dates else ""
    lines = "".join(
        f"<tr><td>{escape(machine)}</td><td>{escape(versions)}</td><td class='num'>{count:,}</td></tr>"
        for (machine, versions), count in found.most_common()
    )
    return (
        f'<section id="machines"><h2>Machines and versions</h2>{when}<div class="scroll"><table><thead><tr>'
        '<th scope="col">Machine</th><th scope="col">Versions</th><th class="num" scope="col">Runs</th></tr></thead>'
        f"<tbody>{lines}</tbody></table></div></section>"
    )
