"""Predicted coefficients of A and G: regret with recourse against SciPy, gradients against differences, and usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import linprog
from test_recourse import assert_exact, differences, with_gradient

import pear
from pear.errors import ProblemError
from pear.losses import make_loss

PENALTY = pear.Penalty(b=(3.0, 2.0), h=2.5, ub=2.0)
PROJECTION = pear.Projection(weights=[1.0, 2.0, 3.0, 1.0])
PLACES = {"A": [(0, 1), (0, 2)], "G": [(0, 0), (2, 3), (1, 2)]}


def random_model(kind: str, sense: str, recourse: Any, seed: int) -> tuple[pear.Model, torch.Tensor, torch.Tensor]:
    """Draw a model of four variables with predicted limits, a predicted bound and five predicted coefficients.

    Returns:
        The model, and predicted and true values.
    """
    g = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=g, dtype=torch.float64)

    n, samples = 4, 6
    A, G, L, z = draw(1, n), draw(3, n), draw(n, n), torch.rand(n, generator=g, dtype=torch.float64)
    b, h = A @ z, G @ z + 0.1
    curvature = (1 if sense == "min" else -1) * (L @ L.T / n + 0.5 * torch.eye(n, dtype=torch.float64))
    problem = pear.Problem(Q=curvature if kind == "qp" else None, A=A, b=b, G=G, h=h, lb=-0.5, ub=1.5, n=n, sense=sense)
    model = pear.Model.predicting(problem, b=True, h=[1], ub=[0], recourse=recourse, **PLACES)
    entries = [matrix[at] for matrix, name in ((A, "A"), (G, "G")) for at in PLACES[name]]
    own = torch.cat([b, h[[1]], torch.tensor([1.5, *entries], dtype=torch.float64)])
    true = torch.cat([draw(samples, n), own + 0.02 * draw(samples, len(own))], 1)
    return model, true + torch.cat([0.3 * draw(samples, n), 0.1 * draw(samples, len(own))], 1), true


@pytest.mark.parametrize("recourse", [PENALTY, PROJECTION], ids=["penalty", "projection"])
@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("kind", ["lp", "qp"])
def test_gradients_agree_with_differences(kind: str, sense: str, recourse: Any) -> None:
    model, predicted, true = random_model(kind, sense, recourse, 0)
    lam = 0.1 if kind == "lp" else 0.0
    assert_exact(lambda: pear.PEARLoss(model, lam, 0.0, 0.0, reduction="none"), predicted, true, 4)


@pytest.mark.parametrize("recourse", [PENALTY, PROJECTION], ids=["penalty", "projection"])
@pytest.mark.parametrize("sense", ["min", "max"])
def test_guidance_agrees_with_differences_and_is_zero_at_the_truth(sense: str, recourse: Any) -> None:
    model, predicted, true = random_model("lp", sense, recourse, 2)
    assert_exact(lambda: pear.PEARLoss(model, 0.1, 0.0, 2.0, reduction="none"), predicted, true, 3)
    exact = pear.PEARLoss(model, 0.1, 0.0, 0.0, reduction="none")(predicted, true)
    guided = pear.PEARLoss(model, 0.1, 0.0, 2.0, reduction="none")(predicted, true)
    assert bool((guided >= exact - 1e-10).all())
    assert float(pear.PEARLoss(model, 0.1, 0.0, 2.0)(true, true)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("recourse", [PENALTY, PROJECTION], ids=["penalty", "projection"])
def test_the_layer_agrees_with_differences(recourse: Any) -> None:
    model, predicted, _ = random_model("lp", "min", recourse, 3)
    weights = torch.arange(1.0, 5.0, dtype=torch.float64)
    layer, leaf = pear.DecisionLayer(model, smoothing=0.1), predicted.clone().requires_grad_()
    (layer(leaf) @ weights).sum().backward()
    near = differences(lambda rows, _: layer(rows) @ weights, predicted)
    far = differences(lambda rows, _: layer(rows) @ weights, predicted, 1e-5)
    smooth = (near - far).abs().amax(1) < 1e-6
    assert int(smooth.sum()) >= 3
    assert leaf.grad is not None
    assert float((near - leaf.grad)[smooth].abs().max()) < 1e-6
    assert float(leaf.grad[:, -5:].abs().max()) > 1e-3


def elastic_by_scipy(model: pear.Model, y: torch.Tensor) -> tuple[float, Any]:
    """Return the optimal value and decision of the elastic linear program under values y, by SciPy."""
    p = model.problem
    A, G, b, h, ub = (one.double().numpy().copy() for one in (p.A, p.G, p.b, p.h, p.ub) if one is not None)
    b[0], h[1], ub[0] = b[0] + y[4], h[1] + y[5], ub[0] + y[6]
    for name, first in (("A", 7), ("G", 9)):
        for k, at in enumerate(PLACES[name]):
            (A if name == "A" else G)[at] = y[first + k]
    # every row of G has a predicted limit or coefficient
    c = np.concatenate([p.sign * y[:4].numpy(), [3.0, 2.0], np.full(3, 2.5), [2.0]])
    eq = np.hstack([A, [[1.0, -1.0]], np.zeros((1, 4))])
    top = np.zeros((1, 10))
    top[0, 0], top[0, 9] = 1.0, -1.0
    upper = np.vstack([np.hstack([G, np.zeros((3, 2)), -np.eye(3), np.zeros((3, 1))]), top])
    bounds = [(-0.5, None), *((-0.5, one) for one in ub[1:]), *[(0, None)] * 6]
    done = linprog(c, upper, [*h, ub[0]], eq, b, bounds)
    return p.sign * done.fun, done.x[:4]


@pytest.mark.parametrize("sense", ["min", "max"])
def test_the_decision_and_its_value_are_those_of_scipy(sense: str) -> None:
    model, predicted, _ = random_model("lp", sense, PENALTY, 4)
    found = pear.solve(model, predicted)
    for i, y in enumerate(predicted):
        value, z = elastic_by_scipy(model, y)
        assert float(found.value[i]) == pytest.approx(value, abs=1e-7)
        np.testing.assert_allclose(found.x[i], z, atol=1e-6)


def test_a_batch_equals_a_loop() -> None:
    model, predicted, true = random_model("qp", "min", PENALTY, 5)
    loss = pear.PEARLoss(model, 0.0, 0.0, 1.0, reduction="none")
    value, gradient = with_gradient(loss, predicted, true)
    for i in range(len(true)):
        one, slope = with_gradient(loss, predicted[i : i + 1], true[i : i + 1])
        assert torch.allclose(one, value[i : i + 1], atol=1e-10)
        assert torch.allclose(slope, gradient[i : i + 1], atol=1e-8)


def harvest(**how: Any) -> pear.Model:
    """Return a model of sowing z at a cost of 1 for a demand of 6, with a predicted yield; a missing unit costs 4."""
    rows = pear.ConstraintMap(G=how.pop("G", [[-1.0]]))
    problem = pear.Problem(G=[[0.0]], h=[-6.0], lb=0.0, ub=100.0)
    return pear.Model(problem, known=[1.0], constraint_map=rows, recourse=pear.Penalty(h=4.0), **how)


@pytest.mark.parametrize(
    "matrix", [[[-1.0]], sparse.csr_array([[-1.0]]), torch.tensor([[-1.0]])], ids=["list", "csr", "torch"]
)
def test_a_predicted_yield_by_hand(matrix: Any) -> None:
    model = harvest(G=matrix)
    predicted, true = torch.tensor([[3.0], [1.0], [2.0]]).double(), torch.full((3, 1), 2.0).double()
    assert pear.solve(model, predicted).x[:, 0].tolist() == [2, 6, 3]
    assert pear.regret(model, predicted, true).tolist() == [2 + 4 * 2 - 3, 6 - 3, 0]
    value, gradient = with_gradient(pear.PEARLoss(model, 0.0, 0.0, 0.0, reduction="none"), predicted, true)
    assert value.tolist() == [7, 3, 0]
    z = torch.tensor([2.0, 6.0])  # of a yield y, z = 6 / y; a unit more costs 1 − 4 · 2 below 3 units, and 1 above
    assert gradient[:2, 0].tolist() == pytest.approx((torch.tensor([1 - 8.0, 1.0]) * -z / predicted[:2, 0]).tolist())


def test_training_estimator_files_and_walks(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(120, 2))
    yields = 1 + X @ [[0.5], [1.5]] * rng.uniform(0.4, 1.6, (120, 1))
    loss: Any = pear.PEARLoss(harvest(), smoothing=0.0)
    net = torch.nn.Linear(2, 1).double()
    data = torch.from_numpy(X[:80]), torch.from_numpy(yields[:80])
    before = pear.normalized_regret(harvest(), net(data[0]), data[1])
    for made in (loss, make_loss("sfge", harvest())):
        pear.fit(net, made, data, data, config=pear.FitConfig(max_epochs=3, check_every=1))
    assert pear.normalized_regret(harvest(), net(data[0]), data[1]) < before
    model = pear.DecisionRegressor(harvest(), loss="mse", max_epochs=3, check_every=1).fit(X[:80], yields[:80])
    assert -1 < model.score(X[80:], yields[80:]) < 0
    model.save(tmp_path / "a.pear")
    again = pear.DecisionRegressor.load(tmp_path / "a.pear")
    np.testing.assert_array_equal(again.decide(X[80:]), model.decide(X[80:]))
    assert repr(again.problem) == repr(model.problem)
    from sklearn.linear_model import Ridge

    found = pear.walk_forward(harvest(), X, yields, {"ridge": Ridge()}, splits=2)
    assert (found.regret >= 0).all()
    bounded = pear.CostIntervals(harvest()).calibrate(yields[:60] * 1.1, yields[:60])
    assert np.isfinite(bounded.bounds(yields[60:], 0.8).upper).all()


def test_integers_are_judged_as_integers() -> None:
    knapsack = pear.Problem(G=[[1.0, 1.0, 1.0]], h=[5.0], lb=0, ub=1, sense="max", integer=[0, 1, 2])
    model = pear.Model.predicting(knapsack, cost=False, G=True, recourse=pear.Penalty(h=2.0), known=[3.0, 4.0, 5.0])
    assert model.names == ("G[0,0]", "G[0,1]", "G[0,2]")
    predicted, true = [[2.0, 3.0, 4.0]], [[2.0, 4.0, 4.0]]
    z = np.array(list(np.ndindex(2, 2, 2)))
    planned, paid = (z @ [3, 4, 5] - 2 * (z @ weights[0] - 5).clip(0) for weights in (predicted, true))
    assert pear.solve(model, predicted).x.tolist() == [z[planned.argmax()].tolist()] == [[1, 1, 0]]
    assert float(pear.regret(model, predicted, true)) == paid.max() - paid[planned.argmax()] == 1


def test_messages() -> None:
    p = pear.Problem(G=[[1.0, 2.0]], h=[4.0], lb=0.0)
    with pytest.raises(ProblemError, match="a coefficient of row 0 of G is predicted and has no finite price"):
        pear.Model.predicting(p, G=[(0, 1)], recourse=pear.Penalty(h=[np.inf]))
    with pytest.raises(ProblemError, match=r"G holds the entry \(0, 2\), and it has 1 rows and 2 columns"):
        pear.Model.predicting(p, G=[(0, 2)])
    with pytest.raises(ProblemError, match="G holds an entry twice"):
        pear.Model.predicting(p, G=[(0, 1), (0, 1)])
    with pytest.raises(ProblemError, match=r"list of pairs \(row, column\)"):
        pear.Model.predicting(p, G=[1])
    with pytest.raises(ProblemError, match="A=…, but the problem has no A"):
        pear.Model.predicting(p, A=True)
    with pytest.raises(ProblemError, match="a row for each of the 2 entries of the problem's G, row by row"):
        pear.Model(p, known=[1.0, 1.0], constraint_map=pear.ConstraintMap(G=[[1.0]]))
    many = pear.Problem(G=sparse.eye_array(700, format="csr"), h=np.ones(700), lb=0.0)
    assert many.is_sparse
    with pytest.raises(ProblemError, match="the problem is sparse: its matrices are the same for all"):
        pear.Model.predicting(many, G=[(0, 1)])
    model = pear.Model.predicting(p, G=True, recourse=pear.Penalty(h=3.0))
    with pytest.raises(ProblemError, match="the model predicts coefficients of G, and a diagnosis takes"):
        pear.diagnose(model, [[1.0, 1.0, 1.0, 2.0]], [[1.0, 1.0, 1.0, 2.0]])
    with pytest.raises(ProblemError, match="the model predicts coefficients of G, and Stochastic takes"):
        pear.Stochastic(model, first=["x0"], scenarios=3)
    with pytest.raises(ProblemError, match="costs alone"):
        make_loss("spo+", model)
