"""The loss of scenarios: its value against exact decisions, its gradient against finite differences."""

import numpy as np
import pytest
import torch
from scenario_models import factory, factory_values

import pear
from pear.decisions.decider import Decider
from pear.errors import ProblemError, SolveError

RISKS = [pear.Expectation(), pear.CVaR(0.6, 0.5), pear.CVaR(0.5), pear.WorstCase(0.3)]


def differences(each, values, step=1e-5):
    """Return the gradient (B, …) of a loss by central differences, all in one batch.

    ``each`` returns the losses (N,) for values (N, …), and gets the number of copies of each sample.
    """
    size = values[0].numel()
    moves = step * torch.eye(size, dtype=torch.float64).reshape(size, *values.shape[1:])
    moved = torch.cat([values[:, None] + moves, values[:, None] - moves], 1)
    up, down = each(moved.flatten(0, 1), 2 * size).reshape(len(values), 2, size).unbind(1)
    return ((up - down) / (2 * step)).reshape(values.shape)


@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_gradient_by_prices_and_demands_of_all_scenarios(risk):
    plan = pear.Stochastic(factory(hours=2), ["on"], 4, risk, weights=[1.0, 2.0, 1.0, 1.0])
    loss = pear.ScenarioLoss(plan, smoothing=5.0, reduction="none")
    values, truth = factory_values(20, 4, 4, hours=2), factory_values(21, 4, hours=2)
    values[..., 2:] *= 0.5  # so little that the price of buying matters
    values.requires_grad_()
    loss(values, truth).sum().backward()
    expected = differences(
        lambda moved, times: loss(moved, truth.repeat_interleave(times, 0)).detach(), values.detach()
    )
    torch.testing.assert_close(values.grad, expected, rtol=1e-5, atol=1e-6)
    moving = values.grad.abs().amax((0, 1)) > 1e-4  # prices and demands
    assert bool(moving[:2].any())
    assert bool(moving[2:].any())


@pytest.mark.parametrize("risk", RISKS[:2], ids=str)
def test_gradient_by_weights_of_scenarios(risk):
    plan = pear.Stochastic(factory(hours=2), ["on"], 3, risk)
    loss = pear.ScenarioLoss(plan, smoothing=5.0, reduction="none")
    values, truth = factory_values(22, 4, 3, hours=2), factory_values(23, 4, hours=2)
    values[..., 2:] *= 0.5
    weights = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 1.5, (4, 3))).requires_grad_()
    loss(values, truth, scenario_weights=weights).sum().backward()

    def each(moved, times):
        several = (one.repeat_interleave(times, 0) for one in (values, truth))
        return loss(*several, scenario_weights=moved).detach()

    torch.testing.assert_close(weights.grad, differences(each, weights.detach()), rtol=1e-5, atol=1e-6)
    assert float(weights.grad.abs().max()) > 1e-3


