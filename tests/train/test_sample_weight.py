"""Weights of samples in ridge regressions, races, ``fit`` and the estimator."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import pear
from pear.errors import ProblemError
from pear.losses import MSELoss
from pear.losses.paired_difference import paired_difference
from pear.losses.regret_outcome import RegretOutcome
from pear.train.racing.held_out_judge import HeldOutLosses
from pear.train.ridge import _RidgePath, fit_ridge
from pear.train.samples.memory_samples import MemorySamples

PROBLEM = pear.Problem(A=torch.ones(1, 3), b=[1.0], lb=0.0)
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(40, 2))
C = X @ RANDOM.normal(size=(2, 3)) + 0.5 * RANDOM.normal(size=(40, 3)) + 3
COUNTS = RANDOM.integers(0, 4, size=40)
REPEATED = np.repeat(np.arange(40), COUNTS)
QUICK = pear.FitConfig(max_epochs=2, start="mse")


def tensors(*arrays):
    return tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("features", [2, 30])  # more rows than features, and fewer
def test_whole_weights_of_a_ridge_are_repeated_rows(intercept, features):
    rows = RANDOM.normal(size=(20, features))
    counts = RANDOM.integers(0, 4, size=20)
    some = np.repeat(np.arange(20), counts)
    x, c, weight = tensors(rows, C[:20], counts.astype(float))
    path = _RidgePath(x, c, intercept, weight)
    again = _RidgePath(x[some], c[some], intercept, None)
    for strength in (0.01, 3.0):
        torch.testing.assert_close(path.weight(strength), again.weight(strength), rtol=1e-9, atol=1e-10)


def test_a_ridge_standardises_by_weighted_rows():
    x, c, weight = tensors(X, C, COUNTS.astype(float))
    found = fit_ridge(x, c, weight=weight)
    mean, spread = x[REPEATED].mean(0), x[REPEATED].std(0, correction=0)
    centre, unit = c[REPEATED].mean(0), c[REPEATED].std(0, correction=0)
    rows, targets = ((x - mean) / spread)[REPEATED], ((c - centre) / unit)[REPEATED]
    penalty = found.strength * torch.eye(2, dtype=torch.float64)  # the folds that choose it consist of other rows
    by_hand = torch.linalg.solve(rows.T @ rows + penalty, rows.T @ targets) * unit / spread[:, None]
    torch.testing.assert_close(found.weight, by_hand.T, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.bias, centre - by_hand.T @ mean, rtol=0, atol=1e-12)


def test_weighted_differences_have_the_mean_of_repeated_ones():
    a, b = RANDOM.uniform(size=(2, 40))
    found = paired_difference(a, b, 1, weight=COUNTS)
    assert found.mean == pytest.approx(float(np.mean((a - b)[REPEATED])), abs=1e-14)
    assert paired_difference(a, b, weight=np.full(40, 7.0)) == paired_difference(a, b)
    shares = COUNTS / COUNTS.mean()
    spread = np.sum((shares * (a - b - found.mean)) ** 2)  # of a ratio of sums, linearised
    assert found.standard_error == pytest.approx(np.sqrt(spread / 40 / 39), rel=1e-12)


def test_losses_of_folds_are_joined_by_their_weights():
    regret, best = (torch.from_numpy(RANDOM.uniform(1, 2, size=6)) for _ in range(2))
    weight = torch.tensor([1.0, 3.0, 0.5, 2.0, 1.5, 4.0], dtype=torch.float64)

    def part(rows):
        counted = RegretOutcome(regret[rows], best[rows]).weighted(weight[rows])
        unit = float(counted.best.abs().mean())
        return HeldOutLosses(regret[rows].numpy(), counted.score, unit, len(regret[rows]), weight[rows].numpy())

    joined, whole = HeldOutLosses.join([part(slice(0, 2)), part(slice(2, 6))]), part(slice(0, 6))
    assert joined.metric == pytest.approx(whole.metric, rel=1e-14)
    assert joined.unit == pytest.approx(whole.unit, rel=1e-14)
    np.testing.assert_array_equal(joined.weight, whole.weight)


def test_folds_with_a_metric_are_compared_as_folds_however_many_samples_they_have():
    """Results by fold are compared as folds, even if there are as many folds as samples.

    Samples in time order would be compared in blocks longer than 1.
    """
    ours, theirs = RANDOM.uniform(size=(2, 8))
    joined = [
        HeldOutLosses.join([HeldOutLosses(np.array([one]), one, 1.0, 1, by_fold=True) for one in each])
        for each in (ours, theirs)
    ]
    assert joined[0].difference_from(joined[1]) == paired_difference(ours, theirs, 1)
    assert paired_difference(ours, theirs, 1) != paired_difference(ours, theirs)


def test_normalized_regret_weighs_both_sums():
    predicted = C + RANDOM.normal(size=C.shape)
    found = pear.normalized_regret(PROBLEM, predicted, C, weight=COUNTS)
    assert found == pytest.approx(pear.normalized_regret(PROBLEM, predicted[REPEATED], C[REPEATED]), rel=1e-12)
    with pytest.raises(ProblemError, match="one number for each of the 40 samples"):
        pear.normalized_regret(PROBLEM, predicted, C, weight=COUNTS[:3])


def trained(weight, loss=None, samples=(X, C), config=QUICK, **options):
    model = nn.Linear(2, 3, dtype=torch.float64)
    with torch.no_grad():
        model.weight.fill_(0.1)
        model.bias.zero_()
    history = pear.fit(model, loss or pear.PEARLoss(PROBLEM), samples, config=config, sample_weight=weight, **options)
    return model.state_dict(), history


@pytest.mark.parametrize("start", ["race", "mse"])
def test_the_unit_of_weights_does_not_change_a_training(start):
    config = pear.FitConfig(max_epochs=8, start=start)
    weight = RANDOM.uniform(size=40)
    one, other = (trained(times * weight, config=config)[0] for times in (1.0, 1024.0))
    plain = trained(None, config=config)[0]
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0)
        assert not torch.equal(one[name], plain[name])


def test_the_start_of_a_race_is_the_weighted_ridge():
    weight = RANDOM.uniform(size=40)
    weights, history = trained(weight, MSELoss(PROBLEM), config=pear.FitConfig(max_epochs=1))
    x, c, w = tensors(X, C, weight / weight.mean())
    expected = fit_ridge(x, c, weight=w)
    torch.testing.assert_close(weights["weight"], expected.weight, rtol=1e-9, atol=1e-12)
    assert history.race[0].contender == "start"


@pytest.mark.parametrize("start", ["mse", "standardised"])
def test_samples_of_weight_zero_are_never_seen(start):
    config = pear.FitConfig(max_epochs=2, start=start)
    weight = np.ones(40)
    weight[[3, 17, 39]] = 0
    spoilt = C.copy()
    spoilt[[3, 17, 39]] *= 1e6
    one, other = (trained(weight, samples=(X, costs), config=config)[0] for costs in (C, spoilt))
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0)


def test_a_weighted_batch_takes_the_step_of_the_weighted_sum():
    model, loss = nn.Linear(2, 3, dtype=torch.float64), MSELoss(PROBLEM)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weight = RANDOM.uniform(size=40)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    config = pear.FitConfig(max_epochs=1, batch_size=40)
    own = (X, C)
    pear.fit(model, loss, own, own, config=config, optimizer=steps, sample_weight=weight, validation_weight=weight)
    x, c, w = tensors(X, C, weight)
    again = nn.Linear(2, 3, dtype=torch.float64)
    again.load_state_dict(before)
    (w[:, None] * (again(x) - c) ** 2).mean(1).sum().div(w.sum()).backward()
    torch.testing.assert_close(model.weight, before["weight"] - 0.1 * again.weight.grad, rtol=1e-12, atol=1e-12)


def test_held_out_samples_are_judged_by_their_weights():
    weight = RANDOM.uniform(size=40)
    model = nn.Linear(2, 3, dtype=torch.float64)
    config = pear.FitConfig(max_epochs=1, start="given")
    history = pear.fit(
        model, pear.PEARLoss(PROBLEM), (X, C), (X, C), config=config, sample_weight=weight, validation_weight=weight
    )
    forecasts = model(torch.from_numpy(X)).detach()
    assert history.checks[-1].metric == pytest.approx(pear.normalized_regret(PROBLEM, forecasts, C, weight=weight))


def test_the_estimator_weighs_rows_and_scores():
    weight = RANDOM.uniform(size=40)
    estimator = pear.DecisionRegressor(PROBLEM, max_epochs=8)
    table = pd.DataFrame(X, pd.date_range("2026-01-01", periods=40))
    model = estimator.fit(table, C, sample_weight=pd.Series(weight, table.index))
    again = pear.DecisionRegressor(PROBLEM, max_epochs=8).fit(X, C, sample_weight=4 * weight)
    np.testing.assert_array_equal(model.predict(table), again.predict(X))
    expected = -pear.normalized_regret(PROBLEM, model.predict(table), C, weight=weight)
    assert model.score(table, C, sample_weight=weight) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ProblemError, match="rows of X and sample_weight do not belong together"):
        estimator.fit(table, C, sample_weight=pd.Series(weight, table.index + pd.Timedelta(days=1)))
    held_out = {"X": X[:9], "y": C[:9], "sample_weight": weight[:9]}
    assert estimator.fit(X[9:], C[9:], held_out, sample_weight=weight[9:]).n_iter_ >= 1


def test_weights_of_a_long_table_are_those_of_its_groups():
    days = np.repeat(np.arange(40), 3)
    long, values = RANDOM.normal(size=(120, 2)), C.reshape(-1)
    weight = np.repeat(RANDOM.uniform(size=40), 3)
    estimator = pear.DecisionRegressor(PROBLEM, max_epochs=1)
    assert estimator.fit(long, values, groups=days, sample_weight=weight).n_iter_ >= 1
    weight[4] += 1
    with pytest.raises(ProblemError, match=r"the same for all rows of a group.*those of group 1 differ"):
        estimator.fit(long, values, groups=days, sample_weight=weight)


def test_weights_move_with_their_rows_to_the_order_of_the_dates():
    days, weight = pd.date_range("2026-01-01", periods=40), RANDOM.uniform(size=40)
    mixed = RANDOM.permutation(40)
    table, costs = pd.DataFrame(X, days), pd.DataFrame(C, days)
    one, other = (
        pear.DecisionRegressor(PROBLEM, max_epochs=2).fit(
            table.iloc[rows], costs.iloc[rows], sample_weight=weight[rows]
        )
        for rows in (np.arange(40), mixed)
    )
    np.testing.assert_array_equal(one.predict(table), other.predict(table))
    sorted_weights, _ = trained(weight, samples=(table, costs))
    mixed_weights, _ = trained(pd.Series(weight, days).iloc[mixed], samples=(table.iloc[mixed], costs.iloc[mixed]))
    torch.testing.assert_close(sorted_weights, mixed_weights, rtol=0, atol=0)


def test_a_base_is_corrected_with_weights():
    class Mean:
        def predict(self, x):
            return np.tile(C.mean(0), (len(x), 1))

    weights, history = trained(RANDOM.uniform(size=40), base=Mean(), config=pear.FitConfig(max_epochs=1))
    assert set(weights) == {"weight", "bias"}
    assert history.race


def refusals():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors(X, C)), batch_size=8)
    weight, own = np.ones(40), {"validation": (X, C)}
    last = np.r_[np.ones(32), np.zeros(8)]
    return {
        "sample_weight needs samples in memory": lambda: trained(weight, samples=loader, **own),
        "the loss MSELoss has no argument weight": lambda: trained(weight, nn.MSELoss()),
        "the loss .*own has no argument weight": lambda: trained(weight, lambda_loss),
        "one number for each of the 40 samples": lambda: trained(weight[:5]),
        "all 40 numbers of sample_weight are zero": lambda: trained(0 * weight),
        "that of sample 0 is -1": lambda: trained(-weight),
        "validation_weight came without samples": lambda: trained(weight, validation_weight=weight),
        "the last 8 samples, which are held out, all have a weight of 0": lambda: trained(last),
    }


def own(predicted, true):
    return ((predicted - true) ** 2).mean()


lambda_loss = own


@pytest.mark.parametrize("message", refusals())
def test_what_is_refused(message):
    with pytest.raises(ProblemError, match=message):
        refusals()[message]()


def test_weights_stay_with_their_samples():
    samples = MemorySamples.read((X, C), "train").weigh(COUNTS + 1, "sample_weight")
    first, last = samples.cut(30)
    assert torch.equal(torch.cat([first.weight, last.weight]), samples.weight)
    assert float(samples.weight.mean()) == pytest.approx(1)
    torch.testing.assert_close(samples.mean_costs, torch.from_numpy(np.average(C, axis=0, weights=COUNTS + 1)))
