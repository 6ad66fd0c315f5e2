"""The costs in training: mixed with those of neighbours, or of equal norms; validation uses the true ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import pear
from pear.losses import make_loss
from pear.train.correction import Correction
from pear.train.samples.memory_samples import MemorySamples
from pear.train.training_labels import equal_label_norms, mix_labels_with_neighbours, training_labels

TASK = pear.tasks.shortest_path((3, 3))
N, K, OWN = 40, 3, 0.25
FEATURES, COSTS = (part.double() for part in TASK.samples(N + 20, degree=4, noise=0.5, seed=1))
X, C, TEST = FEATURES[:N], COSTS[:N], (FEATURES[N:], COSTS[N:])
MIXED = pear.FitConfig(max_epochs=2, label_neighbours=K, label_own_weight=OWN)


def mixed_one_by_one(features: Tensor, costs: Tensor, weight: np.ndarray[Any, Any] | None = None) -> Tensor:
    """Return the labels that ``FitConfig.label_neighbours`` should give, computed sample by sample in numpy.

    A label is OWN times the costs of the sample plus (1 − OWN) times the mean costs of its K nearest neighbours, with
    distances in standardised features.

    Args:
        features: a row for each sample.
        costs: a row for each sample.
        weight: the weight of each sample in the means of its neighbours; all equal if omitted.
    """
    x, c = features.numpy(), costs.numpy()
    places = (x - x.mean(0)) / x.std(0)
    rows = []
    for i in range(len(x)):
        apart = ((places - places[i]) ** 2).sum(1)
        near = [j for j in np.argsort(apart) if j != i][:K]
        mean = np.average(c[near], axis=0, weights=None if weight is None else weight[near])
        rows.append(OWN * c[i] + (1 - OWN) * mean)
    return torch.from_numpy(np.stack(rows))


def labels_of(samples: MemorySamples, config: pear.FitConfig = MIXED) -> Tensor:
    found = training_labels(samples, config)
    assert isinstance(found, MemorySamples)
    return found.costs


def test_labels_mix_own_costs_with_those_of_the_nearest_neighbours() -> None:
    features = X * torch.tensor([1.0, 1e3, 1e-3, 1.0, 1.0]) + 5.0  # the units of features change nothing
    torch.testing.assert_close(labels_of(MemorySamples.read((features, C), "train")), mixed_one_by_one(X, C))
    weight = np.linspace(0.5, 2.0, N)
    weighted = MemorySamples.read((X, C), "train").weigh(weight, "sample_weight")
    torch.testing.assert_close(labels_of(weighted), mixed_one_by_one(X, C, weight))
    everyone = mix_labels_with_neighbours(X, C, 10 * N, 0.0, torch.ones(N))
    torch.testing.assert_close(everyone, (C.sum(0) - C) / (N - 1))


def test_labels_are_those_of_pyepo() -> None:
    pytest.importorskip("pyepo", reason="PyEPO is not installed; pip install 'pear-dfl[baselines]'")
    from pyepo.data.dataset import optDatasetKNN

    from pear.losses.pyepo import pyepo_model

    features = (X - X.mean(0)) / X.std(0, correction=0)  # PyEPO's distances are in the units of the features
    theirs = optDatasetKNN(pyepo_model(TASK.problem), features.numpy(), C.numpy(), k=K, weight=OWN)
    torch.testing.assert_close(labels_of(MemorySamples.read((features, C), "train")).float(), theirs.costs)


def test_samples_that_training_leaves_out_are_nobodys_neighbours() -> None:
    features, costs = X.clone(), C.clone()
    costs[0], left_out = torch.nan, torch.arange(N) >= N - 5
    samples = MemorySamples(MemorySamples.read((features, costs), "train").all, left_out)
    found, kept = labels_of(samples), slice(1, N - 5)
    places = (X[kept] - X[kept].mean(0)) / X[kept].std(0, correction=0)
    torch.testing.assert_close(found[kept], mixed_one_by_one(places, C[kept]))
    assert torch.equal(found[N - 5 :], C[N - 5 :])
    assert bool(found[0].isnan().all())


def test_a_missing_feature_is_taken_for_its_mean() -> None:
    features = X.clone()
    features[3, 2] = torch.nan
    filled = features.clone()
    filled[3, 2] = torch.cat([X[:3, 2], X[4:, 2]]).mean()
    weight = torch.ones(N, dtype=torch.float64)
    found = (mix_labels_with_neighbours(some, C, K, OWN, weight) for some in (features, filled))
    torch.testing.assert_close(*found)


def test_costs_of_equal_norms_have_the_same_decisions_and_the_mean_norm() -> None:
    found, scale = equal_label_norms(C), float(C.norm(dim=1).mean())
    torch.testing.assert_close(found.norm(dim=1), torch.full((N,), scale, dtype=torch.float64))
    assert torch.equal(pear.solve(TASK.problem, found).x, pear.solve(TASK.problem, C).x)
    torch.testing.assert_close(equal_label_norms(1e3 * C), 1e3 * found)
    weight = torch.arange(float(N))
    mean = float(np.average(C.norm(dim=1).numpy(), weights=weight.numpy()))
    torch.testing.assert_close(equal_label_norms(C, weight).norm(dim=1), torch.full((N,), mean, dtype=torch.float64))
    assert not bool(equal_label_norms(torch.zeros(2, 3)).any())


def trained(loss: Any, train: Any, config: pear.FitConfig, **options: Any) -> tuple[Tensor, pear.History]:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, train[1].shape[1]).double()
    validation = options.pop("validation", TEST)
    history = pear.fit(model, loss, train, validation, config=config, **options)
    return torch.cat([model.weight.detach().flatten(), model.bias.detach()]), history


PLAIN = pear.FitConfig(max_epochs=2)
OWN_ROWS = pear.Problem(A=TASK.problem.A, b=TASK.problem.b, lb=torch.zeros(N + 20, 12), ub=1.0)
MAPPED = pear.Model(TASK.problem, cost_map=pear.CostMap(torch.eye(12), known=torch.linspace(0, 1, 12)))
IDS = torch.arange(N), torch.arange(N, N + 20)


@pytest.mark.parametrize(
    ("problem", "method", "options"),
    [
        (TASK.problem, "pear-guided", {}),
        (TASK.problem, "spo+", {}),
        (TASK.problem, "mse", {}),
        (MAPPED, "pear-guided", {}),
        (OWN_ROWS, "spo+", {"ids": True}),
    ],
    ids=["PEAR", "SPO+", "MSE", "a cost map", "rows of samples"],
)
def test_training_sees_the_labels_and_validation_the_true_costs(problem: Any, method: str, options: Any) -> None:
    options = dict(options)
    ids = IDS if options.pop("ids", False) else ((), ())
    options["validation"] = (*TEST, ids[1]) if len(ids[1]) else TEST
    own = (ids[0],) if len(ids[0]) else ()
    ours = trained(make_loss(method, problem), (X, C, *own), MIXED, **options)
    by_hand = trained(make_loss(method, problem), (X, mixed_one_by_one(X, C), *own), PLAIN, **options)
    plain = trained(make_loss(method, problem), (X, C, *own), PLAIN, **options)
    torch.testing.assert_close(ours[0], by_hand[0])
    assert not torch.allclose(ours[0], plain[0])
    assert ours[1].best is not None
    assert by_hand[1].best is not None
    assert ours[1].best.metric == pytest.approx(by_hand[1].best.metric)  # on the true costs, as by hand


def test_forecasts_of_a_base_are_no_features() -> None:
    offsets = torch.rand(N, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    samples = MemorySamples.read(((X, offsets), C), "train")
    correction = Correction(torch.nn.Linear(5, 12).double())
    found = training_labels(samples, MIXED, correction).costs
    torch.testing.assert_close(found, mixed_one_by_one(X, C))
    assert not torch.allclose(labels_of(samples), found)
    options: dict[str, Any] = {"base": lambda x: x @ np.ones((5, 12))}
    ours, plain = (trained(make_loss("spo+", TASK.problem), (X, C), config, **options)[0] for config in (MIXED, PLAIN))
    assert not torch.allclose(ours, plain)


def mixed_with_each(features: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    """Return features and labels of the K samples that each sample becomes, computed in numpy.

    Each label mixes the costs of the sample with those of one neighbour.
    """
    x, c = features.numpy(), costs.numpy()
    places = (x - x.mean(0)) / x.std(0)
    near = [[j for j in np.argsort(((places - one) ** 2).sum(1)) if j != i][:K] for i, one in enumerate(places)]
    mixed = [OWN * c[i] + (1 - OWN) * c[j] for i in range(len(x)) for j in near[i]]
    return features.repeat_interleave(K, 0), torch.from_numpy(np.stack(mixed))


@pytest.mark.parametrize("method", ["spo+", "pear-guided"])
def test_each_neighbour_makes_a_sample_of_its_own(method: str) -> None:
    config = replace(MIXED, label_mixing="each")
    ours = trained(make_loss(method, TASK.problem), (X, C), config)
    by_hand = trained(make_loss(method, TASK.problem), mixed_with_each(X, C), PLAIN)
    torch.testing.assert_close(ours[0], by_hand[0], rtol=1e-4, atol=1e-6)  # features are standardised in two ways
    race = trained(make_loss(method, TASK.problem), (X, C), config, validation=None)[1]
    assert race.held_out == N


def test_the_samples_of_each_neighbour_keep_the_weights() -> None:
    weight = np.linspace(0.5, 2.0, N)
    samples = MemorySamples.read((X, C), "train").weigh(weight, "sample_weight")
    found = training_labels(samples, replace(MIXED, label_mixing="each"))
    assert isinstance(found, MemorySamples)
    assert found.weight is not None
    torch.testing.assert_close(found.weight.view(N, K).mean(1), torch.from_numpy(weight / weight.mean()))
    mean = (found.weight.view(N, K, 1) * found.costs.view(N, K, 12)).sum(1) / found.weight.view(N, K).sum(1)[:, None]
    torch.testing.assert_close(mean, mixed_one_by_one(X, C, weight))
    norms = training_labels(samples, replace(MIXED, label_mixing="each", normalise_costs=True)).costs.norm(dim=1)
    torch.testing.assert_close(norms, norms[0].expand(N * K))


def test_each_neighbour_is_refused_where_samples_are_told_apart() -> None:
    config, keyed = replace(MIXED, label_mixing="each"), pear.Oracle(lambda cost, key: cost == cost.min(), n=12)
    for problem, ids in ((TASK.problem, IDS), (OWN_ROWS, ((), ())), (keyed, ((), ()))):
        own = (ids[0],) if len(ids[0]) else ()
        with pytest.raises(pear.ProblemError, match="label_mixing='each' trains on several samples"):
            trained(make_loss("spo+", problem), (X, C, *own), config)


@pytest.mark.parametrize("start", ["mse", "standardised", "given"])
def test_every_start_trains_on_the_labels(start: Any) -> None:
    loss, weight = make_loss("spo+", TASK.problem), np.linspace(0.5, 2.0, N)
    config = pear.FitConfig(max_epochs=2, start=start, normalise_costs=True)
    ours = trained(loss, (X, C), config, sample_weight=weight)
    labels = equal_label_norms(C, torch.from_numpy(weight))
    config = pear.FitConfig(max_epochs=2, start=start)
    by_hand = trained(make_loss("spo+", TASK.problem), (X, labels), config, sample_weight=weight)
    torch.testing.assert_close(ours[0], by_hand[0])


def test_labels_of_a_fold_know_nothing_of_its_held_out_samples() -> None:
    seen: list[Tensor] = []

    class Recorder(pear.losses.SPOPlusLoss):
        def forward(self, predicted: Tensor, true: Any, keys: Any = None, weight: Any = None) -> Tensor:
            seen.append(true.detach())
            return super().forward(predicted, true, keys, weight)

    changed = C.clone()
    changed[-N // 5 :] *= 100.0  # the rows that are held out
    config = pear.FitConfig(max_epochs=1, label_neighbours=K)
    first_fold = []
    for costs in (C, changed):
        seen.clear()
        trained(Recorder(TASK.problem, cost_unit=1.0), (X, costs), config, validation=0.2)
        first_fold.append(seen[0])
    assert torch.equal(*first_fold)


def test_the_estimator_takes_both_settings() -> None:
    options: dict[str, Any] = {"max_epochs": 2, "label_own_weight": OWN, "normalise_costs": True}
    ours = pear.DecisionRegressor(TASK.problem, loss="spo+", label_neighbours=K, **options)
    ours.fit(X.numpy(), C.numpy(), validation=(TEST[0].numpy(), TEST[1].numpy()))
    by_hand = pear.DecisionRegressor(TASK.problem, loss="spo+", max_epochs=2)
    labels = equal_label_norms(mixed_one_by_one(X, C))
    by_hand.fit(X.numpy(), labels.numpy(), validation=(TEST[0].numpy(), TEST[1].numpy()))
    np.testing.assert_allclose(ours.predict(X.numpy()), by_hand.predict(X.numpy()), rtol=1e-7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_neighbours": -1}, "label_neighbours must be a whole number of at least 0; got -1"),
        ({"label_neighbours": 1.5}, "label_neighbours must be a whole number of at least 0; got 1.5"),
        ({"label_mixing": "both"}, "label_mixing must be 'mean' or 'each'; got 'both'"),
        ({"label_own_weight": 1.1}, "label_own_weight must be a number from 0 to 1; got 1.1"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(pear.ProblemError, match=message):
        pear.FitConfig(**settings)


def test_samples_that_are_not_in_memory_are_refused() -> None:
    loader = DataLoader(TensorDataset(X, C), batch_size=8)
    with pytest.raises(pear.ProblemError, match="label_neighbours and normalise_costs need samples in memory"):
        pear.fit(torch.nn.Linear(5, 12).double(), make_loss("spo+", TASK.problem), loader, TEST, config=MIXED)


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (pear.Problem(Q=torch.eye(12), lb=0.0, ub=1.0), "its objective is not linear"),
        (MAPPED, "a part of its costs is known"),
        (
            pear.Model(
                pear.Problem(G=torch.ones(1, 12), h=[6.0], lb=0.0, ub=1.0),
                constraint_map=pear.ConstraintMap(h=torch.ones(1, 12)),
                recourse=pear.Penalty(h=5.0),
                known=torch.ones(12),
            ),
            "right-hand sides are predicted",
        ),
    ],
    ids=["curved", "known costs", "predicted rows"],
)
def test_costs_are_not_normalised_where_that_changes_decisions(problem: Any, why: str) -> None:
    with pytest.raises(pear.ProblemError, match=why):
        trained(pear.PEARLoss(problem), (X, C), pear.FitConfig(normalise_costs=True))
