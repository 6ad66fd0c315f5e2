"""Bounds on residuals: their coverage, in any order and in time order, compared with a plain reference."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls

from pear.errors import ProblemError
from pear.intervals.conformal_rule import ConformalRule
from pear.intervals.cost_residuals import CostResiduals, CostResidualScores, fit_cost_residual_scales

Array = np.ndarray[Any, Any]


def draw(count: int, seed: int = 0) -> CostResiduals:
    """Draw skewed residuals with heavy tails, whose spread grows with the planned cost."""
    rng = np.random.default_rng(seed)
    size = rng.gamma(2.0, 10.0, count)
    return CostResiduals(size, (2 + 0.3 * size) * (rng.standard_t(3, count) + rng.exponential(1.0, count)))


# samples, level, sides, and the probability that the ranks of exchangeable scores give
CELLS = [(19, 0.9, True, 18 / 20), (45, 0.9, True, 29 / 31), (9, 0.9, False, 9 / 10), (60, 0.8, False, 33 / 41)]


@pytest.mark.parametrize(("count", "level", "two_sided", "expected"), CELLS)
def test_exchangeable_samples_are_covered_exactly_as_often_as_their_ranks_say(
    count: int, level: float, two_sided: bool, expected: float
) -> None:
    rule, trials = ConformalRule("exchangeable"), 3000
    drawn = draw(trials * (count + 1), seed=count)
    covered = 0
    for i in range(trials):
        size, value = (part[i * (count + 1) : (i + 1) * (count + 1)] for part in drawn)
        found = rule.bounds(CostResiduals(size[:-1], value[:-1]), size[-1:], level, two_sided)
        covered += int(found.lower[0] <= value[-1] <= found.upper[0])
    assert expected >= level
    assert abs(covered / trials - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def test_the_fewest_samples_give_finite_bounds_and_one_less_an_error() -> None:
    for rule in (ConformalRule("exchangeable"), ConformalRule(), ConformalRule(half_life=60.0)):
        for level in (0.5, 0.8, 0.9, 0.95):
            for two_sided in (True, False):
                needed = rule.samples_needed(level, two_sided)
                found = rule.bounds(draw(needed), np.array([5.0]), level, two_sided)
                assert np.isfinite(found.upper).all()
                assert np.isfinite(found.lower).all() == two_sided
                with pytest.raises(
                    ProblemError, match=f"needs {needed} calibration samples, and there are {needed - 1}"
                ):
                    rule.bounds(draw(needed - 1), np.array([5.0]), level, two_sided)


def test_the_scale_is_the_least_squares_fit_without_negative_parts() -> None:
    rng = np.random.default_rng(1)
    for kind in range(3):
        size = rng.gamma(2.0, 1.0, 30)
        value = [3 + size, 4 * size - 2, 9 - size][kind] * rng.normal(size=30)
        fits = fit_cost_residual_scales(CostResiduals(size, value))
        for t in (2, 11, 30):
            expected, _ = nnls(np.column_stack([np.ones(t), size[:t]]), np.abs(value[:t]))
            assert fits[t][:2] == pytest.approx(expected, abs=1e-9)


def reference(rule: ConformalRule, known: CostResiduals, level: float, gap: int) -> tuple[Array, Array]:
    """Return the bounds of every residual, computed afresh from the samples before it."""
    size, value = known
    count, tail, first = len(value), (1 - level) / 2, 10 + gap
    low, high, scores, spread = (np.full(count, np.nan) for _ in range(4))
    scale = np.full(count, np.nan)
    for t in range(first, count):
        before = t - gap
        (a, b), _ = nnls(np.column_stack([np.ones(before), size[:before]]), np.abs(value[:before]))
        scale[t] = max(a + b * size[t], 1e-3 * np.abs(value[:before]).mean())
        scores[t] = value[t] / scale[t]
        past = scores[first:before] if before > first else np.empty(0)
        half = rule.half_life or math.inf
        weight = np.array([0.5 ** ((len(past) - i) / half) for i in range(len(past))])

        def quantile(ranked: Array, weight: Array = weight) -> float:
            reached = [s for s in ranked if weight[ranked <= s].sum() >= (1 - tail) * (weight.sum() + 1) - 1e-12]
            return float(min(reached, default=math.inf))

        up, down = quantile(past), -quantile(-past)
        if math.isinf(up) or math.isinf(down):
            continue
        told = [i for i in range(before) if np.isfinite(spread[i])]
        outer = sum(rule.rate * spread[i] * ((scores[i] > high[i]) - tail) for i in told)
        inner = sum(rule.rate * spread[i] * ((scores[i] < low[i]) - tail) for i in told)
        low[t], high[t], spread[t] = down - inner, up + outer, up - down
    return scale * low, scale * high


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize(
    "rule", [ConformalRule(rate=0.0), ConformalRule(rate=0.1), ConformalRule(half_life=30.0)], ids=str
)
def test_bounds_in_time_order_are_those_of_the_reference(rule: ConformalRule, gap: int) -> None:
    known = draw(90, seed=4)
    found = rule.walk(known, 0.8, gap=gap)
    lower, upper = reference(rule, known, 0.8, gap)
    assert np.isfinite(found.upper).sum() > 40
    np.testing.assert_allclose(found.lower, np.where(lower > upper, (lower + upper) / 2, lower), rtol=1e-9)
    np.testing.assert_allclose(found.upper, np.where(lower > upper, (lower + upper) / 2, upper), rtol=1e-9)


@pytest.mark.parametrize("order", ["time", "exchangeable"])
def test_bounds_know_nothing_of_what_comes_later(order: Any) -> None:
    rule, known = ConformalRule(order), draw(80)
    for gap in (0, 4):
        found = rule.walk(known, 0.8, gap=gap)
        for t in (40, 60):
            later = known.value.copy()
            later[t - gap :] = 1e6
            size = known.size.copy()
            size[t + 1 :] = 1e6
            again = rule.walk(CostResiduals(size, later), 0.8, gap=gap)
            np.testing.assert_array_equal(again.lower[: t + 1], found.lower[: t + 1])
            np.testing.assert_array_equal(again.upper[: t + 1], found.upper[: t + 1])
    t = 55
    one = rule.bounds(known.until(t), known.size[t : t + 1], 0.8)
    walked = rule.walk(known, 0.8)
    assert (one.lower[0], one.upper[0]) == pytest.approx((walked.lower[t], walked.upper[t]), rel=1e-12)


def test_exchangeable_bounds_do_not_depend_on_the_order_of_the_ranked_samples() -> None:
    known, rng = draw(60), np.random.default_rng(2)
    shuffled = np.concatenate([rng.permutation(20), 20 + rng.permutation(40)])
    rule, size = ConformalRule("exchangeable"), np.array([1.0, 30.0])
    first = rule.bounds(known, size, 0.9)
    again = rule.bounds(CostResiduals(known.size[shuffled], known.value[shuffled]), size, 0.9)
    np.testing.assert_allclose(first.upper, again.upper, rtol=1e-12)
    np.testing.assert_allclose(first.lower, again.lower, rtol=1e-12)


@pytest.mark.parametrize("rule", [ConformalRule("exchangeable"), ConformalRule(rate=0), ConformalRule("time", 80, 0)])
def test_a_higher_level_has_wider_bounds(rule: ConformalRule) -> None:
    known, size = draw(250), np.array([0.0, 5.0, 80.0])
    found = [rule.bounds(known, size, level) for level in (0.5, 0.8, 0.9, 0.95)]
    for narrow, wide in pairwise(found):
        assert (wide.lower <= narrow.lower).all()
        assert (wide.upper >= narrow.upper).all()
    assert (found[-1].upper > found[0].upper).all()


def test_bounds_that_follow_their_misses_cover_under_shift() -> None:
    """The spread grows twentyfold over the samples, and the mean drifts by three times the spread."""
    rng, count = np.random.default_rng(5), 1500
    value = np.exp(np.linspace(0, 3, count)) * (rng.normal(size=count) + np.linspace(0, 3, count))
    known = CostResiduals(np.ones(count), value)
    shares = {}
    for rate in (0.0, 0.05):
        found = ConformalRule(rate=rate).walk(known, 0.9)
        bounded = np.isfinite(found.upper)
        shares[rate] = float(((found.lower <= value) & (value <= found.upper))[bounded].mean())
    assert shares[0.0] < 0.86
    assert abs(shares[0.05] - 0.9) < 0.01


def test_samples_count_less_with_their_age() -> None:
    value = np.concatenate([np.full(200, 50.0), np.random.default_rng(0).normal(size=200)])
    known = CostResiduals(np.zeros(400), value)
    old = ConformalRule(rate=0).bounds(known, np.zeros(1), 0.8, two_sided=False)
    new = ConformalRule(rate=0, half_life=20).bounds(known, np.zeros(1), 0.8, two_sided=False)
    assert new.upper[0] < old.upper[0]
    scores = CostResidualScores(half_life=2.0)
    scores.extend(np.array([3.0, 1.0, 2.0]))
    weight = 0.5 ** (np.array([3, 1, 2]) / 2)  # of the scores 3 (the oldest), 2 and 1
    assert scores.quantiles(0.6)[1] == 2.0
    assert weight[2] < 0.4 * (weight.sum() + 1) <= weight[2] + weight[1]


def test_forecasts_without_errors_have_bounds_without_width() -> None:
    known = CostResiduals(np.ones(60), np.zeros(60))
    for rule in (ConformalRule(), ConformalRule("exchangeable")):
        found = rule.bounds(known, np.array([1.0, 7.0]), 0.9)
        assert not found.lower.any()
        assert not found.upper.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConformalRule("random"), "order must be"),  # type: ignore[arg-type]
        (lambda: ConformalRule(half_life=0.0), "half_life must be a positive number"),
        (lambda: ConformalRule("exchangeable", half_life=5.0), "half_life is for samples in time order"),
        (lambda: ConformalRule(rate=2.0), "rate must lie between 0 and 1"),
        (lambda: ConformalRule().samples_needed(1.0, True), "must lie between 0 and 1, such as 0.9; got 1.0"),
        (lambda: ConformalRule().samples_needed(True, True), "must lie between 0 and 1"),
        (lambda: ConformalRule(half_life=5.0).samples_needed(0.9, True), "all samples together count as 6.7"),
    ],
)
def test_messages(make: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        make()
