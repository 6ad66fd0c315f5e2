"""The documents: the Python code of each runs as one script in an empty directory, and the site is built."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import pear

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,})python(?P<info>[ \t][^\n`]*)?\n(?P<code>.*?)^(?P=indent)(?P=fence)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


def python_blocks(text: str) -> list[str]:
    """Return the Python blocks of a document, padded with empty lines to the line numbers of the document."""
    return [
        "\n" * text.count("\n", 0, match.start("code")) + textwrap.dedent(match["code"])
        for match in FENCE.finditer(text)
        if "no-run" not in (match["info"] or "").split()
    ]


def documents() -> list[Path]:
    """Return every document with Python code to run."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in paths if path.exists() and python_blocks(path.read_text("utf-8"))]


@pytest.fixture
def torch_state_kept() -> Iterator[None]:
    """Restore torch's random state and default dtype after a document has changed them."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng():
        yield
    torch.set_default_dtype(dtype)


@pytest.fixture
def short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit trainings to eight epochs, which make the same calls as a hundred."""
    check = pear.FitConfig.__post_init__

    def shorten(config: pear.FitConfig) -> None:
        check(config)
        object.__setattr__(config, "max_epochs", min(config.max_epochs, 8))

    monkeypatch.setattr(pear.FitConfig, "__post_init__", shorten)


@pytest.mark.usefixtures("torch_state_kept", "short_trainings")
@pytest.mark.parametrize("document", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_document_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for code in python_blocks(document.read_text("utf-8")):
        exec(compile(code, str(document), "exec"), namespace)


def test_blocks_are_found_in_order_with_their_line_numbers() -> None:
    text = textwrap.dedent("""\
        Text.
        ```python
        a = 1
        ```
        ```python no-run
        raise SystemExit
        ```
        ```pythonic
        raise SystemExit
        ```
        ```text
        python
        ```
        - In a list:
            ```python
            if a:
                b = 2
            ```
        """)
    assert python_blocks(text) == ["\n\na = 1\n", "\n" * 15 + "if a:\n    b = 2\n"]


# Emphasis in a sentence stands between words; what begins or ends within one was meant as a formula: z*(c) … z*.
BROKEN_FORMULA = re.compile(r"\w<(?:em|strong)>|</(?:em|strong)>[\w(]")


def test_the_site_builds_and_shows_formulas_as_they_are_written(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): path.read_text("utf-8") for path in site.rglob("*.html")}
    assert {"index.html", "methods.html", "reference.html"} <= set(pages)
    for name, page in pages.items():
        broken = [page[max(match.start() - 80, 0) : match.end() + 80] for match in BROKEN_FORMULA.finditer(page)]
        assert not broken, (name, broken)
    assert "z*(ĉ) and z*(ĉ + λw)" in html.unescape(pages["methods.html"])


def test_examples_in_docstrings_are_shown_as_code(site: Path) -> None:
    reference = (site / "reference.html").read_text("utf-8")
    assert reference.count('<span class="gp">&gt;&gt;&gt; </span>') > 10
    assert "<blockquote>" not in reference  # which is what >>> makes of text


def test_a_broken_formula_is_recognised() -> None:
    assert BROKEN_FORMULA.search("z<em>(ĉ) and z</em>(ĉ + λw)")
    assert not BROKEN_FORMULA.search("the loss <em>is</em> the regret, (<em>basic</em>)")
