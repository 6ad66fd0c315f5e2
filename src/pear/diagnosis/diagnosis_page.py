"""A diagnosis as one HTML page without other files, and as a notebook shows it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pear.diagnosis.diagnosis_figures import make_panels
from pear.diagnosis.diagnosis_tables import make_grids
from pear.diagnosis.wording import format_amount, format_percent
from pear.pages.render_page import render_page
from pear.pages.section import PageFigure, Section
from pear.problem.html_tables import html_table, summarise_names

if TYPE_CHECKING:
    from pear.diagnosis.diagnosis import Diagnosis

_ROWS = 12  # of a table; the DataFrames have all of them
_TITLES = {
    "values": "Which predicted values cost money",
    "groups": "Where and when it is lost",
    "samples": "Which decisions lose most",
    "error": "Which part of the error matters",
    "constraints": "What holds the decisions",
}


def save_html(found: Diagnosis, path: str | os.PathLike[str]) -> Path:
    """Write the sentences, pictures and tables as a page, and return its path.

    Raises:
        MissingExtraError: jinja2, matplotlib or pandas is not installed.
    """
    tables, drawn = make_grids(found, _ROWS), make_panels(found)
    sections = []
    for name, title in _TITLES.items():
        own = tuple(PageFigure(one.title, one.caption, one.svg) for one in drawn if one.name == name)
        rows = (tables[name],) if name in tables else ()
        if own or rows:
            sections.append(Section(name, title, grids=rows, figures=own, figures_first=True))
    size = f"{len(found.regret):,} samples, {len(found.names):,} predicted values, {len(found.variables):,} variables."
    text = render_page("What the errors of the forecast cost", found.sentences, sections, f"{size} {found.smoothing}")
    to = Path(path)
    to.write_text(text, encoding="utf-8")
    return to


def notebook_html(found: Diagnosis) -> str:
    """Return a small table as HTML, and the sentences below it."""
    total = float(found.regret.sum())
    facts = {
        "samples": len(found.regret),
        "predicted values": summarise_names(found.names),
        "lost": f"{format_amount(total)}, {format_percent(found.normalized_regret)} of the best value",
        "tangent share": format_percent(found.tangent_share)
        if found.tangent_share >= 0
        else None,  # NaN without errors
    }
    return html_table("Diagnosis", facts, "\n".join(" ".join(line.split()) for line in found.sentences))
