"""Rows with dates: the latest are held out, and training does not depend on the order of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import nn

import pear
from pear.train.time_order import NOTE, find_time_order

TASK = pear.tasks.shortest_path((3, 3))
COUNT = 60
FEATURES, COSTS = (np.asarray(part) for part in TASK.samples(COUNT, degree=4, seed=5))
DAYS = pandas.date_range("2026-01-01", periods=COUNT, name="day")
ORDER = np.random.default_rng(0).permutation(COUNT)
X, C = pandas.DataFrame(FEATURES, index=DAYS), pandas.DataFrame(COSTS, index=DAYS)
X.columns = [f"x{i}" for i in range(X.shape[1])]
CONFIG = pear.FitConfig(max_epochs=2)


def weights_of(train: Any, **options: Any) -> tuple[torch.Tensor, pear.train.History]:
    torch.manual_seed(0)
    model = nn.Linear(FEATURES.shape[1], TASK.problem.n)
    loss = pear.PEARLoss(options.pop("problem", TASK.problem))
    history = pear.fit(model, loss, train, config=options.pop("config", CONFIG), **options)
    return model.weight.detach(), history


@pytest.mark.parametrize("index", [DAYS, DAYS.to_period("D"), DAYS.tz_localize("Europe/Dublin")])
def test_rows_in_any_order_train_as_those_in_the_order_of_time(index: Any) -> None:
    dated = X.set_axis(index), C.set_axis(index)
    expected, before = weights_of(dated)
    found, history = weights_of(tuple(part.iloc[ORDER] for part in dated))
    assert torch.equal(found, expected)
    assert history.choice == before.choice
    assert NOTE in history.note
    assert NOTE not in before.note


def test_dates_of_one_table_are_enough_and_a_held_out_share_is_the_latest() -> None:
    once = pear.FitConfig(max_epochs=2, start="standardised")
    expected, _ = weights_of((FEATURES, COSTS), config=once)
    mixed, _ = weights_of((FEATURES[ORDER], C.iloc[ORDER]), config=once)
    assert torch.equal(mixed, expected)
    plain, _ = weights_of((FEATURES[ORDER], COSTS[ORDER]), config=once)
    assert not torch.equal(plain, expected)  # without dates, rows stay where they are


def test_samples_keep_the_fields_of_their_own_rows() -> None:
    upper = torch.rand(COUNT, TASK.problem.n, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 1.0
    problem = pear.Problem(A=TASK.problem.A, b=TASK.problem.b, lb=0.0, ub=upper)
    moved = pear.Problem(A=TASK.problem.A, b=TASK.problem.b, lb=0.0, ub=upper[torch.from_numpy(ORDER)])
    expected, _ = weights_of((X, C), problem=problem)
    found, _ = weights_of((X.iloc[ORDER], C.iloc[ORDER]), problem=moved)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    whole = pear.DecisionRegressor(problem, max_epochs=2).fit(X, C)
    other = pear.DecisionRegressor(moved, max_epochs=2).fit(X.iloc[ORDER], C.iloc[ORDER])
    np.testing.assert_allclose(other.predict(X), whole.predict(X), rtol=1e-9)


def test_the_estimator_keeps_the_rows_of_its_results_where_they_are() -> None:
    whole = pear.DecisionRegressor(TASK.problem, max_epochs=2).fit(X, C)
    other = pear.DecisionRegressor(TASK.problem, max_epochs=2).fit(X.iloc[ORDER], C.iloc[ORDER])
    assert NOTE in other.history_.note
    assert NOTE not in whole.history_.note
    predicted = other.predict(X.iloc[ORDER])
    assert list(predicted.index) == list(DAYS[ORDER])
    pandas.testing.assert_frame_equal(predicted, whole.predict(X.iloc[ORDER]))


@pytest.mark.parametrize("kind", ["dates", "date objects", "numbers"])
def test_groups_of_a_long_table_are_ordered_by_their_dates(kind: str) -> None:
    size = TASK.problem.n
    rows = pandas.DataFrame(np.repeat(FEATURES, size, 0), index=np.repeat(DAYS, size))
    rows.columns = [f"x{i}" for i in range(rows.shape[1])]
    rows["edge"], values = np.tile(np.arange(size), COUNT), COSTS.ravel()
    groups = {"dates": rows.index, "date objects": rows.index.date, "numbers": np.repeat(ORDER, size)}[kind]
    moved = (ORDER[:, None] * size + np.arange(size)).ravel()
    whole = pear.DecisionRegressor(TASK.problem, max_epochs=2).fit(rows, values, groups=groups)
    other = pear.DecisionRegressor(TASK.problem, max_epochs=2)
    other.fit(rows.iloc[moved], values[moved], groups=np.asarray(groups)[moved])
    np.testing.assert_array_equal(other.predict(rows), whole.predict(rows))


def test_tune_holds_out_the_latest_rows() -> None:
    options: dict[str, Any] = {"candidates": [{"method": "mse"}], "config": CONFIG}
    whole, other = (pear.tune(TASK.problem, *pair, **options) for pair in ((X, C), (X.iloc[ORDER], C.iloc[ORDER])))
    assert other.table()[0].regret == whole.table()[0].regret


def test_rows_without_dates_have_no_order_in_time() -> None:
    assert find_time_order(X.reset_index(drop=True), COSTS) is None
    assert find_time_order(X, C) is None
    assert find_time_order(FEATURES, COSTS, groups=np.arange(COUNT)[::-1]) is None


def test_the_estimator_leaves_a_gap_beside_held_out_rows() -> None:
    pytest.importorskip("sklearn")
    plain, gapped = (pear.DecisionRegressor(TASK.problem, max_epochs=2, gap=gap).fit(X, C) for gap in (0, 9))
    assert gapped.history_.race != plain.history_.race  # trained on fewer rows, judged on the same ones
    with pytest.raises(pear.ProblemError, match="gap must be a whole number of at least 0; got -1"):
        pear.DecisionRegressor(TASK.problem, gap=-1).fit(X, C)
