"""The style of all figures: on pages, of ``pear demo``, and in the laboratory's reports and benchmarks.

Figures are drawn with light colours. In a figure for a page, CSS variables replace these colours, so that the page can
show the figure in light and in dark colours.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pear.errors import name_output_in_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIGHT = {
    "page": "#f6f7f5", "card": "#ffffff", "ink": "#22262b", "muted": "#667079", "line": "#e2e5e3",
    "mse": "#d9822b", "spo": "#3b74c4", "spo-relaxed": "#55a9c9", "pfyl": "#8a5fb8", "dbb": "#8c7257",
    "lava": "#c9416e", "pear": "#2f7d4f", "pear-mid": "#5aa679", "pear-pale": "#93c9a8", "pear-deep": "#1d5736",
    "validation": "#d9a13b", "rest": "#b9c0c4",
    "within-bg": "#e6f3ea", "better": "#1f66b1", "better-bg": "#e4eefa", "worse": "#b0462a", "worse-bg": "#fbe9e3",
    "none": "#727a82", "none-bg": "#eef0f1",
}  # fmt: skip
"""The light colours by name. No two are equal, so that a colour in a figure determines its name."""

DARK = {
    "page": "#14171a", "card": "#1c2024", "ink": "#e7eaec", "muted": "#9aa4ad", "line": "#30363c",
    "mse": "#f0a04b", "spo": "#6fa3ee", "spo-relaxed": "#7fcbe6", "pfyl": "#b792e0", "dbb": "#bfa283",
    "lava": "#ee7099", "pear": "#63c88a", "pear-mid": "#4da372", "pear-pale": "#3e7f58", "pear-deep": "#a5e3bd",
    "validation": "#e0b15a", "rest": "#59626a",
    "within-bg": "#1d3427", "better": "#86b9f2", "better-bg": "#1c2f45", "worse": "#f2997c", "worse-bg": "#42261d",
    "none": "#98a1a9", "none-bg": "#282d32",
}  # fmt: skip
"""The dark colours, by the names of ``LIGHT``."""

INK, MUTED, LINE, CARD = (LIGHT[name] for name in ("ink", "muted", "line", "card"))
OURS = tuple(LIGHT[name] for name in ("pear", "pear-mid", "pear-pale", "pear-deep"))
"""Colours for the lines in a figure that show this package's own results."""
OTHERS = tuple(LIGHT[name] for name in ("mse", "pfyl", "spo", "lava", "dbb", "spo-relaxed"))
"""Colours for all other lines in a figure."""

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, sharp, and in the font of the page
    "svg.hashsalt": "pear",  # the same picture gives the same bytes
    "font.size": 10.5,
    "font.family": "sans-serif",
    "text.color": INK,
    "text.parse_math": False,  # a name from a file may hold a dollar sign
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titlepad": 8,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": CARD,
    "axes.facecolor": CARD,
    "savefig.facecolor": "auto",
    **{f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")},
}


def style_context() -> contextlib.AbstractContextManager[None]:
    """Return a context in which matplotlib draws in the style of this package."""
    import matplotlib as mpl

    return mpl.rc_context(_SETTINGS)


@contextlib.contextmanager
def styled_figure(
    size: tuple[float, float],
    grid: Literal["x", "y", "both"] = "y",
    widths: tuple[float, ...] = (1.0,),
    heights: tuple[float, ...] = (1.0,),
    **options: Any,
) -> Iterator[tuple[Figure, Any]]:
    """A context with an empty figure and its axes in the style of this package. Draw and save inside its block.

    Args:
        size: width and height in inches.
        grid: "x" for vertical grid lines behind the data, "y" for horizontal ones, or "both".
        widths: relative widths of the columns of axes.
        heights: relative heights of the rows of axes.
        options: further arguments of ``Figure.subplots``.

    Yields:
        The figure, and its axes: one object, or an array of several axes.
    """
    from matplotlib.figure import Figure

    with style_context():
        figure = Figure(figsize=size, layout="constrained")  # no pyplot: no window and no global state
        axes = figure.subplots(len(heights), len(widths), width_ratios=widths, height_ratios=heights, **options)
        for one in figure.axes:
            one.grid(axis=grid)
        yield figure, axes


def style_plain_log_scale(axes: Any, which: Literal["x", "y"]) -> None:
    """Give the axis ``which`` a log scale with few ticks and plain numbers. Call this after everything is drawn."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    low, high = sorted(axis.get_view_interval())
    ratio = high / low if low > 0 else 1.0
    ticks = LogLocator(base=10, subs=(1.0,) if ratio > 1e4 else (1.0, 3.0) if ratio > 100 else (1.0, 2.0, 5.0))
    # A short axis may contain fewer than three of these ticks.
    enough = ratio > 1 and sum(low <= tick <= high for tick in ticks.tick_values(low, high)) > 2
    axis.set_major_locator(ticks if enough else MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.set_minor_locator(NullLocator())


def write_figure_headline(figure: Figure, title: str, subtitle: str = "") -> None:
    """Write a title and a subtitle above all axes of a figure."""
    height = figure.get_figheight()
    lines = ((title, 13.5, INK, "bold", 0.3), (subtitle, 10.5, MUTED, "normal", 0.56))
    for text, size, color, weight, down in lines[: 1 + bool(subtitle)]:
        figure.text(0.012, 1 - down / height, text, fontsize=size, color=color, fontweight=weight)
    top = 1 - (lines[bool(subtitle)][-1] + 0.14) / height
    figure.set_layout_engine("constrained", rect=(0, 0, 1, top), w_pad=0.12, h_pad=0.08)


def save_figure(figure: Figure, path: Path) -> Path:
    """Save a figure in the format of the file name's ending. Equal figures give equal bytes as SVG and as PNG."""
    with name_output_in_errors(path):
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def figure_as_svg(figure: Figure) -> str:
    """Return a figure as an ``<svg>`` element for a page: without XML header, namespaces, comments and fixed size."""
    figure.patch.set_alpha(0.0)
    for axes in figure.axes:
        axes.patch.set_alpha(0.0)
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # Text stays text, so that the page's font draws it; matplotlib measures it only.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", buffer.getvalue(), flags=re.DOTALL)
    head, _, body = text[text.index("<svg") :].partition(">")
    head = re.sub(r'\s(?:xmlns(?::\w+)?|version|width|height)="[^"]*"', "", head)
    text = f"{head}>{body}".replace("xlink:href", "href")
    names = {color: f"var(--{name})" for name, color in LIGHT.items()}

    def name_colors(style: re.Match[str]) -> str:
        return re.sub(r"#[0-9a-f]{6}", lambda color: names.get(color[0], color[0]), style[0])

    text = re.sub(r'style="[^"]*"', name_colors, text)  # only in styles: a text may contain what looks like a colour
    return re.sub(r"\n\s*", "\n", text).strip()
