"""Long tables in a walk forward: a row for each value, compared with wide tables and with plain scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pear
from pear.errors import ProblemError
from pear.evaluation.walk_forward_result import MEAN

DAYS, HOURS = 30, 4
PROBLEM = pear.Problem(A=[[1.0] * HOURS], b=[1.0], lb=0.0)


def long_samples(seed=0):
    """Return features (N·k, p), prices (N·k,) and days (N·k,), in the order of the days."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((DAYS * HOURS, 3))
    hour = np.tile(np.arange(HOURS), DAYS)
    price = X @ [1.0, -0.5, 0.2] + 0.3 * hour + 0.2 * draw.standard_normal(DAYS * HOURS)
    return np.column_stack([X, hour]), price, np.repeat(np.arange(DAYS), HOURS)


def test_one_model_for_all_values_agrees_with_a_loop():
    X, price, day = long_samples()
    found = pear.walk_forward(PROBLEM, X, price, {"linear": LinearRegression()}, splits=2, groups=day)
    wide = price.reshape(DAYS, HOURS)
    assert found.sample.tolist() == list(range(10, 30))
    assert found.true.tolist() == wide[10:].tolist()
    for start in (10, 20):
        fitted = LinearRegression().fit(X[: start * HOURS], price[: start * HOURS])
        forecast = fitted.predict(X[start * HOURS : (start + 10) * HOURS]).reshape(10, HOURS)
        here = slice(start - 10, start)
        assert found.forecasts["linear"][here] == pytest.approx(forecast, rel=1e-9)
        assert found.regret[0, here] == pytest.approx(pear.regret(PROBLEM, forecast, wide[start : start + 10]).numpy())
        assert found.forecasts[MEAN][here] == pytest.approx(np.tile(wide[:start].mean(0), (10, 1)), rel=1e-12)


def test_rows_may_be_mixed():
    X, price, day = long_samples()
    plain = pear.walk_forward(PROBLEM, X, price, {"linear": LinearRegression()}, splits=2, groups=day)
    # all first hours, then all second ones, and so on: groups begin in the same order, and keep the order of hours
    order = np.argsort(np.tile(np.arange(HOURS), DAYS), kind="stable")
    mixed = pear.walk_forward(
        PROBLEM, X[order], price[order], {"linear": LinearRegression()}, splits=2, groups=day[order]
    )
    assert mixed.true.tolist() == plain.true.tolist()
    assert mixed.forecasts["linear"] == pytest.approx(plain.forecasts["linear"], rel=1e-9)


def test_wide_and_long_tables_stand_beside_each_other():
    X, price, day = long_samples()
    wide_X, wide_C = X.reshape(DAYS, -1), price.reshape(DAYS, HOURS)
    given = {"long": LinearRegression(), "wide": (Ridge(), wide_X), "table": price + 1.0, "wide table": wide_C + 2.0}
    found = pear.walk_forward(PROBLEM, X, price, given, splits=2, groups=day)
    alone = pear.walk_forward(PROBLEM, wide_X, wide_C, {"wide": Ridge()}, splits=2)
    assert found.forecasts["wide"] == pytest.approx(alone.forecasts["wide"], rel=1e-12)
    assert found.forecasts["table"] == pytest.approx(wide_C[10:] + 1.0)
    assert found.forecasts["wide table"] == pytest.approx(wide_C[10:] + 2.0)
    # the other way round: wide samples, and a long table of one forecaster
    other = pear.walk_forward(
        PROBLEM, wide_X, wide_C, {"wide": Ridge(), "long": (LinearRegression(), X)}, 2, groups=day
    )
    assert other.forecasts["long"] == pytest.approx(found.forecasts["long"], rel=1e-12)
    assert other.forecasts["wide"] == pytest.approx(alone.forecasts["wide"], rel=1e-12)


def test_functions_get_the_rows_of_each_day():
    X, price, day = long_samples()
    sizes = []

    def ahead(before, costs, after):
        sizes.append((before.shape, costs.shape, after.shape))
        return LinearRegression().fit(before, costs).predict(after)

    given = {"function": ahead, "estimator": LinearRegression()}
    found = pear.walk_forward(PROBLEM, X, price, given, splits=2, groups=day)
    assert sizes == [((40, 4), (40,), (40, 4)), ((80, 4), (80,), (40, 4))]
    assert found.forecasts["function"] == pytest.approx(found.forecasts["estimator"], rel=1e-12)


