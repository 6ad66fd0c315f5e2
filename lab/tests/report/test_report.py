"""The report: its data from the database, its verdicts, and its self-contained page."""

from __future__ import annotations

import importlib.util
import json
import re
import sqlite3
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import command_line
import pytest
from browser import WIDTHS, Browser
from command_line import Run

from pear.errors import MissingExtraError
from pear.pages import figure_style
from pear.pages.page import PageSection, escape_markdown
from pear_lab.benchmarks.series_plot import Series, draw_series
from pear_lab.experiments import FILE_NAME, SCHEMA_VERSION, Database, DatabaseError, RunRecord
from pear_lab.experiments.catalogue import EXPERIMENTS
from pear_lab.report import CellVerdict, read, verdict, write_report
from pear_lab.report.bootstrap import paired_interval
from pear_lab.report.paper_tables import table_sections
from pear_lab.report.published_numbers import mean_and_deviation, published, rank_best_two
from pear_lab.report.report_figures import (
    METHOD_COLORS,
    PARTS,
    MethodCurve,
    draw_portfolio_values,
    draw_regret_curves,
    draw_shift_bars,
    draw_time_bars,
)
from pear_lab.report.table_cells import Cell

PAPER_TABLES = [one.table for one in EXPERIMENTS.values() if one.tasks != ("portfolio",) and not one.table.cells]

RUNS = (
    "CREATE TABLE runs (key TEXT PRIMARY KEY, experiment TEXT, task TEXT, method TEXT, seed INTEGER, settings TEXT, "
    "status TEXT, reason TEXT, metrics TEXT, timings TEXT, history TEXT, weights TEXT, versions TEXT, machine TEXT, "
    "created TEXT)"
)
PROBLEM = {
    "shortest_path": {"grid": [5, 5], "samples": 2000},
    "knapsack": {"items": 100, "dimensions": 5, "capacity_ratio": 0.5, "samples": 2000},
}
REGRETS = [0.0377, 0.0412, 0.0535, 0.0288, 0.0511]  # mean 4.246 %
TIMES = {"total": 10.0, "solve": 4.0, "gradient": 1.0, "validation": 3.0, "rest": 2.0, "epochs": 31}
HISTORY = [[1, 0.5, None, 0.2], [11, 4.0, 0.3, 0.06], [21, 8.0, 0.2, 0.07]]


class Builder:
    """A database with the schema, to which tests add rows."""

    def __init__(self, path: Path, version: int = SCHEMA_VERSION) -> None:
        self.path, self.count = path, 0
        self.connection = sqlite3.connect(path)
        self.connection.execute(RUNS)
        self.connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)")
        self.connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(version),))
        self.connection.commit()

    def add(self, task: str, method: str, seed: int, metrics: dict[str, Any], **other: Any) -> None:
        own = {"smoothing": 0.1, "injection": 0.1} if method == "pear" else {}
        settings = {"degree": 8, "noise": 0.0, "time_cap": 600.0, "max_epochs": 10_000, **PROBLEM.get(task, {}), **own}
        settings |= other.get("settings", {})
        self.count += 1
        texts = [json.dumps(value, sort_keys=True) for value in (settings, metrics, other.get("timings", {}))]
        row = (
            *(f"key{self.count}", "lp-degree", task, method, seed, texts[0]),
            *(other.get("status", "done"), other.get("reason", ""), texts[1], texts[2]),
            *(json.dumps(other.get("history", [])), "weights/a.pt", '{"pear": "0.1.0"}'),
            other.get("machine", "Linux <2 cores>"),
            f"2026-11-15T08:00:{self.count % 60:02}+00:00",
        )
        self.connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row)
        self.connection.commit()

    def tables(self) -> dict[str, PageSection]:
        return {section.name: section for section in table_sections(read(self.path))}

    def cell(
        self, table: str, task: str, method: str, metric: str = "normalized_regret_pct", **condition: float
    ) -> Cell:
        (found,) = (
            cell
            for cell in self.tables()[table].cells
            if (cell.published.task, cell.published.method, cell.published.metric) == (task, method, metric)
            and condition.items() <= dict(cell.published.condition).items()
        )
        return found


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "runs.sqlite")


