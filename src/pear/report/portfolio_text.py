"""The portfolio sections as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pear.report.portfolio import COLORS, Grid, Lines, MarketSection
from pear.tasks.market import METHODS

_VARIABLES = {METHODS.get(name, name): variable for name, variable in COLORS.items()}


def html(sections: Sequence[MarketSection]) -> list[str]:
    """One ``<section>`` each."""
    return [_html(section) for section in sections]


def markdown(sections: Sequence[MarketSection]) -> list[str]:
    """Headings, sentences and tables, as blocks of a document."""
    blocks = []
    for section in sections:
        blocks += [f"## {section.title}", *section.sentences]
        for grid in section.grids:
            blocks += [f"### {grid.title}", grid.caption, _table(grid)]
        if section.lines is not None:
            blocks += ["### Drawdowns of the market", _falls(section.lines)]
    return blocks


def _html(section: MarketSection) -> str:
    parts = [f'<section id="{section.name}"><h2>{escape(section.title)}</h2>']
    parts += [f'<p class="muted">{escape(sentence)}</p>' for sentence in section.sentences]
    for grid in section.grids:
        head = "".join(f'<th scope="col">{escape(word)}</th>' for word in grid.header)
        lines = "\n".join(f"<tr>{''.join(f'<td>{escape(word)}</td>' for word in row)}</tr>" for row in grid.rows)
        parts += [
            f'<h3>{escape(grid.title)}</h3><p class="muted">{escape(grid.caption)}</p>',
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table></div>',
        ]
    if section.lines is not None:
        parts.append(_figure(section.lines, section.name))
    return "\n".join([*parts, "</section>"])


def _figure(lines: Lines, name: str) -> str:
    from pear.report import figures  # needs matplotlib, which the Markdown does without

    shaded = [(fall.peak + 1, fall.end + 1) for fall in lines.falls]
    svg = figures.with_own_ids(figures.value_lines(lines.values, _VARIABLES, shaded), name)
    marks = "".join(
        f'<li><i style="background:var({_VARIABLES[word]})"></i>{escape(word)}</li>' for word in lines.values
    )
    title = "Value of one unit of money over the test"
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    return (
        f'<div class="figures"><figure><h4>{title}</h4><ul class="legend">{marks}</ul>{svg}'
        f"<figcaption>{escape(_falls(lines))}</figcaption></figure></div>"
    )


def _falls(lines: Lines) -> str:
    span = f"{lines.dates[0]} to {lines.dates[1]}, mean over the seeds, costs taken off."
    if not lines.falls:
        return f"{span} Equal weights never fell."
    # The value after day d stands at position d − 1.
    falls = "; ".join(
        f"days {fall.peak + 1} to {fall.end + 1}, {100 * fall.depth:.1f} % at day {fall.trough + 1}"
        for fall in lines.falls
    )
    return f"{span} Shaded: the deepest falls of equal weights, from the height until it is reached again ({falls})."


def _table(grid: Grid) -> str:
    lines = [grid.header, ("---",) * len(grid.header), *grid.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