@pytest.mark.parametrize(
    "wrap", [lambda model: model, lambda model: make_pipeline(StandardScaler(), "passthrough", model)]
)
def test_decision_regressors_get_the_groups(wrap):
    X, price, day = long_samples()
    model = pear.DecisionRegressor(PROBLEM, loss="mse", max_epochs=3)
    found = pear.walk_forward(PROBLEM, X, price, {"own": wrap(model)}, splits=1, groups=day)
    fitted, last = wrap(model), 15 * HOURS
    name = "groups" if fitted is model else "decisionregressor__groups"
    fitted.fit(X[:last], price[:last], **{name: day[:last]})
    assert found.forecasts["own"].ravel() == pytest.approx(fitted.predict(X[last:]), rel=1e-9)


def test_pairs_of_a_function_and_its_table():
    X, price, day = long_samples()
    wide = price.reshape(DAYS, HOURS)
    own = np.arange(DAYS)[:, None]

    def same_day(before, costs, after):
        assert before.shape[1] == 1
        assert costs.shape == (len(before), HOURS)
        return wide[after[:, 0]]

    found = pear.walk_forward(PROBLEM, X, price, {"pair": (same_day, own)}, splits=2, groups=day)
    assert found.regret[0].tolist() == [0.0] * 20


def test_ids_of_groups_are_labels():
    X, price, day = long_samples()
    dates = pd.date_range("2026-01-01", periods=DAYS)[day]
    frame = pd.DataFrame(X, index=dates + pd.to_timedelta(np.tile(np.arange(HOURS), DAYS), unit="h"))
    found = pear.walk_forward(PROBLEM, frame, pd.Series(price), {"linear": LinearRegression()}, splits=2, groups=dates)
    assert found.label[0] == np.datetime64("2026-01-11")
    assert found.to_frame("sample")["label"].iloc[0] == pd.Timestamp("2026-01-11")
    with pytest.raises(ProblemError, match="dates of groups are not in order: row 1, 2026-01-29"):
        pear.walk_forward(PROBLEM, X, price, {"linear": LinearRegression()}, groups=dates[::-1])


def test_what_is_refused():
    X, price, day = long_samples()
    given = {"linear": LinearRegression()}
    with pytest.raises(ProblemError, match="group 29 has 3"):
        pear.walk_forward(PROBLEM, X[:-1], price[:-1], given, groups=day[:-1])
    with pytest.raises(ProblemError, match="X has 119 rows; expected 30, one for each sample of C, or 120"):
        pear.walk_forward(PROBLEM, X[:-1], price, given, groups=day)
    with pytest.raises(ProblemError, match="the table of forecaster 'own' has 29 rows"):
        pear.walk_forward(PROBLEM, X, price, {"own": (Ridge(), X[:29])}, groups=day)
    wide = pd.DataFrame(X.reshape(DAYS, -1), index=range(DAYS - 1, -1, -1))
    with pytest.raises(ProblemError, match="named as the groups, but in another order"):
        pear.walk_forward(PROBLEM, X, price, {"own": (Ridge(), wide)}, groups=day)


def test_dated_tables_of_both_shapes_go_together():
    X, price, day = long_samples()
    dates = pd.date_range("2026-01-01", periods=DAYS)
    long = pd.DataFrame(X, index=dates[day] + pd.to_timedelta(np.tile(np.arange(HOURS), DAYS), unit="h"))
    wide = pd.DataFrame(price.reshape(DAYS, HOURS), index=dates)
    numbered = pd.DataFrame(X.reshape(DAYS, -1))  # an index that says nothing about the days
    given = {"long": LinearRegression(), "wide": (Ridge(), numbered)}
    found = pear.walk_forward(PROBLEM, long, wide, given, splits=2, groups=dates[day])
    plain = pear.walk_forward(PROBLEM, X, price, {"long": LinearRegression()}, splits=2, groups=day)
    assert found.forecasts["long"] == pytest.approx(plain.forecasts["long"], rel=1e-12)
    assert found.forecasts["wide"].shape == (20, HOURS)
