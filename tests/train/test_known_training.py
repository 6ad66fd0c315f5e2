"""Training with known data for each sample: the estimator, ``fit``, validation samples and model files."""

import cvxpy as cp
import numpy as np
import pytest
import torch

import pear
from pear.errors import ProblemError

N, T = 48, 3


def store():
    """Return a model that sells a known stock at predicted prices.

    The quadratic term lowers the marginal value of what is sold in the same period.
    """
    price, stock, space = cp.Parameter(T, name="price"), cp.Parameter(name="stock"), cp.Parameter(T, name="space")
    sold = cp.Variable(T, name="sold", nonneg=True)
    rows = [cp.sum(sold) <= stock, sold <= space]
    value = price @ sold - 0.05 * cp.sum_squares(sold)
    return pear.from_cvxpy(cp.Problem(cp.Maximize(value), rows), predicted=[price], known=[stock, space])


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(N, 2))
    Y = np.abs(X @ draw.normal(size=(2, T)) + 1.0 + 0.3 * draw.normal(size=(N, T)))
    return X, Y, {"stock": draw.uniform(0.5, 3, N), "space": draw.uniform(0.2, 2, (N, T))}


def rows(known, some):
    return {name: values[some] for name, values in known.items()}


@pytest.fixture(scope="module")
def trained(data):
    X, Y, known = data
    model = pear.DecisionRegressor(store(), max_epochs=4)
    return model.fit(X[:32], Y[:32], known=rows(known, slice(32)))


def test_the_estimator_decides_and_scores_with_known_data(trained, data):
    X, Y, known = data
    new, m = rows(known, slice(32, None)), store()
    decided = trained.decide(X[32:], known=new)
    assert decided.shape == (16, T)
    assert (decided.sum(1) <= new["stock"] + 1e-9).all()
    assert (decided <= new["space"] + 1e-9).all()
    forecast = trained.predict(X[32:])
    np.testing.assert_allclose(decided, pear.solve(m, forecast, known=new).x.numpy())
    assert trained.score(X[32:], Y[32:], known=new) == -pear.normalized_regret(m, forecast, Y[32:], known=new)
    assert trained.score(X[32:], Y[32:], known=new) > -0.2


def test_training_sees_the_known_data_of_its_own_rows(trained, data):
    """Training on samples whose problems are given directly ends with the same weights."""
    X, Y, known = data
    bound = store().with_known(rows(known, slice(32)))
    again = pear.DecisionRegressor(bound, max_epochs=4).fit(X[:32], Y[:32])
    np.testing.assert_array_equal(trained.predict(X), again.predict(X))
    loss = pear.PEARLoss(bound)
    history = pear.fit(torch.nn.Linear(2, T).double(), loss, (X[:32], Y[:32]), config=pear.FitConfig(max_epochs=2))
    assert history.best is not None


def test_validation_rows_have_known_data_of_their_own(data):
    X, Y, known = data
    first, last = slice(32), slice(32, None)
    held_out = {"X": X[last], "y": Y[last], "known": rows(known, last)}
    model = pear.DecisionRegressor(store(), max_epochs=4).fit(X[first], Y[first], held_out, known=rows(known, first))
    assert model.history_.best.metric == pytest.approx(-model.score(X[last], Y[last], known=rows(known, last)))
    with pytest.raises(ProblemError, match="none came; pass known="):
        model.fit(X[first], Y[first], (X[last], Y[last]), known=rows(known, first))


def test_missing_and_unexpected_known_data_is_refused(trained, data):
    X, Y, known = data
    with pytest.raises(ProblemError, match="the model has known values, stock, space, and none came"):
        pear.DecisionRegressor(store()).fit(X, Y)
    with pytest.raises(ProblemError, match="rows of another number: 48 of stock; expected 16"):
        trained.decide(X[32:], known=known)
    with pytest.raises(ProblemError, match="none came"):
        trained.score(X, Y)
    with pytest.raises(ProblemError, match="known= came, and the problem has no known values"):
        pear.DecisionRegressor(pear.Problem(lb=0, ub=1, n=T)).fit(X, Y, known=known)
    loss = pear.PEARLoss(store().with_known(known))
    with pytest.raises(ProblemError, match="pass a function from the problem to the loss"):
        pear.DecisionRegressor(store(), loss=loss).fit(X, Y, known=known)
    with pytest.raises(ProblemError, match="partial_fit takes a problem that all samples share"):
        trained.partial_fit(X, Y)


def test_a_model_file_holds_what_is_known(trained, data, tmp_path):
    X, _, known = data
    trained.save(tmp_path / "store.pear")
    again = pear.DecisionRegressor.load(tmp_path / "store.pear")
    np.testing.assert_array_equal(again.decide(X, known=known), trained.decide(X, known=known))
    assert again.problem.known_map.names == ("stock", "space[0]", "space[1]", "space[2]")
    assert again.smoothing_ == trained.smoothing_
    again.save(tmp_path / "again.pear")
    with pytest.raises(ProblemError, match="none came"):
        pear.DecisionRegressor.load(tmp_path / "again.pear").decide(X)
    X2, Y2 = X[:8], data[1][:8]
    assert again.fit(X2, Y2, known=rows(known, slice(8))).predict(X2).shape == (8, T)


def test_a_walk_forward_trains_and_decides_with_known_data(data):
    X, Y, known = data
    m = store()
    model = pear.DecisionRegressor(m, max_epochs=4)
    found = pear.walk_forward(m, X, Y, {"pear": model}, splits=2, known=known)
    bound = m.with_known(known)
    tested = found.sample.tolist()
    expected = pear.regret(bound[tested], found.forecasts["pear"], Y[tested])
    np.testing.assert_allclose(found.regret[0], expected, atol=1e-12)
    last = tested[-len(tested) // 2 :]
    first = list(range(last[0]))
    alone = pear.DecisionRegressor(m, max_epochs=4).fit(X[first], Y[first], known=rows(known, first))
    np.testing.assert_array_equal(found.forecasts["pear"][-len(last) :], alone.predict(X[last]))
    with pytest.raises(ProblemError, match="none came"):
        pear.walk_forward(m, X, Y, {"pear": model}, splits=2)


def test_a_diagnosis_attributes_regret_under_known_data(data):
    _, Y, known = data
    m, forecast = store(), Y[::-1].copy()
    report = pear.diagnose(m, forecast, Y, known=known)
    np.testing.assert_allclose(report.regret, pear.regret(m, forecast, Y, known=known), atol=1e-9)
    np.testing.assert_allclose(report.attribution.sum(1), report.regret, atol=1e-8)
    with pytest.raises(ProblemError, match="none came"):
        pear.diagnose(m, forecast, Y)
