"""Training, scoring and deciding with an ``Oracle``: its function decides everywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from torch import nn
from tours import Tours

import pear
from pear.losses import METHODS, DBBLoss, LAVALoss, MSELoss, OwnProblem, PFYLLoss, SPOPlusLoss, make_loss
from pear.problem.oracle import DECISIONS_ALONE
from pear.train.estimator.loss_and_config import make_estimator_loss
from pear.train.training_loss import problem_of_loss
from pear.train.tune import default_candidates

TOURS = Tours()
X, C = TOURS.samples(90)
TRAIN, TEST = slice(0, 60), slice(60, 90)
FEW = pear.FitConfig(max_epochs=8, check_every=4, start="standardised")
DUMMY = pear.Problem(lb=0.0, ub=1.0, n=10)  # without rows: all costs are positive, and nothing at all is its best


def oracle(**options):
    return pear.Oracle(TOURS.decide_all, n=10, batched=True, **options)


def regret_of(model):
    predicted = model(torch.tensor(X[TEST], dtype=torch.float32)).detach().double().numpy()
    return TOURS.regret(predicted, C[TEST])


def test_the_methods_of_the_refusal_are_those_that_need_no_relaxation():
    able = []
    for row in METHODS:
        try:
            loss = row.make(OwnProblem(oracle()))
            loss(torch.tensor(C[:2]), torch.tensor(C[:2]))
        except pear.ProblemError as error:
            assert "relaxation" in str(error)  # noqa: PT017
        else:
            able.append(row.name)
    assert able == [row.name for row in METHODS if "relaxation" not in row.requires]
    assert set(DECISIONS_ALONE) <= set(able)


def test_regret_is_that_of_the_function():
    predicted = Ridge().fit(X[TRAIN], C[TRAIN]).predict(X[TEST])
    expected = TOURS.regret(predicted, C[TEST])
    assert expected.sum() > 0
    torch.testing.assert_close(pear.regret(oracle(), predicted, C[TEST]), torch.tensor(expected))
    best = (C[TEST] * TOURS.decide_all(C[TEST])).sum()
    assert pear.normalized_regret(oracle(), predicted, C[TEST]) == pytest.approx(expected.sum() / best)
    scorer = pear.regret_scorer(oracle())
    assert scorer(Ridge().fit(X[TRAIN], C[TRAIN]), X[TEST], C[TEST]) == pytest.approx(-expected.sum() / best)


@pytest.mark.parametrize("name", [row.name for row in METHODS])
def test_every_method_trains_with_an_oracle_and_is_judged_by_it(name):
    torch.manual_seed(0)
    model = nn.Linear(3, 10)
    before = regret_of(model).sum()
    loss = make_loss(name, oracle(relaxation=TOURS.degrees))
    x, c = (torch.tensor(part[TRAIN], dtype=torch.float32) for part in (X, C))
    history = pear.fit(model, loss, (x, c), 0.25, config=FEW)
    held_out = model(x[45:]).detach().double().numpy()
    best = (C[45:60] * TOURS.decide_all(C[45:60])).sum()
    assert history.best.metric == pytest.approx(TOURS.regret(held_out, C[45:60]).sum() / best, rel=1e-5)
    assert regret_of(model).sum() < before
    assert problem_of_loss(loss).function == TOURS.decide_all


@pytest.mark.parametrize(
    "make",
    [
        lambda decide: SPOPlusLoss(DUMMY, decide),
        lambda decide: PFYLLoss(DUMMY, decide),
        lambda decide: DBBLoss(DUMMY, decide),
        lambda decide: MSELoss(DUMMY, decide),
        lambda decide: LAVALoss(DUMMY, decide, lambda z: [torch.tensor(TOURS.listed[:1])] * len(z)),
    ],
)
def test_a_function_of_a_loss_decides_in_the_default_metric(make):
    """The default metric uses the decision function of a loss, and not the loss's problem, which has no rows.

    By this problem, every forecast would be perfect.
    """

    def decide(costs):
        return torch.from_numpy(TOURS.decide_all(costs.double().numpy()))

    model = nn.Linear(3, 10)
    loss = make(decide)
    x, c = (torch.tensor(part[TRAIN], dtype=torch.float32) for part in (X, C))
    config = pear.FitConfig(max_epochs=1, start="given")
    history = pear.fit(model, loss, (x[:45], c[:45]), (x[45:], c[45:]), config=config)
    lost = TOURS.regret(model(x[45:]).detach().double().numpy(), c[45:].double().numpy())
    best = (c[45:].double().numpy() * TOURS.decide_all(c[45:].double().numpy())).sum()
    assert history.best.metric == pytest.approx(lost.sum() / best) and lost.sum() > 0  # noqa: PT018
    with pytest.raises(pear.ProblemError, match="the loss decides by a function of its own"):
        pear.DecisionRegressor(DUMMY, loss=loss).fit(X[TRAIN], C[TRAIN])
    with pytest.raises(pear.ProblemError, match="the problem is an Oracle"):
        pear.DecisionRegressor(oracle(), loss=SPOPlusLoss(DUMMY)).fit(X[TRAIN], C[TRAIN])
    same = pear.Oracle(decide, n=10, batched=True)
    assert make_estimator_loss(pear.DecisionRegressor(same, loss=make(decide)), same).given.function == decide


def test_a_function_of_a_loss_returns_finite_numbers_and_a_problem():
    loss = SPOPlusLoss(DUMMY, lambda costs: costs * torch.nan)
    with pytest.raises(pear.ProblemError, match="decide must return finite numbers; those of sample 0 are not"):
        loss(torch.ones(2, 10), torch.ones(2, 10))
    with pytest.raises(pear.ProblemError, match="decide came without a problem"):
        MSELoss(decide=lambda costs: costs)


class TourTask:
    """A task whose ``decide`` makes the decisions; its problem has no constraints."""

    name = "tours"
    problem = DUMMY

    def decide(self, cost):
        return torch.from_numpy(TOURS.decide_all(torch.as_tensor(cost).double().numpy()))

    decide_relaxed = decide


@pytest.mark.parametrize("name", ["mse", "spo+", "spo+relaxed", "pear"])
def test_the_function_of_a_task_decides_in_the_default_metric(name):
    task = TourTask()
    loss = make_loss(name, task)
    assert problem_of_loss(loss).function == task.decide
    assert problem_of_loss(make_loss(name, pear.tasks.shortest_path((3, 3)))).has_program


def test_relaxed_decisions_are_trained_on_and_not_judged_by():
    whole = pear.Problem(G=[[2.0, 3.0, 1.0]], h=[4.0], lb=0, ub=1, sense="max", integer=True)
    for name in ("spo+relaxed", "lava"):
        assert problem_of_loss(make_loss(name, whole)) is whole


def test_the_estimator_decides_scores_and_trains_by_the_function(tmp_path):
    model = pear.DecisionRegressor(oracle(relaxation=TOURS.degrees), max_epochs=16).fit(X[TRAIN], C[TRAIN])
    assert isinstance(model.loss_, pear.PEARLoss)
    assert model.decide(X[TEST]).tolist() == TOURS.decide_all(model.predict(X[TEST])).tolist()
    best = (C[TEST] * TOURS.decide_all(C[TEST])).sum()
    assert model.score(X[TEST], C[TEST]) == pytest.approx(
        -TOURS.regret(model.predict(X[TEST]).astype(float), C[TEST]).sum() / best
    )
    assert clone(model).problem is model.problem
    model.save(tmp_path / "tours.pear")
    with pytest.raises(pear.ProblemError, match=r"the oracle 'decide_all'.*does not hold its function; pass oracle="):
        pear.DecisionRegressor.load(tmp_path / "tours.pear")
    with pytest.raises(pear.ProblemError, match="another oracle"):
        pear.DecisionRegressor.load(tmp_path / "tours.pear", oracle=oracle())  # without the relaxation
    again = pear.DecisionRegressor.load(tmp_path / "tours.pear", oracle=model.problem)
    assert again.decide(X[TEST]).tolist() == model.decide(X[TEST]).tolist()
    again.partial_fit(X[TEST], C[TEST])


def test_without_a_relaxation_the_estimator_trains_by_spo():
    model = pear.DecisionRegressor(oracle(), max_epochs=8).fit(X[TRAIN], C[TRAIN])
    assert isinstance(model.loss_, SPOPlusLoss)
    assert "the loss is SPO+, because the oracle has no relaxation" in model.history_.note
    with pytest.raises(pear.ProblemError, match="relaxation="):
        pear.DecisionRegressor(oracle(), loss="pear-guided").fit(X[TRAIN], C[TRAIN])


def test_a_model_file_with_a_problem_takes_no_oracle(tmp_path):
    plain = pear.DecisionRegressor(DUMMY, loss="mse", max_epochs=1).fit(X[:20], C[:20])
    plain.save(tmp_path / "plain.pear")
    with pytest.raises(pear.ProblemError, match="pass no oracle"):
        pear.DecisionRegressor.load(tmp_path / "plain.pear", oracle=oracle())


def test_a_model_around_an_oracle_is_saved_with_its_map(tmp_path):
    model = pear.Model(oracle(), cost_map=pear.CostMap(np.vstack([np.eye(5)] * 2)))
    trained = pear.DecisionRegressor(model, loss="mse", max_epochs=1).fit(X[TRAIN], C[TRAIN][:, :5])
    trained.save(tmp_path / "model.pear")
    again = pear.DecisionRegressor.load(tmp_path / "model.pear", oracle=oracle())
    assert again.decide(X[TEST]).tolist() == trained.decide(X[TEST]).tolist()


def test_tune_races_the_methods_that_an_oracle_allows():
    config = pear.FitConfig(max_epochs=2, check_every=1)
    tuned = pear.tune(oracle(), X[TRAIN], C[TRAIN], config=config)
    names = {settings["method"] for settings in default_candidates(oracle())}
    assert names == set(DECISIONS_ALONE)
    predicted = tuned.model(torch.tensor(X[48:60], dtype=torch.float32)).detach().double().numpy()
    best = (C[48:60] * TOURS.decide_all(C[48:60])).sum()
    assert tuned.history.best.metric == pytest.approx(TOURS.regret(predicted, C[48:60]).sum() / best, rel=1e-5)
    assert "pear" in {settings["method"] for settings in default_candidates(oracle(relaxation=TOURS.degrees))}


def test_walk_forward_pays_for_the_decisions_of_the_function():
    found = pear.walk_forward(oracle(), X, C, {"least squares": LinearRegression()}, splits=3)
    expected = TOURS.regret(found.forecasts["least squares"], C[found.sample])
    assert found.regret[0] == pytest.approx(expected)


def test_true_costs_are_decided_once_in_a_training():
    tours = Tours()
    counted = pear.Oracle(tours.decide_all, n=10, batched=True)
    x, c = (torch.tensor(part[:32], dtype=torch.float32) for part in (X, C))
    loss = SPOPlusLoss(counted)
    model = nn.Linear(3, 10)
    for _ in range(3):
        loss(model(x), c)
    assert tours.asked == 2 * 32  # the true costs once, the three equal forecasts once


def test_a_function_that_knows_the_samples_is_given_their_rows_in_the_metric():
    """Bounds differ between samples; the function gets the samples' ids in the metric, too, and looks them up."""
    upper = torch.tensor(np.random.default_rng(0).uniform(1, 3, (60, 10)))
    problem = pear.Problem(lb=0.0, ub=upper)

    def decide(costs, keys):
        return torch.where(costs < 0, upper[keys], 0.0)

    x, c = torch.tensor(X[TRAIN], dtype=torch.float32), torch.tensor(C[TRAIN] - 3, dtype=torch.float32)
    metrics = []
    for loss in (SPOPlusLoss(problem, decide), SPOPlusLoss(problem)):
        torch.manual_seed(0)
        config = pear.FitConfig(max_epochs=2, start="given")
        metrics.append(pear.fit(nn.Linear(3, 10), loss, (x, c), 0.25, config=config).best.metric)
    assert metrics[0] == pytest.approx(metrics[1])
    assert metrics[0] > 0