@pytest.fixture
def filled(builder: Builder) -> Builder:
    """Fill every table, with results that are missing, failed, of too few seeds, or of a reduced problem."""
    for seed, regret in enumerate(REGRETS):
        trained = {"normalized_regret": regret, "mse": 5.0 + seed}
        builder.add("shortest_path", "pear", seed, trained, timings=TIMES, history=HISTORY)
        builder.add("shortest_path", "mse", seed, {"normalized_regret": 0.3, "mse": 4.0}, timings=TIMES)
        shift = {"shift": {"forward": regret, "cross": 0.2 + seed / 100}}
        builder.add("shortest_path", "pear", seed, shift, settings={"variant": "direction-shift"})
        capacities = {"shift": {"0.3": 0.02, "0.5": 0.001, "0.7": 0.005, "0.9": 0.0123}}
        builder.add("knapsack", "pear", seed, capacities, settings={"variant": "capacity-shift"})
        rate = {"active_change_rate": 0.003}  # a share: 0.3 %
        builder.add("shortest_path", "pear", seed, rate, settings={"variant": "stability"})
    for seed in range(2):
        builder.add("shortest_path", "spo+", seed, {"normalized_regret": 0.05}, settings={"noise": 0.3})
        builder.add("knapsack", "pear", seed, {"normalized_regret": 0.004}, settings={"smoothing": 0.5})
    builder.add("knapsack", "mse", 0, {"normalized_regret": 0.02}, settings={"items": 20, "quick": True})
    for seed in (3, 1):
        builder.add("knapsack", "dbb", seed, {}, status="failed", reason="<b>no</b> answer | after 600 s")
    return builder


# --- numbers --------------------------------------------------------------------------------------------------------


def test_every_published_number_of_the_tables_is_there() -> None:
    rows = published()
    assert {row.table for row in rows} == {table.name for table in PAPER_TABLES}
    assert len(rows) == 388
    found = {(r.table, r.task, r.method, *sorted(r.condition.items()), r.metric): (r.mean, r.std) for r in rows}
    assert len(found) == len(rows)
    regret = "normalized_regret_pct"
    assert found["lp_degree", "shortest_path", "spo+", ("degree", 8.0), regret] == (4.403, 1.491)
    assert found["capacity_shift", "knapsack", "pear", ("capacity", 0.9), ("degree", 8.0), regret] == (1.232, 0.197)
    assert found["stability", "knapsack", "pear", "active_set_change_rate_pct"] == (0.14, None)


@pytest.mark.parametrize(
    ("ours", "std", "expected"),
    [
        (4.246, 1.106, CellVerdict.WITHIN),
        (5.352, 1.106, CellVerdict.WITHIN),  # on the edge
        (5.3524, 1.106, CellVerdict.WITHIN),  # printed as the edge
        (5.353, 1.106, CellVerdict.WORSE),
        (3.139, 1.106, CellVerdict.BETTER),
        (4.2464, None, CellVerdict.WITHIN),
        (4.247, None, CellVerdict.WORSE),
        (4.245, 0.0, CellVerdict.BETTER),
        (float("nan"), 1.106, CellVerdict.WORSE),
        (None, 1.106, CellVerdict.NOT_RUN),
    ],
)
def test_verdict(ours: float | None, std: float | None, expected: CellVerdict) -> None:
    assert verdict(ours, 4.246, std, 3) is expected


def test_verdict_of_a_cell_the_paper_does_not_have() -> None:
    assert verdict(1.0, None, None, 3) is CellVerdict.NOT_PUBLISHED
    assert verdict(None, None, None, 3) is CellVerdict.NOT_RUN


