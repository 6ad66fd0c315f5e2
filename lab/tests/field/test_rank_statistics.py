"""Mean ranks, the tests of Friedman and Nemenyi, and the largest block of methods and tasks without gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pear.errors import ProblemError
from pear_lab.field.rank_figure import save_rank_figure
from pear_lab.field.rank_statistics import (
    complete_rank_block,
    critical_rank_difference,
    mean_rank_statistics,
    sign_test_statistics,
)

# Demšar 2006, table 6: AUC of C4.5 and three variants on 14 data sets, higher is better.
AUC = {
    "C4.5": (0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1.000, 0.940, 0.619, 0.972, 0.957),
    "C4.5+m": (0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1.000, 0.962, 0.666, 0.981, 0.978),
    "C4.5+cf": (0.771, 0.590, 0.968, 0.654, 0.886, 0.916, 0.609, 0.563, 0.866, 1.000, 0.965, 0.614, 0.9751, 0.946),
    "C4.5+m+cf": (0.798, 0.569, 0.967, 0.657, 0.898, 0.931, 0.685, 0.625, 0.875, 1.000, 0.962, 0.669, 0.975, 0.970),
}


def test_the_example_of_demsar() -> None:
    found = mean_rank_statistics({name: [-value for value in row] for name, row in AUC.items()})
    printed = {"C4.5": 3.143, "C4.5+m": 2.000, "C4.5+cf": 2.893, "C4.5+m+cf": 1.964}
    assert {name: round(rank, 3) for name, rank in found.ranks.items()} == pytest.approx(printed, abs=1e-3)
    assert found.critical_difference == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=2e-3)
    assert found.critical_difference == critical_rank_difference(4, 14)
    # The printed statistic, 9.28, has no correction for ties, by which it grows.
    assert found.chi_square >= 9.27
    assert found.p_value == pytest.approx(float(stats.chi2.sf(found.chi_square, 3)))
    assert found.as_good_as_best() == ("C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5")


def test_equal_methods_cannot_be_told_apart() -> None:
    found = mean_rank_statistics({name: [1.0, 1.0] for name in "abc"})
    assert (found.chi_square, found.p_value) == (0.0, 1.0)
    assert found.groups() == [("a", "b", "c")]


def test_a_method_beyond_the_critical_difference_is_not_among_the_best() -> None:
    values = {name: [float(place)] * 40 for place, name in enumerate("abcd")}
    found = mean_rank_statistics(values)
    assert found.critical_difference < 1
    assert found.as_good_as_best() == ("a",)
    assert found.groups() == []


def test_p_values_of_the_sign_test_are_adjusted_by_holm() -> None:
    values = {"a": [1.0] * 10, "b": [2.0] * 10, "c": [2.0] * 9 + [0.0], "d": [1.0] * 10}
    found = sign_test_statistics(values, "a")
    raw = {name: float(stats.binomtest(found[name].lower, 10).pvalue) for name in "bc"}
    assert found["b"].p_value == pytest.approx(3 * raw["b"])
    assert found["c"].p_value == pytest.approx(2 * raw["c"])
    assert (found["d"].lower, found["d"].higher, found["d"].p_value) == (0, 0, 1.0)


def test_the_block_leaves_out_what_misses_most() -> None:
    every = frozenset("stuvwxyz")
    has = {"a": every, "b": every - {"z"}, "c": every - {"z"}, "d": frozenset("st")}
    assert complete_rank_block(has, sorted(every)) == (["a", "b", "c"], ["s", "t", "u", "v", "w", "x", "y"])


def test_too_few_methods_are_refused() -> None:
    with pytest.raises(ProblemError, match="at least three methods"):
        mean_rank_statistics({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    with pytest.raises(ProblemError, match="at least three methods"):
        mean_rank_statistics({"a": [1.0], "b": [1.0, 2.0], "c": [1.0, 2.0]})


def test_the_diagram_names_every_method(tmp_path: Path) -> None:
    found = mean_rank_statistics({name: [-value for value in row] for name, row in AUC.items()})
    text = save_rank_figure(found, {name: f"<{name}>" for name in AUC}, tmp_path / "ranks.svg").read_text("utf-8")
    for name in AUC:
        assert f"&lt;{name}&gt;" in text
    assert "critical difference 1.25" in text
