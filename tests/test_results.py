"""The page of results says what the database beside it holds."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_SPEC = importlib.util.spec_from_file_location("results", ROOT / "tools" / "results.py")
assert _SPEC is not None
assert _SPEC.loader is not None
results = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(results)


@pytest.fixture(scope="module")
def generated() -> str:
    """The tables, from the database."""
    text: str = results.generated()
    return text


def test_the_tables_of_the_page_are_those_of_the_database(generated: str) -> None:
    page = results.PAGE.read_text("utf-8")
    assert page == results.updated(page, generated), "run python tools/results.py"
    assert (results.FOLDER / "comparison.svg").is_file()
    cells = results.REPRODUCTION.read_text("utf-8")
    assert cells == results.updated(cells, results.reproduction()), "run python tools/results.py"
    for front in results.FRONTS:
        text = front.read_text("utf-8")
        assert text == results.updated(text, results.summary()), "run python tools/results.py"


def test_another_text_between_the_marks_is_another_page(generated: str) -> None:
    page = results.PAGE.read_text("utf-8")
    other = results.updated(page, "nothing")
    assert other != page
    assert other.count(results.BEGIN) == other.count(results.END) == 1
    assert results.updated(other, generated) == page


def test_a_database_without_a_comparison_is_refused(tmp_path: Path) -> None:
    from pear.experiments import FILE_NAME, Database, Record

    with Database(tmp_path / FILE_NAME) as database:
        database.add(Record("k", "lp-degree", "knapsack", "mse", 0, {"degree": 8}, "done"))
    with pytest.raises(SystemExit, match="holds no cell in which every method"):
        results.generated(tmp_path / FILE_NAME)
