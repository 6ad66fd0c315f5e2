"""Energy: the loader, days in their order, and training on them; intervals of paired differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from one_run import execute
from real_data import real_data

from pear.errors import DataError, ProblemError
from pear.losses.methods import make_loss
from pear.train import FitConfig, fit
from pear_lab.data import EnergyData, load_energy
from pear_lab.data.energy_data import FEATURES, PRICES, WEIGHTS
from pear_lab.experiments import Database, Selection, expand
from pear_lab.experiments.catalogue import EXPERIMENTS
from pear_lab.report import read, write_report
from pear_lab.report.bootstrap import normalized_difference
from pear_lab.report.paired_comparison import difference_grid, difference_in_points, instance_losses
from pear_lab.report.table_cells import cells_of_experiment
from pear_lab.tasks import SharedLinear, energy_split

HEADER = (
    "#DateTime Holiday HolidayFlag DayOfWeek WeekOfYear Day Month Year PeriodOfDay ForecastWindProduction SystemLoadEA "
    "SMPEA ORKTemperature ORKWindspeed CO2Intensity ActualWindProduction SystemLoadEP2 SMPEP2"
)
DAYS = 40
ITEMS = np.tile([3, 5, 7, 5], 12)


def lines(days: int = DAYS) -> list[str]:
    """Prices that follow the forecast wind and load; what comes true in other columns is noise, some of it missing."""
    random = np.random.default_rng(0)
    found = [HEADER]
    for day in range(days):
        for period in range(48):
            wind, load, noise = random.normal(size=3).round(3)
            price = round(60 + 20 * load - 10 * wind + noise, 3)
            name = '"Bank Holiday, New" 1' if day == 2 else '"" 0'
            found.append(
                f'"x {day} 00:00" {name} {day % 7} 44 {1 + day % 28} {1 + day // 28} 2012 {period}  {wind}  {load} '
                f"{round(price + 5 * noise, 3)}  NaN 1.0  2.0 {noise} {noise} {price}"
            )
    return found


def write(folder: Path, text: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PRICES).write_text("\n".join(text) + "\n")
    np.savez(folder / WEIGHTS, weights=ITEMS)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> EnergyData:
    return load_energy(write(tmp_path_factory.mktemp("energy"), lines()))


# --- the loader -----------------------------------------------------------------------------------------------------


def test_days_features_and_prices_are_read(data: EnergyData) -> None:
    assert data.features.shape == (DAYS, 48, len(FEATURES))
    assert (data.dates[0], data.dates[28], data.dropped) == ("2012-01-01", "2012-02-01", ())
    fields = lines()[1 + 3 * 48 + 5].split()
    assert data.prices[3, 5] == float(fields[-1])
    assert data.features[3, 5].tolist() == [0, 3, 44, 1, 5, *map(float, fields[-9:-6])]
    assert data.features[2, 0, 0] == 1  # a name of several words is one field
    assert data.weights.tolist() == ITEMS.tolist()


def test_no_feature_is_known_only_afterwards(tmp_path: Path, data: EnergyData) -> None:
    changed = [lines()[0]]
    for line in lines()[1:]:
        fields = line.rsplit(" ", 3)
        changed.append(" ".join([fields[0], "9", "9", str(float(fields[3]) + 1)]))
    assert torch.equal(load_energy(write(tmp_path, changed)).features, data.features)


def without(at: int, text: str = "NaN") -> list[str]:
    """A price is missing."""
    found = lines(6)
    found[at] = found[at].rsplit(" ", 1)[0] + f" {text}"
    return found


def test_days_with_gaps_are_dropped_by_name_or_refused(tmp_path: Path) -> None:
    gaps = without(1 + 2 * 48 + 7)
    del gaps[1 + 4 * 48]  # a day of 47 half-hours
    folder = write(tmp_path, gaps)
    found = load_energy(folder)
    assert found.dropped == ("2012-01-03", "2012-01-05")
    assert found.dates == ("2012-01-01", "2012-01-02", "2012-01-04", "2012-01-06")
    assert not found.features.isnan().any()
    with pytest.raises(DataError, match="days with gaps: 2012-01-03, 2012-01-05"):
        load_energy(folder, gaps="raise")


def test_a_gap_in_a_column_that_is_not_used_is_none(data: EnergyData) -> None:
    assert "NaN" in lines()[1]
    assert len(data.dates) == DAYS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (without(3, "dear"), r"line 4 \(SMPEP2\) must be a number; got 'dear'"),
        ([HEADER.replace("SMPEA", "SMP"), *lines(1)[1:]], "'SMPEA' is missing"),
        ([lines(1)[0], "1 2 3"], "line 2 has 3 fields; the first line names 18"),
        ([HEADER], "no day of 48 half-hours"),
        ([], "first line must name the columns"),
    ],
)
def test_a_file_that_is_not_right_is_refused(tmp_path: Path, text: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_energy(write(tmp_path, text))


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (write(tmp_path, lines(1)) / PRICES).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="no text in UTF-8"):
        load_energy(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"found none of .*energy/prices2013.dat.*ICON"):
        load_energy(tmp_path)
    write(tmp_path, lines(1))
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(DataError, match="pass weights="):
        load_energy(tmp_path)
    assert load_energy(tmp_path, weights=[1.0] * 48).weights.sum() == 48
    with pytest.raises(DataError, match=r"48 positive numbers; got shape \(3,\)"):
        load_energy(tmp_path, weights=[1.0] * 3)


# --- split ----------------------------------------------------------------------------------------------------------


def test_days_are_cut_in_their_order(data: EnergyData) -> None:
    split = energy_split(data)
    assert [*split.train.ids, *split.validation.ids, *split.test.ids] == list(range(DAYS))
    assert [len(part.ids) for part in (split.train, split.validation, split.test)] == [28, 4, 8]
    values = data.prices[-8:] * data.weights
    torch.testing.assert_close(split.test.samples.costs * split.unit, values)


def test_later_days_do_not_reach_the_scales(data: EnergyData) -> None:
    features, prices = data.features.clone(), data.prices.clone()
    features[28:] += 100
    prices[28:] *= 100
    before, after = energy_split(data), energy_split(dataclasses.replace(data, features=features, prices=prices))
    assert before.unit == after.unit
    assert torch.equal(before.train.samples.features, after.train.samples.features)
    assert not torch.equal(before.test.samples.features, after.test.samples.features)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.5, 0.4, 0.2), (1.0, 0.0, 0.0), (0.999, 0.0005, 0.0005)])
def test_shares_that_cannot_be_are_refused(data: EnergyData, shares: tuple[float, ...]) -> None:
    with pytest.raises(ProblemError, match=r"sum of 1|too few"):
        energy_split(data, shares=shares)


@pytest.mark.parametrize(("method", "options"), [("mse", {}), ("pear", {"smoothing": 1.0})])
def test_training_lowers_the_regret_of_later_days(data: EnergyData, method: str, options: dict[str, float]) -> None:
    split = energy_split(data, capacity=60)
    model = SharedLinear(len(FEATURES), data.weights)
    with torch.no_grad():
        model.linear.weight.zero_()
        model.linear.bias.fill_(0.5)  # below zero nothing would be bought, and a corner has no slope

    def regret() -> float:
        with torch.no_grad():
            predicted = model(split.test.samples.features)
        return split.test.task.normalized_regret(predicted, split.test.samples.costs)

    before = regret()
    loss = make_loss(method, split.train.task, **options)
    score = split.validation.task.normalized_regret
    fit(
        model,
        loss,
        split.train.samples,
        split.validation.samples,
        score,
        FitConfig(batch_size=7, max_epochs=21, patience=6),
    )
    assert before > 0.2
    assert regret() < 0.3 * before


def test_runs_become_a_table_with_paired_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "energy", lines(20))
    monkeypatch.setenv("PEAR_DATA", str(tmp_path))
    runs = expand(["energy"], Selection(methods=["mse", "pear"], seeds=[0, 1], quick=True))
    with Database(tmp_path / "results.sqlite") as database:
        for run in runs:
            settings = {**run.settings, "max_epochs": 1}
            settings |= {"tuned": {"smoothing": [1.0]}} if run.method == "pear" else {}
            row = execute(dataclasses.replace(run, settings=settings), database)
            assert (row.status, row.reason) == ("done", "")
    found = read(tmp_path / "results.sqlite")
    grid = difference_grid(found, cells_of_experiment(EXPERIMENTS["energy"], found))
    assert grid is not None
    ((row, column, _, _, basis),) = grid.rows
    assert (row, column, basis) == ("MSE", "capacity 120", "2 seeds, 8 instances")
    losses = instance_losses(*([run for run in found.done if run.method == name] for name in ("mse", "pear")))
    kept = [(run.method, run.metrics["instances"]) for run in found.done]
    lost = {name: sum(sum(one["lost"]) for method, one in kept if method == name) for name in ("mse", "pear")}
    best = sum(sum(one["best"]) for method, one in kept if method == "pear")
    assert difference_in_points("energy", losses).estimate == pytest.approx(100 * (lost["mse"] - lost["pear"]) / best)
    text = write_report(found, tmp_path).tables.read_text("utf-8")
    assert "### Paired differences to PEAR" in text
    assert "2 seeds, 8 instances" in text


# --- intervals ------------------------------------------------------------------------------------------------------


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    random = np.random.default_rng(1)
    first = random.normal(1.0, 2.0, 400)
    found = normalized_difference([first], [np.zeros(400)], [np.ones(400)])
    half = 1.96 * first.std() / 20
    assert found.estimate == pytest.approx(first.mean())
    assert found.low == pytest.approx(first.mean() - half, abs=0.02)
    assert found.high == pytest.approx(first.mean() + half, abs=0.02)
    assert found.clear


def test_pairing_removes_what_both_methods_share() -> None:
    hard = np.random.default_rng(2).normal(0, 100, 50)
    found = normalized_difference([hard + 1.0], [hard], [np.ones(50)])
    assert (found.low, found.high) == (pytest.approx(1.0), pytest.approx(1.0))


def test_seeds_that_differ_widen_the_interval() -> None:
    zero, one = [np.zeros(30)] * 2, [np.ones(30)] * 2
    same = normalized_difference([np.full(30, 0.5), np.full(30, 0.5)], zero, one)
    apart = normalized_difference([np.zeros(30), np.ones(30)], zero, one)
    assert (same.low, same.high, apart.low, apart.high) == (0.5, 0.5, 0.0, 1.0)


def test_days_drawn_once_for_all_seeds_do_not_average_out() -> None:
    lost = np.random.default_rng(3).normal(0, 1, 50)
    seeds, zero, one = [lost] * 8, [np.zeros(50)] * 8, [np.ones(50)] * 8
    nested, crossed = (normalized_difference(seeds, zero, one, shared=shared) for shared in (False, True))
    assert crossed.high - crossed.low > 2 * (nested.high - nested.low)
    alone = normalized_difference([lost], [zero[0]], [one[0]])
    assert crossed.high - crossed.low == pytest.approx(alone.high - alone.low, rel=0.05)


def test_blocks_keep_neighbours_together() -> None:
    lost = np.repeat(np.random.default_rng(4).normal(0, 1, 20), 7)
    single, week = (normalized_difference([lost], [0 * lost], [1 + 0 * lost], block=block) for block in (1, 7))
    assert week.high - week.low > 1.8 * (single.high - single.low)


def test_the_same_seed_draws_the_same() -> None:
    lost = np.random.default_rng(5).normal(size=90)
    first, second, other = (normalized_difference([lost], [0 * lost], [1 + 0 * lost], seed=seed) for seed in (0, 0, 1))
    assert first == second != other


@pytest.mark.parametrize(
    "call",
    [
        lambda a: normalized_difference([a], [a[:2]], [a]),
        lambda a: normalized_difference([], [], []),
        lambda a: normalized_difference([a, a[:2]], [a, a[:2]], [a, a[:2]], shared=True),
        lambda a: normalized_difference([a], [a], [0 * a]),
        lambda a: normalized_difference([a], [a], [a], block=0),
    ],
)
def test_what_cannot_be_paired_is_refused(call: Callable[[np.ndarray], object]) -> None:
    with pytest.raises(ProblemError):
        call(np.arange(1.0, 4.0))


# --- the real file --------------------------------------------------------------------------------------------------


def test_the_real_prices() -> None:
    found = load_energy(real_data("energy"))
    assert found.prices.shape == (789, 48)
    assert found.dropped == ("2012-03-25", "2012-10-27", "2013-03-31")
    assert sorted(set(found.weights.tolist())) == [3.0, 5.0, 7.0]
    split = energy_split(found, capacity=60)
    assert [len(part.ids) for part in (split.train, split.validation, split.test)] == [552, 79, 158]
    chosen = split.test.task.decide(split.test.samples.costs)
    assert bool(((chosen * found.weights).sum(1) <= 60).all())
