"""A diagnosis as tables, as an HTML page, and as HTML for a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pear.diagnosis.constraint_prices import rank_constraint_prices
from pear.diagnosis.diagnosis_figures import make_diagnosis_figures
from pear.errors import name_output_in_errors
from pear.pages.page import PageFigure, PageGrid, PageSection, render_page
from pear.problem.html_tables import html_table
from pear.wording import format_amount, format_percent, summarise_names

if TYPE_CHECKING:
    import pandas

    from pear.diagnosis.diagnosis import Diagnosis


def _format_page_percent(share: float) -> str:
    """Return a share as a percentage; NaN becomes a dash."""
    return format_percent(share) if np.isfinite(share) else "–"


PageColumns = tuple[tuple[str, str, Callable[[Any], str]], ...]
"""Columns of a table on the page: heading, column of the DataFrame, and function that formats an entry."""

_VALUES: PageColumns = (
    ("Predicted value", "value", str),
    ("money lost", "cost", format_amount),
    ("share", "share", _format_page_percent),
    ("bias", "bias", format_amount),
    ("mean squared error", "mean_squared_error", format_amount),
)
_GROUPS: PageColumns = (
    ("samples", "samples", "{:,}".format),
    ("money lost", "regret", format_amount),
    ("share", "share", _format_page_percent),
    ("lost a sample", "mean_regret", format_amount),
    ("of the best value", "normalized_regret", _format_page_percent),
    ("tangent share", "tangent_share", _format_page_percent),
    ("dearest predicted value", "dearest_value", str),
)
_SAMPLES: PageColumns = (
    ("money lost", "regret", format_amount),
    ("share", "share", _format_page_percent),
    ("margin", "margin", _format_page_percent),
    ("why", "why", str),
)
_VIOLATIONS: PageColumns = (
    ("Right-hand side", "value", str),
    ("violation", "kind", str),
    ("samples", "samples", "{:,}".format),
    ("by", "amount", format_amount),
    ("costs", "cost", format_amount),
    ("best decisions pay", "best_cost", format_amount),
)
_CONSTRAINTS: PageColumns = (
    ("Constraint", "constraint", str),
    ("kind", "kind", str),
    ("binds", "binding", _format_page_percent),
    ("binds under the truth", "best_binding", _format_page_percent),
    ("a unit more is worth", "shadow_price", format_amount),
    ("under the truth", "best_shadow_price", format_amount),
)


def make_page_grids(found: Diagnosis, rows: int) -> dict[str, PageGrid]:
    """Return the tables of a diagnosis page with at most ``rows`` rows each. Empty tables are left out.

    Returns:
        The tables, each by the name of its section of the page.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    made, group = {}, found.grouped_by
    if found.attributed.any():
        caption = "Bias: the mean of predicted minus true values."
        made["values"] = _make_page_grid("Predicted values", found.values(), _VALUES, rows, caption)
    if found.groups is not None:
        heading = f"{group[:1].upper()}{group[1:]}"
        made["groups"] = _make_page_grid(f"By {group}", found.by_group(), ((heading, group, str), *_GROUPS), rows)
    counted = "Samples are counted from 0. " if found.index is None else ""
    caption = f"{counted}Margin: the share of its error that the forecast could have made before the decision changed."
    own: PageColumns = () if found.groups is None else ((group, group, str),)
    worst, there = found.worst(rows), len(found.regret)
    whole_days = hasattr(worst.index, "normalize") and worst.index.equals(worst.index.normalize())
    worst = worst.assign(sample=[str(label.date() if whole_days else label) for label in worst.index])
    made["samples"] = _make_page_grid(
        "Samples", worst, (("Sample", "sample", str), *own, *_SAMPLES), rows, caption, there
    )
    caption = (
        "What decisions violate under the truth: in how many samples, by how much in each, and what all pay for it."
    )
    violated = found.violations()
    made["violations"] = _make_page_grid("Violations", violated[violated["samples"] > 0], _VIOLATIONS, rows, caption)
    caption = "Of those that bind in some sample, by what a unit more is worth on average. Equalities always bind."
    binding = found.constraints().loc[rank_constraint_prices(found)]
    made["constraints"] = _make_page_grid("Constraints", binding, _CONSTRAINTS, rows, caption)
    return {name: grid for name, grid in made.items() if grid.rows}


def _make_page_grid(
    title: str,
    frame: pandas.DataFrame,
    columns: PageColumns,
    rows: int,
    caption: str = "",
    total_rows: int | None = None,
) -> PageGrid:
    """Return the first rows of a DataFrame as a formatted table.

    Args:
        title: heading of the table. If rows are left out, the heading says so.
        frame: the DataFrame.
        columns: the columns to show.
        rows: the largest number of rows to show.
        caption: text below the table.
        total_rows: the number of rows of the whole table, if ``frame`` is only its beginning.
    """
    total_rows = len(frame) if total_rows is None else total_rows
    title = title if total_rows <= rows else f"{title}: {rows} of {total_rows:,}, the dearest first"
    texts = [map(write, frame[name].head(rows)) for _, name, write in columns]
    return PageGrid(title, tuple(heading for heading, _, _ in columns), tuple(zip(*texts, strict=True)), caption)


_ROWS = 12  # of a table on the page
_TITLES = {
    "values": "Which predicted values cost money",
    "groups": "Where and when it is lost",
    "samples": "Which decisions lose most",
    "violations": "What the truth does not allow",
    "error": "Which part of the error matters",
    "constraints": "What holds the decisions",
}


def save_diagnosis_page(found: Diagnosis, path: str | os.PathLike[str]) -> Path:
    """Write the sentences, pictures and tables of a diagnosis as an HTML page. Return the path of the page.

    Raises:
        MissingExtraError: jinja2, matplotlib or pandas is not installed.
    """
    tables, drawn = make_page_grids(found, _ROWS), make_diagnosis_figures(found)
    sections = []
    for name, title in _TITLES.items():
        own = tuple(PageFigure(one.title, one.caption, one.svg) for one in drawn if one.name == name)
        rows = (tables[name],) if name in tables else ()
        if own or rows:
            sections.append(PageSection(name, title, grids=rows, figures=own, figures_first=True))
    size = f"{len(found.regret):,} samples, {len(found.names):,} predicted values, {len(found.variables):,} variables."
    text = render_page("What the errors of the forecast cost", found.sentences, sections, f"{size} {found.smoothing}")
    to = Path(path)
    with name_output_in_errors(to):
        to.write_text(text, encoding="utf-8")
    return to


def diagnosis_for_notebook(found: Diagnosis) -> str:
    """Return HTML for a notebook: a small table, and the sentences below the table."""
    total = float(found.regret.sum())
    facts = {
        "samples": len(found.regret),
        "predicted values": summarise_names(found.names),
        "lost": f"{format_amount(total)}, {format_percent(found.normalized_regret)} of the best value",
        # The share is NaN if there are no errors.
        "tangent share": format_percent(found.tangent_share) if found.tangent_share >= 0 else None,
    }
    return html_table("Diagnosis", facts, "\n".join(" ".join(line.split()) for line in found.sentences))
