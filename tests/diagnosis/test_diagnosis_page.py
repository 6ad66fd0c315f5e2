"""What a user sees of a diagnosis: pictures, an HTML page, a notebook's table, and the command."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import command_line
import numpy as np
import pytest
from browser import WIDTHS, Browser
from command_line import Run

import pear
from pear.diagnosis import Diagnosis
from pear.diagnosis.diagnosis_figures import BARS, make_diagnosis_figures
from pear.diagnosis.diagnosis_page import make_page_grids
from pear.errors import MissingExtraError
from pear.wording import format_percent

pandas = pytest.importorskip("pandas")
pytest.importorskip("highspy")

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>&amp; $\\frac$ {{ 7 * 7 }} #b0462a"
FOREIGN = "電力価格 الطلب"
HOURS = 24


def cheapest_hours(samples: int = 40, **given: object) -> Diagnosis:
    """Return the diagnosis of buying eight of 24 hours, with forecast errors that grow over the day."""
    draw = np.random.default_rng(0)
    problem = pear.Problem(A=np.ones((1, HOURS)), b=[8.0], lb=0.0, ub=1.0)
    true = 50 + draw.normal(size=(samples, HOURS))
    return pear.diagnose(problem, true + draw.normal(size=true.shape) * np.linspace(0.1, 3, HOURS), true, **given)


@pytest.fixture(scope="module")
def hostile() -> Diagnosis:
    names = [f"{HOSTILE} {i}" for i in range(HOURS - 1)] + ["a" * 300]
    names[-2] = FOREIGN
    return cheapest_hours(names=names, groups=pandas.Series([f"{i % 15} {HOSTILE}" for i in range(40)], name=HOSTILE))


# --- pictures -------------------------------------------------------------------------------------------------------


def test_the_pictures_show_the_numbers(hostile: Diagnosis) -> None:
    shown = {one.name: one for one in make_diagnosis_figures(hostile)}
    assert list(shown) == ["values", "groups", "samples", "constraints", "error"]
    values = shown["values"].draw.keywords
    dearest = hostile.values()
    np.testing.assert_array_equal(values["numbers"], dearest["cost"][:BARS])
    assert values["labels"] == list(dearest["value"][:BARS])
    assert values["label"] == f"the other 12 together: {dearest['cost'][BARS:].sum():.4g}"
    assert f"The {BARS} of 15 that cost most" in shown["groups"].caption
    assert f"tangent {format_percent(hostile.tangent_share)}" in shown["error"].svg()


def test_groups_stand_in_the_order_people_expect() -> None:
    days = np.array(["Wed", "Thu", "Fri", "Sat", "Sun", "Mon", "Tue"])[np.arange(40) % 7]
    drawn = next(
        one for one in make_diagnosis_figures(cheapest_hours(groups=days)) if one.name == "groups"
    ).draw.keywords
    assert drawn["labels"] == ["Wed", "Thu", "Fri", "Sat", "Sun", "Mon", "Tue"]
    hours = next(
        one for one in make_diagnosis_figures(cheapest_hours(groups=11 - np.arange(40) % 12)) if one.name == "groups"
    )
    assert hours.draw.keywords["labels"] == [str(i) for i in range(12)]
    assert sum(hours.draw.keywords["numbers"]) == pytest.approx(100)


def test_hours_of_a_day_stand_in_their_order_and_add_up_to_the_loss() -> None:
    found = cheapest_hours(names=[f"{i:02}:00" for i in range(HOURS)])
    drawn = make_diagnosis_figures(found)[0].draw.keywords
    assert drawn["labels"] == found.names
    assert drawn["numbers"].sum() == pytest.approx(found.regret.sum(), abs=1e-8)


@pytest.mark.filterwarnings("ignore:Glyph .* missing")  # which is about the font
def test_plot_gives_one_figure_that_any_format_takes(hostile: Diagnosis) -> None:
    figure = hostile.plot()
    assert len(figure.axes) == 5
    for kind in ("png", "svg"):
        figure.savefig(io.BytesIO(), format=kind)  # a dollar sign in a name is no formula, here as little as inside


def test_where_nothing_is_lost_there_is_still_a_page(tmp_path: Path) -> None:
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    found = pear.diagnose(problem, [[1.0, 2.0]], [[1.0, 2.0]], groups=["a"])
    assert [one.name for one in make_diagnosis_figures(found)] == ["constraints"]
    assert len(found.plot().axes) == 1
    assert "The decisions lose nothing" in found.save_html(tmp_path / "page.html").read_text("utf-8")
    assert "tangent share" not in found._repr_html_()


def test_without_constraints_there_is_none_to_draw(tmp_path: Path) -> None:
    found = pear.diagnose(pear.Problem(Q=np.eye(2)), [[1.0, 2.0]], [[2.0, 2.0]])
    assert [one.name for one in make_diagnosis_figures(found)] == ["values", "samples", "error"]
    assert "constraints" not in make_page_grids(found, 3)
    assert 'id="constraints"' not in found.save_html(tmp_path / "page.html").read_text("utf-8")


def test_the_curve_of_many_samples_is_no_heavier(hostile: Diagnosis) -> None:
    many = dataclasses.replace(hostile, groups=None, regret=np.random.default_rng(0).exponential(size=50_000))
    few, more = (
        len(next(one for one in make_diagnosis_figures(found) if one.name == "samples").svg())
        for found in (hostile, many)
    )
    assert more < few + 12_000


# --- the page -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(hostile: Diagnosis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile.save_html(tmp_path_factory.mktemp("page") / "page.html")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_in_a_browser(browser: Browser, hostile: Diagnosis, page: Path, width: int) -> None:
    asked = """() => [document.querySelector('main').children[1].innerText,
                      document.querySelectorAll('script, main img').length]"""
    view = browser.look(page, width, asked)
    assert view.faults() == []
    assert view.scrolling == []
    assert view.figures == 5
    assert view.told == [hostile.sentences[0], 0]  # it begins with the sentences, and names are text


def test_the_page_needs_nothing_else(hostile: Diagnosis, page: Path) -> None:
    text = page.read_text("utf-8")
    assert "<script" not in text
    assert "http" not in text
    assert "&lt;script&gt;" in text
    assert "{{ 7 * 7 }}" in text
    assert FOREIGN in text
    assert "&lt;script&gt;" in hostile._repr_html_()
    assert "<script" not in hostile._repr_html_()


def test_tables_hold_no_more_rows_than_asked_for(hostile: Diagnosis) -> None:
    for grid in make_page_grids(hostile, 3).values():
        assert len(grid.rows) == 3
        assert "3 of " in grid.title
        assert {len(row) for row in grid.rows} == {len(grid.header)}
    assert "groups" not in make_page_grids(cheapest_hours(5), 3)


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_without_a_package_the_extra_is_named(
    hostile: Diagnosis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(MissingExtraError, match=rf"the page needs {missing}, .* pip install 'pear-dfl\[cli\]'"):
        hostile.save_html(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


# --- the command ----------------------------------------------------------------------------------------------------

ITEMS = ("tent", "stove", "rope", "lamp", "map")
BAG = """max
 value: tent + stove + rope + lamp + map
