"""The page of the comparison of all methods (docs/field.md) and its diagram, written from the database.

    pear reproduce field --out FOLDER
    pear reproduce --merge FOLDER --out docs/results/field
    python lab/studies/field_page.py

A test compares the page with the database, so that no number in it is written by hand.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from pear_lab.experiments import FILE_NAME
from pear_lab.field.field_page import FIGURE, field_page

ROOT = Path(__file__).resolve().parents[2]
PAGE, FOLDER = ROOT / "docs" / "field.md", ROOT / "docs" / "results" / "field"


def text(figure: bool = False) -> str:
    """Return the page in Markdown. The diagram is drawn if ``figure`` is True."""
    return field_page(FOLDER / FILE_NAME, FOLDER / FIGURE if figure else None, f"results/field/{FIGURE}")


def main() -> None:
    """Write the page and the diagram."""
    with contextlib.closing(sqlite3.connect(FOLDER / FILE_NAME)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # whoever reads the file leaves nothing beside it
    PAGE.write_text(text(figure=True), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