def test_deviations_of_sample_and_population() -> None:
    assert mean_and_deviation([1.0, 3.0], 1) == (2.0, pytest.approx(2**0.5))
    assert mean_and_deviation([1.0, 3.0], 0) == (2.0, 1.0)
    assert mean_and_deviation([7.0], 1) == (7.0, None)


def test_best_two_as_printed() -> None:
    assert rank_best_two([3.0, 1.0, 2.0], 1) == [0, 1, 2]
    assert rank_best_two([0.1041, 0.1039, 0.2], 3) == [1, 1, 0]  # equals share a place and use up the next
    assert rank_best_two([1.0, 2.0, 2.0], 1) == [1, 2, 2]
    assert rank_best_two([1.0, None], 1) == [0, 0]
    assert rank_best_two([float("nan"), 2.0, 1.0], 1) == [0, 2, 1]


def test_published_marks_are_those_of_the_paper(filled: Builder) -> None:
    found = filled.tables()

    def marks(table: str, block: int, column: int) -> list[int]:
        return [row[1 + column].published_place for row in found[table].grids[block].rows]

    assert marks("lp_degree", 0, 0) == [0, 0, 0, 0, 1, 1]  # LAVA and PEAR share the first place
    assert marks("lp_degree", 0, 1) == [0, 1, 0, 0, 0, 2]
    assert marks("ablation_beta", 0, 0) == [0, 0, 2, 0, 1]
    assert marks("accuracy", 1, 0) == [1, 0, 0, 0, 0, 2]
    assert marks("stability", 0, 0) == [0, 0]


def test_an_interval_of_one_instance_is_that_instance() -> None:
    assert paired_interval([3.0], [1.0]) == (2.0, 2.0, 2.0)


# --- cells ----------------------------------------------------------------------------------------------------------


def test_a_cell_holds_mean_deviation_and_verdict(filled: Builder) -> None:
    cell = filled.cell("lp_degree", "shortest_path", "pear", degree=8)
    assert cell.mean == pytest.approx(4.246)
    assert cell.std == pytest.approx(1.0092, abs=1e-4)  # ddof 1
    assert (cell.verdict, cell.notes, cell.place) == (CellVerdict.WITHIN, (), 1)
    assert filled.cell("lp_degree", "shortest_path", "mse", degree=8).verdict is CellVerdict.WORSE
    time = filled.cell("lp_degree", "shortest_path", "pear", "train_seconds", degree=8)
    assert (time.mean, time.verdict) == (10.0, CellVerdict.BETTER)


def test_trainings_are_shared_between_tables_with_the_deviation_of_each(filled: Builder) -> None:
    for table, condition in (("ablation_beta", {"beta": 0.1}), ("ablation_lambda", {"lambda": 0.1})):
        cell = filled.cell(table, "shortest_path", "pear", degree=8, **condition)
        assert cell.mean == pytest.approx(4.246)
        assert cell.std == pytest.approx(0.9026, abs=1e-4)  # ddof 0
    accuracy = filled.cell("accuracy", "shortest_path", "pear", "mse", degree=8)
    assert (accuracy.mean, accuracy.std) == (7.0, pytest.approx(2**0.5))


def test_conditions_are_kept_apart(filled: Builder) -> None:
    assert filled.cell("lp_noise", "shortest_path", "spo+", noise=0.3).mean == pytest.approx(5.0)
    assert filled.cell("lp_noise", "shortest_path", "spo+", noise=0.1).mean is None
    assert filled.cell("lp_degree", "shortest_path", "spo+", degree=8).mean is None
    assert filled.cell("ablation_lambda", "knapsack", "pear", degree=8, **{"lambda": 0.5}).mean == pytest.approx(0.4)
    assert filled.cell("lp_degree", "knapsack", "pear", degree=8).mean is None
    assert filled.cell("ablation_beta", "shortest_path", "pear", degree=8, beta=0.5).mean is None


