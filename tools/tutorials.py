"""Makes the pages of ``docs/tutorials`` from the scripts beside them.

    python tools/tutorials.py                 # all of them
    python tools/tutorials.py paths battery   # some of them

A script consists of cells: ``# %% [markdown]`` begins a cell of text, and ``# %%`` a cell of code, as in VS Code,
Spyder and Jupytext. Every code cell is run. Below the cell, the page has its printed text, the value of its last
expression, and the figures that it leaves open in pyplot. Pages and figures are committed. The tests run every script
at small size (``PEAR_SMALL=1``), and compare the text and the code of its page with the script. They do not compare the
output, whose last digits may differ between machines.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import html
import io
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl

from pear.pages import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
MARK = re.compile(r"^# %%(?P<kind>.*)$", re.MULTILINE)
BEGIN, END = "<!-- output -->", "<!-- end of output -->"
OUTPUT = re.compile(rf"\n\n{BEGIN}\n.*?\n{END}", re.DOTALL)
# no-run: the test of the documents runs every other block, and these are run by the test of the scripts.
CODE = "```python no-run"
WIDTH = 96  # characters of a line on a page
# Pyplot's figures look as those of the package: the first line is MSE's colour, the second is ours.
COLORS = [figure_style.LIGHT[name] for name in ("mse", "pear", "spo", "pfyl", "lava", "dbb")]
PYPLOT = {
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.prop_cycle": mpl.cycler(color=COLORS),
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.figsize": (7.5, 3.4),
}


@contextlib.contextmanager
def look() -> Iterator[None]:
    """Give pyplot's figures the style of the package, within the block of the with statement."""
    with figure_style.style_context(), mpl.rc_context(PYPLOT):
        yield


class Cell(NamedTuple):
    """A piece of a script.

    Attributes:
        is_text: whether the cell is Markdown; otherwise it is code.
        source: the text without the marks of comments, or the code, without empty lines around it.
        line: the line of the script at which the source begins, counted from 0.
    """

    is_text: bool
    source: str
    line: int


@dataclass
class Output:
    """The output of a code cell.

    Attributes:
        printed: the text on stdout.
        value: the value of the last expression; None if there is none, or if the cell draws a figure.
        figures: the figures, in the order of their numbers.
    """

    printed: str = ""
    value: Any = None
    figures: list[Figure] = field(default_factory=list)


def scripts() -> dict[str, Path]:
    """Return all scripts by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.py"))}


def read_cells(script: str) -> list[Cell]:
    """Return the cells of a script, from its content.

    Raises:
        SystemExit: the script does not begin with a mark, a mark is unknown, or a line of text is no comment.
    """
    marks = list(MARK.finditer(script))
    if not marks or script[: marks[0].start()].strip():
        raise SystemExit("a script must begin with a cell: a line '# %% [markdown]' for text or '# %%' for code")
    ends = [mark.start() for mark in marks[1:]] + [len(script)]
    return [_cell(mark, script[mark.end() : end], script) for mark, end in zip(marks, ends, strict=True)]


def _cell(mark: re.Match[str], body: str, script: str) -> Cell:
    line, kind = script.count("\n", 0, mark.start()) + 1, mark["kind"].strip()
    first = line + len(body) - len(body.lstrip("\n")) - 1
    if kind not in ("", "[markdown]"):
        raise SystemExit(f"line {line}: a cell is '# %%' or '# %% [markdown]'; got '# %% {kind}'")
    if not kind:
        return Cell(False, body.strip("\n"), first)
    lines = body.strip("\n").splitlines()
    stray = [row for row in lines if row.strip() and not row.startswith("#")]
    if stray:
        raise SystemExit(f"line {line}: text must be written in comments, '# …'; got {stray[0]!r}")
    return Cell(True, "\n".join(row.removeprefix("#").removeprefix(" ") for row in lines), first)


def run(cells: Sequence[Cell], name: str) -> list[Output]:
    """Run a script cell by cell in one namespace, and return the output of each cell; that of a text cell is empty.

    Args:
        cells: the cells of the script.
        name: the name of the script's file, for tracebacks.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with look():
        return [Output() if cell.is_text else _run_cell(cell, name, namespace) for cell in cells]


def _run_cell(cell: Cell, name: str, namespace: dict[str, Any]) -> Output:
    from matplotlib import pyplot

    tree = ast.increment_lineno(ast.parse(cell.source, name), cell.line)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    pyplot.close("all")
    if isinstance(value, mpl.figure.Figure) and value not in figures:
        figures.append(value)
    return Output(printed.getvalue(), None if figures else value, figures)  # drawing returns lines, legends and such


