"""Bounds on the costs and regrets of decisions: for a problem or a model, in the estimator, in files, in a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pear
from pear.errors import DataError, ProblemError
from pear.train import safetensors_file

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(0)
X = rng.normal(size=(160, 3))
C = 3 + X @ rng.uniform(0.2, 1.0, (3, 4)) + rng.normal(size=(160, 4)) * 0.4
SIMPLEX = pear.Problem(A=np.ones((1, 4)), b=[1.0], lb=0.0)
FORECAST = C + rng.normal(size=C.shape) * 0.5
SHORT: dict[str, Any] = {"max_epochs": 5, "check_every": 2}


def test_bounds_are_those_of_the_costs_that_came_true() -> None:
    """Calibration and bounds by hand: choose the cheapest of four; the scores are realised minus planned costs."""
    chosen = FORECAST.argmin(1)
    planned, paid = (table[np.arange(160), chosen] for table in (FORECAST, C))
    intervals = pear.CostIntervals(SIMPLEX, order="exchangeable").calibrate(FORECAST[:25], C[:25])
    np.testing.assert_allclose(intervals.planned, planned[:25])
    np.testing.assert_allclose(intervals.realised, paid[:25])
    found = intervals.bounds(FORECAST[25:], level=0.8)  # of 25 scores, ⌈26 · 0.9⌉ = 24
    ranked = np.sort((paid - planned)[:25])
    np.testing.assert_allclose(found.lower, planned[25:] + ranked[1])
    np.testing.assert_allclose(found.upper, planned[25:] + ranked[23])
    assert found.decisions.argmax(1).tolist() == chosen[25:].tolist()


def test_of_a_problem_that_maximises_the_bounds_are_mirrored() -> None:
    gains = pear.Problem(A=np.ones((1, 4)), b=[1.0], lb=0.0, sense="max")
    for order in ("time", "exchangeable"):
        cost = pear.CostIntervals(SIMPLEX, order=order).calibrate(FORECAST[:80], C[:80]).bounds(FORECAST[80:])
        gain = pear.CostIntervals(gains, order=order).calibrate(-FORECAST[:80], -C[:80]).bounds(-FORECAST[80:])
        np.testing.assert_allclose(gain.lower, -cost.upper)
        np.testing.assert_allclose(gain.upper, -cost.lower)
        np.testing.assert_allclose(gain.planned, -cost.planned)


def test_regret_is_bounded_from_above() -> None:
    intervals = pear.CostIntervals(SIMPLEX, of="regret").calibrate(FORECAST[:80], C[:80])
    np.testing.assert_allclose(intervals.realised, pear.regret(SIMPLEX, FORECAST[:80], C[:80]))
    found = intervals.bounds(FORECAST[80:], level=0.9)
    assert not found.lower.any()
    lost = np.asarray(pear.regret(SIMPLEX, FORECAST[80:], C[80:]))
    assert 0.8 < (lost <= found.upper).mean() < 1


def with_penalty() -> pear.Model:
    shop = pear.Problem(G=[[-1.0]], h=[0.0], lb=0.0)
    rows = pear.ConstraintMap(h=[[-1.0]])
    return pear.Model(shop, known=[1.0], constraint_map=rows, recourse=pear.Penalty(h=4.0), offset=7.0)


def test_recourse_and_constants_are_part_of_the_cost() -> None:
    demand, forecast = np.array([[3.0], [5.0], [4.0]]), np.array([[4.0], [4.0], [4.0]])
    intervals = pear.CostIntervals(with_penalty(), order="exchangeable").calibrate(forecast, demand)
    np.testing.assert_allclose(intervals.planned, [11.0, 11.0, 11.0])
    np.testing.assert_allclose(intervals.realised, [11.0, 15.0, 11.0])
    limited = pear.CostIntervals(with_penalty().with_recourse(pear.Projection())).calibrate(forecast, demand)
    np.testing.assert_allclose(limited.realised, [11.0, 12.0, 11.0])


def test_known_values_and_integers() -> None:
    p = pear.Problem(A=[[1.0, 1.0]], b=[0.0], lb=0.0, integer=[0, 1])
    model = pear.Model(p, known_map=pear.KnownMap({"demand": ()}, b=[[1.0]]))
    demand, cost = np.array([2.0, 3.0]), np.array([[1.0, 4.0], [3.0, 2.0]])
    intervals = pear.CostIntervals(model).calibrate(cost, cost[:, ::-1], known={"demand": demand})
    np.testing.assert_allclose(intervals.planned, [2.0, 6.0])
    np.testing.assert_allclose(intervals.realised, [8.0, 9.0])
    with pytest.raises(ProblemError, match="demand"):
        pear.CostIntervals(model).calibrate(cost, cost)


def test_samples_are_appended() -> None:
    whole = pear.CostIntervals(SIMPLEX).calibrate(FORECAST[:90], C[:90])
    parts = pear.CostIntervals(SIMPLEX).calibrate(FORECAST[:50], C[:50])
    parts.calibrate(FORECAST[50:90], C[50:90], append=True)
    first, again = (one.bounds(FORECAST[90:], 0.9) for one in (whole, parts))
    np.testing.assert_array_equal(first.upper, again.upper)


def test_a_walk_counts_what_the_bounds_cover() -> None:
    days = pd.date_range("2026-01-01", periods=160)
    found = pear.CostIntervals(SIMPLEX).walk(pd.DataFrame(FORECAST, days), pd.DataFrame(C, days), 0.8, gap=2)
    table = found.to_frame()
    assert table.index.equals(days)
    assert table["covered"].sum() / found.bounded.sum() == found.coverage
    assert not found.bounded[: 19 + 2 * 2].any()
    assert abs(found.coverage - 0.8) < 0.08
    inside = found.coverage_interval(block=1)
    assert inside.interval[0] < found.coverage < inside.interval[1]
    assert "0.8" not in repr(found)
    assert "80 % were promised" in repr(found)


@pytest.fixture(scope="module")
def fitted() -> pear.DecisionRegressor:
    return pear.DecisionRegressor(SIMPLEX, loss="mse", **SHORT).fit(X[:80], C[:80])


def test_the_estimator_decides_within_bounds(fitted: pear.DecisionRegressor, tmp_path: Path) -> None:
    fitted.calibrate(X[80:130], C[80:130])
    found = fitted.decide(X[130:], interval=0.9)
    np.testing.assert_array_equal(found.decisions, fitted.decide(X[130:]))
    outside = pear.CostIntervals(SIMPLEX).calibrate(fitted.predict(X[80:130]), C[80:130])
    np.testing.assert_array_equal(found.upper, outside.bounds(fitted.predict(X[130:]), 0.9).upper)
    frame = fitted.decide(pd.DataFrame(X[130:]), interval=0.9).to_frame()
    assert list(frame.columns) == ["planned cost", "lower cost", "upper cost", "x0", "x1", "x2", "x3"]
    assert (frame["lower cost"] < frame["planned cost"]).all()
    fitted.save(tmp_path / "a.pear")
    again = pear.DecisionRegressor.load(tmp_path / "a.pear")
    np.testing.assert_array_equal(again.decide(X[130:], interval=0.9).lower, found.lower)
    again.calibrate(X[130:], C[130:], append=True)
    assert len(again.intervals_.planned) == 80
    assert repr(found).startswith("BoundedDecisions(30 of 4 variables; cost within bounds ")


def test_a_new_fit_forgets_the_calibration() -> None:
    model = pear.DecisionRegressor(SIMPLEX, loss="mse", **SHORT).fit(X[:80], C[:80]).calibrate(X[80:], C[80:])
    assert np.isfinite(model.decide(X[:2], interval=0.9).upper).all()
    with pytest.raises(ProblemError, match=r"calibrate, with at least 29 rows that come after"):
        model.fit(X[:80], C[:80]).decide(X[:2], interval=0.9)


def test_a_long_table_is_calibrated_by_its_groups() -> None:
    hour, day = np.tile(np.arange(4.0), 160), np.repeat(np.arange(160), 4)
    long = np.column_stack([np.repeat(X, 4, axis=0), hour])
    model = pear.DecisionRegressor(SIMPLEX, loss="mse", **SHORT)
    some = day < 80
    model.fit(long[some], C[:80].ravel(), groups=day[some])
    model.calibrate(long[~some], C[80:].ravel(), groups=day[~some])
    found = model.decide(long[:8], groups=day[:8], interval=0.8)
    wide = pear.CostIntervals(SIMPLEX).calibrate(model.predict(long[~some]).reshape(-1, 4), C[80:])
    np.testing.assert_allclose(found.upper, wide.bounds(model.predict(long[:8]).reshape(2, 4), 0.8).upper)


def test_a_file_with_a_strange_calibration_is_refused(fitted: pear.DecisionRegressor, tmp_path: Path) -> None:
    fitted.calibrate(X[80:130], C[80:130])
    fitted.save(tmp_path / "a.pear")
    from pear.train.estimator import model_file

    said = safetensors_file.read_safetensors(tmp_path / "a.pear", model_file.KIND, model_file.VERSION, "")
    for entry in ({"planned": np.ones(3)}, {"order": "random"}, {"planned": np.full(50, np.nan)}, {"strange": 1}):
        content = said | {"intervals": said["intervals"] | entry}
        safetensors_file.write_safetensors(tmp_path / "b.pear", model_file.KIND, model_file.VERSION, content)
        with pytest.raises((DataError, ProblemError)):
            pear.DecisionRegressor.load(tmp_path / "b.pear")
    with pytest.raises(ValueError, match=r"finite numbers, \(N,\) each; got shapes \(3,\) and \(50,\)"):
        pear.CostIntervals.restore(fitted.problem, said["intervals"] | {"planned": np.ones(3)})


def test_messages(fitted: pear.DecisionRegressor) -> None:
    intervals = pear.CostIntervals(SIMPLEX)
    with pytest.raises(ProblemError, match="nothing is calibrated; call calibrate"):
        intervals.bounds(FORECAST)
    with pytest.raises(ProblemError, match=r"level 0\.95 needs 49 calibration samples, and there are 30"):
        intervals.calibrate(FORECAST[:30], C[:30]).bounds(FORECAST, 0.95)
    with pytest.raises(ProblemError, match=r"forecasts must have shape \(N, 4\)"):
        intervals.calibrate(FORECAST[:, :2], C)
    with pytest.raises(ProblemError, match="row 3 of true values has others"):
        intervals.calibrate(FORECAST, np.where(np.arange(160)[:, None] == 3, np.nan, C))
    with pytest.raises(ProblemError, match="must have the same shape"):
        intervals.calibrate(FORECAST[:-1], C)
    with pytest.raises(ProblemError, match="needs 29 samples before the first that has one, and there are 20 in all"):
        intervals.walk(FORECAST[:20], C[:20])
    with pytest.raises(ProblemError, match="gap must be a whole number"):
        intervals.walk(FORECAST, C, gap=-1)
    with pytest.raises(ProblemError, match='of must be "cost" or "regret"'):
        pear.CostIntervals(SIMPLEX, of="price")  # type: ignore[arg-type]
    fresh = pear.DecisionRegressor(SIMPLEX, loss="mse", **SHORT).fit(X[:80], C[:80])
    with pytest.raises(ProblemError, match="adds rows to an earlier calibration; there is none"):
        fresh.calibrate(X, C, append=True)
    with pytest.raises(ProblemError, match=r"intervals must be pear.CostIntervals\(problem, …\); got float"):
        fresh.calibrate(X, C, intervals=0.9)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="those of another problem"):
        fresh.calibrate(X, C, intervals=pear.CostIntervals(pear.Problem(n=2, lb=0, ub=1)))


# A policy that acts only where it is safe enough


def trades(count: int, seed: int = 0) -> tuple[pear.Problem, Array, Array]:
    """Return the problem of selling or buying up to one unit, with forecast and true prices (count, 1)."""
    random = np.random.default_rng(seed)
    forecast = random.normal(size=(count, 1))
    return pear.Problem(lb=[-1.0], ub=[1.0]), forecast, forecast + random.normal(size=(count, 1))


class Forecaster:
    def predict(self, X: Any) -> Any:
        return X


@pytest.mark.parametrize("order", ["time", "exchangeable"])
def test_the_policy_acts_where_the_bound_is_below_the_fallback(order: Any) -> None:
    problem, forecast, price = trades(400)
    policy = pear.SafePolicy(Forecaster(), [0.0], problem=problem, level=0.8, order=order)
    found = policy.calibrate(forecast[:200], price[:200]).decide(forecast[200:])
    assert 0 < found.acted.sum() < 200
    np.testing.assert_array_equal(found.acted, found.bound <= 0)
    plan = -np.sign(forecast[200:, 0])
    np.testing.assert_allclose(found.decisions[:, 0], np.where(found.acted, plan, 0.0))
    assert (plan[found.acted] * price[200:, 0][found.acted] < 0).mean() > 0.85
    same = pear.SafePolicy(Forecaster(), [0.0], problem=problem, limit=0.0, level=0.8, order=order)
    np.testing.assert_array_equal(same.calibrate(forecast[:200], price[:200]).decide(forecast[200:]).acted, found.acted)


def test_a_limit_of_a_gain_is_the_least_one() -> None:
    _, forecast, price = trades(300)
    gains = pear.Problem(lb=[-1.0], ub=[1.0], sense="max")
    policy = pear.SafePolicy(Forecaster(), [0.0], problem=gains, limit=0.5, level=0.8).calibrate(forecast, price)
    found = policy.decide(forecast)
    np.testing.assert_array_equal(found.acted, found.bound >= 0.5)
    assert 0 < found.acted.sum() < 300
    assert (found.bound < found.planned).all()


def test_the_policy_compares_costs_day_by_day(fitted: pear.DecisionRegressor) -> None:
    """The fallback is a fixed decision; the policy bounds the difference between the two costs."""
    even = np.full(4, 0.25)
    policy = pear.SafePolicy(fitted, even, level=0.8).calibrate(X[80:140], C[80:140])
    z = fitted.decide(X[80:140])
    np.testing.assert_allclose(
        policy.residuals.value,
        ((z - even) * C[80:140]).sum(1) - ((z - even) * fitted.predict(X[80:140])).sum(1),
        atol=1e-12,
    )
    found = policy.decide(pd.DataFrame(X[140:], columns=["a", "b", "c"]).to_numpy())
    assert found.to_frame().shape == (20, 7)
    assert repr(found).startswith("SafeDecisions(20 of 4 variables, ")
    by_function = pear.SafePolicy(fitted, lambda X: np.tile(even, (len(X), 1)), level=0.8)
    by_function.calibrate(X[80:110], C[80:110]).calibrate(X[110:140], C[110:140], append=True)
    np.testing.assert_array_equal(by_function.decide(X[140:]).acted, found.acted)


def test_a_random_fallback_is_drawn_once_and_is_the_one_that_is_compared(fitted: pear.DecisionRegressor) -> None:
    rng, drawn = np.random.default_rng(0), []

    def fallback(X: Any) -> Any:
        drawn.append(rng.dirichlet(np.ones(4), len(X)))
        return drawn[-1]

    policy = pear.SafePolicy(fitted, fallback, level=0.8).calibrate(X[80:140], C[80:140])
    drawn.clear()
    found = policy.decide(X[140:])
    assert len(drawn) == 1
    assert not found.acted.all()
    np.testing.assert_array_equal(found.decisions[~found.acted], drawn[0][~found.acted])


def test_messages_of_the_policy() -> None:
    problem, forecast, price = trades(60)
    with pytest.raises(ProblemError, match="violates a constraint of sample 0 by 1"):
        pear.SafePolicy(Forecaster(), [2.0], problem=problem).calibrate(forecast, price)
    with pytest.raises(ProblemError, match=r"the fallback must be a decision \(1,\)"):
        pear.SafePolicy(Forecaster(), [0.0, 0.0], problem=problem).calibrate(forecast, price)
    with pytest.raises(ProblemError, match="nothing is calibrated"):
        pear.SafePolicy(Forecaster(), [0.0], problem=problem).decide(forecast)
    with pytest.raises(ProblemError, match=r"anything with predict\(X\) and then problem=…; got Forecaster"):
        pear.SafePolicy(Forecaster(), [0.0])
    with pytest.raises(ProblemError, match="limit must be a finite cost"):
        pear.SafePolicy(Forecaster(), [0.0], problem=problem, limit=float("inf"))
    with pytest.raises(ProblemError, match="groups= is for a DecisionRegressor"):
        pear.SafePolicy(Forecaster(), [0.0], problem=problem).calibrate(forecast, price, groups=[1])
    with pytest.raises(ProblemError, match="must lie between 0 and 1"):
        pear.SafePolicy(Forecaster(), [0.0], problem=problem, level=90)
