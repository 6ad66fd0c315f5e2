"""HTML and Markdown pages from templates, in which every text is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pear.pages import figure_style
from pear.pages.section import Section

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(title: str, lead: Sequence[str], sections: Sequence[Section], footer: str = "") -> str:
    """Render one HTML page without other files: lead sentences, then sections of sentences, tables and figures.

    Raises:
        MissingExtraError: jinja2 or matplotlib, which write and draw the page, is not installed.
    """
    figure_style.require_packages("the page", "jinja2", "matplotlib")
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
