"""Self-contained HTML pages and Markdown: their sections, tables and figures, and the templates that render them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pear.optional_packages import require_packages
from pear.pages import figure_style

if TYPE_CHECKING:
    from jinja2 import Environment


class RankedText(NamedTuple):
    """A text with its place in a ranking: place 1 is printed bold, place 2 underlined, place 0 plain."""

    text: str
    place: int = 0


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        title: heading above the table.
        header: headings of the columns; empty for a table without headings.
        rows: the entries of each line; the first one names the line. An entry is a text, a :class:`RankedText`, or an
            object with the attribute ``not_run`` that compares our number with a published one.
        caption: text between the heading and the table.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    caption: str = ""

    @property
    def cells(self) -> list[Any]:
        """Entries that compare our number with the paper's, in reading order."""
        return [entry for row in self.rows for entry in row if not isinstance(entry, str | RankedText)]

    @property
    def not_run(self) -> bool:
        """Whether it compares with the paper, and nothing of it was run."""
        return bool(self.cells) and all(cell.not_run for cell in self.cells)


@dataclass(frozen=True)
class PageFigure:
    """One figure of a page, or its place where nothing was run yet.

    Attributes:
        title: text above the figure.
        caption: text below the figure.
        draw: function that returns the ``<svg>`` element and needs matplotlib; None if nothing was run.
        legend: colour of each name, from ``pear.pages.figure_style``.
    """

    title: str
    caption: str = ""
    draw: Callable[[], str] | None = None
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """One section of a page.

    Attributes:
        name: name that is unique on the page.
        title: heading of the section.
        sentences: texts, one paragraph each.
        grids: tables of the section.
        figures: figures of the section, shown after the tables.
        figures_first: True to show the figures before the tables.
        save: function that writes all figures with their legend as one picture; None if no such file is needed.
    """

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    save: Callable[[Path], object] | None = None
    figures_first: bool = False

    @property
    def cells(self) -> list[Any]:
        """The cells of all grids, in reading order."""
        return [cell for grid in self.grids for cell in grid.cells]

    @property
    def not_run(self) -> bool:
        """Whether it compares with the paper, and nothing of it was run."""
        return bool(self.cells) and all(grid.not_run for grid in self.grids if grid.cells)


def render_page(title: str, lead: Sequence[str], sections: Sequence[Section], footer: str = "") -> str:
    """Render one HTML page without other files: lead sentences, then sections of sentences, tables and figures.

    Raises:
        MissingExtraError: jinja2 or matplotlib, which write and draw the page, is not installed.
    """
    require_packages("the page", "jinja2", "matplotlib")
    return render_template("page.html", {"title": title, "lead": lead, "sections": sections, "footer": footer})


def render_template(name: str, values: dict[str, Any], package: str = "pear.pages") -> str:
    """Fill a template. Every value is escaped: as Markdown where the name ends in .md, else as HTML.

    Args:
        name: name of the template, without ``.j2``.
        values: values of the template's variables, by name.
        package: import package whose templates take precedence over those of ``pear.pages``.
    """
    template = _jinja_environment(package, markdown=name.endswith(".md")).get_template(f"{name}.j2")
    return f"{template.render({**values, 'light': figure_style.LIGHT, 'dark': figure_style.DARK}).strip()}\n"


def _jinja_environment(package: str, markdown: bool) -> Environment:
    """Make the jinja2 environment that finds the templates of a package and escapes every value."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def escape_markdown(value: Any) -> Markup:
        return value if isinstance(value, Markup) else Markup(markdown_text(str(value)))

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("pear.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escape_markdown if markdown else None,
    )
    environment.filters["own_ids"] = lambda svg, prefix: Markup(_prefix_ids(svg, prefix))
    return environment


def markdown_text(text: str) -> str:
    r"""Escape a text for Markdown, in one line.

    Example:
        >>> markdown_text("<b>a|b</b>\n*c* [d](e) &amp; x_y")
        '&lt;b>a\\|b&lt;/b> \\*c\\* \\[d\\](e) &amp;amp; x_y'
    """
    text = re.sub(r"[\\`*|\[\]]|\b_|_\b", r"\\\g<0>", re.sub(r"\s+", " ", text))
    return re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")


def _prefix_ids(svg: str, prefix: str) -> str:
    """Put a prefix on every id of an SVG figure, so that figures on one page do not share ids."""
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    return svg.replace("url(#", f"url(#{prefix}-").replace('href="#', f'href="#{prefix}-')
