"""Walks forward: regret by hand, a comparison with plain scikit-learn, every kind of forecaster, and errors."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pear
from pear.errors import ForecasterError, ProblemError, SolveError
from pear.evaluation.walk_forward_result import MEAN
from pear.losses.paired_difference import paired_difference

CHOOSE = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
COSTS = np.array([[1.0, 3.0], [2.0, 1.0], [4.0, 1.0], [1.0, 2.0], [5.0, 2.0], [1.0, 4.0]])


def samples(count=60, seed=0, columns=3):
    """Return features (N, 4) and costs (N, columns) that a linear model forecasts well, in time order."""
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((count, 4))
    return X, X @ draw.standard_normal((4, columns)) + 0.3 * draw.standard_normal((count, columns)) + 2.0


def simplex(n=3, **fields):
    return pear.Problem(A=[[1.0] * n], b=[1.0], lb=0.0, **fields)


def test_regret_by_hand():
    """Two choices, six days, two folds of two days. The table forecasts that first, second, first, first is best."""
    table = np.array([[np.nan, np.nan]] * 2 + [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    found = pear.walk_forward(CHOOSE, np.zeros((6, 1)), COSTS, {"table": table}, splits=2)
    assert found.names == ("table", MEAN)
    assert found.sample.tolist() == [2, 3, 4, 5]
    assert found.fold.tolist() == [1, 1, 2, 2]
    # the mean of rows 0 and 1 is (1.5, 2): first; that of rows 0 to 3 is (2, 1.75): second
    assert found.cost.tolist() == [[4.0, 2.0, 5.0, 1.0], [4.0, 1.0, 2.0, 4.0]]
    assert found.best.tolist() == [1.0, 1.0, 2.0, 1.0]
    assert found.regret.tolist() == [[3.0, 1.0, 3.0, 0.0], [3.0, 0.0, 0.0, 3.0]]
    assert found.fold_regret.tolist() == [[2.0, 1.5], [1.5, 1.5]]
    assert found.squared_error[0].tolist() == [8.0, 2.0, 13.0, 5.0]
    assert found.forecasts[MEAN].tolist() == [[1.5, 2.0]] * 2 + [[2.0, 1.75]] * 2
    row = found.rows[0]
    assert (row["regret"], row["cost"], row["squared_error"], row["fold_2"]) == (1.75, 3.0, 7.0, 1.5)
    assert row["normalized_regret"] == pytest.approx(7 / 5)
    assert row["difference"] is None
    assert found.rows[1]["difference"] == -0.25


def test_gains_are_in_the_sense_of_the_problem():
    knapsack = pear.Problem(G=[[2.0, 3.0]], h=[3.0], lb=0.0, ub=1.0, integer=True, sense="max")
    values = np.array([[1.0, 5.0], [4.0, 1.0], [4.0, 1.0]])
    found = pear.walk_forward(knapsack, np.zeros((3, 1)), values, {"first": lambda *_: [[1.0, 5.0]]}, splits=2)
    assert found.regret.tolist() == [[3.0, 3.0], [3.0, 3.0]]  # the mean of both days, (2.5, 3), still takes the second
    assert found.cost[0].tolist() == [1.0, 1.0]
    assert found.best.tolist() == [4.0, 4.0]


def test_the_walk_agrees_with_a_loop():
    X, C = samples()
    problem = simplex()
    found = pear.walk_forward(problem, X, C, {"ridge": Ridge(alpha=2.0)}, pear.TimeSplits(4, gap=2, window=20))
    for start in (12, 24, 36, 48):
        rows = slice(start, start + 12)
        train = slice(max(0, start - 22), start - 2)
        fitted = Ridge(alpha=2.0).fit(X[train], C[train])
        here = (found.sample >= start) & (found.sample < start + 12)
        assert found.forecasts["ridge"][here] == pytest.approx(fitted.predict(X[rows]), rel=1e-12)
        by_hand = pear.regret(problem, fitted.predict(X[rows]), C[rows]).numpy()
        assert found.regret[0, here] == pytest.approx(by_hand, abs=1e-12)
    assert found.fold.tolist() == [1] * 12 + [2] * 12 + [3] * 12 + [4] * 12


def test_differences_are_paired_and_blocked():
    X, C = samples()
    given = {"ridge": Ridge(alpha=300.0), "constant": DummyRegressor(), "linear": LinearRegression()}
    found = pear.walk_forward(simplex(), X, C, given, splits=3, block=4)
    assert found.reference == "ridge"
    by_hand = paired_difference(found.regret[2], found.regret[0], 4)
    assert by_hand.standard_error > 0
    assert found.differences["linear"] == by_hand
    assert found.rows[2]["low"] == by_hand.interval[0]
    assert found.against("ridge", block=4, seed=5).differences["linear"].interval != by_hand.interval
    other = found.against("linear", block=4)
    assert other.differences["ridge"].mean == -by_hand.mean
    assert set(other.differences) == {"ridge", "constant", MEAN}
    # the dummy regressor forecasts the same constant
    assert found.differences_to_mean["constant"].mean == 0.0
    assert found.best_forecaster in ("ridge", "linear")
    with pytest.raises(ProblemError, match="no forecaster 'lasso'"):
        found.against("lasso")
    with pytest.raises(ProblemError, match="no forecaster 'lasso'"):
        pear.walk_forward(simplex(), X, C, given, splits=3, reference="lasso")


def test_the_estimator_that_is_given_stays_untrained():
    X, C = samples()
    given = make_pipeline(StandardScaler(), Ridge())
    pear.walk_forward(simplex(), X, C, {"ridge": given}, splits=2)
    assert not hasattr(given[-1], "coef_")


def test_objects_without_parameters_are_copied():
    class Constant:
        fits = 0

        def fit(self, X, y):
            self.fits += 1
            assert self.fits == 1
            self.mean = np.mean(y, axis=0)
            return self

        def predict(self, X):
            return np.tile(self.mean, (len(X), 1))

    X, C = samples()
    found = pear.walk_forward(simplex(), X, C, {"own": Constant()}, splits=3)
    assert found.regret[0] == pytest.approx(found.regret[1], abs=1e-12)


@pytest.mark.parametrize("table", [np.asarray, pd.DataFrame], ids=["array", "frame"])
def test_estimators_of_one_output_are_trained_for_each_column(table):
    lightgbm = pytest.importorskip("lightgbm")
    X, C = samples(90)
    trees = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1)
    found = pear.walk_forward(
        simplex(), table(X), table(C), {"trees": trees, "wrapped": MultiOutputRegressor(trees)}, splits=2
    )
    assert found.forecasts["trees"] == pytest.approx(found.forecasts["wrapped"], rel=1e-12)
    assert found.sentences[-1].startswith("trees takes one output, so that 3 models were trained on each fold")


def test_the_error_of_an_estimator_is_told_and_names_the_fold():
    X, C = samples()
    X[30, 0] = np.nan
    with pytest.raises(ForecasterError, match=r"forecaster 'ridge' failed \(fold 3 of 5\): ValueError: .*NaN"):
        pear.walk_forward(simplex(), X, C, {"ridge": Ridge()}, [(range(10), [k]) for k in (10, 11)] + later(3))
    from sklearn.svm import SVR

    with pytest.raises(ForecasterError, match=r"forecaster 'svr' failed \(fold 3 of 5\)"):
        pear.walk_forward(simplex(), X, C, {"svr": SVR()}, [(range(10), [k]) for k in (10, 11)] + later(3))


@pytest.mark.parametrize(("columns", "kind"), [(3, Ridge), (1, DummyRegressor)])
def test_an_estimator_that_takes_its_targets_is_asked_once(columns, kind):
    """An estimator is fitted a second time, column by column, only if it refuses several columns."""
    calls = []

    class Failing(kind):
        def fit(self, X, y):
            calls.append(np.shape(y))
            raise ValueError("no luck")

    X, C = samples(columns=columns)
    with pytest.raises(ForecasterError, match="ValueError: no luck"):
        pear.walk_forward(simplex(columns), X, C, {"failing": Failing()})
    assert calls == [(10, 3) if columns == 3 else (10,)]


def test_objects_without_tags_are_trained_for_each_column():
    class OneOutput:
        def fit(self, X, y):
            if np.ndim(y) != 1:
                raise ValueError("one output")
            self.fitted = LinearRegression().fit(X, y)
            return self

        def predict(self, X):
            return self.fitted.predict(X)

    X, C = samples()
    found = pear.walk_forward(simplex(), X, C, {"one": OneOutput(), "all": LinearRegression()}, splits=2)
    assert found.forecasts["one"] == pytest.approx(found.forecasts["all"], rel=1e-9)


def later(folds):
    return [(range(40 + k), [40 + k]) for k in range(folds)]


def test_functions_get_the_rows_of_their_fold():
    X, C = samples(12)
    dates = pd.date_range("2026-01-01", periods=12)
    features, seen = pd.DataFrame(X, index=dates), []

    def last(before, costs, after):
        seen.append((before.index[0], len(before), costs.index[-1], after.index[0]))
        return np.tile(costs.to_numpy()[-1], (len(after), 1))

    found = pear.walk_forward(simplex(), features, pd.DataFrame(C, index=dates), {"last": last}, splits=2)
    assert seen == [(dates[0], 4, dates[3], dates[4]), (dates[0], 8, dates[7], dates[8])]
    assert found.label.tolist() == dates[4:].to_numpy().tolist()


def test_trained_once():
    X, C = samples()
    sizes = []

    def ridge(before, costs, after):
        sizes.append((len(before), len(after)))
        return Ridge().fit(before, costs).predict(after)

    found = pear.walk_forward(simplex(), X, C, {"function": ridge, "ridge": Ridge()}, splits=3, retrain=False)
    assert sizes == [(15, 45)]
    fitted = Ridge().fit(X[:15], C[:15])
    for name in ("function", "ridge"):
        assert found.forecasts[name] == pytest.approx(fitted.predict(X[15:]), rel=1e-12)
    assert found.forecasts[MEAN] == pytest.approx(np.tile(C[:15].mean(0), (45, 1)), rel=1e-12)
    assert np.bincount(found.fold).tolist() == [0, 15, 15, 15]
    assert "trained once" in str(found)
    with pytest.raises(ProblemError, match="retrain=False"):
        pear.walk_forward(simplex(), X, C, {"ridge": Ridge()}, KFold(3), retrain=False)


def test_folds_of_other_splitters_come_back_in_the_order_of_the_rows():
    X, C = samples()
    found = pear.walk_forward(simplex(), X, C, {"ridge": Ridge()}, KFold(3, shuffle=True, random_state=0))
    assert found.sample.tolist() == list(range(60))
    for number, (train, test) in enumerate(KFold(3, shuffle=True, random_state=0).split(X), 1):
        assert found.forecasts["ridge"][test] == pytest.approx(Ridge().fit(X[train], C[train]).predict(X[test]))
        assert (found.fold[test] == number).all()
    assert any("no walk forward in time" in note for note in found.notes)


def test_problems_with_fields_per_sample():
    X, C = samples(40)
    limits = np.random.default_rng(1).uniform(0.4, 1.0, (40, 3))
    problem = simplex(ub=limits)
    own = pear.DecisionRegressor(problem, loss="mse", max_epochs=3)
    given = {"ridge": Ridge(), "own": make_pipeline(StandardScaler(), own)}
    found = pear.walk_forward(problem, X, C, given, splits=3)
    rows = found.sample.tolist()
    for i, name in enumerate(found.names):
        by_hand = pear.regret(problem[rows], found.forecasts[name], C[rows]).numpy()
        assert found.regret[i] == pytest.approx(by_hand, abs=1e-12)
    with pytest.raises(ProblemError, match="fields of its own for 40 samples, and C has 30"):
        pear.walk_forward(problem, X[:30], C[:30], given)


def test_predicted_right_hand_sides():
    draw = np.random.default_rng(2)
    problem = pear.Problem(G=[[-1.0, -1.0]], h=[-1.0], lb=0.0, ub=9.0)
    model = pear.Model.predicting(problem, cost=False, h=True, known=[1.0, 2.0], recourse=pear.Penalty(h=5.0))
    X = draw.standard_normal((40, 2))
    demand = -(2.0 + X @ [0.5, 0.2] + 0.1 * draw.standard_normal(40))
    found = pear.walk_forward(model, X, demand, {"ridge": Ridge()}, splits=3)
    rows = found.sample
    # buy the forecast at 1 each; what is missing costs 5, what is left over is lost
    for i, name in enumerate(found.names):
        bought, needed = -found.forecasts[name][:, 0], -demand[rows]
        paid = bought + 5.0 * np.maximum(needed - bought, 0)
        assert found.cost[i] == pytest.approx(paid, rel=1e-9)
    assert found.best == pytest.approx(-demand[rows], rel=1e-9)


def test_models_with_a_cost_map_and_known_costs_per_sample():
    X, C = samples(30, columns=1)
    draw = np.random.default_rng(3)
    known = draw.uniform(0, 1, (30, 2))
    model = pear.Model(CHOOSE, cost_map=pear.CostMap([[1.0], [-1.0]], known=known))
    found = pear.walk_forward(model, X, C[:, 0], {"ridge": Ridge()}, splits=2)
    rows = found.sample
    costs = np.stack([C[rows, 0] + known[rows, 0], -C[rows, 0] + known[rows, 1]], axis=1)
    guess = found.forecasts["ridge"][:, 0]
    first = guess + known[rows, 0] < -guess + known[rows, 1]
    assert found.cost[0] == pytest.approx(np.where(first, costs[:, 0], costs[:, 1]), rel=1e-12)


def test_tensors_and_lists_are_taken():
    X, C = samples(24)
    plain = pear.walk_forward(simplex(), X, C, {"ridge": Ridge(), "table": C + 1.0}, splits=2)
    given = {"ridge": Ridge(), "table": torch.from_numpy(C + 1.0)}
    tensors = pear.walk_forward(simplex(), torch.from_numpy(X), torch.from_numpy(C), given, splits=2)
    lists = pear.walk_forward(simplex(), X.tolist(), C.tolist(), given, splits=2)
    assert plain.regret.tolist() == tensors.regret.tolist() == lists.regret.tolist()
    assert plain.regret[1].max() < 1e-12  # a constant error on a simplex changes no decision


def test_dates_must_be_in_order():
    X, C = samples(20)
    dates = pd.date_range("2026-01-01", periods=20)
    mixed = dates[[*range(10), 11, 10, *range(12, 20)]]
    with pytest.raises(ProblemError, match=r"dates of X are not in order: row 11, 2026-01-11.*sort the rows by date"):
        pear.walk_forward(simplex(), pd.DataFrame(X, index=mixed), C, {"ridge": Ridge()})
    with pytest.raises(ProblemError, match="dates of C are not in order"):
        pear.walk_forward(simplex(), X, pd.DataFrame(C, index=mixed), {"ridge": Ridge()})
    frames = pd.DataFrame(X, index=dates), pd.DataFrame(C, index=dates + pd.Timedelta(days=1))
    with pytest.raises(ProblemError, match="rows of X and C do not belong together"):
        pear.walk_forward(simplex(), *frames, {"ridge": Ridge()})
    numbered = pd.DataFrame(X, index=range(20, 0, -1))  # numbers of rows say nothing about time
    assert pear.walk_forward(simplex(), numbered, C, {"ridge": Ridge()}).label[0] == 15


@pytest.mark.parametrize("zone", [None, "Europe/Dublin"])
def test_periods_and_zones_become_local_times(zone):
    X, C = samples(20)
    index = (
        pd.date_range("2026-03-01", periods=20, tz=zone) if zone else pd.period_range("2026-03", periods=20, freq="M")
    )
    found = pear.walk_forward(simplex(), pd.DataFrame(X, index=index), C, {"ridge": Ridge()}, splits=1)
    assert np.issubdtype(found.label.dtype, np.datetime64)
    assert str(found.label[0])[:10] == ("2026-03-11" if zone else "2027-01-01")


def test_a_forecaster_worse_than_a_constant_is_named():
    X, C = samples(200)
    found = pear.walk_forward(simplex(), X, C, {"ridge": Ridge(), "wrong": -C}, splits=2)
    worse = [text for text in found.sentences if "more than the mean of the training costs" in text]
    assert len(worse) == 1
    assert worse[0].startswith("wrong loses")
    assert worse[0].endswith("a constant forecast decides better.")
    assert found.sentences[0].startswith("ridge loses least")
    assert "wrong" in str(found)


def test_progress_is_told():
    X, C = samples()
    told = []
    pear.walk_forward(simplex(), X, C, {"a": Ridge(), "b": C}, splits=2, progress=told.append)
    assert [(now.forecaster, now.fold, now.done) for now in told] == [
        ("a", 1, 1), ("a", 2, 2), ("b", 1, 3), ("b", 2, 4), (MEAN, 1, 5), (MEAN, 2, 6),
    ]  # fmt: skip
    assert {(now.folds, now.total) for now in told} == {(2, 6)}


def test_tables():
    X, C = samples()
    found = pear.walk_forward(simplex(), X, C, {"ridge": Ridge()}, splits=3)
    frame = found.to_frame()
    assert list(frame.index) == ["ridge", MEAN]
    assert frame.loc["ridge", "regret"] == found.regret[0].mean()
    assert np.isnan(frame.loc["ridge", "difference"])
    assert 0 < frame.loc["ridge", "seconds"] < 60
    folds = found.to_frame("fold")
    assert folds.index.tolist() == [1, 2, 3]
    assert folds["ridge"].to_numpy() == pytest.approx(frame.loc["ridge", ["fold_1", "fold_2", "fold_3"]].to_numpy())
    long = found.to_frame("sample")
    assert len(long) == 90
    assert long.groupby("forecaster")["regret"].mean()["ridge"] == pytest.approx(found.regret[0].mean())
    assert long.query("forecaster == 'ridge'")["sample"].tolist() == found.sample.tolist()
    with pytest.raises(ProblemError, match='"forecaster", "fold" or "sample"'):
        found.to_frame("day")
    assert str(found).splitlines()[0] == "45 tested rows in 3 folds"
    assert "tested rows in 3 folds" in found._repr_html_()
    assert repr(found) == "WalkForward(2 forecasters, 45 tested rows, 3 folds)"


def test_the_picture_is_drawn(tmp_path):
    X, C = samples()
    dated = pd.DataFrame(X, index=pd.date_range("2026-01-01", periods=60))
    found = pear.walk_forward(simplex(), dated, C, {"ridge": Ridge(), "wrong": -C, "pear $x$": C + X[:, :3]}, splits=3)
    figure = found.plot(tmp_path / "walk.png")
    assert (tmp_path / "walk.png").stat().st_size > 10_000
    lines = figure.axes[0].get_lines()
    assert lines[0].get_ydata()[-1] == pytest.approx((found.regret[1] - found.regret[0]).sum())
    assert {text.get_text() for text in figure.axes[1].get_yticklabels()} == {"wrong", "pear $x$", MEAN}
    single = pear.walk_forward(CHOOSE, np.zeros((2, 1)), COSTS[:2], {"table": COSTS[:2]}, splits=1)
    single.plot(tmp_path / "one.svg")
    assert "could be chance" in str(single)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a dict of names and forecasters"),
        ([Ridge()], "a dict of names and forecasters"),
        ({MEAN: Ridge()}, "which is added"),
        ({3: Ridge(), "ridge": Ridge()}, "must be texts"),
        ({"ridge": Ridge}, r"is a class; pass an object of it: Ridge\(…\)"),
        ({"net": torch.nn.Linear(4, 3)}, "is a torch module"),
        ({"text": "ridge"}, "got str"),
        ({"short": np.zeros((59, 3))}, "has 59 rows, and there are 60 samples"),
        ({"narrow": np.zeros((60, 2))}, r"the forecasts of 'narrow' must have shape \(N, 3\)"),
    ],
)
def test_what_is_refused(given, message):
    X, C = samples()
    with pytest.raises(ProblemError, match=message):
        pear.walk_forward(simplex(), X, C, given)


def test_an_object_that_only_predicts_is_refused():
    class Fitted:
        def predict(self, X):
            return X

    X, C = samples()
    with pytest.raises(ProblemError, match="has predict and no fit"):
        pear.walk_forward(simplex(), X, C, {"fitted": Fitted()})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b, c: np.zeros((3, 3)), "3 forecasts came for 10 test rows"),
        (lambda a, b, c: np.zeros((3, 10)), r"must have shape \(N, 3\)"),
        (lambda a, b, c: np.zeros((10, 2)), r"must have shape \(N, 3\)"),
        (lambda a, b, c: np.full((10, 3), np.inf), "forecast of row 10 and 9 others is not finite"),
        (lambda a, b, c: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_failures_name_forecaster_and_fold(function, message):
    X, C = samples()
    with pytest.raises(ForecasterError, match=rf"forecaster 'own' failed \(fold 1 of 5\): .*{message}"):
        pear.walk_forward(simplex(), X, C, {"own": function})


def test_a_table_with_holes_in_tested_rows_is_refused():
    X, C = samples()
    table = C.copy()
    table[33] = np.nan
    with pytest.raises(ForecasterError, match=r"'table' failed \(fold 3 of 5\).*row 33"):
        pear.walk_forward(simplex(), X, C, {"table": table})


def test_columns_in_another_order_are_refused():
    X, C = samples()
    table = pd.DataFrame(C, columns=["a", "b", "c"])

    def turned(before, costs, after):
        return pd.DataFrame(np.zeros((len(after), 3)), columns=["a", "c", "b"])

    with pytest.raises(ForecasterError, match="columns of C in another order"):
        pear.walk_forward(simplex(), X, table, {"own": turned})
    with pytest.raises(ProblemError, match="same columns in the same order"):
        pear.walk_forward(simplex(), X, table, {"own": table[["a", "c", "b"]]})


def test_an_interrupt_stays_one():
    def stop(*_):
        raise KeyboardInterrupt

    X, C = samples()
    with pytest.raises(KeyboardInterrupt):
        pear.walk_forward(simplex(), X, C, {"stop": stop})


def test_rows_without_a_decision_are_named():
    X, C = samples(10, columns=2)
    empty = np.zeros((10, 2))
    empty[7] = 3.0  # a lower bound above what the row allows
    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=empty)
    with pytest.raises(SolveError, match=r"^row 7 of X cannot be decided.*INFEASIBLE"):
        pear.walk_forward(problem, X, C, {"ridge": Ridge()}, splits=4)


def test_rows_that_are_unbounded_under_a_forecast_are_named():
    X, C = samples(10, columns=1)
    free = pear.Problem(lb=0.0, n=1)  # unbounded below a cost of 0
    forecast = np.abs(C)
    forecast[8] = -1.0
    with pytest.raises(ForecasterError, match=r"'table' failed \(its decisions\): SolveError: row 8 of X"):
        pear.walk_forward(free, X, np.abs(C), {"table": forecast}, splits=4)


def test_samples_are_checked():
    X, C = samples()
    with pytest.raises(ProblemError, match="X has 50 rows; expected 60, one for each sample of C"):
        pear.walk_forward(simplex(), X[:50], C, {"ridge": Ridge()})
    with pytest.raises(ProblemError, match="a column for each of the 3 values"):
        pear.walk_forward(simplex(), X, C[:, :2], {"ridge": Ridge()})
    C[4, 1] = np.nan
    with pytest.raises(ProblemError, match="C is not finite in row 4"):
        pear.walk_forward(simplex(), X, C, {"ridge": Ridge()})
    with pytest.raises(ProblemError, match="between 1 and 25"):
        pear.walk_forward(simplex(), *samples(), {"ridge": Ridge()}, block=26)
