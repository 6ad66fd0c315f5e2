"""Batteries: the file of PJM days, the model against independent results, and features without look-ahead."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from real_data import real_data
from scipy.optimize import linprog

import pear
from pear.errors import DataError, ProblemError
from pear_lab.data.energy_data import FEATURES, EnergyData
from pear_lab.data.pjm_data import PJM_DAYS, load_pjm_days
from pear_lab.forecasters.battery_cases import draw_battery_market, pjm_battery_case
from pear_lab.forecasters.irish_features import (
    find_irish_feature_days,
    irish_feature_prices,
    long_irish_features,
    wide_irish_features,
)
from pear_lab.tasks.battery_task import MARKET, PJM, Battery, battery

DAYS = 12


def arrays(days: int = DAYS) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    dates = np.datetime64("2011-01-04") + np.arange(days)
    return {"X": random.normal(size=(days, 5)), "Y": random.uniform(20, 80, (days, 24)), "dates": dates}


def write(folder: Path, **changed: np.ndarray) -> Path:
    (folder / "battery").mkdir(parents=True, exist_ok=True)
    np.savez(folder / "battery" / PJM_DAYS, **{**arrays(), **changed})
    return folder


def test_days_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAR_DATA", str(write(tmp_path)))
    data = load_pjm_days()
    assert data.features.shape == (DAYS, 5)
    assert data.prices.shape == (DAYS, 24)
    assert torch.equal(data.prices, torch.from_numpy(arrays()["Y"]))
    assert data.dates[:2] == ("2011-01-04", "2011-01-05")
    assert load_pjm_days(tmp_path / "battery").fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"Y": np.zeros((DAYS, 23))}, r"expected X \(days, features\).*Y \(12, 23\)"),
        ({"X": np.full((DAYS, 5), np.nan)}, "X must hold finite numbers"),
        ({"dates": arrays()["dates"][::-1]}, "dates must be days that increase"),
        ({"dates": np.arange(DAYS)}, "dates must be days that increase"),
    ],
)
def test_other_contents_are_refused(tmp_path: Path, changed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_pjm_days(write(tmp_path, **changed))


def test_a_missing_file_or_array_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="put it into the folder 'battery'"):
        load_pjm_days(tmp_path)
    np.savez(tmp_path / PJM_DAYS, X=arrays()["X"])
    with pytest.raises(DataError, match="cannot be read as a file of PJM days"):
        load_pjm_days(tmp_path)


def spent(spec: Battery, price: np.ndarray, flow_in: np.ndarray, flow_out: np.ndarray) -> float:
    """Return the objective of a plan, computed hour by hour."""
    state, total = spec.start, spec.level_penalty * (spec.start - spec.capacity / 2) ** 2
    for t in range(spec.hours):
        state += spec.efficiency * flow_in[t] - flow_out[t]
        assert -1e-9 <= state <= spec.capacity + 1e-9
        total += price[t] * (flow_in[t] - flow_out[t]) + spec.wear * flow_out[t]
        total += spec.level_penalty * (state - spec.capacity / 2) ** 2
        total += spec.flow_penalty * (flow_in[t] ** 2 + flow_out[t] ** 2)
    return total


def random_plan(spec: Battery, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw flows in and out that keep the state within its bounds."""
    flow_in, flow_out, state = np.zeros(spec.hours), np.zeros(spec.hours), spec.start
    for t in range(spec.hours):
        flow_out[t] = random.uniform(0, min(spec.discharge, state))
        state -= flow_out[t]
        flow_in[t] = random.uniform(0, min(spec.charge, (spec.capacity - state) / spec.efficiency))
        state += spec.efficiency * flow_in[t]
    return flow_in, flow_out