def page(cells: Sequence[Cell], outputs: Sequence[Output], pictures: Mapping[int, str], script: str) -> str:
    """Return the page as Markdown.

    Args:
        cells: the cells of the script.
        outputs: the output of each cell; ``Output()`` for a cell whose output is not shown.
        pictures: the file of each figure, relative to the page, by the ``id`` of the figure.
        script: the name of the script's file.
    """
    parts = [f"<!-- written by tools/tutorials.py from {script}: change the script, not this page -->"]
    for cell, output in zip(cells, outputs, strict=True):
        parts.append(cell.source if cell.is_text else f"{CODE}\n{cell.source}\n```")
        shown = _shown(output, pictures)
        parts += [f"{BEGIN}\n{shown}\n{END}"] if shown else []
    return "\n\n".join(parts) + "\n"


def _shown(output: Output, pictures: Mapping[int, str]) -> str:
    text, value = output.printed.rstrip("\n"), output.value
    as_html = getattr(value, "_repr_html_", None)
    if value is not None and as_html is None:
        text = f"{text}\n{value!r}".strip("\n")
    folded = "\n".join(map(_folded, text.splitlines()))
    parts = [f"```text\n{folded}\n```"] if text else []
    parts += [plain_html(as_html())] if as_html is not None else []
    parts += [f"![{_alt(figure)}]({pictures[id(figure)]})" for figure in output.figures]
    return "\n\n".join(parts)


def _folded(line: str) -> str:
    """Return a line, broken into several lines if it is longer than ``WIDTH``."""
    return textwrap.fill(line, WIDTH, subsequent_indent="    ") if len(line) > WIDTH else line


def plain_html(source: str) -> str:
    """Return HTML without its own styles, and without empty lines, which would end a block of HTML in Markdown.

    Raises:
        SystemExit: the HTML contains a script, or loads something from another server.
    """
    source = re.sub(r"<style.*?</style>", "", source, flags=re.DOTALL)
    source = re.sub(r'(<table[^>]*?) (?:border="1" )?class="dataframe"', r"\1", source)
    if re.search(r"<script|<iframe|\son\w+=|(?:src|href)=[\"']?(?:https?:)?//", source):
        raise SystemExit(f"the HTML of an output must not run anything or load anything; got {source[:200]!r} …")
    return "\n".join(line.strip() for line in source.splitlines() if line.strip())


def _alt(figure: Figure) -> str:
    titles = [figure.get_suptitle(), *(axes.get_title(loc="left") or axes.get_title() for axes in figure.axes)]
    titles += [text.get_text() for text in figure.texts]
    return html.escape(next((title for title in titles if title), "figure").replace("\n", " "))


def without_output(text: str) -> str:
    """Return the text of a page without the output of its cells."""
    return OUTPUT.sub("", text)


def bare_page(script: Path) -> str:
    """Return the page of a script without the output of its cells. The script is not run."""
    cells = read_cells(script.read_text("utf-8"))
    return page(cells, [Output()] * len(cells), {}, script.name)


def write(script: Path) -> Path:
    """Run a script in an empty folder, write its page and its figures beside it, and return the page's path."""
    cells, images = read_cells(script.read_text("utf-8")), script.parent / "images"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        outputs = run(cells, str(script))
    for old in images.glob(f"{script.stem}-[0-9]*.svg"):
        old.unlink()
    images.mkdir(exist_ok=True)
    figures = [figure for output in outputs for figure in output.figures]
    pictures = {}
    with look():  # a colour such as "C1" is looked up when it is drawn
        for number, figure in enumerate(figures, 1):
            pictures[id(figure)] = (
                f"images/{figure_style.save_figure(figure, images / f'{script.stem}-{number}.svg').name}"
            )
    target = script.with_suffix(".md")
    target.write_text(page(cells, outputs, pictures, script.name), "utf-8")
    return target


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pages of the scripts that the command line names; of all scripts if it names none."""
    known = scripts()
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all where none is given")
    names = parser.parse_args(arguments).names or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no tutorial {', '.join(unknown)}; there are {', '.join(known)}")
    mpl.use("agg")
    os.environ.pop("PEAR_SMALL", None)
    for name in names:
        print(write(known[name]).relative_to(FOLDER.parents[1]))


if __name__ == "__main__":
    main()
