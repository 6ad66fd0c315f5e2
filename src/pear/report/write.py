"""From the database to the files."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pear.errors import MissingExtraError
from pear.report.database import Runs
from pear.report.markdown import markdown
from pear.report.tables import tables

PAGE, TABLES = "report.html", "report.md"
"""What the files are called."""


def write_report(runs: Runs, folder: Path) -> tuple[Path, Path]:
    """Write the page and the Markdown tables.

    Args:
        runs: of the database; see :func:`pear.report.read`.
        folder: exists, and can be written to.

    Returns:
        The paths of the page and of the tables.

    Raises:
        MissingExtraError: matplotlib, which draws the pictures, is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("the report draws with matplotlib, not installed here; run pip install 'pear-dfl[cli]'")
    # Imported here: the pictures alone need matplotlib.
    from pear.report.page import page
    from pear.report.pictures import pictures

    filled = tables(runs)
    html, text = folder / PAGE, folder / TABLES
    html.write_text(page(runs, filled, pictures(runs, filled)), encoding="utf-8")
    text.write_text(markdown(runs, filled), encoding="utf-8")
    return html, text
