"""The figure of mean ranks: a critical-difference diagram. Its bars join methods that cannot be told apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pear.pages.figure_style import INK, LIGHT, MUTED, save_figure, styled_figure
from pear_lab.field.rank_statistics import MeanRankStatistics

_ROW = 0.27
"""The distance between two names, in inches."""


def save_rank_figure(found: MeanRankStatistics, titles: Mapping[str, str], path: Path) -> Path:
    """Draw mean ranks with Nemenyi's critical difference, as in Demšar 2006, and save the figure.

    The better half of the methods is named on the left, with the best at the top; the other half on the right, with the
    worst at the top. A thick bar joins methods whose ranks differ by at most the critical difference.

    Args:
        found: the ranks.
        titles: the titles of the methods, by name.
        path: a file that ends in .svg or .png.

    Returns:
        The file.
    """
    names, groups, count = list(found.ranks), found.groups(), len(found.ranks)
    half = (count + 1) // 2
    bars, rows = 0.18 * len(groups), _ROW * half
    height = 0.9 + bars + rows
    with styled_figure((9.0, height)) as (figure, axes):
        axes.set_axis_off()
        axes.set(xlim=(1 - 0.42 * count, 1.42 * count), ylim=(-(bars + rows) - 0.1, 0.8))
        axes.plot([1, count], [0, 0], color=INK, lw=1.2)
        for rank in range(1, count + 1):
            axes.plot([rank, rank], [0, 0.06], color=INK, lw=1)
            axes.text(rank, 0.1, str(rank), ha="center", va="bottom", fontsize=9, color=MUTED)
        axes.plot([1, 1 + found.critical_difference], [0.48, 0.48], color=INK, lw=2)
        axes.text(1, 0.54, f"critical difference {found.critical_difference:.2f}", fontsize=9, color=MUTED)
        for place, name in enumerate(names):
            left = place < half
            down = bars + _ROW * (place if left else count - 1 - place) + 0.2
            _draw_rank_figure_name(axes, found.ranks[name], down, left, count, titles[name], name.startswith("pear"))
        for place, group in enumerate(groups):
            ends = [found.ranks[group[0]] - 0.05, found.ranks[group[-1]] + 0.05]
            axes.plot(ends, [-0.1 - 0.18 * place] * 2, color=INK, lw=3.2, solid_capstyle="butt")
        return save_figure(figure, path)


def _draw_rank_figure_name(axes: Any, rank: float, down: float, left: bool, count: int, title: str, ours: bool) -> None:
    """Draw the line from a rank to the title of its method, and the title."""
    edge = 0.6 if left else count + 0.4
    color = LIGHT["pear"] if ours else INK
    axes.plot([rank, rank, edge], [0, -down, -down], color=color, lw=1)
    words = f"{title}  {rank:.2f}" if left else f"{rank:.2f}  {title}"
    axes.text(edge + (-0.1 if left else 0.1), -down, words, ha="right" if left else "left", va="center", fontsize=9,
              color=color)  # fmt: skip
