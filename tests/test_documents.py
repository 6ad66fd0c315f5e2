"""The Python code of the README and the docs is run, each document as one script, in an empty directory."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import pear

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,})python(?P<info>[ \t][^\n`]*)?\n(?P<code>.*?)^(?P=indent)(?P=fence)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


def python_blocks(text: str) -> list[str]:
    """The blocks to run, each padded with empty lines so that a traceback names the document's own lines."""
    return [
        "\n" * text.count("\n", 0, match.start("code")) + textwrap.dedent(match["code"])
        for match in FENCE.finditer(text)
        if "no-run" not in (match["info"] or "").split()
    ]


def documents() -> list[Path]:
    """Every document with something to run."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in paths if path.exists() and python_blocks(path.read_text("utf-8"))]


@pytest.fixture
def torch_state_kept() -> Iterator[None]:
    """A document may seed torch or set its default dtype; the next test must not notice."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng():
        yield
    torch.set_default_dtype(dtype)


@pytest.mark.usefixtures("torch_state_kept")
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


def test_citation_names_the_version_of_the_package() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [pear.__version__]