def test_shifts_and_stability(filled: Builder) -> None:
    cross = filled.cell("direction_shift", "shortest_path", "pear", degree=8)
    assert (cross.mean, cross.std) == (pytest.approx(22.0), pytest.approx(2**0.5))
    assert filled.cell("capacity_shift", "knapsack", "pear", degree=8, capacity=0.9).mean == pytest.approx(1.23)
    assert filled.cell("capacity_shift", "knapsack", "pear", degree=8, capacity=0.5).verdict is CellVerdict.BETTER
    assert filled.cell("capacity_shift", "knapsack", "pear", degree=2, capacity=0.5).verdict is CellVerdict.NOT_RUN
    stability = filled.cell("stability", "shortest_path", "pear", "active_set_change_rate_pct")
    assert (stability.mean, stability.verdict) == (pytest.approx(0.3), CellVerdict.WITHIN)


def test_missing_seeds_failures_and_budgets_are_said(filled: Builder) -> None:
    assert filled.cell("lp_noise", "shortest_path", "spo+", noise=0.3).notes == ("2 of 5 seeds",)
    failed = filled.cell("lp_degree", "knapsack", "dbb", degree=8)
    assert (failed.mean, failed.verdict, failed.failed) == (None, CellVerdict.NOT_RUN, 2)
    filled.add("shortest_path", "dbb", 0, {"normalized_regret": 0.14}, settings={"time_cap": 60.0, "max_epochs": 50})
    cell = filled.cell("lp_degree", "shortest_path", "dbb", degree=8)
    assert cell.std is None
    assert cell.notes == (
        "1 of 5 seeds",
        "time cap 60 s, published 600 s",
        "at most 50 epochs, published 10,000",
    )


def test_times_under_another_cap_are_not_compared(builder: Builder) -> None:
    short = {"settings": {"time_cap": 60.0}, "timings": {"total": 61.0}}
    builder.add("knapsack", "spo+", 0, {"normalized_regret": 0.0075}, **short)
    assert builder.cell("lp_degree", "knapsack", "spo+", degree=8).verdict is CellVerdict.WITHIN
    time = builder.cell("lp_degree", "knapsack", "spo+", "train_seconds", degree=8)
    assert (time.verdict, time.notes) == (CellVerdict.REDUCED, ("1 of 5 seeds", "time cap 60 s, published 600 s"))


def test_reduced_problems_are_shown_and_never_compared(filled: Builder) -> None:
    cell = filled.cell("lp_degree", "knapsack", "mse", degree=8)
    assert (cell.mean, cell.verdict, cell.place) == (2.0, CellVerdict.REDUCED, 0)
    assert "reduced problem" in cell.notes
    filled.add("knapsack", "mse", 4, {"normalized_regret": 0.0229})  # the paper's problem comes first
    cell = filled.cell("lp_degree", "knapsack", "mse", degree=8)
    assert (cell.values, cell.verdict) == ({4: pytest.approx(2.29)}, CellVerdict.WITHIN)


def test_runs_of_different_settings_are_never_mixed(builder: Builder) -> None:
    for seed in range(3):
        builder.add("shortest_path", "mse", seed, {"normalized_regret": 0.15}, settings={"time_cap": 60.0})
    builder.add("shortest_path", "mse", 3, {"normalized_regret": 0.99})
    cell = builder.cell("lp_degree", "shortest_path", "mse", degree=8)
    assert (sorted(cell.values), cell.mean) == ([0, 1, 2], pytest.approx(15.0))


def test_a_method_of_ours_gets_a_line_where_it_was_run(builder: Builder) -> None:
    builder.add("knapsack", "spo+relaxed", 0, {"normalized_regret": 0.006})
    found = builder.tables()
    rows = {grid.title: [row[0] for row in grid.rows] for grid in found["lp_degree"].grids}
    assert rows["Knapsack: normalised regret, %"][:3] == ["MSE", "SPO+", "SPO+ (relaxed)"]
    assert "SPO+ (relaxed)" not in rows["Shortest path: normalised regret, %"]
    cell = builder.cell("lp_degree", "knapsack", "spo+relaxed", degree=8)
    assert (cell.mean, cell.verdict, cell.published.mean) == (pytest.approx(0.6), CellVerdict.NOT_PUBLISHED, None)
    assert all(row[0] != "SPO+ (relaxed)" for grid in found["lp_noise"].grids for row in grid.rows)


