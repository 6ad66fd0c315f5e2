"""The picture of the demo: the regret of the decisions, and how it falls while training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pear.cli.console import two_decimal_percent
from pear.pages.figure_style import LIGHT, save_figure, set_plain_log_scale, styled_figure, write_headline

if TYPE_CHECKING:
    from pear.train import History

_LEAST_SHOWN = 1e-5  # a regret of zero has no place on a log scale


def draw_demo(
    path: Path,
    title: str,
    subtitle: str,
    untrained: float,
    test_regret: dict[str, float],
    histories: dict[str, History],
) -> Path:
    """Save bars of the test regret beside curves of the validation regret, as a PNG.

    Args:
        path: the PNG file to write.
        title: heading of the picture.
        subtitle: line below the heading that describes the experiment.
        untrained: test regret before training.
        test_regret: test regret after training, by name of the loss.
        histories: training histories, by name of the loss.
    """
    with styled_figure((10, 4.8), widths=(1, 1.6)) as (figure, (left, right)):
        write_headline(figure, title, subtitle)
        _draw_regret_bars(left, untrained, test_regret)
        _draw_regret_curves(right, histories)
        return save_figure(figure, path)


def _draw_regret_bars(axes: Any, untrained: float, regret: dict[str, float]) -> None:
    axes.set_title("Test regret, % of the best possible cost")
    heights = [100 * value for value in regret.values()]
    bars = axes.bar(range(len(regret)), heights, width=0.6, color=[LIGHT[name.lower()] for name in regret])
    axes.bar_label(
        bars, [two_decimal_percent(value) for value in regret.values()], padding=4, fontsize=13, fontweight="bold"
    )
    axes.set_xlim(-0.6, len(regret) - 0.4)
    axes.set_ylim(0, 1.15 * max(heights) or 1.0)
    axes.set_xticks(range(len(regret)), [f"trained with {name}" for name in regret])
    axes.set_xlabel(f"before training: {two_decimal_percent(untrained)}", labelpad=7)


def _draw_regret_curves(axes: Any, histories: dict[str, History]) -> None:
    axes.set_title("Validation regret while training, % (log scale)")
    lowest = min(histories, key=lambda name: histories[name].checks[-1].metric)
    for name, history in histories.items():
        color = LIGHT[name.lower()]
        epochs = [check.epoch for check in history.checks]
        values = [100 * max(check.metric, _LEAST_SHOWN) for check in history.checks]
        axes.plot(epochs, values, linewidth=2.2, marker="o", markersize=4, color=color)
        # The lowest curve is named below its end and the others above, so that names never meet.
        place = {"xytext": (8, -3), "va": "top"} if name == lowest else {"xytext": (8, 3), "va": "bottom"}
        end = epochs[-1], values[-1]
        axes.annotate(name, end, textcoords="offset points", fontsize=12, fontweight="bold", color=color, **place)
        if history.best is not None:
            best = 100 * max(history.best.metric, _LEAST_SHOWN)
            axes.plot(history.best.epoch, best, "o", markersize=11, fillstyle="none", color=color)
    set_plain_log_scale(axes, "y")
    axes.set_xlabel("epoch (circled: the weights that are kept)", labelpad=7)
