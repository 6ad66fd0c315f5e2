"""The tutorials: every script runs at small size, and its page shows its present text and code."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from scripts import import_script

ROOT = Path(__file__).resolve().parents[2]


tutorials = import_script(ROOT / "tools" / "tutorials.py")
SCRIPTS: dict[str, Path] = tutorials.scripts()
EACH = pytest.mark.parametrize("name", SCRIPTS)
# What a script needs beyond the package: extras of pyproject.toml.
NEEDS = {
    "battery": ("cvxpy", "sklearn"),
    "knapsack": ("highspy", "sklearn"),
    "from_pyepo": ("highspy", "pyepo", "pandas"),
    "portfolio": ("pandas",),
    "paths": ("pandas",),
    "boosted_trees": ("lightgbm", "pandas"),
    "unit_commitment": ("cvxpy", "sklearn"),
    "commands": ("highspy", "sklearn", "pandas"),
    "tour": ("pyepo", "sklearn", "pandas"),
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in an empty folder at small size, without windows; restore torch's state at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PEAR_SMALL", "1")
    mpl.use("agg")
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng():
        yield tmp_path
    torch.set_default_dtype(dtype)


def made_up_prices(path: Path) -> Path:
    """Write random walks of six assets over three years of weekdays; skfolio, with real prices, is not in ``dev``."""
    days = np.datetime64("2020-01-01") + np.arange(1000)
    days = days[np.is_busday(days)]
    walk = 100 * np.exp(np.random.default_rng(0).normal(0, 0.01, (len(days), 6)).cumsum(0))
    rows = [",".join([str(day), *(f"{price:.4f}" for price in row)]) for day, row in zip(days, walk, strict=True)]
    path.write_text("\n".join(["Date,A,B,C,D,E,F", *rows]) + "\n")
    return path


@EACH
def test_script_runs_at_small_size(name: str, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package, reason=f"{package} is not installed; pip install 'pear-dfl[dev]'")
    if importlib.util.find_spec("skfolio") is None:
        monkeypatch.setenv("PEAR_PRICES", str(made_up_prices(small / "prices.csv")))
    script = SCRIPTS[name]
    cells = tutorials.read_cells(script.read_text("utf-8"))
    outputs = tutorials.run(cells, str(script))
    pictures = {id(figure): "images/one.svg" for output in outputs for figure in output.figures}
    assert pictures, "a tutorial has a picture"
    page = tutorials.page(cells, outputs, pictures, script.name)  # which refuses output that does not belong there
    assert tutorials.without_output(page) == tutorials.bare_page(script)
    assert "```text" in page, "a tutorial prints what it found"


@EACH
def test_page_is_the_script(name: str) -> None:
    """The page has the text and code of the script; its output is not compared."""
    script = SCRIPTS[name]
    page, again = script.with_suffix(".md"), f"run python tools/tutorials.py {name}"
    assert page.exists(), again
    text = page.read_text("utf-8")
    assert tutorials.without_output(text) == tutorials.bare_page(script), again
    pictures = re.findall(r"!\[[^\]]+\]\((images/[^)]+\.svg)\)", text)
    assert pictures, again
    assert {page.parent / one for one in pictures} == set((page.parent / "images").glob(f"{name}-[0-9]*.svg")), again


def test_every_page_and_picture_has_a_script_and_a_place_in_the_list() -> None:
    folder = ROOT / "docs" / "tutorials"
    listed = re.findall(r"\]\((\w+)\.md\)", (folder / "index.md").read_text("utf-8"))
    assert sorted(set(listed)) == sorted(SCRIPTS)
    assert {path.stem for path in folder.glob("*.md")} == {*SCRIPTS, "index"}
    assert {path.name.rsplit("-", 1)[0] for path in (folder / "images").iterdir()} == set(SCRIPTS)


SCRIPT = """\
# %% [markdown]
# # A title
#
# Text with `code`.

# %%
print("a <b>" + 30 * " long")
2 + 2

# %%
x = 1


# %%
class Table:
    def _repr_html_(self):
        table = '<table border="1" class="dataframe"><tr><td>&lt;b&gt;</td></tr></table>'
        return f"<style scoped>td {{}}</style>\\n\\n  {table}"


Table()
"""


def test_cells_become_a_page(small: Path) -> None:
    cells = tutorials.read_cells(SCRIPT)
    assert [cell.is_text for cell in cells] == [True, False, False, False]
    page = tutorials.page(cells, tutorials.run(cells, "script.py"), {}, "script.py")
    assert "\n\n# A title\n\nText with `code`.\n\n```python no-run\nprint(" in page
    # Markdown shows the text of a fence as it is, so that nothing is escaped; a long line is folded.
    assert re.search(r"```text\na <b>( long){18}\n    (long ?){12}\n4\n```\n", page)
    assert "<!-- output -->\n<table><tr><td>&lt;b&gt;</td></tr></table>\n<!-- end of output -->" in page
    script = small / "script.py"
    script.write_text(SCRIPT)
    assert tutorials.without_output(page) == tutorials.bare_page(script)
    script.write_text(SCRIPT.replace("x = 1", "x = 2"))
    assert tutorials.without_output(page) != tutorials.bare_page(script)


def test_an_error_names_the_line_of_the_script(small: Path) -> None:
    cells = tutorials.read_cells(SCRIPT.replace("x = 1", "x = 1 / 0"))
    with pytest.raises(ZeroDivisionError) as error:
        tutorials.run(cells, "script.py")
    assert error.traceback[-1].lineno == SCRIPT.splitlines().index("x = 1")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("x = 1\n", "must begin with a cell"),
        ("# %% [markdown]\nx = 1\n", "must be written in comments"),
        ("# %% [raw]\n# text\n", "a cell is '# %%' or"),
    ],
)
def test_what_is_no_cell_is_refused(script: str, told: str) -> None:
    with pytest.raises(SystemExit, match=re.escape(told)):
        tutorials.read_cells(script)


@pytest.mark.parametrize("html", ["<script>1</script>", '<b onclick="x()">', '<img src="https://a.b/c.png">'])
def test_an_output_must_not_run_or_load_anything(html: str) -> None:
    with pytest.raises(SystemExit, match="must not run anything"):
        tutorials.plain_html(html)


def test_an_unknown_tutorial_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tutorials.main(["no-such"])
    assert "there is no tutorial no-such; there are" in capsys.readouterr().err