# --- the files ------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Parse a page into its elements, and check that they are closed in order."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def write(builder: Builder, folder: Path) -> tuple[str, str]:
    folder.mkdir()
    page, text, _ = write_report(read(builder.path), folder)
    assert sorted(folder.iterdir()) == sorted([page, text])
    return page.read_text("utf-8"), text.read_text("utf-8")


def check_self_contained(text: str) -> Page:
    assert not re.search(r"(?:https?:)?//\w", text)
    assert "@import" not in text
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.elements:
        assert tag not in ("script", "iframe", "object")
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name)
            if target is not None:
                assert target.startswith("data:") or target.removeprefix("#") in ids, (tag, target)
        if tag == "img":
            assert (attributes["src"] or "").startswith("data:image/")
    for target in re.findall(r"url\(([^)]*)\)", text):
        assert target.removeprefix("#") in ids
    defined = set(re.findall(r"(--[\w-]+):", text))
    assert set(re.findall(r"var\((--[\w-]+)\)", text)) <= defined  # a colour that is not defined is not drawn
    return page


def test_the_page_is_whole_and_needs_nothing_else(filled: Builder, tmp_path: Path) -> None:
    text, _ = write(filled, tmp_path / "out")
    page = check_self_contained(text)
    tags = [tag for tag, _ in page.elements]
    # Paths: degree, time, split; the direction; the capacity at degree 8; of the quick knapsack run only the degree.
    assert tags.count("svg") == 6
    assert text.count('<div class="empty">not run</div>') == 2
    assert {attributes.get("id") for tag, attributes in page.elements if tag == "section"} >= {
        table.name for table in PAPER_TABLES
    }
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert "4.246 ± 1.009" in text
    assert "2 of 5 seeds" in text
    assert "no more than the published standard deviation" in text
    assert "&lt;b&gt;no&lt;/b&gt; answer | after 600 s" in text
    assert "Failed runs (2)" in text
    assert "Linux &lt;2 cores&gt;" in text


def test_the_page_of_a_single_run_shows_everything_else_as_not_run(builder: Builder, tmp_path: Path) -> None:
    builder.add("shortest_path", "pear", 0, {"normalized_regret": 0.0}, timings=TIMES, history=HISTORY[:1])
    text, markdown = write(builder, tmp_path / "out")
    check_self_contained(text)
    assert text.count("This table has not been run.") == 6  # all but the degrees and the two ablations
    assert markdown.count("This table has not been run") == 6
    assert "Of the 340 published cells, times not counted: 0 within 1 sd, 3 better, 0 worse, 337 not run." in markdown


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_in_a_browser(browser: Browser, filled: Builder, tmp_path: Path, width: int) -> None:
    add_portfolio(filled, "prices-of-a-long-name/2010-2024", 17.25)  # the widest table, wide numbers in it
    filled.add("energy", "mse", 0, {}, status="failed", reason="/a/path/" + 30 * "that-never-ends", machine="m" * 90)
    write(filled, tmp_path / "out")
    opened = "() => { for (const e of document.querySelectorAll('details')) e.open = true; }"
    for script in (None, opened):
        view = browser.look(tmp_path / "out/report.html", width, script)
        assert view.faults() == []
        assert view.scrolling == []  # a column that has to be found by scrolling is a column that is not seen
        assert view.figures == 7


