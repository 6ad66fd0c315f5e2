"""The picture of a rollout: states and decisions over time, and the cumulative cost."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pear.optional_packages import require_packages
from pear.pages.figure_style import INK, OTHERS, OURS, save_figure, styled_figure, write_figure_headline
from pear.wording import format_amount

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pear.rolling.rollout import Rollout


def draw_rollout_figure(found: Rollout, path: Path | None, most: int) -> Figure:
    """Draw the states and decisions of the last ``most`` steps of a rollout, and the cumulative cost of all steps.

    The picture is saved to ``path``, unless this is None.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require_packages("plot", "matplotlib")
    steps = slice(max(0, len(found.cost) - most), None)
    when = found.label[:: found.step]
    with styled_figure((11.0, 4.2), widths=(1.6, 1.0)) as (figure, (left, right)):
        for color, (name, values) in zip(cycle(OURS), found.states.items(), strict=False):
            left.plot(when[steps], _sum_figure_rows(values[1:])[steps], color=color, linewidth=1.8, label=name)
        for color, (name, values) in zip(cycle(OTHERS), found.decisions.items(), strict=False):
            if name not in found.states:
                done = _sum_figure_rows(values).reshape(len(found.cost), found.step).sum(1)
                left.step(when[steps], done[steps], where="mid", color=color, linewidth=1.1, label=name)
        left.legend(loc="upper left", bbox_to_anchor=(0.0, -0.1), ncols=4)
        left.set_title("states reached, and what was done")
        right.plot(when, np.cumsum(found.cost), color=INK, linewidth=1.6)
        right.set_title("cost" if found.sense == "min" else "value")
        for axes in (left, right):
            axes.grid(axis="y")
            axes.tick_params(axis="x", labelrotation=20 if np.issubdtype(when.dtype, np.datetime64) else 0)
        word = "cost" if found.sense == "min" else "brought"
        headline = f"{len(found.cost):,} steps {word} {format_amount(found.total)}"
        write_figure_headline(figure, headline, f"{format_amount(found.mean)} a step")
        if path is not None:
            save_figure(figure, path)
        return figure


def _sum_figure_rows(values: Any) -> Any:
    """Return the sum of an array over all dimensions but the first one."""
    return values.reshape(len(values), -1).sum(1)
