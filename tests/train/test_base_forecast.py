"""Corrections of a user's forecaster: they begin at its forecasts, and learn from rows that it has not seen."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pear
from pear.errors import ProblemError
from pear.train.base_copies import forecast_by_base
from pear.train.base_forecast import base_forecast_for_fit, held_out_base_forecast, make_base_forecast
from pear.train.correction import Correction
from pear.train.estimator.networks import SharedNetwork, build_network
from pear.train.estimator.training_rows import read_training_rows
from pear.train.long_table import group_long_table

pd = pytest.importorskip("pandas")
sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install 'pear-dfl[sklearn]'")

from sklearn.base import clone  # noqa: E402
from sklearn.ensemble import RandomForestRegressor  # noqa: E402
from sklearn.frozen import FrozenEstimator  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

SHORT: dict[str, Any] = {"max_epochs": 5, "check_every": 2, "patience": 3}
TASK = pear.tasks.shortest_path((3, 3))
K = TASK.problem.n
X, C = (np.asarray(part, dtype=float) for part in TASK.samples(150, degree=6, seed=3))
TRAIN, TEST = slice(0, 100), slice(100, 150)
LONG = np.column_stack([np.repeat(X, K, axis=0), np.tile(np.arange(K), len(X))])
DAYS = np.repeat(np.arange(len(X)), K)


def regressor(**settings: Any) -> Any:
    return pear.DecisionRegressor(**{"problem": TASK.problem, **SHORT, **settings})


def untrained(model: Any, **given: Any) -> Any:
    """Return the estimator as it is before the first training step."""
    rows = read_training_rows(model, given)
    model.model_ = build_network(model, rows)
    return model


def forest() -> Any:
    return RandomForestRegressor(5, min_samples_leaf=3, random_state=0, n_jobs=1)


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(5, K).double()


BASES: dict[str, Any] = {
    "fitted": lambda: Ridge().fit(X[TRAIN], C[TRAIN]),
    "pipeline": lambda: make_pipeline(StandardScaler(), Ridge()).fit(X[TRAIN], C[TRAIN]),
    "trees": lambda: forest().fit(X[TRAIN], C[TRAIN]),
    "frozen": lambda: FrozenEstimator(Ridge().fit(X[TRAIN], C[TRAIN])),
    "module": module,
    "function": lambda: lambda rows: rows @ np.ones((5, K)),
}


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("kind", BASES)
def test_a_correction_begins_at_the_base(kind: str, model: str) -> None:
    base = BASES[kind]()
    start = untrained(regressor(base=base, model=model), X=X[TRAIN], y=C[TRAIN])
    np.testing.assert_array_equal(start.predict(X[TEST]), forecast_by_base(base, X[TEST]))
    assert start.base_ is base


def test_a_correction_of_a_long_table_begins_at_the_base() -> None:
    base = forest().fit(LONG[: 100 * K], C[TRAIN].ravel())
    start = untrained(regressor(base=base, model="mlp"), X=LONG[: 100 * K], y=C[TRAIN].ravel(), groups=DAYS[: 100 * K])
    np.testing.assert_array_equal(start.predict(LONG), base.predict(LONG))
    trained = regressor(base=base).fit(LONG[: 100 * K], C[TRAIN].ravel(), groups=DAYS[: 100 * K])
    correction = trained.model_[1].network(trained.model_[0](torch.from_numpy(LONG))).detach().numpy()
    by_hand = base.predict(LONG) + float(trained.model_[1].scale) * correction
    np.testing.assert_allclose(trained.predict(LONG), by_hand, rtol=1e-12)
    expected = pear.solve(TASK.problem, by_hand.reshape(-1, K)).x.numpy()
    np.testing.assert_array_equal(trained.decide(LONG, groups=DAYS), expected)


def test_forecasts_of_training_rows_come_from_copies_that_had_not_seen_them() -> None:
    fitted = forest().fit(X, C)
    made = make_base_forecast(fitted, X, C)
    by_hand = np.empty_like(C)
    for block in (slice(0, 30), slice(30, 60), slice(60, 90), slice(90, 120), slice(120, 150)):
        others = np.ones(150, bool)
        others[block] = False
        by_hand[block] = forest().fit(X[others], C[others]).predict(X[block])
    np.testing.assert_array_equal(made.values, by_hand)
    assert made.base is fitted
    assert "forecasts its own training rows too well" in made.note
    own, out_of_fold = (np.abs(values - C).mean() for values in (fitted.predict(X), made.values))
    assert own < 0.8 * out_of_fold  # what a correction must not be trained on


def test_blocks_of_a_long_table_are_whole_groups() -> None:
    order = np.random.default_rng(1).permutation(len(LONG))
    groups = group_long_table(DAYS[order], len(order), K)
    made = held_out_base_forecast(Ridge(), LONG[order], C.ravel()[order], groups)
    first = np.isin(DAYS[order], list(groups.ids)[:30])
    by_hand = Ridge().fit(LONG[order][~first], C.ravel()[order][~first]).predict(LONG[order][first])
    np.testing.assert_allclose(made[first], by_hand, rtol=1e-12)


def test_a_base_that_has_not_learnt_its_rows_by_heart_is_corrected_as_it_is() -> None:
    fitted = Ridge().fit(X, C)
    made = make_base_forecast(fitted, X, C)
    np.testing.assert_array_equal(made.values, fitted.predict(X))
    assert "its own forecasts are corrected" in made.note
    earlier = forest().fit(X[:75], C[:75])  # of other rows, so that its errors on the later ones are honest
    np.testing.assert_array_equal(make_base_forecast(earlier, X[75:], C[75:]).values, earlier.predict(X[75:]))


def test_an_estimator_that_is_not_fitted_is_fitted_as_a_copy() -> None:
    base = Ridge(alpha=3.0)
    model = regressor(base=base).fit(X[TRAIN], C[TRAIN])
    assert not hasattr(base, "coef_")
    np.testing.assert_array_equal(model.base_.predict(X), Ridge(alpha=3.0).fit(X[TRAIN], C[TRAIN]).predict(X))
    assert "by copies fitted without the row" in model.history_.note
    assert model.get_params()["base__alpha"] == 3.0
    again = clone(model).set_params(base__alpha=5.0).fit(X[TRAIN], C[TRAIN])
    assert again.base_.alpha == 5.0
    assert cross_val_score(regressor(base=forest()), X, C, cv=2).max() < 0


@pytest.mark.parametrize("kind", ["module", "function", "frozen"])
def test_other_bases_are_asked_as_they_are_and_the_note_says_so(kind: str) -> None:
    base = BASES[kind]()
    model = regressor(base=base).fit(X[TRAIN], C[TRAIN])
    assert "taken as they come" in model.history_.note
    assert model.base_ is base


def test_a_table_of_forecasts_in_place_of_a_base() -> None:
    forecast = Ridge().fit(X[50:], C[50:]).predict(X)
    model = regressor().fit(X[TRAIN], C[TRAIN], base_forecast=forecast[TRAIN])
    same = regressor(base=FrozenEstimator(Ridge().fit(X[50:], C[50:]))).fit(X[TRAIN], C[TRAIN])
    np.testing.assert_array_equal(model.predict(X, base_forecast=forecast), same.predict(X))
    np.testing.assert_array_equal(model.decide(X, base_forecast=forecast), same.decide(X))
    assert model.score(X, C, base_forecast=forecast) == same.score(X, C)
    assert "taken as it comes" in model.history_.note
    with pytest.raises(ProblemError, match="pass those of these rows"):
        model.predict(X)
    with pytest.raises(ProblemError, match="fit was given no base_forecast="):
        same.predict(X, base_forecast=forecast)
    with pytest.raises(ProblemError, match="pass it without base="):
        regressor(base=Ridge()).fit(X, C, base_forecast=forecast)
    with pytest.raises(ProblemError, match=r"base_forecast must have shape \(150, 12\); got \(100, 12\)"):
        regressor().fit(X, C, base_forecast=forecast[TRAIN])
    with pytest.raises(ProblemError, match="must be finite; row 7 is not"):
        regressor().fit(X, C, base_forecast=np.where(np.arange(150)[:, None] == 7, np.nan, forecast))


def test_tables_of_forecasts_have_the_columns_of_the_costs() -> None:
    costs = pd.DataFrame(C, columns=[f"arc {i}" for i in range(K)])
    forecast = costs + 0.1
    model = regressor(max_epochs=1).fit(X, costs, base_forecast=forecast)
    assert list(model.predict(X, base_forecast=forecast).columns) == list(costs.columns)
    with pytest.raises(ProblemError, match="columns of base_forecast must be those of y"):
        model.predict(X, base_forecast=forecast[forecast.columns[::-1]])


def test_validation_and_partial_fit_take_forecasts() -> None:
    forecast = Ridge().fit(X[50:], C[50:]).predict(X)
    held_out = {"X": X[TEST], "y": C[TEST], "base_forecast": forecast[TEST]}
    model = regressor().fit(X[TRAIN], C[TRAIN], held_out, base_forecast=forecast[TRAIN])
    best = model.history_.best.metric
    assert best == pytest.approx(-model.score(X[TEST], C[TEST], base_forecast=forecast[TEST]), rel=1e-6)
    before = model.predict(X, base_forecast=forecast)
    model.partial_fit(X[TEST], C[TEST], base_forecast=forecast[TEST])
    assert not np.array_equal(before, model.predict(X, base_forecast=forecast))
    fresh = regressor(base=Ridge()).partial_fit(X[TRAIN], C[TRAIN])
    assert np.isfinite(fresh.predict(X)).all()


def test_a_correction_lowers_the_regret_of_its_base() -> None:
    task = pear.tasks.shortest_path((4, 4))
    x, c = (np.asarray(part, dtype=float) for part in task.samples(800, degree=6, noise=0.25, seed=0))
    base = Ridge().fit(x[:300], c[:300])
    model = regressor(problem=task.problem, base=base, max_epochs=64).fit(x[:300], c[:300])
    before = pear.normalized_regret(task.problem, base.predict(x[300:]), c[300:])
    assert -model.score(x[300:], c[300:]) < 0.8 * before


@pytest.mark.parametrize("unit", [1e-6, 1e2, 1e4])
def test_units_of_the_costs_do_not_matter(unit: float) -> None:
    plain = regressor(base=Ridge()).fit(X[TRAIN], C[TRAIN]).predict(X[TEST])
    scaled = regressor(base=Ridge()).fit(X[TRAIN], unit * C[TRAIN]).predict(X[TEST])
    np.testing.assert_allclose(scaled / unit, plain, rtol=1e-5)


def test_saved_and_loaded_with_the_base_beside_it(tmp_path: Path) -> None:
    base = Ridge().fit(X[TRAIN], C[TRAIN])
    model = regressor(base=base, model="mlp").fit(X[TRAIN], C[TRAIN])
    model.save(tmp_path / "a.pear")
    again = pear.DecisionRegressor.load(tmp_path / "a.pear", base=base)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    with pytest.raises(ProblemError, match=r"holds the correction of a Ridge.*pass base=…"):
        pear.DecisionRegressor.load(tmp_path / "a.pear")
    regressor().fit(X, C).save(tmp_path / "b.pear")
    with pytest.raises(ProblemError, match="correct no base forecaster; pass no base"):
        pear.DecisionRegressor.load(tmp_path / "b.pear", base=base)
    forecast = base.predict(X)
    table = regressor().fit(X, C, base_forecast=forecast)
    table.save(tmp_path / "c.pear")
    loaded = pear.DecisionRegressor.load(tmp_path / "c.pear")
    np.testing.assert_array_equal(loaded.predict(X, base_forecast=forecast), table.predict(X, base_forecast=forecast))


def test_samples_of_fit_get_offsets() -> None:
    base = Ridge()
    offsets, made = base_forecast_for_fit(base, torch.tensor(X), torch.tensor(C))
    np.testing.assert_array_equal(offsets, make_base_forecast(base, X, C).values)
    np.testing.assert_array_equal(made.base.predict(X), Ridge().fit(X, C).predict(X))
    cube = torch.tensor(LONG).reshape(len(X), K, -1)
    long, _ = base_forecast_for_fit(base, cube, torch.tensor(C))
    groups = group_long_table(DAYS, len(LONG), K)
    np.testing.assert_array_equal(long.flatten(), make_base_forecast(base, LONG, C.ravel(), groups).values)


def test_boosters_of_xgboost_are_asked_in_place() -> None:
    class Booster:
        def predict(self, rows: Any) -> Any:
            raise TypeError("('Expecting data to be a DMatrix object, got: ', <class 'numpy.ndarray'>)")

        def inplace_predict(self, rows: Any) -> Any:
            return np.ones((len(rows), K), np.float32)

    np.testing.assert_array_equal(forecast_by_base(Booster(), X), np.ones((150, K)))


def test_what_is_refused_in_words() -> None:
    with pytest.raises(ProblemError, match="base must have predict, or be a torch module or a function of X; got int"):
        regressor(base=3).fit(X, C)
    with pytest.raises(ProblemError, match=r"fitted to other values than y: it forecasts one value a row.* \(12,\);"):
        regressor(base=Ridge().fit(X, C[:, 0])).fit(X, C)
    with pytest.raises(ProblemError, match=r"got \(150,\)\. For a forecaster of single values, let X have a row"):
        regressor(base=lambda rows: rows[:, 0]).fit(X, C)
    with pytest.raises(ProblemError, match=r"needs a last layer that is a torch\.nn\.Linear; ReLU has none"):
        Correction(torch.nn.ReLU())
    positive = torch.nn.Sequential(torch.nn.Linear(5, K), torch.nn.Softplus()).double()
    with pytest.raises(ProblemError, match="must begin at zero, and the module predicts something else"):
        regressor(base=Ridge(), model=positive).fit(X, C)


@pytest.mark.parametrize("validation", [None, 0.25, "samples"])
def test_fit_corrects_a_base(validation: Any) -> None:
    task = pear.tasks.shortest_path((4, 4))
    x, c = (part.double() for part in task.samples(900, degree=8, noise=0.25, seed=0))
    base = Ridge().fit(x[:300].numpy(), c[:300].numpy())
    torch.manual_seed(0)
    model = torch.nn.Linear(5, task.problem.n).double()
    held_out = (x[300:400], c[300:400]) if validation == "samples" else validation
    config = pear.FitConfig(max_epochs=32)
    history = pear.fit(model, pear.PEARLoss(task.problem), (x[:300], c[:300]), held_out, config=config, base=base)
    offset = torch.from_numpy(base.predict(x[400:].numpy()))
    before, after = (pear.normalized_regret(task.problem, f, c[400:]) for f in (offset, offset + model(x[400:])))
    assert [row.contender for row in history.race[:2]] == ["start", "correction"]
    assert (after < before) if history.epochs else (after == before)
    assert history.epochs > 0 or validation == 0.25  # 75 samples do not make sure of it
    if validation == "samples":
        judged = torch.from_numpy(base.predict(x[300:400].numpy())) + model(x[300:400])
        assert history.best is not None
        assert history.best.metric == pytest.approx(pear.normalized_regret(task.problem, judged, c[300:400]), rel=1e-6)


def test_validation_samples_with_a_row_for_each_value_are_forecast_row_by_row() -> None:
    cube = torch.tensor(LONG).reshape(len(X), K, -1)
    model = SharedNetwork(torch.nn.Linear(6, 1).double())
    config = pear.FitConfig(max_epochs=4, start="given")
    train, held_out = (cube[TRAIN], torch.tensor(C[TRAIN])), (cube[TEST], torch.tensor(C[TEST]))
    history = pear.fit(model, pear.PEARLoss(TASK.problem), train, held_out, config=config, base=Ridge())
    base = Ridge().fit(LONG[: 100 * K], C[TRAIN].ravel())
    forecast = torch.from_numpy(base.predict(LONG[100 * K :])).reshape(-1, K) + model(cube[TEST])
    assert history.best is not None
    assert history.best.metric == pytest.approx(pear.normalized_regret(TASK.problem, forecast, C[TEST]), rel=1e-6)


def test_fit_leaves_a_base_that_needs_no_correction() -> None:
    x, c = (part.double() for part in TASK.samples(120, degree=1, noise=0.0, seed=0))
    base, model = Ridge(alpha=1e-8).fit(x.numpy(), c.numpy()), torch.nn.Linear(5, K).double()
    pear.fit(model, pear.PEARLoss(TASK.problem), (x, c), config=pear.FitConfig(max_epochs=8), base=base)
    assert not model(x).any()


def test_fit_refuses_a_model_that_cannot_be_a_correction() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(5, K), torch.nn.Softplus()).double()
    with pytest.raises(ProblemError, match=r"last layer of a correction must be a torch\.nn\.Linear; got Softplus"):
        pear.fit(model, pear.PEARLoss(TASK.problem), (torch.from_numpy(X), torch.from_numpy(C)), base=Ridge())


def test_a_base_with_one_output_is_fitted_to_each_column() -> None:
    """A base that refuses several columns, such as LightGBM, is fitted column by column, as in a walk forward."""
    from sklearn.multioutput import MultiOutputRegressor
    from sklearn.svm import LinearSVR

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    C = X @ rng.normal(size=(3, 4)) + 5
    problem = pear.Problem(A=[[1.0] * 4], b=[1.0], lb=0.0)
    single = LinearSVR(random_state=0)
    model = pear.DecisionRegressor(problem, base=single, max_epochs=1, check_every=1).fit(X, C)
    assert model.history_.note.startswith(
        "the base takes one output, so that a copy was fitted to each of the 4 columns"
    )
    assert isinstance(model.base_, MultiOutputRegressor)
    expected = np.column_stack([clone(single).fit(X, C[:, j]).predict(X) for j in range(4)])
    np.testing.assert_allclose(model.base_.predict(X), expected)
    with pytest.raises(ValueError, match="NaN"):  # of the second column alone
        make_base_forecast(single, X, np.where(np.arange(4) == 1, np.nan, C))


def test_a_class_is_no_base() -> None:
    from sklearn.linear_model import Ridge

    problem = pear.Problem(A=[[1.0, 1.0]], b=[1.0], lb=0.0)
    with pytest.raises(pear.ProblemError, match=r"base is the class Ridge; pass an object of it, Ridge\(…\)"):
        pear.DecisionRegressor(problem, base=Ridge).fit(np.ones((20, 1)), np.ones((20, 2)))