def test_what_was_not_run_is_folded_away(builder: Builder, tmp_path: Path, browser: Browser) -> None:
    builder.add("shortest_path", "pear", 0, {"normalized_regret": 0.1})
    write(builder, tmp_path / "out")
    seen = "() => [...document.querySelectorAll('table')].filter(e => e.checkVisibility()).length"
    headed = (
        "() => [...document.querySelectorAll('details')].map(e => e.open + ' ' + e.querySelector('summary').innerText)"
    )
    folded = browser.look(tmp_path / "out/report.html", 1100, headed).told
    assert len(folded) > 6
    assert all(text.startswith("false ") and "not run" in text for text in folded)
    # The overview, the degrees of paths, their times, two ablations, machines.
    assert browser.look(tmp_path / "out/report.html", 1100, seen).told == 5


def test_a_database_of_failures_only_still_has_its_page(builder: Builder, tmp_path: Path) -> None:
    builder.add("knapsack", "lava", 0, {}, status="failed", reason="")
    text, markdown = write(builder, tmp_path / "out")
    check_self_contained(text)
    assert "no reason was given" in text
    assert "| Knapsack, LAVA, degree 8, noise 0.0 | 0 | no reason was given |" in markdown


def test_the_same_database_gives_the_same_files(filled: Builder, tmp_path: Path) -> None:
    assert write(filled, tmp_path / "a") == write(filled, tmp_path / "b")


def test_markdown_tables(filled: Builder, tmp_path: Path) -> None:
    _, text = write(filled, tmp_path / "out")
    rows = text.splitlines()
    place = rows.index("### Shortest path: normalised regret, %")
    assert rows[place + 2] == "| Method |  | degree 2 | degree 4 | degree 6 | degree 8 |"
    ours = rows.index(
        "| PEAR as published | ours | not run | not run | not run | **4.246 ± 1.009** *within 1 sd* (5 seeds) |", place
    )
    assert rows[ours + 1] == (
        "|  | paper | **0.104 ± 0.038** | <u>0.774 ± 0.268</u> | **2.138 ± 0.762** | **4.246 ± 1.106** |"
    )
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows[place + 2 : ours + 2]}
    assert widths == {7}
    assert "5.00 ± 0.00 *within 1 sd* (2 of 5 seeds)" in text
    assert "not run, 2 failed" in text
    assert "| Knapsack, DBB, degree 8, noise 0.0 | 1, 3 | &lt;b>no&lt;/b> answer \\| after 600 s |" in text
    for table in PAPER_TABLES:
        assert f"## {table.title}" in rows


HOSTILE = "<script>alert('x')</script>&amp;|*a* $\\frac$ [b](c)"


def add_portfolio(builder: Builder, name: str, size: float = 0.1) -> None:
    yardstick = {"regrets": [0.1, 0.2], "value": [1.0, 1.1]}
    metrics = {"regrets": [0.2, 0.3], "best": [1.0, 1.0], "value": [1.0, 1.2], "dates": [name, "b"]}
    metrics |= {"yardsticks": {"equal weight": yardstick, name: yardstick}}
    metrics |= dict.fromkeys(("normalized_regret", "cumulative_return", "annual_return", "volatility"), size)
    metrics |= dict.fromkeys(("sharpe", "max_drawdown", "mean_turnover", "normalized_mse"), size)
    prices = {"assets": 3, "data": name, "days": 9, "first": name, "last": "b", "time_cap": 2400.0}
    for seed in range(2):
        metrics["normalized_regret"] = size * (1 + seed)
        for method in ("mse", "pear", "qpth"):
            builder.add("portfolio", method, seed, metrics, settings=prices, timings={**TIMES, "total": 2400.0})


