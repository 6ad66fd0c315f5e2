"""The types of data that ``fit`` accepts: tensors, arrays, tables, Datasets and DataLoaders give the same weights."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

import pear
from pear.train import FitConfig, History, Progress, fit, in_order
from pear.train.samples.loader_samples import LoaderSamples

TASK = pear.tasks.shortest_path((3, 3))
X, C = TASK.samples(100, degree=4, seed=0)
VALIDATION = TASK.samples(30, degree=4, seed=1)
CONFIG = FitConfig(max_epochs=4, check_every=2, start="mse")


def model_of(kind: str = "deep") -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "linear":
            return nn.Linear(5, TASK.problem.n)
        return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, TASK.problem.n))


def trained(
    train: Any, kind: str = "deep", validation: Any = VALIDATION, loss: Any = None, **options: Any
) -> tuple[list[Tensor], History]:
    """Return the weights and the history of a short run, whose batches are in order."""
    model = model_of(kind)
    options = {"config": CONFIG, "order": in_order} | options
    history = fit(model, loss or pear.PEARLoss(TASK.problem), train, validation, **options)
    return [parameter.detach() for parameter in model.parameters()], history


def same(one: tuple[list[Tensor], History], other: tuple[list[Tensor], History]) -> bool:
    """Return whether two runs have equal weights, losses and metrics in both stages, to the bit."""
    weights = all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    checks = [
        [(check.epoch, check.loss, check.metric) for check in part.checks]
        for _, history in (one, other)
        for part in (history, history.before or history)
    ]
    return weights and checks[:2] == checks[2:]


class Items(Dataset[Any]):
    """A map-style Dataset of the given items."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


NAMES = [f"sample {i}" for i in range(100)]
KINDS = {
    "arrays": (X.numpy(), C.double().numpy()),
    "lists": [X.tolist(), C.tolist()],
    "tables": (pd.DataFrame(X.numpy(), columns=list("abcde")), pd.DataFrame(C.numpy())),
    "pair with ids": (X, C, list(range(100))),
    "pair with names": (X, C, NAMES),
    "dataset": TensorDataset(X, C),
    "dataset with ids": TensorDataset(X, C, torch.arange(100)),
    "dataset of arrays": Items([(x, c, name) for x, c, name in zip(X.numpy(), C.numpy(), NAMES, strict=True)]),
    "loader": DataLoader(TensorDataset(X, C), batch_size=32),
    "loader with ids": DataLoader(TensorDataset(X, C, torch.arange(100)), batch_size=32),
    "loader with names": DataLoader(Items(list(zip(X, C, NAMES, strict=True))), batch_size=32),
}


@pytest.fixture(scope="module")
def by_tensors() -> dict[str, tuple[list[Tensor], History]]:
    return {kind: trained((X, C), kind) for kind in ("deep", "linear")}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_data_gives_the_same_weights(name: str, by_tensors: Any) -> None:
    assert same(trained(KINDS[name]), by_tensors["deep"])


@pytest.mark.parametrize("name", ["arrays", "lists", "tables", "pair with ids", "dataset", "dataset with ids"])
def test_a_linear_model_keeps_its_compiled_epochs(name: str, by_tensors: Any) -> None:
    assert same(trained(KINDS[name], "linear"), by_tensors["linear"])


