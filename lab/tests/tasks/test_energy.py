"""Energy: the loader, days in time order, training on them, and intervals of paired differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lab_files import ENERGY_DAYS, energy_lines, write_energy_files
from one_run import execute
from real_data import real_data
from split_training import regret_on_test_part, train_on_split

from pear.errors import ProblemError
from pear.train import FitConfig
from pear_lab.data import EnergyData, load_energy
from pear_lab.data.energy_data import FEATURES
from pear_lab.experiments import Database, Selection, expand
from pear_lab.experiments.catalogue import EXPERIMENTS
from pear_lab.report import read, write_report
from pear_lab.report.bootstrap import normalized_difference
from pear_lab.report.paired_comparison import difference_grid, difference_in_points, instance_losses
from pear_lab.report.table_cells import cells_of_experiment
from pear_lab.tasks import SharedLinear, energy_split


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> EnergyData:
    return load_energy(write_energy_files(tmp_path_factory.mktemp("energy"), energy_lines()))


# --- split ----------------------------------------------------------------------------------------------------------


def test_days_are_cut_in_their_order(data: EnergyData) -> None:
    split = energy_split(data)
    assert [*split.train.ids, *split.validation.ids, *split.test.ids] == list(range(ENERGY_DAYS))
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

    before = regret_on_test_part(split, model)
    train_on_split(split, model, method, options, FitConfig(batch_size=7, max_epochs=21, patience=6))
    assert before > 0.2
    assert regret_on_test_part(split, model) < 0.3 * before


def test_runs_become_a_table_with_paired_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_energy_files(tmp_path / "energy", energy_lines(20))
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
