"""Paired differences: standard errors by hand, coverage on simulated days, and errors for bad arguments."""

import math

import numpy as np
import pytest
from scipy import stats

from pear.errors import ProblemError
from pear.losses.paired_difference import PairedDifference, difference_block_length, paired_difference


def autocorrelated(count, memory, generator):
    """Draw a stationary autoregressive series with mean 0."""
    value, noise = generator.standard_normal() / math.sqrt(1 - memory**2), generator.standard_normal(count)
    series = np.empty(count)
    for i in range(count):
        series[i] = value = memory * value + noise[i]
    return series


def test_blocks_of_one_give_the_usual_standard_error():
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal(50), draw.standard_normal(50)
    found = paired_difference(a, b, block=1)
    assert found.mean == pytest.approx((a - b).mean(), rel=1e-12)
    assert found.standard_error == pytest.approx((a - b).std(ddof=1) / math.sqrt(50), rel=1e-12)


def test_the_standard_error_of_blocks_by_hand():
    # differences 1, 2, 6, 3; circular blocks of two have means 1.5, 4, 4.5, 2 around 3
    found = paired_difference([1.0, 2.0, 6.0, 3.0], [0.0] * 4, block=2)
    assert found.standard_error == pytest.approx(math.sqrt(2 / (4 - 2) * (1.5**2 + 1 + 1.5**2 + 1) / 4), rel=1e-12)


@pytest.mark.parametrize(("count", "block", "level"), [(12, 3, 0.95), (23, 4, 0.8)])
def test_few_blocks_get_the_quantiles_of_student(count, block, level):
    """The bootstrap's interval is widened from normal to Student's quantiles, and to the standard error."""
    series = np.random.default_rng(8).exponential(size=count)
    found = paired_difference(series, np.zeros(count), block, level=level, draws=300, seed=9)
    means = np.array([np.mean([series[(i + j) % count] for j in range(block)]) for i in range(count)])
    blocks = math.ceil(count / block)
    drawn = means[np.random.default_rng(9).integers(count, size=(300, blocks))].mean(axis=1)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]) - series.mean()
    wider = stats.t.ppf((1 + level) / 2, count / block - 1) / stats.norm.ppf((1 + level) / 2)
    wider *= found.standard_error / (means.std() / math.sqrt(blocks))
    assert found.interval == pytest.approx((series.mean() + wider * low, series.mean() + wider * high), rel=1e-9)


def test_the_interval_agrees_with_a_bootstrap_in_a_loop():
    """Circular blocks are drawn one by one, for a series so long that the correction for few blocks is small."""
    series = autocorrelated(600, 0.5, np.random.default_rng(1))
    found = paired_difference(series, np.zeros(600), block=10, draws=20_000)
    draw, means = np.random.default_rng(2), []
    for _ in range(20_000):
        starts = draw.integers(600, size=60)
        means.append(series[(starts[:, None] + np.arange(10)) % 600].mean())
    low, high = np.quantile(means, [0.025, 0.975])
    assert found.interval == pytest.approx((low, high), rel=0.08)


@pytest.mark.parametrize("memory", [0.0, 0.4])
def test_the_interval_covers_the_mean(memory):
    draw, hits = np.random.default_rng(3), 0
    for _ in range(400):
        low, high = paired_difference(autocorrelated(300, memory, draw) + 2.0, np.zeros(300), draws=400).interval
        hits += low <= 2.0 <= high
    assert 0.90 <= hits / 400 <= 0.985


def test_days_taken_as_independent_promise_too_much():
    draw, hits = np.random.default_rng(4), 0
    for _ in range(200):
        low, high = paired_difference(autocorrelated(300, 0.7, draw), np.zeros(300), block=1, draws=400).interval
        hits += low <= 0 <= high
    assert hits / 200 < 0.8


def test_the_unit_does_not_matter():
    draw = np.random.default_rng(5)
    a, b = draw.standard_normal(40), draw.standard_normal(40)
    small, large = paired_difference(a, b), paired_difference(a * 1e9, b * 1e9)
    assert np.array(large.interval) == pytest.approx(np.array(small.interval) * 1e9, rel=1e-9)
    assert large.is_significant == small.is_significant


def test_significance_is_an_interval_without_zero():
    draw = np.random.default_rng(6)
    a = draw.standard_normal(100)
    assert paired_difference(a + 3, a * 0).is_significant
    assert paired_difference(a - 3, a * 0).is_significant
    assert not paired_difference(a, a * 0).is_significant
    assert not paired_difference(a, a).is_significant
    for interval, expected in (((0.0, 1.0), False), ((-1.0, 0.0), False), ((0.1, 0.2), True), ((-0.2, -0.1), True)):
        assert PairedDifference(0.0, 1.0, interval, 1).is_significant == expected


def test_the_same_seed_gives_the_same_interval():
    a, b = np.random.default_rng(7).standard_normal((2, 60))
    assert paired_difference(a, b) == paired_difference(a, b)
    assert paired_difference(a, b, seed=1).interval != paired_difference(a, b).interval


def test_edge_cases():
    single = paired_difference([1.0], [3.0])
    assert (single.mean, single.standard_error, single.block) == (-2.0, math.inf, 1)
    assert not single.is_significant
    assert paired_difference([2.0, 2.0], [1.0, 1.0])[:3] == (1.0, 0.0, (1.0, 1.0))
    assert [difference_block_length(count) for count in (1, 2, 8, 365, 1000)] == [1, 1, 2, 7, 10]


@pytest.mark.parametrize(
    ("a", "b", "block", "message"),
    [
        ([1.0, 2.0], [1.0], None, "equal length"),
        ([], [], None, "a sample at least"),
        ([1.0, math.nan], [1.0, 2.0], None, "sample 1 is not"),
        ([1.0] * 6, [0.0] * 6, 4, "between 1 and 3"),
        ([1.0] * 6, [0.0] * 6, 0, "between 1 and 3"),
        ([1.0] * 6, [0.0] * 6, True, "between 1 and 3"),
    ],
)
def test_what_is_refused(a, b, block, message):
    with pytest.raises(ProblemError, match=message):
        paired_difference(a, b, block)


@pytest.mark.parametrize("wrong", [{"level": 0.0}, {"level": 1.0}, {"draws": 0}])
def test_settings_are_checked(wrong):
    with pytest.raises(ProblemError, match="level must lie between 0 and 1 and draws be positive"):
        paired_difference([1.0, 2.0], [0.0, 0.0], **wrong)
