"""Predicted right-hand sides: regret with recourse compared with other solvers, gradients with differences."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import linprog

import pear
from pear.losses import make_loss
from pear.problem.constraint_map import constraint_sides
from pear.train.tune import default_candidates

STEP = 1e-6
PENALTY = pear.Penalty(b=(3.0, 2.0), h=2.5, lb=1.5, ub=2.0)
PROJECTION = pear.Projection(weights=[1.0, 2.0, 3.0, 1.0, 0.5])


def newsvendor(price=4.0, cost=1.0, **how):
    """Return a model that buys z at ``cost`` for a predicted demand d; every missing unit d − z costs ``price``."""
    problem = pear.Problem(G=[[-1.0]], h=[0.0], lb=0.0, **how)
    rows = pear.ConstraintMap(h=[[-1.0]])
    known = torch.tensor([cost], dtype=torch.float64)
    return pear.Model(problem, known=known, constraint_map=rows, recourse=pear.Penalty(h=price))


def random_model(kind, sense, recourse, seed):
    """Draw a feasible model of five variables with all kinds of rows, with forecasts that violate the true rows."""
    g = torch.Generator().manual_seed(seed)

    def draw(*size):
        return torch.randn(*size, generator=g, dtype=torch.float64)

    n, samples = 5, 6
    A, G, L, z = draw(1, n), draw(3, n), draw(n, n), torch.rand(n, generator=g, dtype=torch.float64)
    b, h = A @ z, G @ z + 0.1
    curvature = (1 if sense == "min" else -1) * (L @ L.T / n + 0.5 * torch.eye(n, dtype=torch.float64))
    problem = pear.Problem(Q=curvature if kind == "qp" else None, A=A, b=b, G=G, h=h, lb=-0.5, ub=1.5, n=n, sense=sense)
    model = pear.Model.predicting(problem, b=True, h=[0, 2], lb=[1, 2], ub=[0, 3], recourse=recourse)
    sides = torch.cat([b, h[[0, 2]], torch.tensor([-0.5, -0.5, 1.5, 1.5], dtype=torch.float64)])
    true = torch.cat([draw(samples, n), sides + 0.02 * draw(samples, 7)], 1)
    return model, true + torch.cat([0.3 * draw(samples, n), 0.1 * draw(samples, 7)], 1), true


def differences(f, y, step=STEP):
    """Return (B, k) central differences of a function of batches, from one call of it."""
    k = y.shape[1]
    moves = step * torch.cat([torch.eye(k), -torch.eye(k)]).to(y)
    rows = (y[:, None, :] + moves).reshape(-1, k)
    up, down = f(rows, 2 * k).reshape(len(y), 2, k).unbind(1)
    return (up - down) / (2 * step)


def with_gradient(loss, predicted, true):
    leaf = predicted.clone().requires_grad_()
    value = loss(leaf, true)
    value.sum().backward()
    return value.detach(), leaf.grad


def assert_exact(make, predicted, true, least):
    """Assert that gradients agree with differences to 1e-6 for all samples whose differences do not depend on the step.

    At least ``least`` samples must be like this.
    """
    _, gradient = with_gradient(make(), predicted, true)

    def values(rows, times):
        return make()(rows, true.repeat_interleave(times, 0)).detach()

    near, far = differences(values, predicted), differences(values, predicted, 10 * STEP)
    smooth = (near - far).abs().amax(1) < 1e-6
    assert int(smooth.sum()) >= least
    assert float((near - gradient)[smooth].abs().max()) < 1e-6
    assert float(gradient.abs().max()) > 0.1


@pytest.mark.parametrize("recourse", [PENALTY, PROJECTION], ids=["penalty", "projection"])
@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("kind", ["lp", "qp"])
def test_gradients_agree_with_differences(kind, sense, recourse):
    for seed in (0, 1):
        model, predicted, true = random_model(kind, sense, recourse, seed)
        lam = 0.1 if kind == "lp" else 0.0
        assert_exact(lambda m=model, s=lam: pear.PEARLoss(m, s, 0.0, 0.0, reduction="none"), predicted, true, 4)


@pytest.mark.parametrize("recourse", [PENALTY, PROJECTION], ids=["penalty", "projection"])
def test_guidance_agrees_with_differences(recourse):
    model, predicted, true = random_model("lp", "max", recourse, 2)
    assert_exact(lambda: pear.PEARLoss(model, 0.1, 0.0, 2.0, reduction="none"), predicted, true, 4)


@pytest.mark.parametrize("recourse", [pear.Penalty(h=9.0), pear.Projection()], ids=["penalty", "projection"])
def test_guidance_pulls_where_a_row_does_not_bind(recourse):
    """A capacity of 2 is forecast as 9, but at most 5 are used, so that the regret has no gradient."""
    problem = pear.Problem(G=[[1.0]], h=[0.0], lb=0.0, ub=5.0, sense="max")
    model = pear.Model.predicting(problem, cost=False, h=True, recourse=recourse, known=[3.0])
    predicted, true = torch.tensor([[9.0]]).double(), torch.tensor([[2.0]]).double()
    flat, guided = (with_gradient(pear.PEARLoss(model, 0.0, guidance=a), predicted, true)[1] for a in (0.0, 1.0))
    assert flat.tolist() == [[0]]
    assert guided.tolist() == [[3]]  # the true multiplier
    assert float(pear.PEARLoss(model, 0.0)(true, true)) == 0


@pytest.mark.parametrize("recourse", [PENALTY, PROJECTION], ids=["penalty", "projection"])
def test_the_layer_agrees_with_differences(recourse):
    model, predicted, _ = random_model("lp", "min", recourse, 3)
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)
    layer, leaf = pear.DecisionLayer(model, smoothing=0.1), predicted.clone().requires_grad_()
    (layer(leaf) @ weights).sum().backward()
    near = differences(lambda rows, _: layer(rows) @ weights, predicted)
    far = differences(lambda rows, _: layer(rows) @ weights, predicted, 10 * STEP)
    smooth = (near - far).abs().amax(1) < 1e-6
    assert int(smooth.sum()) >= 4
    assert float((near - leaf.grad)[smooth].abs().max()) < 1e-6


def test_injection_adds_a_normal_component_of_the_costs_alone():
    model, predicted, true = random_model("lp", "min", PENALTY, 0)
    exact, injected = (with_gradient(pear.PEARLoss(model, 0.1, beta, 0.0), predicted, true)[1] for beta in (0.0, 0.5))
    assert float((injected - exact)[:, :5].abs().max()) > 1e-3
    assert torch.equal(injected[:, 5:], exact[:, 5:])


def test_the_newsvendor_by_hand():
    model = newsvendor()
    loss = pear.PEARLoss(model, smoothing=0.0, reduction="none")
    predicted, true = torch.tensor([[3.0], [7.0], [5.0]]).double(), torch.full((3, 1), 5.0).double()
    value, gradient = with_gradient(loss, predicted, true)
    assert value.tolist() == [(4 - 1) * 2, 1 * 2, 0]  # (p − c)(d − d̂)⁺ + c(d̂ − d)⁺
    assert gradient[:2, 0].tolist() == [-3, 1]
    assert pear.solve(model, predicted).x.tolist() == predicted.tolist()
    assert pear.regret(model, predicted, true).tolist() == [6, 2, 0]
    assert pear.normalized_regret(model, predicted, true) == pytest.approx(8 / 15)
    assert loss.last.decision.tolist() == predicted.tolist()


def test_too_little_and_too_much_have_prices_of_their_own():
    """A demand has to be met exactly: a missing unit costs 9, a surplus unit 2."""
    problem = pear.Problem(A=[[1.0]], b=[0.0], lb=0.0)
    model = pear.Model.predicting(problem, cost=False, b=True, recourse=pear.Penalty(b=(9.0, 2.0)), known=[1.0])
    predicted, true = torch.tensor([[3.0], [7.0]]).double(), torch.full((2, 1), 5.0).double()
    value, gradient = with_gradient(pear.PEARLoss(model, 0.0, reduction="none"), predicted, true)
    assert value.tolist() == [2 * (9 - 1), 2 * (2 + 1)]
    assert gradient[:, 0].tolist() == [-8, 3]
    assert pear.solve(model, [[4.0]]).value.tolist() == [4]


@pytest.mark.parametrize("sense", ["min", "max"])
def test_regret_against_linear_programs_of_scipy(sense):
    model, predicted, true = random_model("lp", sense, PENALTY, 4)
    found = pear.regret(model, predicted, true)
    best = torch.tensor([elastic_by_scipy(model, y)[0] for y in true])
    paid = torch.tensor(
        [charged(model, elastic_by_scipy(model, f)[1], y) for f, y in zip(predicted, true, strict=True)]
    )
    assert torch.allclose(found, paid - best, atol=1e-7)
    assert float(found.min()) >= 0
    assert float(found.max()) > 0.01
    assert float(pear.regret(model, true, true).max()) < 1e-9


@pytest.mark.parametrize("kind", ["lp", "qp"])
def test_projection_against_cvxpy(kind):
    cvxpy = pytest.importorskip("cvxpy")
    model, predicted, true = random_model(kind, "min", PROJECTION, 0)

    def solved(y, towards=None):
        z, sides = cvxpy.Variable(5), full_sides(model, y)
        problem, weights = model.problem, np.array(PROJECTION.weights)
        rows = [problem.A.numpy() @ z == sides["b"], problem.G.numpy() @ z <= sides["h"]]
        rows += [z >= sides["lb"], z <= sides["ub"]]
        half = 0 if problem.Q is None else 0.5 * cvxpy.quad_form(z, cvxpy.psd_wrap(problem.Q.numpy()))
        near = None if towards is None else cvxpy.sum(cvxpy.multiply(weights, cvxpy.square(z - towards)))
        cvxpy.Problem(cvxpy.Minimize(half + y[:5].numpy() @ z if near is None else near), rows).solve(cvxpy.CLARABEL)
        return z.value

    def value(z, y):
        curved = 0.0 if model.problem.Q is None else 0.5 * z @ model.problem.Q.numpy() @ z
        return curved + z @ y[:5].numpy()

    feasible = [i for i, y in enumerate(predicted) if least_violation(model, y) < 1e-9]
    assert len(feasible) >= 3
    found = pear.regret(model, predicted, true)
    for i in feasible:
        paid = value(solved(true[i], solved(predicted[i])), true[i])
        assert float(found[i]) == pytest.approx(paid - value(solved(true[i]), true[i]), abs=1e-5)
    assert float(pear.regret(model, true, true).max()) < 1e-9


def test_an_infeasible_forecast_gets_the_decision_of_least_violation():
    model, predicted, true = random_model("lp", "min", PROJECTION, 1)
    predicted, true = predicted[[0, 1, 5]], true[[0, 1, 5]]
    predicted[:, 6] -= 12.0  # a row that cannot hold
    least = torch.tensor([least_violation(model, y) for y in predicted], dtype=torch.float64)
    assert float(least.min()) > 0.1
    z = pear.solve(model, predicted).x
    violated = [violation(model, one, y) for one, y in zip(z, predicted, strict=True)]
    assert torch.allclose(torch.tensor(violated, dtype=torch.float64), least)
    loss = pear.PEARLoss(model, 0.1, 0.0, 0.0, reduction="none")
    value = loss(predicted, true)
    assert torch.allclose(value - loss.last.regret, least)
    assert_exact(lambda: pear.PEARLoss(model, 0.1, 0.0, 0.0, reduction="none"), predicted, true, 2)


@pytest.mark.parametrize("recourse", [pear.Penalty(h=3.0), pear.Projection()], ids=["penalty", "projection"])
def test_gradients_lead_an_infeasible_forecast_back(recourse):
    """Two shifts of at most 4 hours cover a demand; forecasts above 10 cannot be met, and training lowers them."""
    problem = pear.Problem(G=[[-1.0, -1.0]], h=[0.0], lb=0.0, ub=4.0)
    rows, known = pear.ConstraintMap(h=[[-1.0]]), torch.tensor([1.0, 1.5], dtype=torch.float64)
    model = pear.Model(problem, known=known, constraint_map=rows, recourse=recourse)
    loss = pear.PEARLoss(model, smoothing=0.01, reduction="sum")
    demand, true = torch.tensor([[10.1], [12.1]]).double(), torch.tensor([[5.0], [6.0]]).double()
    for _ in range(30):
        value, gradient = with_gradient(loss, demand, true)
        assert bool((gradient[demand[:, 0] > 8] > 0.9).all())
        demand = demand - 0.17 * gradient
    assert float(demand.max()) < 7.9
    assert float(value) < 6


def test_a_truth_that_cannot_hold_is_still_best_forecast_as_it_is():
    """If the true demand exceeds the capacity, the true demand is still the best forecast."""
    model = newsvendor(ub=4.0)
    y = torch.tensor([[9.0]]).double()
    assert float(pear.PEARLoss(model, 0.0)(y, y)) == 0
    assert float(pear.PEARLoss(model, 0.0)(y + 1, y)) == 4  # one unit more that cannot be had, at its price
    assert pear.regret(model, y + 1, y).tolist() == [0]


def test_loss_is_zero_at_the_truth_and_never_negative():
    for recourse in (PENALTY, PROJECTION):
        model, predicted, true = random_model("qp", "max", recourse, 5)
        loss = pear.PEARLoss(model, reduction="none")
        assert float(loss(true, true).abs().max()) < 1e-10
        assert float(loss(predicted, true).min()) >= 0


def test_keys_state_and_types():
    model, predicted, true = random_model("lp", "min", PENALTY, 0)
    loss = pear.PEARLoss(model, reduction="none")
    first = loss(predicted, true, keys=range(6))
    assert loss.calibrate(true) == loss.chosen_smoothing
    again = loss(predicted, true, keys=range(6))
    assert torch.allclose(first, again, rtol=0.02)  # guidance fell by a step at most
    other = pear.PEARLoss(model, reduction="none")
    other.load_state_dict(loss.state_dict())
    assert other.chosen_smoothing == loss.chosen_smoothing
    assert torch.equal(other(predicted, true), copy.deepcopy(loss)(predicted, true))
    assert pickle.loads(pickle.dumps(loss)).chosen_smoothing == loss.chosen_smoothing
    value, gradient = with_gradient(pear.PEARLoss(model, 0.1, 0.0, 0.0), predicted.float(), true.float())
    assert value.dtype == gradient.dtype == torch.float32
    mean, total = (pear.PEARLoss(model, 0.1, 0.0, 0.0, reduction=r)(predicted, true) for r in ("mean", "sum"))
    assert float(total) == pytest.approx(6 * float(mean))
    assert loss.last.weakly_active.shape == loss.last.tangent_dim.shape == (6,)
    assert "Penalty" in repr(loss)


def test_samples_that_fail_are_masked_or_raise():
    for recourse in (PENALTY, PROJECTION):
        model, predicted, true = random_model("lp", "min", recourse, 0)
        whole, gradient = with_gradient(pear.PEARLoss(model, 0.1, 0.0, 0.0, reduction="sum"), predicted[1:], true[1:])
        predicted[0, 5] = torch.nan
        with pytest.raises(pear.SolveError, match="the forecast"):
            pear.PEARLoss(model, 0.1)(predicted, true)
        loss = pear.PEARLoss(model, 0.1, 0.0, 0.0, on_failure="mask", reduction="sum")
        with pytest.warns(pear.FailedSamplesWarning):
            value, masked = with_gradient(loss, predicted, true)
        assert float(value) == pytest.approx(float(whole))
        assert torch.allclose(masked[1:], gradient)
        assert not masked[0].any()


def test_a_failing_sample_with_a_key_is_warned_of_once():
    for recourse in (PENALTY, PROJECTION):
        model, predicted, true = random_model("lp", "min", recourse, 0)
        true[0, 6], true[1, 7] = torch.nan, -30.0  # not a number; a row that only a price lets go
        loss = pear.PEARLoss(model, 0.1, on_failure="mask")
        with pytest.warns(pear.FailedSamplesWarning, match="the truth: sample"):
            first = loss(predicted, true, keys=range(6))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert float(loss(predicted, true, keys=range(6))) == pytest.approx(float(first))
        assert loss.last.status.tolist() == [4, 0 if recourse is PENALTY else 2, 0, 0, 0, 0]


def test_a_truth_without_any_point_has_no_projection():
    problem = pear.Problem(G=[[-1.0]], h=[0.0], lb=0.0, ub=1.0)
    model = pear.Model.predicting(problem, h=True, recourse=pear.Projection())
    with pytest.raises(pear.SolveError, match="the truth"):
        pear.PEARLoss(model, 0.1)(torch.tensor([[1.0, -0.5]]), torch.tensor([[1.0, -3.0]]))


def test_integers_are_trained_relaxed_and_judged_as_integers():
    model = newsvendor(integer=True)
    predicted, true = torch.tensor([[2.5]]).double(), torch.tensor([[5.5]]).double()
    assert pear.solve(model, predicted).x.tolist() == [[3]]
    assert pear.solve(model, true).x.tolist() == [[6]]
    assert pear.regret(model, predicted, true).tolist() == [3 + 4 * 2.5 - 6]
    assert float(pear.PEARLoss(model, 0.0)(predicted, true)) == 3 * 3
    with pytest.raises(pear.ProblemError, match="nearest integer point"):
        pear.Model.predicting(model.problem, h=True, recourse=pear.Projection())


@pytest.mark.parametrize("recourse", [pear.Penalty(b=5.0), pear.Projection()], ids=["penalty", "projection"])
def test_sparse_problems(recourse):
    n = 600
    A = sparse.kron(sparse.eye_array(n // 2), np.ones((1, 2)), format="csr")
    problem = pear.Problem(A=A, b=np.ones(n // 2), lb=0.0, ub=3.0)
    assert problem.is_sparse
    model = pear.Model.predicting(problem, b=[0, 5], recourse=recourse)
    assert model.elastic.problem.is_sparse
    g = torch.Generator().manual_seed(0)
    true = torch.cat([torch.rand(2, n, generator=g), torch.ones(2, 2)], 1).double()
    predicted = true + 0.1 * torch.randn(2, n + 2, generator=g)
    dense = pear.Model.predicting(
        pear.Problem(A=A.toarray(), b=np.ones(n // 2), lb=0.0, ub=3.0), b=[0, 5], recourse=recourse
    )
    one, two = (
        with_gradient(pear.PEARLoss(m, 0.2, 0.0, 1.0, reduction="none"), predicted, true) for m in (model, dense)
    )
    assert torch.allclose(one[0], two[0])
    assert torch.allclose(one[1], two[1])
    assert bool((one[1][:, n:].abs() > 0.01).any(0).all())


def test_fields_of_samples_and_their_keys():
    h = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    problem = pear.Problem(G=[[1.0], [-1.0]], h=h, lb=0.0)
    model = pear.Model.predicting(problem, cost=False, h=[1], recourse=pear.Penalty(h=4.0), known=[1.0])
    y = torch.full((2, 1), -9.0).double()
    layer = pear.DecisionLayer(model)
    assert layer(y, keys=[2, 0]).tolist() == [[3], [1]]
    assert pear.solve(model[[2, 0]], y).x.tolist() == [[3], [1]]
    assert pear.regret(model[[2, 0]], y + 8, y).tolist() == [3 * 2, 0]


def test_right_hand_sides_are_differentiable_overrides():
    model, predicted, _ = random_model("qp", "min", pear.Penalty(b=1e3, h=1e3, lb=1e3, ub=1e3), 0)
    feasible = predicted[[least_violation(model, y) < 1e-9 for y in predicted]].requires_grad_()
    sides = model.right_hand_sides(feasible)
    assert list(sides) == ["b", "h", "lb", "ub"]
    assert sides["h"].requires_grad
    plain = pear.DecisionLayer(model.problem)(model.cost(feasible), **sides)
    assert torch.allclose(plain, pear.solve(model, feasible.detach()).x)


def test_what_solve_says_of_rows_that_were_bounds():
    problem = pear.Problem(lb=0.0, ub=[1.0, 2.0])
    model = pear.Model.predicting(problem, ub=True, recourse=pear.Penalty(ub=9.0))
    solution, plain = pear.solve(model, [[-1.0, 1.0, 3.0, 4.0]]), pear.solve(problem, [[-1.0, 1.0]], ub=[3.0, 4.0])
    assert solution.x.tolist() == [[3, 0]]
    assert torch.equal(solution.active.upper, plain.active.upper)
    assert torch.equal(solution.active.rows, plain.active.rows)
    assert torch.allclose(solution.duals.bound, plain.duals.bound)
    assert torch.allclose(solution.value, plain.value)


def test_training_lowers_regret_and_everything_takes_the_model():
    g = torch.Generator().manual_seed(0)
    X = torch.rand(120, 1, generator=g)
    D = 2 + X * (1 + 4 * torch.rand(120, 1, generator=g))  # skewed: the mean is the wrong forecast
    model = newsvendor(price=9.0)
    config = pear.FitConfig(max_epochs=16, check_every=15, learning_rate=0.1)
    losses = {name: [] for name in ("mse", "pear-guided")}
    for name in losses:
        torch.manual_seed(0)
        net = torch.nn.Linear(1, 1)
        pear.fit(net, make_loss(name, model), (X, D), config=config)
        losses[name] = pear.normalized_regret(model, net(X), D)
    assert losses["pear-guided"] < 0.8 * losses["mse"]
    assert not any("spo" in one["method"] for one in default_candidates(model))
    tuned = pear.tune(model, X, D, candidates=default_candidates(model)[:2], config=pear.FitConfig(max_epochs=1))
    assert len(tuned.table()) == 2
    estimator = pear.DecisionRegressor(model, max_epochs=1).fit(X.numpy(), D.numpy())
    assert estimator.score(X.numpy(), D.numpy()) <= 0
    assert estimator.decide(X.numpy()).shape == (120, 1)
    assert pear.regret_scorer(model)(estimator, X.numpy(), D.numpy()) == estimator.score(X.numpy(), D.numpy())


@pytest.mark.parametrize("name", ["spo+", "spo+relaxed", "pfyl", "dbb", "lava"])
def test_methods_for_costs_alone_refuse(name):
    with pytest.raises(pear.ProblemError, match="predicts costs alone"):
        make_loss(name, newsvendor())


def test_what_else_refuses():
    model, y = newsvendor(), torch.ones(1, 1)
    with pytest.raises(pear.ProblemError, match="predicts costs alone"):
        pear.regret_gradient(model, y, y)
    for call in (lambda: pear.PEARLoss(model)(y, y, Q=torch.eye(1)), lambda: pear.regret(model, y, y, Q=torch.eye(1))):
        with pytest.raises(pear.ProblemError, match="Q came with a model that predicts right-hand sides"):
            call()
    with pytest.raises(pear.ProblemError, match="b came with a model"):
        pear.DecisionLayer(model)(y, b=y)
    with pytest.raises(pear.ProblemError, match="h came with a model"):
        pear.solve(model, y, h=y)
    with pytest.raises(pear.ProblemError, match="derivative with respect to the true values"):
        pear.PEARLoss(model)(y.clone().requires_grad_(), y.clone().requires_grad_())


BOX = pear.Problem(A=[[1.0, 1.0]], b=[1.0], G=[[1.0, 0.0], [0.0, 1.0]], h=[1.0, 1.0], lb=0.0)
MODELS = {
    "must say what happens": lambda: pear.PEARLoss(pear.Model.predicting(BOX, b=True)),
    "h[1] is predicted and has no finite price": lambda: pear.Model.predicting(
        BOX, h=True, recourse=pear.Penalty(h=[1.0, float("inf")])
    ),
    "b[0] is predicted and has no finite price": lambda: pear.Model.predicting(
        BOX, b=True, recourse=pear.Penalty(b=float("inf"))
    ),
    "ub[0] is predicted and has no": lambda: pear.Model.predicting(BOX, ub=[0], recourse=pear.Penalty()),
    "must not be negative": lambda: pear.Model.predicting(BOX, h=True, recourse=pear.Penalty(h=-1.0)),
    "must be > 0": lambda: pear.Model.predicting(BOX, h=True, recourse=pear.Penalty(h=0.0)),
    "not both 0": lambda: pear.Model.predicting(BOX, b=True, recourse=pear.Penalty(b=0.0)),
    "too little, too much": lambda: pear.Model.predicting(BOX, b=True, recourse=pear.Penalty(b=(1.0, 2.0, 3.0))),
    "must be a number, or 2 of them": lambda: pear.Model.predicting(BOX, h=True, recourse=pear.Penalty(h=[1.0] * 3)),
    "b is not predicted": lambda: pear.Model.predicting(BOX, h=True, recourse=pear.Penalty(h=1.0, b=2.0)),
    "the index 2": lambda: pear.Model.predicting(BOX, h=[2], recourse=pear.Penalty(h=1.0)),
    "an index twice": lambda: pear.Model.predicting(BOX, h=[1, 1], recourse=pear.Penalty(h=1.0)),
    "a list of indices": lambda: pear.Model.predicting(BOX, h="all", recourse=pear.Penalty(h=1.0)),
    "nothing is predicted": lambda: pear.Model.predicting(BOX, cost=False),
    "known is 7 at index 0, and that cost is predicted; expected 0 there: leave it 0": lambda: pear.Model.predicting(
        BOX, cost=[0], b=True, known=[7.0, 1.0], recourse=pear.Penalty(b=5.0)
    ),
    "all costs are zero: no cost is predicted, no known costs were given": lambda: pear.Model(
        BOX, constraint_map=pear.ConstraintMap(b=[[1.0]]), recourse=pear.Penalty(b=5.0)
    ),
    "and the objective has no Q; pass known=…": lambda: pear.Model.predicting(BOX, cost=False, b=True),
    "has no b": lambda: pear.Model.predicting(pear.Problem(lb=0, n=2), b=True, recourse=pear.Penalty(b=1.0)),
    "takes a pear.Problem; got Model": lambda: pear.Model.predicting(pear.Model(BOX), b=True),
    "weights=…) must be a positive number": lambda: pear.Model.predicting(
        BOX, h=True, recourse=pear.Projection(weights=[1.0, 0.0])
    ),
    "price=…) must be a positive": lambda: pear.Model.predicting(BOX, h=True, recourse=pear.Projection(price=-1.0)),
    "recourse is about predicted": lambda: pear.Model(BOX, recourse=pear.Projection()),
    "needs a matrix": lambda: pear.ConstraintMap(),
    "h of a constraint map must have shape (m, k)": lambda: pear.ConstraintMap(h=[1.0]),
    "h of a constraint map must be finite": lambda: pear.ConstraintMap(h=[[float("nan")]]),
    "the same number of columns": lambda: pear.ConstraintMap(b=[[1.0]], h=[[1.0, 2.0]]),
    "problem's 2 inequality rows": lambda: pear.Model(
        BOX, constraint_map=pear.ConstraintMap(h=[[1.0]]), recourse=pear.Projection()
    ),
    "own value, to which the prediction is added, is infinite": lambda: pear.Model(
        BOX, constraint_map=pear.ConstraintMap(ub=[[1.0], [0.0]]), recourse=pear.Projection()
    ),
    "a column for each predicted value": lambda: pear.Model(
        BOX,
        cost_map=pear.CostMap([[1.0], [1.0]]),
        constraint_map=pear.ConstraintMap(b=[[1.0, 1.0]]),
        recourse=pear.Projection(),
    ),
}


@pytest.mark.parametrize("message", MODELS)
def test_errors_say_what_is_wrong(message):
    with pytest.raises(pear.ProblemError) as told:
        MODELS[message]()
    assert message in str(told.value)


def test_rows_without_a_prediction_may_have_a_price_too():
    problem = pear.Problem(G=[[-1.0], [1.0]], h=[0.0, 2.0], lb=0.0)
    for price, z in ((3.0, 5.0), (float("inf"), 2.0)):
        recourse = pear.Penalty(h=[9.0, price])
        model = pear.Model.predicting(problem, cost=False, h=[0], recourse=recourse, known=[1.0])
        assert pear.solve(model, [[-5.0]]).x.tolist() == [[z]]


def test_known_costs_are_those_that_are_not_predicted():
    model = pear.Model.predicting(BOX, cost=[0], b=True, known=[0.0, 1.0], recourse=pear.Penalty(b=5.0))
    assert model.cost([[3.0, 2.0]]).tolist() == [[3.0, 1.0]]
    with pytest.raises(pear.ProblemError, match="known is 2 at index 0"):
        pear.Model.predicting(BOX, cost=[0], b=True, known=[[0.0, 1.0], [2.0, 1.0]])


def test_costs_may_be_zero_where_somebody_says_so_or_there_is_a_curvature():
    for how in ({"known": [0.0, 0.0]}, {"known": np.zeros(2)}):
        model = pear.Model.predicting(BOX, cost=False, b=True, recourse=pear.Penalty(b=5.0), **how)
        assert model.with_recourse(pear.Projection()).known.tolist() == [0.0, 0.0]
        assert pear.Model(BOX, constraint_map=pear.ConstraintMap(b=[[1.0]]), **how).known.tolist() == [0.0, 0.0]
    curved = pear.Problem(Q=torch.eye(2), A=[[1.0, 1.0]], b=[1.0])
    model = pear.Model.predicting(curved, cost=False, b=True, recourse=pear.Penalty(b=5.0))
    assert pear.solve(model, [[2.0]]).x.tolist() == pytest.approx(np.ones((1, 2)), abs=1e-9)


def test_names_and_display():
    model = pear.Model.predicting(BOX, cost=[1], b=True, ub=[0], recourse=pear.Penalty(b=1.0, ub=2.0))
    assert model.names == ("x1", "b[0]", "ub[0]")
    assert "ConstraintMap(3 predicted values → 1 of b, 1 of ub), Penalty(b=1.0, ub=2.0)" in repr(model)
    assert "right-hand sides" in model._repr_html_()
    assert model.relaxed().recourse is model.recourse


def full_sides(model, y):
    """Return b, h, lb and ub of one sample, as arrays."""
    own = constraint_sides(model.problem) | {name: one[0] for name, one in model.right_hand_sides(y).items()}
    return {name: one.numpy() for name, one in own.items()}


def programs(model, y, objective, priced):
    """Solve an elastic linear program with SciPy; its variables are z, then slacks of all rows of b, h, lb and ub."""
    problem, sides, n = model.problem, full_sides(model, y), model.problem.n
    A, G, eye = problem.A.numpy(), problem.G.numpy(), np.eye(n)
    p, rows = len(A), np.vstack([G, -eye, eye])
    limits = np.concatenate([sides["h"], -sides["lb"], sides["ub"]])
    m = len(rows)
    equal = np.hstack([A, np.eye(p), -np.eye(p), np.zeros((p, m))])
    under = np.hstack([rows, np.zeros((m, 2 * p)), -np.eye(m)])
    hard = [(0, None if price < np.inf else 0) for price in priced]
    cost = np.concatenate([objective, np.where(np.isfinite(priced), priced, 0)])
    keep = np.isfinite(limits)
    found = linprog(cost, under[keep], limits[keep], equal, sides["b"], [(None, None)] * n + hard)
    assert found.status == 0
    return found.fun, found.x[:n]


def prices(model, values):
    """Return the prices of all slacks: ``values`` for the predicted rows, and infinity for the others.

    The order is shortage of b, surplus of b, h, lb and ub.
    """
    little, much, h, lb, ub = values
    rows = {name: model.constraint_map.predicted(name, size).numpy() for name, size in zip(
        ("b", "h", "lb", "ub"), (1, 3, 5, 5), strict=True
    )}  # fmt: skip
    pairs = (("b", little), ("b", much), ("h", h), ("lb", lb), ("ub", ub))
    return np.concatenate([np.where(rows[name], price, np.inf) for name, price in pairs])


def elastic_by_scipy(model, y):
    sign = model.problem.sign
    return programs(model, y, sign * model.cost(y).numpy().ravel(), prices(model, (3.0, 2.0, 2.5, 1.5, 2.0)))


def least_violation(model, y):
    return programs(model, y, np.zeros(5), prices(model, (1.0,) * 5))[0]


def residuals(model, z, y):
    """Return the violations of all rows: shortage of b, surplus of b, h, lb and ub."""
    sides, problem = full_sides(model, y), model.problem
    short = sides["b"] - problem.A.numpy() @ z
    over = [problem.G.numpy() @ z - sides["h"], sides["lb"] - z, z - sides["ub"]]
    return np.maximum(np.concatenate([short, -short, *over]), 0)


def violation(model, z, y):
    return residuals(model, z.numpy(), y).sum()


def charged(model, z, y):
    """Return the cost of a decision under the truth, with the prices of its violations, to be minimised."""
    price = prices(model, (3.0, 2.0, 2.5, 1.5, 2.0))
    found = residuals(model, z, y)
    assert np.all(found[np.isinf(price)] < 1e-7)
    return model.problem.sign * z @ model.cost(y).numpy().ravel() + (np.where(np.isinf(price), 0, price) * found).sum()
