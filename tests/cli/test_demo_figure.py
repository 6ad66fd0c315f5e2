"""The picture of ``pear demo``: names and numbers that do not overlap."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from pear.cli.demo import _draw_demo_curves
from pear.pages.figure_style import styled_figure
from pear.train.racing.race_row import RaceRow

pytest.importorskip("matplotlib")


def _row(contender: str, epochs: int, metric: float) -> RaceRow:
    return RaceRow(contender, epochs, 1.0, metric, 0.0, 0.0, (0.0, 0.0))


@pytest.mark.parametrize("mse", [0.3, 0.101])
@pytest.mark.parametrize("ends", [(0.088, 0.104), (0.104, 0.088), (0.1, 0.1)])
def test_names_and_numbers_do_not_overlap(mse: float, ends: tuple[float, float]) -> None:
    epochs = [8, 16, 32, 64, 128, 256, 300]
    rows = [_row("correction", one, 0.14 if one < 300 else ends[0]) for one in epochs]
    rows += [_row("fresh model", one, 0.6 if one < 256 else ends[1]) for one in epochs[:-1]]
    histories: dict[str, Any] = {
        "PEAR": SimpleNamespace(race=tuple(rows), best=SimpleNamespace(epoch=128, metric=0.08)),
        "MSE": SimpleNamespace(race=(), best=SimpleNamespace(epoch=0, metric=mse)),
    }
    with styled_figure((10, 4.8), widths=(1, 1.6)) as (figure, (_, axes)):
        _draw_demo_curves(axes, histories)
        figure.draw_without_rendering()
        names, ticks = list(axes.texts), [tick.label1 for tick in axes.xaxis.get_major_ticks()]
        assert {text.get_text() for text in names} == {"MSE", "correction", "fresh model"}
        assert {text.get_text() for text in ticks} == {"8", "16", "32", "64", "128", "300"}
        boxes = [[text.get_window_extent() for text in part] for part in (names, ticks)]
    assert not any(one.overlaps(other) for part in boxes for one, other in combinations(part, 2))