def test_names_from_data_are_inert_on_the_page_and_in_the_tables(builder: Builder, tmp_path: Path) -> None:
    shift = {"shift": {"forward": 0.1, "cross": 0.2}}
    builder.add("shortest_path", HOSTILE, 0, {"normalized_regret": 0.1}, timings=TIMES, history=HISTORY)
    builder.add("shortest_path", HOSTILE, 0, shift, settings={"variant": "direction-shift"})
    builder.add(HOSTILE, HOSTILE, 0, {}, status="failed", reason=HOSTILE, machine=HOSTILE)
    add_portfolio(builder, HOSTILE)
    text, markdown = write(builder, tmp_path / "out")
    check_self_contained(text)  # has no <script>, and closes what it opens
    assert text.count("&lt;script&gt;") >= 12
    assert "&amp;amp;" in text
    rows = [row for row in markdown.splitlines() if "alert" in row]
    assert len(rows) >= 10
    assert not any("<script" in row or "&amp;|" in row or "*a*" in row or "[b]" in row for row in rows)
    for table in re.findall(r"(?:^\|.*\n)+", markdown, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table


def test_plain_names_are_left_alone_in_markdown() -> None:
    for text in ("S&P 100, 4.2 ± 1.0 (ddof 1)", "normalized_regret of prices-2024.csv"):
        assert escape_markdown(text) == text


def test_one_palette_for_the_light_and_the_dark_page() -> None:
    assert figure_style.LIGHT.keys() == figure_style.DARK.keys()
    assert len(set(figure_style.LIGHT.values())) == len(figure_style.LIGHT)  # a colour in a picture has one name
    parts = {"mse": dict.fromkeys(PARTS, 1.0), "pear": dict.fromkeys(PARTS, 2.0)}
    series = [MethodCurve(name, [1.0, 2.0], [1.0, 2.0]) for name in METHOD_COLORS]
    drawn = [
        draw_regret_curves(series, series, "#2f7d4f"),
        draw_time_bars(parts),
        draw_shift_bars({"pear": 1.0}, {"pear": 2.0, "other": 1.0}, {"pear": 1.5}),
        draw_portfolio_values({"a": [1.0, 2.0]}, {"a": "ink"}, [(1, 2)]),
    ]
    for svg in drawn:
        assert not re.search(r'style="[^"]*#[0-9a-f]{6}', svg)  # every colour follows the page
    assert ">#2f7d4f</text>" in drawn[0]  # a text is no colour


def test_plots_of_benchmarks_share_the_style(tmp_path: Path) -> None:
    rows = [Series("pear", [1, 10], [0.1, 0.2]), Series("<$x>", [1, 10], [0.0, 3.0], ours=False)]
    svg = draw_series(tmp_path / "a.svg", "title", "x", "y", rows).read_text("utf-8")
    colors = set(re.findall(r"#[0-9a-f]{6}", re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)))
    assert colors <= set(figure_style.LIGHT.values())
    assert {figure_style.LIGHT["pear"], figure_style.LIGHT["mse"]} <= colors
    assert "&lt;$x&gt;" in svg
    assert draw_series(tmp_path / "b.svg", "title", "x", "y", rows).read_text("utf-8") == svg


def test_pictures_survive_extremes() -> None:
    for y in ([1e-3, 1e-3], [4.2, 4.3], [1e-3, 300.0], [float("nan"), 1.0]):
        picture = draw_regret_curves([MethodCurve("pear", [1.0, 2.0], y)], [], "degree")
        assert picture.startswith("<svg")
        assert "var(--pear)" in picture
        assert len(re.findall(r"<text", picture)) >= 4  # the label, and numbers on both axes
    assert "0 s" in draw_time_bars({"mse": {"solve": 0.0}})


# --- failing well ---------------------------------------------------------------------------------------------------


def test_what_is_no_database_of_runs_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        DatabaseError, match=r"there is no database of runs at .*missing.sqlite; run pear reproduce first"
    ):
        read(tmp_path / "missing.sqlite")
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    with pytest.raises(DatabaseError, match="cannot be read as a database of runs"):
        read(tmp_path / "text.sqlite")
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE runs (a TEXT)").connection.commit()
    with pytest.raises(DatabaseError, match="lacks the tables runs and meta"):
        read(tmp_path / "other.sqlite")
    Builder(tmp_path / "empty.sqlite")
    with pytest.raises(DatabaseError, match="holds no runs yet; run pear reproduce first"):
        read(tmp_path / "empty.sqlite")
    Builder(tmp_path / "new.sqlite", version=7)
    with pytest.raises(DatabaseError, match=r"is of version 7, and this report reads version 1; .*--export"):
        read(tmp_path / "new.sqlite")
    assert not (tmp_path / "missing.sqlite").exists()


