"""The picture of the demo: what the decisions lose, and how that fell while training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from pear.cli.console import percent
from pear.train import History

_COLORS = {"MSE": "#d9822b", "PEAR": "#2f7d4f"}
_INK, _GREY, _FAINT = "#2b2f36", "#6a7280", "#e1e4e8"
_FLOOR = 1e-5  # a regret of zero has no place on a log scale


def draw(
    path: Path,
    title: str,
    subtitle: str,
    untrained: float,
    test_regret: dict[str, float],
    histories: dict[str, History],
) -> Path:
    """Save bars of the test regret beside curves of the validation regret, as a PNG.

    Args:
        path: of the file.
        title: what the picture says.
        subtitle: what was done.
        untrained: test regret before training.
        test_regret: after training, by loss.
        histories: of the trainings, by loss.
    """
    figure = Figure(figsize=(10, 4.8), dpi=160)  # no pyplot: no window and no global state
    figure.text(0.03, 0.925, title, fontsize=15, fontweight="bold", color=_INK)
    figure.text(0.03, 0.865, subtitle, fontsize=10.5, color=_GREY)
    left, right = figure.subplots(
        1,
        2,
        width_ratios=(1, 1.6),
        gridspec_kw={"left": 0.05, "right": 0.93, "top": 0.74, "bottom": 0.13, "wspace": 0.2},
    )
    _bars(left, untrained, test_regret)
    _curves(right, histories)
    figure.savefig(path)
    return path


def _bars(axes: Any, untrained: float, regret: dict[str, float]) -> None:
    _clean(axes, "Test regret, % of the best possible cost")
    heights = [100 * value for value in regret.values()]
    bars = axes.bar(list(regret), heights, width=0.6, color=[_COLORS[name] for name in regret])
    for label in axes.bar_label(bars, [percent(value) for value in regret.values()], padding=4, fontsize=13):
        label.set(color=_INK, fontweight="bold")
    axes.set_xlim(-0.6, len(regret) - 0.4)
    axes.set_ylim(0, 1.15 * max(heights) or 1.0)
    axes.set_xticks(range(len(regret)), [f"trained with {name}" for name in regret], fontsize=10.5)
    axes.set_xlabel(f"before training: {percent(untrained)}", color=_GREY, labelpad=7)


def _curves(axes: Any, histories: dict[str, History]) -> None:
    _clean(axes, "Validation regret while training, % (log scale)")
    lowest = min(histories, key=lambda name: histories[name].checks[-1].metric)
    for name, history in histories.items():
        style: dict[str, Any] = {"color": _COLORS[name]}
        epochs = [check.epoch for check in history.checks]
        values = [100 * max(check.metric, _FLOOR) for check in history.checks]
        axes.plot(epochs, values, linewidth=2.2, marker="o", markersize=4, **style)
        # The lowest curve is named below its end and the others above, so that names never meet.
        place = {"xytext": (8, -3), "va": "top"} if name == lowest else {"xytext": (8, 3), "va": "bottom"}
        axes.annotate(
            name, (epochs[-1], values[-1]), textcoords="offset points", fontsize=12, fontweight="bold", **place, **style
        )
        if history.best is not None:
            best = 100 * max(history.best.metric, _FLOOR)
            axes.plot(history.best.epoch, best, "o", markersize=11, fillstyle="none", **style)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("epoch (circled: the weights that are kept)", color=_GREY, labelpad=7)


def _clean(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=_INK, pad=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, length=0)
