"""The page of results agrees with its database."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import import_script

ROOT = Path(__file__).resolve().parents[3]
results = import_script(ROOT / "lab" / "studies" / "results.py")


@pytest.fixture(scope="module")
def generated() -> str:
    """Return the tables made from the database."""
    text: str = results.generated()
    return text


def test_the_tables_of_the_page_are_those_of_the_database(generated: str) -> None:
    page = results.PAGE.read_text("utf-8")
    assert page == results.updated(page, generated), "run python lab/studies/results.py"
    assert (results.FOLDER / "comparison.svg").is_file()
    cells = results.REPRODUCTION.read_text("utf-8")
    assert cells == results.updated(cells, results.reproduction()), "run python lab/studies/results.py"
    for front in results.FRONTS:
        text = front.read_text("utf-8")
        assert text == results.updated(text, results.summary()), "run python lab/studies/results.py"


def test_the_portfolio_tables_are_those_of_the_database() -> None:
    page = results.PORTFOLIO.read_text("utf-8")
    text = results.portfolio()
    assert page == results.updated(page, text), "run python lab/studies/results.py"
    digit = text.index("| PEAR, exact | ours, n = 5 | ") + len("| PEAR, exact | ours, n = 5 | ")
    other = text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :]
    assert page != results.updated(page, other)
    assert "not run" not in text


def test_every_published_number_is_in_one_of_the_two_documents() -> None:
    """There are 432 published numbers: 340 with a verdict, 48 times, and 44 of portfolios."""
    from pear_lab.report.published_numbers import published

    linear, market = published(), published("published_portfolio")
    times = sum(row.metric == "train_seconds" for row in linear)
    assert (len(linear) - times, times, len(market)) == (340, 48, 44)
    text = results.REPRODUCTION.read_text("utf-8")
    assert "432 numbers" in text
    assert "Of the 340 published cells" in text
    assert "0 not run" in text
    places = results.PORTFOLIO.read_text("utf-8").split("### Beside the published cells")[1].split("## ")[0]
    assert sum(places.count(f"| {place} ") for place in ("within", "above", "below")) == len(market)


def test_a_database_without_one_market_is_refused(tmp_path: Path) -> None:
    from pear_lab.experiments import FILE_NAME, Database, RunRecord

    with Database(tmp_path / FILE_NAME) as database:
        database.add(RunRecord("k", "lp-degree", "knapsack", "mse", 0, {"degree": 8}, "done"))
    with pytest.raises(SystemExit, match="of one set of prices and settings; it holds 0"):
        results.portfolio(tmp_path / FILE_NAME)


def test_another_text_between_the_marks_is_another_page(generated: str) -> None:
    page = results.PAGE.read_text("utf-8")
    other = results.updated(page, "nothing")
    assert other != page
    assert other.count(results.BEGIN) == other.count(results.END) == 1
    assert results.updated(other, generated) == page


def test_a_database_without_a_comparison_is_refused(tmp_path: Path) -> None:
    from pear_lab.experiments import FILE_NAME, Database, RunRecord

    with Database(tmp_path / FILE_NAME) as database:
        database.add(RunRecord("k", "lp-degree", "knapsack", "mse", 0, {"degree": 8}, "done"))
    with pytest.raises(SystemExit, match="holds no cell in which every method"):
        results.generated(tmp_path / FILE_NAME)