def test_reading_changes_nothing(filled: Builder) -> None:
    before = filled.path.read_bytes()
    read(filled.path)
    assert filled.path.read_bytes() == before


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_without_a_package_the_extra_is_named(
    filled: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(MissingExtraError, match=rf"the report needs {missing}, .* pip install 'pear-dfl\[cli\]'"):
        write_report(read(filled.path), tmp_path)


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(terminal: None) -> Run:
    return partial(command_line.run, "report")


def test_command_writes_where_it_says(filled: Builder, run: Run, tmp_path: Path) -> None:
    result = run("--db", filled.path, "--out", "page")
    assert result.exit_code == 0, result.output
    assert "finished and 2 failed runs" in result.output
    assert f"Page:   {Path('page') / 'report.html'}" in result.output
    assert (tmp_path / "page" / "report.html").is_file()
    assert (tmp_path / "page" / "report.md").is_file()


def test_command_takes_the_folder_that_experiments_write_to(run: Run, tmp_path: Path) -> None:
    settings = {**PROBLEM["knapsack"], "degree": 8, "noise": 0.0, "time_cap": 600.0, "max_epochs": 10_000}
    folder = tmp_path / "pear-output" / "lp"
    with Database(folder / FILE_NAME) as database:
        row = RunRecord("k", "lp-degree", "knapsack", "mse", 0, settings, "done", metrics={"normalized_regret": 0.0229})
        assert database.add(row)
        assert run().exit_code == 0  # while a writer has it open
    assert "2.290 *within 1 sd* (1 of 5 seeds)" in (tmp_path / "pear-output/report/report.md").read_text("utf-8")


def test_command_fails_in_one_sentence_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    result = run("--out", "page")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: there is no database of runs at pear-output")
    assert len(result.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


TAMPERED = {
    "settings": ("{", "a JSON dict"),
    "metrics": ("[1, 2]", "a JSON dict"),
    "timings": ('{"total": "<b>"}', "a JSON dict"),
    "history": ('[["a", 1]]', "a JSON list"),
    "versions": (None, "a JSON dict"),
    "seed": ("zero", "a value of type int"),
    "task": (b"\x80\x04", "a value of type str"),
    "status": ("perhaps", "a value of type str"),
}


@pytest.mark.parametrize("field", TAMPERED)
def test_a_row_that_was_altered_is_named(filled: Builder, run: Run, tmp_path: Path, field: str) -> None:
    value, expected = TAMPERED[field]
    filled.connection.execute(f"UPDATE runs SET {field} = ? WHERE key = 'key3'", (value,))
    filled.connection.commit()
    result = run("--db", filled.path, "--out", "page")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: the row with the key 'key3' is damaged or was altered: its " + field)
    assert f"and {expected} was expected; restore the database, or delete the row" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("field", "value"), [("metrics", '{"normalized_regret": "a"}'), ("metrics", '{"normalized_regret": {}}')]
)
def test_a_row_whose_numbers_are_none_is_named(
    filled: Builder, run: Run, tmp_path: Path, field: str, value: str
) -> None:
    filled.connection.execute(f"UPDATE runs SET {field} = ? WHERE key = 'key6'", (value,))
    filled.connection.commit()
    result = run("--db", filled.path, "--out", "page")
    assert result.exit_code == 2
    assert "the settings or metrics of the row with the key 'key6' are not those of a run" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list((tmp_path / "page").iterdir())


def test_a_portfolio_without_its_settings_is_named(builder: Builder, run: Run) -> None:
    add_portfolio(builder, "prices")
    builder.add("portfolio", "mse", 7, {}, settings={"data": "other"})
    result = run("--db", builder.path, "--out", "page")
    assert result.exit_code == 2
    assert "the row with the key 'key7' are not those of a run" in result.stderr