st
 weight: 5 tent + 4 stove + 3 rope + 2 lamp + map <= 8
binary
 tent stove rope lamp map
end
"""


@pytest.fixture
def tables() -> tuple[pandas.DataFrame, pandas.DataFrame]:
    draw = np.random.default_rng(0)
    true = draw.uniform(1, 9, size=(30, len(ITEMS)))
    predicted = true + draw.normal(size=true.shape) * [3, 1, 1, 1, 0.1]
    days = [f"2025-01-{1 + i:02}T{6 * (i % 4):02}:00+01:00" for i in range(30)]
    made = [pandas.DataFrame(values, columns=ITEMS).assign(day=days) for values in (true, predicted)]
    return made[0], made[1][["map", "day", "lamp", "rope", "stove", "tent"]]  # by names, not by place


@pytest.fixture
def run(terminal: None, tables: tuple[pandas.DataFrame, pandas.DataFrame]) -> Run:
    """Return a function that runs the command in a folder with ``bag.lp``, ``costs.csv`` and ``predictions.csv``."""
    Path("bag.lp").write_text(BAG)
    for name, table in zip(("costs", "predictions"), tables, strict=True):
        table.to_csv(f"{name}.csv", index=False)
    return partial(command_line.run, "diagnose")


FILES = ("bag.lp", "costs.csv", "predictions.csv")


def test_the_command_says_what_python_says(
    run: Run, tables: tuple[pandas.DataFrame, pandas.DataFrame], browser: Browser
) -> None:
    result = run(*FILES, "--groups", "day", "--out", "out/page.html")
    assert result.exit_code == 0, result.output
    assert f"Page: {Path('out/page.html')}" in result.output
    true, predicted = (table[list(ITEMS)] for table in tables)
    found = pear.diagnose(pear.from_mps("bag.lp"), predicted, true, groups=np.arange(30) % 4 * 6)
    assert found.sentences[0] in result.output
    assert "By hour of day" in result.output
    assert f"{100 * found.values()['share'][0]:.0f} %" in result.output
    for width in WIDTHS:
        view = browser.look(Path("out/page.html"), width)
        assert (view.faults(), view.scrolling, view.figures) == ([], [], 5)


def test_labels_that_are_no_dates_and_costs_of_some_variables(run: Run) -> None:
    for name in FILES[1:]:
        pandas.read_csv(name)[["tent", "lamp"]].assign(shop=["A[red]", "B", "C"] * 10).to_csv(name, index=False)
    result = run(*FILES, "--groups", "shop", "--costs", "lamp,tent")
    assert result.exit_code == 0, result.output
    assert "By shop" in result.output
    assert "A[red]" in result.output  # no markup
    assert (
        "2 of the 5 costs of bag.lp are taken from the tables; the file's own cost is that of stove, rope, map."
        in result.output
    )
    assert Path("diagnosis.html").is_file()


def test_columns_of_both_tables_may_be_read_differently(run: Run) -> None:
    """Pandas reads integers beside an empty cell as floats; columns that ``--costs`` leaves out may differ."""
    for name, shop in zip(FILES[1:], ([1, 2, 3], [1.0, 2.0, 3.0]), strict=True):
        pandas.read_csv(name).assign(shop=shop * 10, note=[None, "wet", "dry"] * 10).to_csv(name, index=False)
    result = run(*FILES, "--costs", "tent,lamp,rope,map")
    assert result.exit_code == 0, result.output
    assert (
        "4 of the 5 costs of bag.lp are taken from the tables; the file's own cost is that of stove." in result.output
    )


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda table: table[:20], (), "costs.csv has 30 rows and predictions.csv 20; expected a row of each"),
        (lambda table: table[::-1], (), "in different orders, first in line 2; rows are paired by their place: sort"),
        (
            lambda table: table.assign(day=["2025-01-02", *table["day"][:-1]]),
            (),
            "column 'day' is '2025-01-01T00:00+01:00' in line 2 of costs.csv and '2025-01-02' in that of predictions",
        ),
        (
            lambda table: table.assign(day=[*table["day"][:-1], None]),
            (),
            "in line 31 of costs.csv and '' in that of predictions.csv; rows are paired by their place",
        ),
        (lambda table: table.rename(columns={"lamp": "lmap"}), (), "no column 'lamp', did you mean 'lmap'?; predicted"),
        (lambda table: table.assign(rope="much"), (), "column 'rope' of predictions.csv holds text, such as 'much'"),
        (
            lambda table: table,
            ("--groups", "dya"),
            "--groups: neither costs.csv nor predictions.csv has a column 'dya'",
        ),
        (lambda table: table.assign(g=[None] + 29 * ["a"]), ("--groups", "g"), "column 'g' is empty in line 2"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    run: Run, change: Callable[..., pandas.DataFrame], arguments: tuple[str, ...], message: str
) -> None:
    change(pandas.read_csv("predictions.csv")).to_csv("predictions.csv", index=False)
    result = run(*FILES, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not Path("diagnosis.html").exists()
