"""Building investment: the loader, instances with their own budgets, and training on them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lab_files import BUILDINGS, building_rows, write_building_workbook
from one_run import execute
from real_data import real_data
from split_training import regret_on_test_part, train_on_split

import pear
from pear.errors import DataError, ProblemError, SolveError
from pear.losses.methods import make_loss
from pear.train import FitConfig
from pear_lab.data import BuildingData, load_building
from pear_lab.data.building_data import PROPERTIES, WORKBOOK
from pear_lab.experiments import Database, Selection, check_data_of_runs, expand
from pear_lab.tasks import Building, SharedLinear, building, building_split
from pear_lab.tasks.worst_case import decide_worst

METHODS = ("mse", "spo+", "spo+relaxed", "pfyl", "dbb", "lava", "pear")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> BuildingData:
    return load_building(write_building_workbook(tmp_path_factory.mktemp("data") / WORKBOOK, building_rows()))


# --- decisions ------------------------------------------------------------------------------------------------------


def by_hand(task: Building, values: torch.Tensor) -> torch.Tensor:
    """Return the best value of every instance, by comparing all choices."""
    choices = torch.tensor(list(itertools.product((0.0, 1.0), repeat=task.problem.n)), dtype=torch.float64)
    worth = values.double() @ choices.T
    worth[task.weights @ choices.T > task.budget[:, None] * (1 + 1e-9)] = -torch.inf
    return worth.max(1).values


@pytest.mark.parametrize("whole", [True, False])
def test_decisions_are_the_best_within_each_budget(whole: bool) -> None:
    random = torch.Generator().manual_seed(0)
    weights = 1 + 50 * torch.rand(12, 8, generator=random, dtype=torch.float64)
    task = building(weights.ceil() if whole else weights)
    values = torch.randn(12, 8, generator=random, dtype=torch.float64)
    z = task.decide(values)
    assert ((z == 0) | (z == 1)).all()
    assert (task.weights * z).sum(1).le(task.budget * (1 + 1e-9)).all()
    torch.testing.assert_close((values * z).sum(1), by_hand(task, values))
    some = [7, 2]
    assert torch.equal(task.decide(values[some], keys=some), z[some])


@pytest.mark.parametrize("version", ["inequality", "equality"])
def test_fractions_are_those_of_the_solver(version: Any) -> None:
    random = torch.Generator().manual_seed(1)
    task = building(1 + torch.rand(20, 7, generator=random, dtype=torch.float64), version=version)
    values = torch.randn(20, 7, generator=random, dtype=torch.float64)
    torch.testing.assert_close(task.decide_relaxed(values), pear.solve(task.problem.relaxed(), values).x)
    spent = (task.weights * task.decide_relaxed(values)).sum(1)
    assert bool((spent <= task.budget + 1e-9).all())
    assert version == "inequality" or torch.allclose(spent, task.budget)


def test_a_curvature_is_decided_for_the_instances_of_the_keys() -> None:
    task = building([[1.0, 3.0], [3.0, 1.0]], budget=0.5, version="equality")
    prices, Q, keys = torch.tensor([[1.0, 2.0]]).double(), -torch.eye(2).double(), [1]
    torch.testing.assert_close(
        task.decide(prices, Q, keys), pear.solve(task.problem[torch.tensor(keys)], prices, Q=Q).x
    )
    with pytest.raises(ProblemError, match="linear objective"):
        building([[1.0, 3.0]]).decide(prices, Q)


def test_equality_spends_on_what_has_no_value() -> None:
    task = building([[1.0, 1.0]], budget=0.6, version="equality")
    torch.testing.assert_close(task.decide([[-1.0, -2.0]]), torch.tensor([[1.0, 0.2]], dtype=torch.float64))
    assert building([[1.0, 1.0]], budget=0.6).decide([[-1.0, -2.0]]).tolist() == [[0.0, 0.0]]


def test_ties_are_broken_against_us_when_asked() -> None:
    task = building([[1.0, 1.0]], budget=0.5)
    assert decide_worst(task, [[1.0, 1.0]], [[3.0, 2.0]]).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("version", ["inequality", "equality"])
def test_neighbours_belong_to_the_instance(version: Any) -> None:
    task = building([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], version=version)
    z = task.decide_relaxed([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    both = task.adjacent(z)
    for key in (0, 1):
        (alone,) = task.adjacent(z[[key]], keys=[key])
        assert torch.equal(alone, both[key])
        assert (alone @ task.weights[key] <= task.budget[key] + 1e-9).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: building([[1.0, 0.0]]), "positive"),
        (lambda: building([[1.0]], budget=1.5), "share between 0 and 1"),
        (lambda: building([[1.0]], version="both"), "'inequality' or 'equality'"),
        (lambda: building([[1.0, 2.0]]).decide([[1.0, 2.0], [1.0, 2.0]]), r"each of the 1 instances.*got \(2, 2\)"),
        (lambda: building([[1.0, 2.0]]).decide([[1.0, 2.0]], keys=[1]), "from 0 to 0"),
        (lambda: decide_worst(building([[1.0]], version="equality"), [[1.0]], [[1.0]]), "whole decisions"),
    ],
)
def test_what_cannot_be_right_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        call()


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(SolveError):
        building([[1.0, 2.0]]).decide([[1.0, float("nan")]])


# --- split ----------------------------------------------------------------------------------------------------------


def test_folds_test_every_instance_once(data: BuildingData) -> None:
    split = [building_split(data, seed=3, fold=fold, instance_size=5) for fold in range(5)]
    assert sorted(i for one in split for i in one.test.ids) == list(range(12))
    for one in split:
        ids = [*one.train.ids, *one.validation.ids, *one.test.ids]
        assert sorted(ids) == list(range(12))
    assert len({id(part.task) for one in split for part in (one.train, one.validation, one.test)}) == 15


def test_budgets_are_shares_of_each_instance(data: BuildingData) -> None:
    task = building_split(data, instance_size=5).test.task
    torch.testing.assert_close(task.budget, 0.4 * task.weights.sum(1))


def test_nothing_of_validation_and_test_reaches_the_training_instances(data: BuildingData) -> None:
    before = building_split(data, instance_size=5)
    dealt = torch.from_numpy(np.random.RandomState(0).permutation(BUILDINGS)).reshape(12, 5)
    assert torch.equal(before.test.task.weights, data.costs[dealt[list(before.test.ids)]])
    held = dealt[[*before.validation.ids, *before.test.ids]].flatten()
    features, prices = data.features.clone(), data.prices.clone()
    features[held] += 1e6
    prices[held] *= 1e3
    after = building_split(dataclasses.replace(data, features=features, prices=prices), instance_size=5)
    assert not torch.equal(after.test.samples.features, before.test.samples.features)
    assert after.unit == before.unit
    for one, other in zip((*before.train.samples, *before.scale), (*after.train.samples, *after.scale), strict=True):
        assert torch.equal(one, other)
    flat = before.train.samples.features.flatten(0, 1)
    varies = before.scale.deviation.isfinite()
    torch.testing.assert_close(flat.mean(0)[varies], torch.zeros(int(varies.sum()), dtype=torch.float64))


def test_a_column_that_never_varied_in_training_says_nothing_later(data: BuildingData) -> None:
    features = data.features.clone()
    features[:, 0] = 7.0
    one = building_split(dataclasses.replace(data, features=features), instance_size=5)
    features[0, 0] = 8.0
    assert bool((one.test.samples.features[..., 0] == 0).all())
    assert bool((one.scale(features)[:, 0] == 0).all())


def test_too_few_properties_are_refused(data: BuildingData) -> None:
    with pytest.raises(ProblemError, match="60 properties make 3 instances of 20"):
        building_split(data, instance_size=20)
    with pytest.raises(ProblemError, match="fold must be 0 to 4"):
        building_split(data, fold=5, instance_size=5)


# --- training -------------------------------------------------------------------------------------------------------


def test_each_samples_own_constraints_reach_the_gradient(data: BuildingData) -> None:
    split = building_split(data, instance_size=5)
    task, (_, true) = split.train.task, split.train.samples
    keys = torch.tensor([4, 1, 5])
    loss = pear.PEARLoss(task.problem, smoothing=1.0, injection=0.0, reduction="none", guidance=0.0)
    predicted = (true[keys] + 0.5 * torch.randn(3, 5, generator=torch.Generator().manual_seed(2))).requires_grad_()
    loss(predicted, true[keys], keys=keys).sum().backward()
    step = 1e-6
    for i, j in itertools.product(range(3), range(5)):
        moved = [predicted.detach().clone() for _ in range(2)]
        moved[0][i, j] += step
        moved[1][i, j] -= step
        up, down = (loss(one, true[keys], keys=keys)[i] for one in moved)
        assert predicted.grad is not None
        assert float((up - down) / (2 * step)) == pytest.approx(float(predicted.grad[i, j]), abs=1e-6)
    alone = pear.regret_gradient(task.problem[keys], predicted.detach(), true[keys], smoothing=1.0)
    torch.testing.assert_close(predicted.grad, alone)
    others = pear.regret_gradient(task.problem[keys.flip(0)], predicted.detach(), true[keys], smoothing=1.0)
    assert not torch.allclose(alone, others)


@pytest.mark.parametrize("version", ["inequality", "equality"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_the_samples_of_its_keys(data: BuildingData, method: str, version: Any) -> None:
    task, (_, true) = (part := building_split(data, instance_size=5, version=version).train).task, part.samples
    keys = [4, 1]
    options = {"smoothing": 2.0} if method == "pear" else {}
    predicted = (true[keys].flip(1) + 0.1).requires_grad_()
    value = make_loss(method, task, **options)(predicted, true[keys], keys=keys)
    value.backward()
    same = predicted.detach().clone().requires_grad_()
    own = building(task.weights[keys], version=version)
    expected = make_loss(method, own, **options)(same, true[keys], keys=[0, 1])
    expected.backward()
    assert float(value.detach()) == pytest.approx(float(expected.detach()), abs=1e-9)
    torch.testing.assert_close(predicted.grad, same.grad)
    assert predicted.grad is not None
    assert bool(predicted.grad.abs().sum() > 0)


@pytest.mark.parametrize(("method", "options"), [("mse", {}), ("pear", {"smoothing": 1.0})])
def test_training_lowers_the_regret_of_instances_not_seen(
    data: BuildingData, method: str, options: dict[str, float]
) -> None:
    split = building_split(dataclasses.replace(data, features=data.features[:, :7]), instance_size=5)
    model = SharedLinear(7)
    with torch.no_grad():
        model.linear.weight.fill_(-0.1)  # a start that is wrong about everything
        model.linear.bias.zero_()

    before = regret_on_test_part(split, model)
    train_on_split(split, model, method, options, FitConfig(batch_size=4, max_epochs=60, patience=6, start="given"))
    assert before > 0.05
    assert regret_on_test_part(split, model) < 0.3 * before


# --- as an experiment -----------------------------------------------------------------------------------------------


def test_a_run_keeps_what_every_instance_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_building_workbook(tmp_path / "building" / WORKBOOK, building_rows())
    monkeypatch.setenv("PEAR_DATA", str(tmp_path))
    (run,) = expand(["building"], Selection(methods=["spo+"], seeds=[0], quick=True))
    run = dataclasses.replace(run, settings={**run.settings, "instance_size": 5, "max_epochs": 3})
    check_data_of_runs([run])
    with Database(tmp_path / "results.sqlite") as database:
        row = execute(run, database)
        assert (row.status, row.reason) == ("done", "")
        assert execute(run, database) == row
        assert database.weights(row)
    kept = row.metrics["instances"]
    assert kept["id"] == [0, 1, 2]
    assert sum(kept["lost"]) / sum(kept["best"]) == pytest.approx(row.metrics["normalized_regret"], rel=1e-6)
    assert min(kept["lost"]) >= 0
    assert row.metrics["chosen"]["mse_weight"] in (0.01, 0.1, 1.0, 10.0, 100.0)
    assert row.metrics["unambiguous_regret"] >= row.metrics["normalized_regret"] - 1e-12


def test_runs_without_data_are_refused_before_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEAR_DATA", str(tmp_path))
    with pytest.raises(DataError, match="fetch_building"):
        check_data_of_runs(expand(["building"], Selection(quick=True)))


# --- the real file --------------------------------------------------------------------------------------------------


def test_the_real_workbook_and_the_processed_tables_agree() -> None:
    folder = real_data("building")
    found, processed = load_building(folder / WORKBOOK), load_building(folder / PROPERTIES)
    assert found.features.shape == processed.features.shape == (372, 7 + 95 + 20)
    assert torch.equal(found.costs, processed.costs)
    torch.testing.assert_close((found.prices - found.prices.mean()) / found.prices.std(correction=0), processed.prices)
    one, other = (building_split(data, seed=1).train.samples.features for data in (found, processed))
    torch.testing.assert_close(one[..., :7].sort(-1).values, other[..., :7].sort(-1).values)
    split = building_split(found)
    assert [len(part.ids) for part in (split.train, split.validation, split.test)] == [21, 8, 8]
    torch.testing.assert_close(
        (split.test.samples.costs * split.test.task.decide(split.test.samples.costs)).sum(1),
        by_hand(split.test.task, split.test.samples.costs),
    )