def test_one_scenario_with_everything_in_the_first_stage_is_the_loss_with_recourse():
    m, values, truth = factory(), factory_values(24, 8, 1), factory_values(25, 8)
    values[..., 3:] *= 0.4  # within what can be made, so that the loss with recourse adds nothing for the forecast
    loss = pear.ScenarioLoss(pear.Stochastic(m, ["on", "make", "buy"], 1), smoothing=2.0, reduction="none")
    plain = pear.PEARLoss(m, smoothing=2.0, injection=0.0, guidance=0.0, reduction="none")
    found = []
    for one, given in ((loss, values.clone()), (plain, values[:, 0].clone())):
        lost = one(given.requires_grad_(), truth)
        lost.sum().backward()
        found.append((lost.detach(), given.grad.reshape(8, -1)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_without_smoothing_the_value_is_the_regret():
    plan = pear.Stochastic(factory(), ["on"], 5, pear.CVaR(0.8, 0.5))
    values, truth = factory_values(26, 6, 5), factory_values(27, 6)
    lost = pear.ScenarioLoss(plan, smoothing=0.0, reduction="none")(values, truth)
    torch.testing.assert_close(lost, plan.regret(values, truth), rtol=0, atol=1e-9)


def test_sparse_and_dense_programs_have_the_same_gradient():
    values, truth = factory_values(28, 2, 40, hours=8), factory_values(29, 2, hours=8)
    values[..., 8:] *= 0.5
    plan = pear.Stochastic(factory(hours=8), ["on"], 40)
    grads = []
    for sparse in (True, False):
        loss, given = pear.ScenarioLoss(plan, smoothing=5.0), values.clone().requires_grad_()
        assert loss._extensive.problem.is_sparse
        if not sparse:
            small = loss._extensive.problem
            dense = {k: getattr(small, k).csr.toarray() for k in ("Q", "A", "G")}
            dense |= {k: getattr(small, k) for k in ("b", "h", "lb", "ub")}
            loss._plans = Decider(pear.Problem(**dense), "auto")
        loss(given, truth).backward()
        grads.append(given.grad)
    torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-8)
    assert float(grads[0].abs().max()) > 1e-3


def test_gradient_by_predicted_returns_of_a_portfolio():
    # costs that are predicted stand in the rows of CVaR
    random = np.random.default_rng(7)
    market = pear.Model(pear.Problem(A=np.ones((1, 3)), b=[1.0], lb=0.0, sense="max"), variables=("a", "b", "c"))
    plan = pear.Stochastic(market, ["a", "b", "c"], 7, pear.CVaR(0.6, 0.7))
    loss = pear.ScenarioLoss(plan, smoothing=0.3, reduction="none")
    values = torch.from_numpy(random.normal(0.0, 0.3, (5, 7, 3))).requires_grad_()
    truth = torch.from_numpy(random.normal(0.0, 0.3, (5, 3)))
    loss(values, truth).sum().backward()
    expected = differences(
        lambda moved, times: loss(moved, truth.repeat_interleave(times, 0)).detach(), values.detach()
    )
    torch.testing.assert_close(values.grad, expected, rtol=1e-5, atol=1e-6)
    assert float(values.grad.abs().max()) > 1e-3


def test_training_finds_the_quantile_that_pays():
    # one pays 1 for each piece before the demand is known and 4 for each that is missing: the 75 % quantile is best
    kiosk = pear.Problem(G=[[-1.0]], h=[0.0], lb=0.0)
    rows = pear.ConstraintMap(h=[[-1.0]])
    m = pear.Model(kiosk, known=[1.0], variables=("buy",), constraint_map=rows, recourse=pear.Penalty(h=4.0))
    plan = pear.Stochastic(m, ["buy"], 3)
    random = np.random.default_rng(0)
    X = torch.from_numpy(random.uniform(size=(600, 1))).float()
    demand = 2 + X * torch.from_numpy(random.uniform(0.0, 6.0, size=(600, 1))).float()
    torch.manual_seed(0)
    net = torch.nn.Linear(1, 3)
    config = pear.FitConfig(max_epochs=30, learning_rate=0.1, batch_size=100)
    history = pear.fit(net, pear.ScenarioLoss(plan), (X[:300], demand[:300]), config=config)
    assert history.best.metric < 0.5 * history.checks[0].metric
    trained = plan.regret(net(X[300:]).detach(), demand[300:]).mean()
    ideal = (plan.cost(2 + 4.5 * X[300:], demand[300:]) - plan.best(demand[300:])).mean()
    mean = (plan.cost(2 + 3 * X[300:], demand[300:]) - plan.best(demand[300:])).mean()
    assert float(trained - ideal) < 0.2 * float(mean - ideal)


def test_failed_samples_are_masked():
    m = factory()
    kinds = ("cost_map", "constraint_map", "variables", "layout")
    plan = pear.Stochastic(pear.Model(m.problem, **{k: getattr(m, k) for k in kinds}), ["on"], 2)
    values, truth = factory_values(30, 3, 2).clamp(max=2.0), factory_values(31, 3).clamp(max=2.0)
    values[1, 1, 3:] = 99.0
    with pytest.raises(SolveError, match="sample 1 "):
        pear.ScenarioLoss(plan, smoothing=1.0)(values, truth)
    loss = pear.ScenarioLoss(plan, smoothing=1.0, on_failure="mask")
    values.requires_grad_()
    with pytest.warns(pear.FailedSamplesWarning):
        lost = loss(values, truth)
    lost.backward()
    assert loss.last.status.tolist() == [0, int(pear.Status.INFEASIBLE), 0]
    assert not bool(values.grad[1].any())
    others = pear.ScenarioLoss(plan, smoothing=1.0)(values[[0, 2]], truth[[0, 2]])
    torch.testing.assert_close(lost, others)


def test_bad_input_is_refused():
    plan = pear.Stochastic(factory(), ["on"], 2)
    with pytest.raises(ProblemError, match=r"pear\.Stochastic"):
        pear.ScenarioLoss(factory())
    with pytest.raises(ProblemError, match=r"true must have shape \(1, 6\)"):
        pear.ScenarioLoss(plan)(factory_values(0, 1, 2), torch.zeros(1, 12))