def test_a_loader_and_compiled_epochs_agree_to_rounding(by_tensors: Any) -> None:
    for mine, theirs in zip(trained(KINDS["loader"], "linear")[0], by_tensors["linear"][0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["tables", "dataset", "loader"])
def test_validation_samples_come_in_every_kind(name: str) -> None:
    kinds = {
        "tables": tuple(pd.DataFrame(part.numpy()) for part in VALIDATION),
        "dataset": TensorDataset(*VALIDATION),
        "loader": DataLoader(TensorDataset(*VALIDATION), batch_size=30),
    }
    assert same(trained((X, C), validation=kinds[name]), trained((X, C)))


def test_a_validation_loader_may_shuffle() -> None:
    generator = torch.Generator().manual_seed(0)
    shuffled = DataLoader(TensorDataset(*VALIDATION), batch_size=7, shuffle=True, generator=generator)
    weights, history = trained((X, C), validation=shuffled)
    same_weights, reference = trained((X, C))
    assert all(torch.equal(a, b) for a, b in zip(weights, same_weights, strict=True))
    assert [c.metric for c in history.checks] == pytest.approx([c.metric for c in reference.checks], rel=1e-6)


def test_a_loader_shuffles_as_it_says_and_its_ids_reach_the_loss() -> None:
    seen: list[list[int]] = []

    def loss(predicted: Tensor, true: Tensor, keys: Tensor) -> Tensor:
        assert torch.equal(true, C[keys])
        seen.append(keys.tolist())
        return nn.functional.mse_loss(predicted, true)

    data = TensorDataset(X, C, torch.arange(100))
    loader = DataLoader(data, batch_size=40, shuffle=True, generator=torch.Generator().manual_seed(0))
    fit(model_of(), loss, loader, VALIDATION, TASK.normalized_regret, FitConfig(max_epochs=2))
    first, second = list(chain(*seen[:3])), list(chain(*seen[3:]))
    assert [len(keys) for keys in seen] == [40, 40, 20] * 2
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


def test_a_loader_without_ids_gives_row_numbers_in_order_and_none_where_it_shuffles() -> None:
    seen: list[Any] = []

    def loss(predicted: Tensor, true: Tensor, keys: Tensor | None) -> Tensor:
        seen.append(None if keys is None else keys.tolist())
        return nn.functional.mse_loss(predicted, true)

    for shuffle in (False, True):
        loader = DataLoader(TensorDataset(X, C), batch_size=50, shuffle=shuffle)
        fit(model_of(), loss, loader, VALIDATION, TASK.normalized_regret, FitConfig(max_epochs=1))
    assert seen == [list(range(50)), list(range(50, 100)), None, None]


def test_a_loader_is_read_once_before_the_first_epoch_and_keeps_few_features(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    class Counted(Items):
        def __getitem__(self, index: int) -> Any:
            reads.append(index)
            return super().__getitem__(index)

    monkeypatch.setattr("pear.train.samples.loader_samples.LOOK", 40)
    loader = DataLoader(Counted(list(zip(X, C, strict=True))), batch_size=30)
    samples = LoaderSamples.read(loader, "train", model_of(), number=True)
    assert len(samples.look()) == 60  # whole batches
    assert torch.equal(samples.costs, C)
    reads.clear()
    history = trained(loader, validation=VALIDATION)[1]
    assert history.before is not None
    assert len(reads) == 100 * (1 + history.epochs + history.before.epochs)


def test_a_run_on_a_loader_resumes_as_it_would_have_gone_on(tmp_path: Path) -> None:
    def run(epochs: int, checkpoint: Path | None) -> list[Tensor]:
        config = FitConfig(max_epochs=epochs, check_every=2, start="standardised")
        return trained(KINDS["loader"], config=config, checkpoint=checkpoint)[0]

    whole = run(7, None)
    run(3, tmp_path / "run.pt")
    assert all(torch.equal(a, b) for a, b in zip(run(7, tmp_path / "run.pt"), whole, strict=True))


def test_padded_batches_of_different_lengths() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, TASK.problem.n)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.mean(1, keepdim=True))

    ragged = [(torch.ones(3 + i // 50), C[i]) for i in range(100)]
    history = fit(
        Mean(), pear.PEARLoss(TASK.problem), DataLoader(Items(ragged), batch_size=50), ragged_pair(), config=CONFIG
    )
    assert history.epochs == 4


def ragged_pair() -> tuple[Tensor, Tensor]:
    return torch.ones(30, 3), VALIDATION.costs


def test_settings_that_a_loader_overrides_are_said(caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(TensorDataset(X, C), batch_size=32)
    with caplog.at_level(logging.INFO, logger="pear"):
        quiet = trained(loader, order=pear.train.shuffled)[1]
        assert "DataLoader" not in caplog.text
        told = trained(loader)[1]
        also = trained(loader, config=FitConfig(batch_size=5, max_epochs=1), order=pear.train.shuffled)[1]
    assert quiet.note == ""
    for history in (told, also):
        assert "config.batch_size and order do not apply" in history.note
    assert [record.levelname for record in caplog.records if "DataLoader" in record.message] == ["WARNING"] * 2


# --- several inputs -------------------------------------------------------------------------------------------------


class Two(nn.Module):
    """A model with two inputs: the weather as numbers, and the hour as a code."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.hours, self.last = nn.Embedding(4, 2), nn.Linear(7, TASK.problem.n)

    def forward(self, weather: Tensor, hour: Tensor) -> Tensor:
        return self.last(torch.cat([weather, self.hours(hour)], 1))


HOURS = torch.arange(100) % 4


def two(features: Any, validation: Any, **options: Any) -> Tensor:
    model = Two()
    fit(model, pear.PEARLoss(TASK.problem), features, validation, config=CONFIG, order=in_order, **options)
    return model.last.weight.detach()


def test_features_may_be_tuples_or_dicts() -> None:
    held = ((VALIDATION.features, HOURS[:30]), VALIDATION.costs)
    reference = two(((X, HOURS), C), held)
    named = {"weather": X, "hour": HOURS}
    tables = {"weather": pd.DataFrame(X.numpy()), "hour": HOURS.numpy()}
    items = [((x, int(h)), c) for x, h, c in zip(X, HOURS, C, strict=True)]
    by_name = [({"hour": h, "weather": x}, c) for x, h, c in zip(X, HOURS, C, strict=True)]
    for features in ((named, C), (tables, C), Items(items), Items(by_name), DataLoader(Items(by_name), batch_size=32)):
        assert torch.equal(two(features, held), reference)
    assert not torch.equal(two(((X, (HOURS + 1) % 4), C), held), reference)


def test_several_inputs_are_held_out_together() -> None:
    by_hand = ((X[:80], HOURS[:80]), C[:80]), ((X[80:], HOURS[80:]), C[80:])
    assert torch.equal(two((({"weather": X, "hour": HOURS}), C), None), two(*by_hand))


# --- samples held out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "cut"), [(None, 80), (0.2, 80), (0.35, 65), (0.001, 99)])
def test_the_last_rows_are_held_out_and_said(share: float | None, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pear"):
        weights, history = trained((X, C), validation=share)
    assert same((weights, history), trained((X[:cut], C[:cut]), validation=(X[cut:], C[cut:])))
    assert history.held_out == 100 - cut
    assert f"the last {100 - cut} of 100 samples were held out" in history.note
    assert history.note in str(history)
    assert history.as_dict()["held_out"] == 100 - cut
    assert [record.levelname for record in caplog.records if record.message == history.note] == ["INFO"]


def test_validation_samples_of_ones_own_are_not_spoken_of() -> None:
    history = trained((X, C))[1]
    assert (history.held_out, history.note) == (0, "")
    assert str(history).splitlines()[1:] == [history.start]


def per_sample(count: int = 50) -> tuple[pear.Problem, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(count, 3, generator=generator)
    costs = features @ torch.randn(3, 4, generator=generator) + 0.1
    room = 1 + torch.rand(count, 1, generator=generator)
    return pear.Problem(A=torch.ones(1, 4), b=room, lb=0.0, ub=1.0), features, costs


def three(kind: str = "deep") -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(3, 4) if kind == "linear" else nn.Sequential(nn.Linear(3, 4))


@pytest.mark.parametrize("kind", ["linear", "deep"])
@pytest.mark.parametrize("what", ["pair", "dataset", "flipped"])
def test_held_out_rows_keep_the_rows_of_their_problem(kind: str, what: str) -> None:
    problem, features, costs = per_sample()
    ids = torch.arange(50)
    data = {
        "pair": (features, costs),
        "dataset": TensorDataset(features, costs, ids),
        "flipped": TensorDataset(features.flip(0), costs.flip(0), ids.flip(0)),
    }[what]
    model = three(kind)
    history = fit(model, pear.PEARLoss(problem), data, config=CONFIG)
    rows = ids.flip(0)[40:] if what == "flipped" else ids[40:]
    with torch.no_grad():
        regret = pear.normalized_regret(problem[rows], model(features[rows]), costs[rows])
    assert history.best is not None
    assert history.best.metric == pytest.approx(regret, rel=1e-9)


def test_validation_samples_with_ids_use_the_rows_that_they_name() -> None:
    problem, features, costs = per_sample()
    model, rows = three(), torch.tensor([44, 41, 49])
    history = fit(
        model, pear.PEARLoss(problem), (features[:40], costs[:40]), (features[rows], costs[rows], rows), config=CONFIG
    )
    with torch.no_grad():
        regret = pear.normalized_regret(problem[rows], model(features[rows]), costs[rows])
    assert history.best is not None
    assert history.best.metric == pytest.approx(regret, rel=1e-9)


def test_known_costs_per_sample_are_split_with_the_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    known = torch.rand(50, 4, generator=generator)
    features, values = torch.randn(50, 3, generator=generator), torch.randn(50, 2, generator=generator)
    M = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [0.3, 0.3]])
    plain = pear.Problem(A=torch.ones(1, 4), b=[1.0], lb=0.0)
    mapped = pear.Model(plain, cost_map=pear.CostMap(M, known))
    model = nn.Linear(3, 2)
    history = fit(model, pear.PEARLoss(mapped), (features, values), config=CONFIG)
    with torch.no_grad():
        regret = pear.normalized_regret(mapped[40:], model(features[40:]).double(), values[40:].double())
    assert history.best is not None
    assert history.best.metric == pytest.approx(regret, rel=1e-9)
    tuned = pear.tune(mapped, pd.DataFrame(features.numpy()), pd.DataFrame(values.numpy()), config=CONFIG)
    with torch.no_grad():
        regret = pear.normalized_regret(mapped[40:], tuned.model(features[40:]).double(), values[40:].double())
    assert tuned.table()[0].regret == pytest.approx(regret, rel=1e-9)
    assert tuned.history.held_out == 10


# --- the metric -----------------------------------------------------------------------------------------------------


def test_left_out_the_metric_is_the_regret_in_integers() -> None:
    task = pear.tasks.random_knapsack(items=6, dimensions=2, seed=0)
    train, validation, _ = task.split(task.samples(60, degree=4))
    for loss in (pear.PEARLoss(task.problem), pear.losses.SPOPlusLoss(task.problem), pear.losses.MSELoss(task.problem)):
        model = nn.Linear(5, 6)
        history = fit(model, loss, train, validation, config=FitConfig(max_epochs=2, check_every=1, start="mse"))
        with torch.no_grad():
            regret = pear.normalized_regret(task.problem, model(validation.features), validation.costs)
            relaxed = pear.normalized_regret(task.problem.relaxed(), model(validation.features), validation.costs)
        assert history.best is not None
        assert history.best.metric == pytest.approx(regret, rel=1e-12)
        assert history.best.metric != pytest.approx(relaxed, rel=1e-3)


def test_another_problem_assigned_to_a_loss_is_the_one_of_the_metric() -> None:
    loss = pear.PEARLoss(pear.Problem(lb=0.0, ub=1.0, n=TASK.problem.n))
    loss.problem = TASK.problem
    assert loss.given is TASK.problem
    assert same(trained((X, C), loss=loss), trained((X, C)))


def test_the_best_decisions_of_the_validation_samples_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[int] = []
    solve = pear.solve

    def counted(problem: Any, cost: Any, **options: Any) -> Any:
        solved.append(len(cost))
        return solve(problem, cost, **options)

    monkeypatch.setattr("pear.losses.forecast_judge.solve", counted)
    for validation in (VALIDATION, DataLoader(TensorDataset(*VALIDATION), batch_size=8)):
        solved.clear()
        _, history = trained(
            (X, C), validation=validation, config=FitConfig(max_epochs=3, check_every=1, start="given")
        )
        assert len(solved) == 1 + len(history.checks)


def test_without_a_problem_the_loss_is_the_metric() -> None:
    model = model_of()
    history = fit(model, nn.MSELoss(), (X, C), VALIDATION, config=CONFIG)
    with torch.no_grad():
        error = float(nn.functional.mse_loss(model(VALIDATION.features), VALIDATION.costs))
    assert history.best is not None
    assert history.best.metric == error


def test_masked_samples_are_left_out_of_validation() -> None:
    features, costs = X.clone(), C.clone()
    features[90, 1], costs[95, 2], costs[5, 0] = math.nan, math.nan, math.nan
    model, loss = model_of(), pear.PEARLoss(TASK.problem, on_failure="mask")
    with pytest.warns(pear.FailedSamplesWarning) as caught:
        history = fit(model, loss, (features, costs), config=CONFIG)
    assert any("1 of 20 rows of the validation features" in str(one.message) for one in caught)
    keep = [i for i in range(80, 100) if i not in (90, 95)]
    with torch.no_grad():
        regret = pear.normalized_regret(TASK.problem, model(X[keep]), C[keep])
    assert history.best is not None
    assert history.best.metric == pytest.approx(regret, rel=1e-9)


def test_samples_without_a_decision_are_masked_in_validation_as_well() -> None:
    problem, features, costs = per_sample()
    room = problem.b.clone()
    room[[5, 42]] = 9.0  # more than four variables of at most 1 can make
    problem = pear.Problem(A=torch.ones(1, 4), b=room, lb=0.0, ub=1.0)
    with pytest.raises(pear.SolveError):
        fit(three(), pear.PEARLoss(problem), (features, costs), config=CONFIG)
    model = three()
    with pytest.warns(pear.FailedSamplesWarning):
        history = fit(model, pear.PEARLoss(problem, on_failure="mask"), (features, costs), config=CONFIG)
    keep = [i for i in range(40, 50) if i != 42]
    with torch.no_grad():
        regret = pear.normalized_regret(problem[keep], model(features[keep]), costs[keep])
    assert history.best is not None
    assert history.best.metric == pytest.approx(regret, rel=1e-9)


@pytest.mark.parametrize("start", ["standardised", "mse"])
def test_masked_samples_of_a_loader_are_left_out(start: Any) -> None:
    features, costs = X.clone(), C.clone()
    features[3, 1], costs[50, 2] = math.nan, math.nan
    batches = [range(33), range(33, 65), range(65, 97), range(97, 100)]  # which are batches of 32 without row 3
    loader = DataLoader(TensorDataset(features, costs, torch.arange(100)), batch_sampler=batches)
    weights = []
    for data in ((features, costs), loader):
        loss = pear.PEARLoss(TASK.problem, on_failure="mask")
        with pytest.warns(pear.FailedSamplesWarning) as caught:
            weights.append(trained(data, loss=loss, config=FitConfig(max_epochs=2, start=start))[0])
        assert sum("1 of 100 rows of the training features" in str(one.message) for one in caught) == 1
        assert loss.samples == 2 * 99
    assert all(bool(part.isfinite().all()) for part in weights[1])
    if start == "standardised":
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(*weights, strict=True))
    with pytest.raises(pear.ProblemError, match=r"1 of 100 rows of the training features .*: row 3"):
        trained(DataLoader(TensorDataset(features, C), batch_size=32))


# --- callbacks ------------------------------------------------------------------------------------------------------


def test_several_callbacks_and_one_that_ends_the_run() -> None:
    seen: list[Progress] = []
    model, kept = model_of(), []

    def metric(predicted: Tensor, true: Tensor) -> float:
        kept.append(model.state_dict()["0.weight"].clone())
        return [3.0, 1.0, 2.0, 0.5][len(kept) - 1]

    history = fit(
        model,
        nn.MSELoss(),
        (X, C),
        VALIDATION,
        metric,
        FitConfig(check_every=1),
        progress=[seen.append, lambda now: now.epoch == 3, lambda now: None],
    )
    assert (history.stopped, history.epochs) == ("callback", 3)
    assert [now.epoch for now in seen] == [1, 2, 3]
    assert torch.equal(model.state_dict()["0.weight"], kept[1])


def test_only_true_ends_a_run() -> None:
    history = trained((X, C), progress=lambda now: 1 if now.epoch == 1 else "yes")[1]
    assert history.stopped == "max_epochs"


def test_a_callback_may_end_the_squared_error_that_comes_first() -> None:
    parts: list[str] = []

    def stop(now: Progress) -> bool:
        parts.append(now.part)
        return len(parts) == 2

    assert trained((X, C), progress=stop)[1].stopped == "callback"
    assert parts == ["mse", "mse"]
    parts.clear()
    trained((X, C), progress=lambda now: parts.append(now.part))
    assert parts == ["mse"] * 4 + ["loss"] * 4


# --- sentences ------------------------------------------------------------------------------------------------------


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield X[0], C[0]


def table(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": [1.0] * 100, **columns})


def missing(rows: list[int]) -> Tensor:
    costs = C.clone()
    costs[rows, 1] = math.nan
    return costs


LOADER = DataLoader(TensorDataset(X, C), batch_size=32)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ((X[:90], C), "got 90 rows of features and 100 of costs"),
        (({"a": X, "b": X[:90]}, C), "got 90 rows of features and 100 of costs"),
        ((X[:0], C[:0]), "at least one; got 0 rows"),
        (X, "train must be a pair of features and costs, a Dataset or a DataLoader .* got a Tensor"),
        ((X, C, C, C), "got a tuple of 4 entries"),
        (pd.DataFrame(X.numpy()), "got a DataFrame"),
        ((x for x in X), "train is a generator, which gives its samples only once"),
        ((table(city=["Bern"] * 100), C), "column 'city' of the features of train holds str.*get_dummies"),
        ((table(day=pd.Timestamp("2026-01-01")), C), "column 'day' of the features of train holds datetime64"),
        ((table(kind=pd.Categorical(["u"] * 100)), C), "column 'kind' of the features of train holds category"),
        ((np.array([["a"]] * 100), C), "the features of train must hold real numbers, got type"),
        ((X, pd.DataFrame(C.numpy()).astype({3: str})), "column 3 of the costs of train holds str"),
        (
            (table().iloc[::-1], table()),
            r"same index in different orders, .* costs\.loc\[features\.index\]",
        ),
        ((X, missing([3, 7])), r"2 of 100 rows of the costs of train hold NaN or infinity: rows 3, 7\. Fill or"),
        ((X, table(b=pd.array([None] + [1] * 99, dtype="Int64"))), "1 of 100 rows of the costs .*: row 0"),
        ((X, C, [0] * 100), "sample ids of train must be distinct, and 0 comes twice"),
        ((X, C, range(99)), "an id for each sample: expected 100, got 99"),
        ((X, C, X), r"must be sample ids.* an array of shape \(100, 5\).*\(\(a, b\), costs\)"),
        ((X, C, X[:, 0]), "must be sample ids"),
        (((), C), "the features of train must hold one input at least; got an empty tuple"),
        (Items([]), "one sample at least; got a Items without any"),
        (Items([{"x": X[0]}]), r"an item of train must be \(features, costs\) .* got a dict"),
        (Items([(X[0], C[0]), (X[0, :3], C[0])]), "items of train cannot be stacked"),
        (Items([(X[0], C[0], 1), (X[0], C[0], 1)]), "must be distinct, and 1 comes twice"),
        (Endless(), "train is an IterableDataset, which only a DataLoader can read"),
        (DataLoader(Endless(), batch_size=2), "IterableDataset without a length, .* give the dataset a __len__"),
        (DataLoader(TensorDataset(X)), r"a batch of train must be \(features, costs\) .* got a list of 1 entries"),
        (DataLoader(Items([{"x": 1.0}])), "a batch of train must be .* got a dict"),
        (DataLoader(Items([(X[0], C[0, :2]), (X[0], C[0])])), r"costs of one shape; got \(1, 2\) and then \(1, 12\)"),
        (DataLoader(TensorDataset(X, C, torch.zeros(100, dtype=torch.int64))), "distinct, and 0 comes twice"),
        (
            DataLoader(
                TensorDataset(X, C, torch.arange(100)), sampler=WeightedRandomSampler([1.0] * 100, 100), batch_size=50
            ),
            "leave the ids away .*with replacement",
        ),
        (DataLoader(TensorDataset(X, C), batch_size=64, drop_last=True, sampler=range(3)), "its DataLoader gives none"),
        (DataLoader(TensorDataset(X, missing([98])), batch_size=32), "row 98"),
    ],
)
def test_what_cannot_be_taken_is_said(train: Any, message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        trained(train, loss=nn.MSELoss(), validation=VALIDATION)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": LOADER, "validation": None}, r"DataLoader is not read into memory.*pass validation="),
        ({"train": LOADER, "validation": 0.2}, r"DataLoader is not read into memory.*pass validation="),
        ({"validation": 1.0}, "validation must be a share between 0 and 1"),
        ({"validation": True}, "validation must be a share between 0 and 1"),
        ({"validation": "last"}, "validation must be a pair of features and costs, .* got a str"),
        ({"train": (X[:1], C[:1]), "validation": None}, "two samples at least"),
        ({"validation": (X, missing([4]))}, "rows of the costs of validation hold NaN or infinity: row 4"),
        ({"validation": (X, C[:, :3])}, r"the costs of validation must have shape \(N, 12\).* got \(100, 3\)"),
        ({"progress": [print, 3]}, "progress must be a function, or several in a list; got 3"),
    ],
)
def test_validation_and_callbacks_that_cannot_be_are_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        trained(**({"train": (X, C)} | options))


def test_rows_of_a_problem_need_to_be_known() -> None:
    problem, features, costs = per_sample()
    loss = pear.PEARLoss(problem)
    pair = (features, costs)
    with pytest.raises(pear.ProblemError, match="for 50 samples, and the validation samples do not say which"):
        fit(three(), loss, pair, pair)
    with pytest.raises(pear.ProblemError, match="for 50 samples, and X has 40 rows"):
        fit(three(), loss, (features[:40], costs[:40]))
    loader = DataLoader(TensorDataset(*pair), shuffle=True)
    with pytest.raises(pear.ProblemError, match="a DataLoader that shuffles does not say which sample is which"):
        fit(three(), loss, loader, (*pair, torch.arange(50)))


@pytest.mark.parametrize("loss", [TASK, TASK.problem, "pear"])
def test_what_is_no_loss_or_no_model_is_said(loss: Any) -> None:
    with pytest.raises(pear.ProblemError, match=rf"pear\.PEARLoss\(problem\).* got a {type(loss).__name__}"):
        trained((X, C), loss=loss)
    with pytest.raises(pear.ProblemError, match=r"model must be a torch\.nn\.Module.* got a function"):
        fit(trained, nn.MSELoss(), (X, C))  # type: ignore[arg-type]


def test_names_are_reachable() -> None:
    assert pear.fit is fit
    assert pear.tune is pear.train.tune
    assert pear.losses.SPOPlusLoss(TASK.problem).problem is TASK.problem
