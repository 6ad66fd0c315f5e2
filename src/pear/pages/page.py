"""HTML pages that need no other file: their sections, tables and figures, and the templates that render them."""

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
    """A table entry with its place in a ranking; 0 for no place.

    A page shows place 1 bold, place 2 underlined, and all other entries plain.
    """

    text: str
    place: int = 0


@dataclass(frozen=True)
class PageGrid:
    """A table of a page.

    Attributes:
        title: heading above the table.
        header: headings of the columns; empty for a table without headings.
        rows: the entries of each row. The first entry names the row. An entry is a text, a ``RankedText``, or a
            comparison cell: an object that compares a number of this package with a published one. A comparison cell
            has the attribute ``not_run``, which is True if this package has no number yet.
        caption: text between the heading and the table.
    """

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    caption: str = ""

    @property
    def cells(self) -> list[Any]:
        """The comparison cells, row by row."""
        return [entry for row in self.rows for entry in row if not isinstance(entry, str | RankedText)]

    @property
    def not_run(self) -> bool:
        """Whether the table has comparison cells and none of them has a number of this package."""
        return bool(self.cells) and all(cell.not_run for cell in self.cells)


@dataclass(frozen=True)
class PageFigure:
    """A figure of a page, or an empty place for a figure whose experiment has not been run.

    Attributes:
        title: text above the figure.
        caption: text below the figure.
        draw: function that returns the ``<svg>`` element and needs matplotlib; None for an empty place.
        legend: the names in the legend, each with its colour from ``pear.pages.figure_style``.
    """

    title: str
    caption: str = ""
    draw: Callable[[], str] | None = None
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PageSection:
    """A section of a page.

    Attributes:
        name: a name that no other section of the page has.
        title: heading of the section.
        sentences: texts, one paragraph each.
        grids: tables of the section.
        figures: figures of the section.
        figures_first: True to show the figures before the tables, False to show them after the tables.
        save: function that writes all figures with their legend to one picture file; None if no file is wanted.
    """

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    grids: tuple[PageGrid, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    save: Callable[[Path], object] | None = None
    figures_first: bool = False

    @property
    def cells(self) -> list[Any]:
        """The comparison cells of all tables, in order."""
        return [cell for grid in self.grids for cell in grid.cells]

    @property
    def not_run(self) -> bool:
        """Whether the section has comparison cells and none of them has a number of this package."""
        return bool(self.cells) and all(grid.not_run for grid in self.grids if grid.cells)


def render_page(title: str, lead: Sequence[str], sections: Sequence[PageSection], footer: str = "") -> str:
    """Return an HTML page that needs no other file: leading sentences, then sections, then a footer.

    Raises:
        MissingExtraError: jinja2 or matplotlib is not installed.
    """
    require_packages("the page", "jinja2", "matplotlib")
    return render_page_template("page.html", {"title": title, "lead": lead, "sections": sections, "footer": footer})


def render_page_template(name: str, values: dict[str, Any], package: str = "pear.pages") -> str:
    """Return a filled template. Values are escaped as Markdown if ``name`` ends in ".md", otherwise as HTML.

    Args:
        name: name of the template, without ``.j2``.
        values: values of the template's variables, by name.
        package: import package of the templates. Templates that it does not have come from ``pear.pages``.
    """
    template = _make_template_environment(package, markdown=name.endswith(".md")).get_template(f"{name}.j2")
    return f"{template.render({**values, 'light': figure_style.LIGHT, 'dark': figure_style.DARK}).strip()}\n"


def _make_template_environment(package: str, markdown: bool) -> Environment:
    """Return a jinja2 environment that finds the templates of ``package`` and escapes the values that fill them."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def escape_value(value: Any) -> Markup:
        return value if isinstance(value, Markup) else Markup(escape_markdown(str(value)))

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("pear.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escape_value if markdown else None,
    )
    environment.filters["own_ids"] = lambda svg, prefix: Markup(_prefix_figure_ids(svg, prefix))
    return environment


def escape_markdown(text: str) -> str:
    r"""Return a text escaped for Markdown, in one line.

    Example:
        >>> escape_markdown("<b>a|b</b>\n*c* [d](e) &amp; x_y")
        '&lt;b>a\\|b&lt;/b> \\*c\\* \\[d\\](e) &amp;amp; x_y'
    """
    text = re.sub(r"[\\`*|\[\]]|\b_|_\b", r"\\\g<0>", re.sub(r"\s+", " ", text))
    return re.sub(r"&(?=#?\w+;)", "&amp;", text).replace("<", "&lt;")


def _prefix_figure_ids(svg: str, prefix: str) -> str:
    """Return an SVG figure with a prefix before every id, so that two figures on a page have no id in common."""
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    return svg.replace("url(#", f"url(#{prefix}-").replace('href="#', f'href="#{prefix}-')