@pytest.mark.parametrize("spec", [PJM, MARKET], ids=["quadratic", "linear"])
def test_the_value_is_the_objective_by_the_hour_and_no_plan_is_better(spec: Battery) -> None:
    random = np.random.default_rng(1)
    model, price = battery(spec), random.uniform(10, 90, 24)
    solution = pear.solve(model, price[None])
    value = float(solution.value[0]) + model.offset
    z = solution.x[0].numpy()
    assert value == pytest.approx(spent(spec, price, z[:24], z[24:48]), abs=1e-9)
    others = [spent(spec, price, *random_plan(spec, random)) for _ in range(500)]
    assert value < min(others)


def test_the_linear_battery_agrees_with_another_solver() -> None:
    model, prices = battery(MARKET), np.random.default_rng(2).uniform(-10, 90, (5, 24))
    problem = model.problem
    ours = pear.solve(model, prices).value.numpy()
    A, b, ub = (getattr(problem, name).numpy() for name in ("A", "b", "ub"))
    for price, value in zip(prices, ours, strict=True):
        theirs = linprog(model.cost(price).numpy(), A_eq=A, b_eq=b, bounds=[(0, most) for most in ub])
        assert value == pytest.approx(theirs.fun, abs=1e-9)


def test_a_battery_that_cannot_be_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"start=2\.0, capacity=1\.0"):
        Battery(start=2.0)


@pytest.mark.parametrize(("order", "published"), [("time", -32.505), ("shuffled", -45.499)])
def test_the_published_optimum_of_pjm(order: str, published: float) -> None:
    real_data("battery")
    case = pjm_battery_case(order, 0, quick=False)
    best = pear.solve(case.problem, case.C[case.splits[0].test]).value.mean() + case.offset
    assert round(float(best), 3) == published


def irish(days: int = 30, missing: int = 20) -> EnergyData:
    """Draw data for consecutive days from 1 November 2011, without day ``missing``."""
    random = np.random.default_rng(3)
    dates = [(datetime.date(2011, 11, 1) + datetime.timedelta(i)).isoformat() for i in range(days) if i != missing]
    features = torch.from_numpy(random.uniform(0, 1, (len(dates), 48, len(FEATURES))))
    prices = torch.from_numpy(random.uniform(30, 90, (len(dates), 48)))
    return EnergyData(features, prices, torch.ones(48), tuple(dates), (), Path("memory"), "")


def test_irish_features_take_days_whose_lags_are_there() -> None:
    data = irish()
    days = find_irish_feature_days(data).dates
    # The day that is missing, and those that look back on it by a day and by a week.
    gone = {datetime.date(2011, 11, 1) + datetime.timedelta(i) for i in (20, 21, 27)}
    assert days[0] == datetime.date(2011, 11, 8)
    assert not gone & set(days)
    assert len(days) == 30 - 7 - 3
    assert wide_irish_features(data).shape == (20, 130)
    assert long_irish_features(data).shape == (20, 24, 49)
    row = find_irish_feature_days(data).rows[0]
    assert irish_feature_prices(data)[0, 3] == pytest.approx(float(data.prices[row, 6:8].mean()))


def test_features_do_not_know_the_prices_of_their_day() -> None:
    data = irish()
    last = find_irish_feature_days(data).rows[-1]
    prices = data.prices.clone()
    prices[last] += 100
    other = dataclasses.replace(data, prices=prices)
    assert np.array_equal(wide_irish_features(data), wide_irish_features(other))
    assert np.array_equal(long_irish_features(data), long_irish_features(other))
    assert not np.array_equal(irish_feature_prices(data), irish_feature_prices(other))
    prices[last - 1] += 100  # yesterday is known
    assert not np.array_equal(
        wide_irish_features(data)[-1], wide_irish_features(dataclasses.replace(data, prices=prices))[-1]
    )


def test_a_market_is_drawn_by_its_seed_and_knows_yesterday() -> None:
    first, again, other = (draw_battery_market(40, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[1], other[1])
    X, C = first
    assert X.shape == (40, 106)
    assert C.shape == (40, 24)
    assert (C > 0).all()
    assert np.array_equal(X[1:, 72:96], C[:-1])
